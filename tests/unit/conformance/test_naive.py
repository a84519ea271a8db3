"""Each naive design fails the suite, in the check that is meant; its sound original passes it in tests/conformance."""

import re
from importlib.resources import files

import pytest

from pawlock.core.scripts import load
from tests.conformance.suite import APIS, run
from tests.support.servers import Server
from tests.unit.conformance.naive import NAIVE, UNSAFE_COUNT
from tests.unit.conformance.test_toy import BROKEN
from tests.unit.conformance.toy import Variant, registered


@pytest.mark.parametrize("name", NAIVE)
def test_a_naive_design_fails(valkey: Server, name: str) -> None:
    variant, check = NAIVE[name]
    with registered(variant):
        results = run(valkey.url, ["toy"], only=[check])
    assert [r.api for r in results] == list(APIS)
    # A pause of the machine may hide in one of them what shows in microseconds.
    assert any(result.error is not None for result in results), f"{name}: {check} did not notice"


def test_readers_that_are_one_count_fail(valkey: Server) -> None:
    read, write = (Variant(of=f"rwlock_{part}", edits=UNSAFE_COUNT) for part in ("read", "write"))
    with registered(read, "toy_read", "toys"), registered(write, "toy_write", "toys"):
        results = run(valkey.url, ["toy_read"], only=["a_dead_sharer_frees_only_itself"])
    assert [str(r.error) for r in results] == ["expected: the dead one keeps nobody out"] * 2


def test_every_change_of_a_script_finds_its_place() -> None:
    for variant, _ in (*NAIVE.values(), *BROKEN.values()):
        folder = "mutex" if "lock" in variant.of and "rw" not in variant.of else "permits"
        package = f"pawlock.primitives.{folder}"
        names = [
            item.name.removesuffix(".lua") for item in files(package).iterdir() if item.name.endswith(".lua")
        ]
        sources = [load(package, name).source.decode() for name in names if not name.startswith("_")]
        for edit in variant.edits:
            assert any(edit.old in source for source in sources), edit.old


def test_the_rows_are_all_there() -> None:
    rows = {int(re.findall(r"\d+", name)[0]) for name in NAIVE}
    assert rows == {1, 2, 3, 4, 5, *range(11, 19)}
