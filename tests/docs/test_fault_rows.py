"""The page of faults says what the tests are called."""

import pytest

from tools import fault_rows


def test_the_page_of_faults_is_what_the_tests_say() -> None:
    written = fault_rows.PAGE.read_text(encoding="utf-8")
    assert written == fault_rows.page(), "run python tools/fault_rows.py"


def test_every_row_is_there_and_those_without_a_test_say_so() -> None:
    found = fault_rows.tests_of_rows()
    rows = [line for line in fault_rows.page().splitlines() if line[2:3].isdigit()]
    assert [int(line.split("|")[1]) for line in rows] == list(range(1, 84))
    for row, line in enumerate(rows, 1):
        assert ("no test yet" in line) == (not found.get(row)), line


@pytest.mark.parametrize(
    ("name", "said"),
    [("test_row_84_of_nothing", r"not: \[84\]"), ("test_row_0_of_nothing", r"not: \[0\]")],
)
def test_a_row_that_there_is_not(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = [*fault_rows.every_test(), f"x/test_x.py::{name}"]
    monkeypatch.setattr(fault_rows, "every_test", lambda: tests)
    with pytest.raises(ValueError, match=said):
        fault_rows.tests_of_rows()


def test_a_test_that_was_renamed_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fault_rows.ALSO, 55, ("scripts/test_refusals.py::test_that_there_is_not",))
    with pytest.raises(ValueError, match=r"row 55 .* no such test"):
        fault_rows.tests_of_rows()


def test_two_rows_of_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = [*fault_rows.every_test(), "x/test_x.py::test_row_26_and_27_clocks"]
    monkeypatch.setattr(fault_rows, "every_test", lambda: tests)
    found = fault_rows.tests_of_rows()
    assert tests[-1] in found[26]
    assert tests[-1] in found[27]
    assert "x/test_x.py: `test_row_26_and_27_clocks`" in fault_rows.page()
