"""What several servers come to together, from what is known of each."""

from __future__ import annotations

from dataclasses import replace

from pawlock.model import Finding, Severity
from pawlock.preflight.group import check_masters, check_sentinels
from pawlock.preflight.server import Facts
from tests.support.refusal import case

THREE = ("redis://a", "redis://b", "redis://c")
GOOD = [Facts(role="master", run_id=name, clock_offset=0.01) for name in "abc"]


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_masters_that_are_well() -> None:
    found = check_masters(THREE, GOOD, None)
    assert {finding.severity for finding in found} == {Severity.OK}
    assert "3 of 3 masters have a vote; 2 are needed" in by_check(found)["majority"].text


def test_masters_of_which_some_are_not() -> None:
    cases: list[tuple[list[Facts | None], str, Severity, str]] = [
        ([*GOOD[:2], None], "majority", Severity.WARNING, "2 of 3"),
        ([GOOD[0], None, None], "majority", Severity.ERROR, "1 of 3"),
        ([*GOOD[:2], replace(GOOD[2], role="slave")], "majority", Severity.WARNING, "2 of 3"),
        ([*GOOD[:2], GOOD[0]], "independence", Severity.ERROR, "redis://a and redis://c"),
        ([GOOD[0], GOOD[0], GOOD[1]], "independence", Severity.ERROR, "redis://a and redis://b"),
        ([*GOOD[:2], GOOD[0]], "majority", Severity.WARNING, "2 of 3"),
        ([*GOOD[:2], replace(GOOD[2], run_id=None)], "independence", Severity.UNKNOWN, "run id"),
        (
            [*GOOD[:2], replace(GOOD[2], clock_offset=-60.0)],
            "clocks",
            Severity.NOTE,
            "at most 60 s",
        ),
        ([GOOD[0], None, None], "clocks", Severity.UNKNOWN, "too few"),
    ]
    for facts, check, severity, word in cases:
        with case(facts, check, severity, word):
            found = by_check(check_masters(THREE, facts, None))[check]
            assert found.severity is severity
            assert word in found.text


def test_a_number_that_is_poor() -> None:
    found = by_check(check_masters(THREE[:2], GOOD[:2], "two need both"))["number"]
    assert (found.severity, found.text) == (Severity.WARNING, "two need both")


def test_sentinels() -> None:
    cases: list[tuple[list[tuple[str, str | None, str]], Severity, str]] = [
        ([("s1", "h:1", ""), ("s2", "h:1", ""), ("s3", "h:1", "")], Severity.OK, "3 of 3"),
        (
            [("s1", "h:1", ""), ("s2", "h:1", ""), ("s3", None, "refused")],
            Severity.WARNING,
            "not s3: refused",
        ),
        ([("s1", "h:1", ""), ("s2", None, "x"), ("s3", None, "x")], Severity.ERROR, "1 of 3"),
        ([("s1", "h:1", ""), ("s2", "h:2", "")], Severity.WARNING, "do not agree"),
        ([("s1", None, "it knows no such master")], Severity.ERROR, "'main'"),
    ]
    for told, severity, word in cases:
        with case(told, severity, word):
            (found,) = check_sentinels("main", told)
            assert found.severity is severity
            assert word in found.text
