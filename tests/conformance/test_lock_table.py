"""An engine that is not Redis keeps the same promises: the lock table, in each API, with every fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from pawlock.primitives.registry import REGISTRY
from pawlock.testing.lock_table import LockTable
from pawlock.testing.lock_table.ballots import Ballots
from pawlock.testing.lock_table.clock import Moment
from pawlock.testing.lock_table.exclusive import Exclusive
from pawlock.testing.lock_table.fences import Fences
from pawlock.testing.lock_table.mail import Mail
from pawlock.testing.lock_table.permits import Permits
from pawlock.testing.lock_table.tickets import Queue, Ticket
from pawlock.testing.lock_table.tombs import Tombs
from tests.conformance.suite import APIS, Api, Result, checks_of, run
from tests.conformance.toy import broken, play_calmly

KINDS = ("lock", "rlock", "fair_lock", "semaphore", "election", "multi_lock")

NO_SCRIPTS = {"a_server_that_forgot_the_scripts"}
"""What cannot be shown: there is nothing of that sort to forget."""


@pytest.fixture(scope="module")
def table() -> Iterator[LockTable]:
    with LockTable() as table:
        yield table


@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_lock_table_keeps_the_promises(table: LockTable, kind: str, api: Api) -> None:
    def play(only: Iterable[str] | None, parallel: int) -> list[Result]:
        return run(table.url, [kind], [api], only=only, parallel=parallel, backend=table.backend)

    results = play_calmly(play, 10)
    promised = {one.name for one in checks_of(REGISTRY[kind])}
    assert {one.check for one in results} == promised - NO_SCRIPTS
    assert not broken(results), broken(results)


def _forgets_the_last_fence(self: Fences, block: int, now: Moment) -> int:
    del block, now
    self.last = self.current = 1
    return self.current


def _serves_the_last(self: Queue, now: Moment) -> Ticket | None:
    return next((one for one in reversed(list(self)) if one.is_live(now)), None)


def _hands_nothing_on(
    self: Exclusive, now: Moment, keep_ms: int, mail: Mail, *own: str, look: int = 0
) -> None:
    del self, now, keep_ms, mail, own, look


BROKEN = [
    pytest.param("lock", Tombs, "bars", lambda _, __: False, "a_late_copy_revives_nothing", id="no tombstones"),
    pytest.param("lock", Fences, "mint", _forgets_the_last_fence, "fences_rise", id="fences that stand still"),
    pytest.param("fair_lock", Queue, "first_live", _serves_the_last, "first_come_first_served", id="last come first"),
    pytest.param("rlock", Exclusive, "_hand_on", _hands_nothing_on, "nobody_barges_in", id="no hand-off"),
    pytest.param("semaphore", Permits, "_used", 0, "no_more_than_the_capacity", id="permits that nobody counts"),
    pytest.param("election", Ballots, "_hand_on", _hands_nothing_on, "one_leads_and_everybody_knows", id="no heir"),
]  # fmt: skip
"""Engines that are wrong in one place, and the check that finds each out."""


@pytest.mark.parametrize(("kind", "where", "what", "wrong", "check"), BROKEN)
def test_an_engine_that_is_wrong_is_found_out(
    monkeypatch: pytest.MonkeyPatch, kind: str, where: type, what: str, wrong: object, check: str
) -> None:
    monkeypatch.setattr(where, what, wrong)
    with LockTable() as table:
        (result,) = run(table.url, [kind], ["threads"], only=[check], backend=table.backend)
    assert isinstance(result.error, AssertionError), result
