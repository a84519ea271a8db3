"""What a client does in the background, and what it must not lose on the way."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from pawlock.core.client import weak_suspect_all
from pawlock.core.engine import Engine
from pawlock.core.extend import extend
from pawlock.core.local_queue import Waiter
from pawlock.core.maintenance import renew_due
from pawlock.core.observers import Observers
from pawlock.core.options import LockOptions
from pawlock.core.outcomes import Leading
from pawlock.core.primitive import TOMB_MS
from pawlock.core.records import Attempt, Hold, OutboxEntry
from pawlock.core.runtime import Call, Fault, Reply
from pawlock.errors import BackendUnavailable, NotHeld, ScriptError
from pawlock.model import LeaseState, LossReason
from pawlock.primitives.election.operation import ENDED, Watch
from pawlock.primitives.gate_wait import unexpected
from pawlock.primitives.mutex import Mutex
from tests.support.refusal import case
from tests.unit.scripted import RELEASED, START, Rig, absent, held, queued, run, unanswered, unknown

# They take leases of a script, and look no further.
pytestmark = pytest.mark.filterwarnings("ignore:lease of .* was never released:ResourceWarning")


def server_lease_of(rig: Rig) -> Hold:
    """The hold of whoever holds it."""
    return rig.engine.schedule.all()[0]


def due_of(hold: Hold) -> float:
    """When it is served next."""
    bucket = hold.bucket
    assert bucket is not None
    return bucket[hold]


# When a lease is served -----------------------------------------------------------------------------------------


def test_an_extended_lease_is_renewed_in_its_new_rhythm() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    run(extend(rig.engine, lease, 15.0))
    assert due_of(server_lease_of(rig)) == pytest.approx(START + 5.0)


def test_a_grant_by_hand_over_is_confirmed_soon_or_at_once() -> None:
    cases: list[tuple[float, bool]] = [
        (3.0, False),
        (0.05, True),
    ]
    for left, at_once in cases:
        with case(left, at_once):
            rig = Rig(held())
            rig.acquire()
            hold = server_lease_of(rig)
            rig.engine.schedule.discard(hold)
            hold.valid_until = START + left
            rig.engine.plan_service(hold, hold.granted_at, confirmed=False)
            assert due_of(hold) == START if at_once else START < due_of(hold) < START + left


def test_a_loss_by_an_operator_is_asked_for_where_the_server_does_not_know_the_lease() -> None:
    for answers, reason in (
        ([unknown(), absent(forced=1), absent()], LossReason.TAKEN),
        ([unknown(), absent(), absent()], LossReason.EXPIRED),
        ([unknown(), unanswered(), absent()], LossReason.EXPIRED),
        ([unanswered()], None),
        ([held()], None),
    ):
        rig = Rig(held())
        lease = rig.acquire()
        rig.runtime.clock += 10.0
        rig.maintenance(*answers)
        assert lease.hold.reason is reason
        assert (lease.state is LeaseState.LOST) is (reason is not None)


def test_a_renewal_that_came_behind_the_release_asks_for_nothing_more() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    rig.runtime.clock += 10.0

    def behind() -> Reply | Fault:
        lease.hold.state = LeaseState.RELEASED
        return unknown()

    rig.maintenance(behind)
    assert rig.sent == ["acquire", "renew"]
    assert rig.engine.reports.counters["lost_expired"] == 0


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_where_one_of_several_servers_may_hang_time_is_left_for_what_the_others_answer(share: float) -> None:
    rig = Rig(held(), held(), ttl=3.0)
    rig.runtime.several = share < 1.0
    rig.acquire()
    options = LockOptions(ttl=1.5, replicas=1)
    rig.plan = replace(
        rig.plan, primitive=Mutex("lock", "y", "pawlock:y"), options=options, queue_key="other"
    )
    short = rig.acquire()
    rig.runtime.clock += 1.0
    left = short.hold.valid_until - rig.runtime.clock
    rig.maintenance(held(), held())
    assert rig.sent[2:] == ["renew", "renew"]
    assert [sent.timeout for sent in rig.runtime.sent[2:]] == [pytest.approx(left * share)] * 2


@pytest.mark.parametrize("left", [8.0, 1.5, 0.2])
def test_a_renewal_without_an_answer_is_tried_again_within_half_of_what_is_left(
    left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for draw in (0.0, 0.999):
        rig = Rig(held())
        lease = rig.acquire()
        lease.hold.valid_until = rig.runtime.clock + left
        monkeypatch.setattr(rig.runtime, "random", partial(float, draw))
        rig.engine.schedule.add_once(lease.hold, rig.runtime.clock)
        rig.maintenance(unanswered())
        now = rig.runtime.clock
        half = (lease.hold.valid_until - now) / 2
        assert not rig.engine.schedule.take_due(now, 9)
        assert rig.engine.schedule.take_due(now + half, 9) == [lease.hold]


def test_a_lease_that_the_server_denies_to_extend_is_lost() -> None:
    for left, reason in ((absent(forced=1), LossReason.TAKEN), (unanswered(), LossReason.EXPIRED)):
        rig = Rig(held(), unknown(), left)
        lease = rig.acquire()
        with pytest.raises(NotHeld):
            run(extend(rig.engine, lease, 60.0))
        assert (lease.state, lease.hold.reason) == (LeaseState.LOST, reason)


def test_several_masters_have_a_second_whatever_the_life_of_a_ticket_is() -> None:
    for several, patience in ((False, 0.1), (True, 1.0)):
        rig = Rig(held(), ttl=30.0, ticket_ttl=0.3)
        rig.runtime.several = several
        rig.acquire()
        rig.runtime.clock += 10.0
        rig.maintenance(held())
        assert rig.runtime.sent[-1].timeout == pytest.approx(patience)


def test_only_what_is_held_is_lost() -> None:
    for before in LeaseState:
        with case(before):
            rig = Rig(held())
            rig.acquire()
            hold = server_lease_of(rig)
            hold.state = before
            rig.engine.lose(hold, LossReason.TAKEN)
            lost = before in (LeaseState.HELD, LeaseState.SUSPECT)
            assert (hold.state, hold.reason) == (
                (LeaseState.LOST, LossReason.TAKEN) if lost else (before, None)
            )
            assert rig.engine.reports.counters["lost_taken"] == lost


def test_what_was_in_hand_is_served_again_after_an_accident() -> None:
    def interrupted() -> Reply | Fault:
        raise KeyboardInterrupt

    rig = Rig(held(), interrupted)
    rig.acquire()
    departure = OutboxEntry(rig.plan.primitive.leave("t9", 0, 0), START + 5.0)
    rig.engine.outbox[departure] = None
    with pytest.raises(KeyboardInterrupt):
        run(renew_due(rig.engine, START + 15.0))
    assert list(rig.engine.outbox) == [departure]
    assert START < rig.engine.schedule.sleep_until(START) < START + 1.0


def test_an_interrupted_leave_goes_on_in_the_background() -> None:
    def interrupted() -> Reply | Fault:
        raise KeyboardInterrupt

    rig = Rig(held(), interrupted, min_hold=0.001)
    lease = rig.acquire()
    with pytest.raises(KeyboardInterrupt):
        rig.release(lease)
    assert [lease.token, str(TOMB_MS)] in rig.departed()


def test_a_child_has_nothing_of_its_parent() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    engine = rig.engine
    engine.waits[Attempt("me", START, None, None, wait=True)] = rig.plan.primitive, "me", START
    engine.outbox[OutboxEntry(rig.plan.primitive.leave("t9", 0, 0), START)] = None
    engine.maintenance_runs = True
    engine.after_fork()
    assert (engine.held, engine.waits, engine.outbox) == (
        {},
        {},
        {},
    )
    assert not engine.maintenance_runs
    assert engine.schedule.all() == []
    assert lease.inert()
    assert rig.sent == ["acquire"]


# Claims -----------------------------------------------------------------------------------------------------------


def test_a_grant_that_lives_on_its_ticket_is_confirmed_first() -> None:
    cases: list[tuple[int, int]] = [
        (3000, 3),
        (3001, 2),
    ]
    for left_ms, asks in cases:
        with case(left_ms, asks):
            rig = Rig(queued(), held(left_ms=left_ms), held())
            rig.acquire()
            assert len(rig.sent) == asks


def test_no_patience_at_all_is_a_choice() -> None:
    options = LockOptions(unavailable_after=0, min_hold=0)
    assert (options.unavailable_after, options.min_hold) == (0.0, 0.0)


# Waits ------------------------------------------------------------------------------------------------------------


def test_who_sits_down_wakes_an_upkeep_that_sleeps_without_an_end() -> None:
    rig = Rig(held())
    rig.acquire()
    woken: list[int] = []
    rig.engine.wake_maintenance = lambda: woken.append(1)  # type: ignore[method-assign]
    book = SimpleNamespace(armed=False)
    rig.engine.reports.watcher = cast("Any", book)
    for _ in range(2):
        rig.engine.watch()
        assert book.armed
        assert rig.engine.awake
    assert woken == [1, 1], "once to heal queues, once to look for deadlocks"


# Those who look on ------------------------------------------------------------------------------------------------


class Told:
    def __init__(self, memo: object = None) -> None:
        self.memo = memo
        self.losses: list[object] = []

    def acquired(self, *_: object, **__: object) -> object:
        return self.memo

    def lost(self, *_: object, acquired: object, **__: object) -> None:
        self.losses.append(acquired)


def test_an_observer_that_came_after_the_grant_hears_of_the_loss_too() -> None:
    rig = Rig(held())
    rig.acquire()
    first, late = Told("span"), Told("other")
    observers = Observers(rig.runtime.now)
    observers.members.append(cast("Any", first))
    observers.acquired(server_lease_of(rig), START, contended=False)
    observers.members.append(cast("Any", late))
    observers.lost(server_lease_of(rig), LossReason.EXPIRED)
    assert (first.losses, late.losses) == (["span"], [None])


def test_a_follower_looks_again_when_the_leader_may_be_gone() -> None:
    cases: list[tuple[int, float | None]] = [
        (1500, 1.501),
        (-1, None),
        (0, 0.001),
    ]
    for left_ms, pause in cases:
        with case(left_ms, pause):
            pauses: list[float | None] = []
            engine = SimpleNamespace(closed=False)
            watch: Any = SimpleNamespace(_closed=False, engine=engine, _reported=ENDED, name="x")

            async def ask() -> Leading:
                return Leading("h:1/a", left_ms, 7)

            async def listen(seconds: float | None) -> None:
                pauses.append(seconds)
                watch._closed = True

            watch.ask, watch.listen = ask, listen
            assert run(Watch._next(watch)) is not ENDED
            assert run(Watch._next(watch)) is ENDED
            assert pauses == [pause]


def test_a_call_may_be_read() -> None:
    call: Call = Rig().plan.primitive.leave("t9", 5, 0)
    assert b"t9" in call.words()


def test_a_client_that_lasts_looks_at_its_server_once() -> None:
    rig = Rig()
    rig.engine.start_maintenance()
    assert rig.engine.health.look_at == inf, "nothing to ask"
    rig.engine.health.probe = lambda: rig.plan.primitive.inspect(0)
    rig.engine.start_maintenance()
    assert rig.engine.health.look_at == START + 1.0
    rig.engine.health.look_at, rig.engine.health.looked = inf, True
    rig.engine.start_maintenance()
    assert rig.engine.health.look_at == inf


def test_a_move_of_the_server_is_told_to_an_engine_that_lives() -> None:
    rig = Rig(held())
    rig.acquire()
    suspect_all = weak_suspect_all(rig.engine)
    suspect_all()
    assert server_lease_of(rig).state is LeaseState.SUSPECT
    assert rig.engine.reports.counters["doubted"] == 1
    del rig
    gc.collect()
    suspect_all()


class Beat:
    """A watcher that asks something of its own."""

    armed = True

    def __init__(self) -> None:
        self.asked: list[float] = []

    def forget(self) -> None:
        pass

    def leave(self, _: object) -> None:
        pass

    async def ask(self, _: Engine, now: float) -> None:
        self.asked.append(now)

    def sleep_until(self, _: Engine, now: float) -> float:
        return now + 0.25


def test_a_watcher_is_served_beside_renewals_and_slept_for() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    beat = Beat()
    rig.engine.reports.watcher = beat
    rig.runtime.clock = START + 15.0
    rig.maintenance(held())
    assert lease.valid_until > START + 40.0
    assert len(beat.asked) >= 1
    assert rig.runtime.slept_until == pytest.approx(rig.runtime.clock + 0.25)


def test_another_leases_end_is_told_at_most_a_tenth_of_a_second_late() -> None:
    rig = Rig(held(), renew=False)
    lease = rig.acquire()
    rig.runtime.clock = lease.valid_until - 5.0
    assert rig.engine.schedule.spare(rig.runtime.clock) == pytest.approx(5.0)
    rig.runtime.clock = lease.valid_until - 0.01
    assert rig.engine.schedule.spare(rig.runtime.clock) == 0.1


def test_leases_of_a_loop_that_was_closed_are_renewed_no_more_and_what_was_given_up_is_still_sent() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    rig.engine.post(rig.plan.primitive.leave("t9", 0, 0))
    rig.runtime.clock += 10.0
    ended: list[int] = []
    with (
        patch.object(rig.runtime, "gone", lambda: True),
        patch.object(rig.runtime, "abandon", lambda: ended.append(1)),
    ):
        rig.maintenance(unanswered())
        assert ended == [], "the server has not answered yet"
        rig.runtime.clock += 10.0
        rig.maintenance(RELEASED)
        rig.maintenance()
        assert ended == [1]
    assert rig.sent == ["acquire", "leave", "leave"]
    assert lease.valid_until < START + 60.0


def test_where_no_thread_can_start_nothing_is_asked_for() -> None:
    rig = Rig(held())
    with patch.object(rig.runtime, "spawn_maintenance", lambda _: "none left"):
        with pytest.raises(
            BackendUnavailable, match=r"acquire 'x': no thread can renew the lease \(none left\)"
        ):
            rig.acquire()
        assert rig.sent == []
    assert rig.acquire().is_held()


def test_the_end_of_a_lease_without_renewal_is_reported_in_time_where_it_is_planned_anew() -> None:
    """As after a failover: those of its ttl that were granted later are in their rhythm before it then."""
    rig = Rig(held(), renew=False)
    lease = rig.acquire()
    early = lease.hold
    rig.runtime.clock += 5.0
    until = early.valid_until + 5.0
    late = Hold(early.primitive, rig.options, Waiter("later"), 101, until, rig.runtime.clock)
    rig.engine.plan_service(late, rig.runtime.clock, confirmed=True)
    rig.engine.replan(early)
    rig.runtime.clock = early.valid_until
    rig.maintenance(RELEASED)
    assert (early.state, late.state) == (LeaseState.LOST, LeaseState.HELD)


def test_a_lease_without_renewal_that_is_extended_again_and_again_stays_in_its_rhythm() -> None:
    """Out of it each turn of the maintenance would look at all of them."""
    rig = Rig(held(), *[held(left_ms=30_000)] * 3, renew=False)
    lease = rig.acquire()
    for _ in range(3):
        rig.runtime.clock += 1.0
        run(extend(rig.engine, lease, 30.0))
        assert lease.hold.bucket is not None


def test_who_watches_no_more_is_forgotten() -> None:
    lease = Rig(held()).acquire()
    first, second, third = [list[object]().clear for _ in range(3)]
    lease.watch(first)
    lease.watch(second)
    lease.unwatch(first)
    lease.unwatch(third)
    assert lease.hold.watchers == [second]


def test_a_reply_that_no_script_gives_is_told() -> None:
    error = unexpected([b"?", b"", 7], "wait for latch", "x")
    assert isinstance(error, ScriptError)
    assert "wait for latch 'x'" in str(error)
    assert error.name == "x"
