"""An engine that is not Redis keeps the same promises: the lock table, in each colour, with every fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from pawl.primitives.registry import REGISTRY
from pawl.testing.conformance import COLOURS, Colour, Result, checks_of, run
from pawl.testing.lock_table import LockTable
from tests.conformance.toy import broken, play_calmly

KINDS = ("lock", "rlock", "fair_lock", "semaphore", "election")

NO_SCRIPTS = {"a_server_that_forgot_the_scripts"}
"""What cannot be shown: there is nothing of that sort to forget."""


@pytest.fixture(scope="module")
def table() -> Iterator[LockTable]:
    with LockTable() as table:
        yield table


@pytest.mark.timeout(300)
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_lock_table_keeps_the_promises(table: LockTable, kind: str, colour: Colour) -> None:
    def play(only: Iterable[str] | None, parallel: int) -> list[Result]:
        return run(table.url, [kind], [colour], only=only, parallel=parallel, backend=table.backend)

    results = play_calmly(play, 10)
    promised = {one.name for one in checks_of(REGISTRY[kind])}
    assert {one.check for one in results} == promised - NO_SCRIPTS
    assert not broken(results), broken(results)
