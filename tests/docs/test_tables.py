"""What the documentation lists is what the code has: options, errors, failures, scripts."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

import pytest

import pawlock
from pawlock import errors, fencing, metrics, testing

DOCS = Path(__file__).resolve().parents[2] / "docs"

# The ten failures that every account of distributed locks names, by their codes.
TEN = {
    "UNLOCK_FAILED": "NotHeld",
    "LOCK_TIMEOUT": "AcquireTimeout",
    "WATCHDOG_RENEWAL_FAILED": "LeaseLost",
    "REDIS_CONNECTION_ERROR": "BackendUnavailable",
    "LUA_SCRIPT_ERROR": "ScriptError",
    "REDLOCK_QUORUM_NOT_REACHED": "QuorumNotReached",
    "CONCURRENT_MODIFICATION": "StaleFence",
    "OOM": "BackendOutOfMemory",
    "DEADLOCK": "DeadlockDetected",
    "CLOCK_DRIFT": "ClockDrift",
}


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / ".hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_generated_page_says_what_the_code_says() -> None:
    for name, page, word in (
        ("troubleshooting", "how-to/troubleshooting.md", "### StaleFence"),
        ("wire", "reference/wire.md", "**`acquire.lua`**"),
        ("options", "reference/options.md", "| `unavailable_after` | 10 |"),
    ):
        text = (DOCS / page).read_text(encoding="utf-8")
        module = hook(name)
        assert word in text, page
        assert module.renewed(text) == text, f"run python docs/.hooks/{name}.py"
        assert module.renewed(text.replace(word, "### Something else")) == text, f"{page} could differ unseen"


def rows(heading: str, page: str) -> list[list[str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    table = text.partition(heading)[2].lstrip("\n").partition("\n\n")[0].splitlines()[1:]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in table if line.startswith("| ")
    ]


def spelled(default: object) -> set[str]:
    """How a default may stand in the table."""
    if isinstance(default, str):
        return {f'`"{default}"`'}
    if isinstance(default, bool) or default is None:
        return {f"`{default}`"}
    assert isinstance(default, int | float)
    return {f"{default:g}", f"{default:,.0f}"}


def test_the_table_of_options_has_each_with_its_default() -> None:
    listed = {cells[0].strip("`"): cells[1] for cells in rows("| option |", "reference/options.md")}
    options = {
        field.name: field.default
        for field in fields(pawlock.LockOptions)
        if field.name in pawlock.LockOptions.known()
    }
    assert set(listed) == set(options)
    for name, default in options.items():
        computed = {"ticket_ttl": "3, at most ttl"}
        wanted = {computed[name]} if name in computed else spelled(default)
        assert listed[name] in wanted, name


def test_every_option_of_the_client_is_on_the_page_of_options() -> None:
    page = (DOCS / "reference/options.md").read_text(encoding="utf-8")
    for connect in (pawlock.connect, pawlock.connect_async):
        for option in inspect.signature(connect).parameters.keys() - {"target", "more", "options"}:
            assert f"`{option}`" in page, option


def test_every_address_that_connect_takes_is_on_the_pages() -> None:
    """And in the text of the error for one that it does not take."""
    pages = {
        one: (DOCS / one).read_text(encoding="utf-8") for one in ("reference/options.md", "how-to/connect.md")
    }
    with pytest.raises(pawlock.ConfigurationError) as refused:
        pawlock.connect("nonsense://h")
    for scheme in (
        "redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "redlock", "embedded",
    ):  # fmt: skip
        assert [page for page, text in pages.items() if f"`{scheme}://" not in text] == [], scheme
        assert f"{scheme}://" in str(refused.value), scheme


def test_the_ten_failures_have_their_codes_and_errors() -> None:
    listed = {
        cells[1].strip("`"): cells[2]
        for cells in rows("| what happens | `code` |", "how-to/troubleshooting.md")
    }
    assert set(listed) == set(TEN)
    for code, name in TEN.items():
        assert f"`{name}`" in listed[code]
        assert getattr(pawlock, name).code == code


def test_every_error_is_explained() -> None:
    text = (DOCS / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^### (\w+)\n\nCode `(\w+)`", text, re.MULTILINE))
    assert told == {name: getattr(errors, name).code for name in errors.__all__ if name != "PawlockError"}


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (DOCS / "reference").rglob("*.md")]
    shown = Counter(
        name for page in pages for name in re.findall(r"^::: pawlock\.(\S+)$", page, re.MULTILINE)
    )
    assert [name for name, times in shown.items() if times > 1] == []
    assert shown["errors"] == shown["fencing"] == 1, "all of a module at once"
    public = set(pawlock.__all__) - set(errors.__all__) - {"__version__"}
    for module in (testing, metrics):
        public |= {f"{module.__name__.removeprefix('pawlock.')}.{name}" for name in module.__all__}
    assert public - set(shown) == set()
    guards = (DOCS / "reference/api/fencing.md").read_text(encoding="utf-8")
    assert [name for name in fencing.__all__ if not re.search(rf"\b{name}\b", guards)] == []


def test_the_index_of_the_api_links_every_name() -> None:
    """Old addresses of the names, all of which were on that page, lead on by these links."""
    index = (DOCS / "reference/api/index.md").read_text(encoding="utf-8")
    linked = re.findall(r"\[`\w+`\]\[pawlock\.([\w.]+)\]", index)
    assert len(linked) == len(set(linked))
    assert set(pawlock.__all__) - set(errors.__all__) - {"__version__"} <= set(linked)
    for path in (DOCS / "reference/api").glob("*.md"):
        assert path.name == "index.md" or f"]({path.name})" in index, path.name


def test_the_fields_of_a_record_are_those_that_it_explains() -> None:
    named = [getattr(pawlock, name) for name in pawlock.__all__]
    records = [one for one in named if isinstance(one, type) and is_dataclass(one)]
    assert len(records) > 10
    for record in records:
        text = inspect.cleandoc(record.__doc__ or "")
        listed = re.split(r"\n(?:Attributes|Args):\n", text)
        assert len(listed) == 2, f"{record.__name__}: one list"
        explained = re.findall(r"^ {4}(\w+): ", re.split(r"\n\w+:\n", listed[1])[0], re.MULTILINE)
        assert sorted(explained) == sorted(field.name for field in fields(record) if field.init), record
