"""The local queue: when a server lease may be handed over, what its next owner gets and its last may do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

import pawlock
from pawlock.core.acquire.giving_up import pass_back
from pawlock.core.acquire.local_wait import await_turn
from pawlock.core.lease.record import HeldLease
from pawlock.core.release.release import release_or_raise
from pawlock.core.state.local_queue import LocalQueue, LocalQueues, LocalWaiter
from pawlock.core.state.plan import Attempt
from pawlock.core.state.records import ServerLease, Turn, Waiter
from pawlock.model import LeaseState, LossReason, Release
from tests.faults.steps import Struck
from tests.support.refusal import case
from tests.unit.scripted import RELEASED, START, After, Rig, held, queued, run, unanswered

# They take leases of a script, and look no further.
pytestmark = pytest.mark.filterwarnings("ignore:lease of .* was never released:ResourceWarning")


def local_waiters(rig: Rig, count: int) -> tuple[LocalQueue, list[LocalWaiter]]:
    """Let some more come to the name; the place, and they."""
    them = [LocalWaiter() for _ in range(count)]
    places = [rig.engine.queues.local.join(rig.plan.queue_key, local_waiter) for local_waiter in them]
    return places[0], [local_waiter for local_waiter in them if local_waiter.waits]


def owner(rig: Rig) -> ServerLease:
    """The server lease of whoever holds it."""
    return rig.engine.leases.schedule.all()[0]


def test_an_owner_hands_over_without_the_network() -> None:
    rig = Rig(held(fence=500))
    lease = rig.acquire()
    _, [first, second] = local_waiters(rig, 2)
    before = lease.valid_until
    assert rig.release(lease) is Release.RELEASED
    assert rig.sent == ["acquire"]
    assert first.server_lease is not None
    assert first.fence == 501, "the next fence of the block"
    assert first.server_lease.valid_until == before, "the validity is inherited, not counted anew"
    assert not second.served


def test_s9_no_local_owner_has_the_token_of_another() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    _, [first] = local_waiters(rig, 1)
    rig.release(lease)
    assert first.server_lease is not None
    later = HeldLease(rig.engine, first.server_lease, first.fence, "me")
    assert later.token == first.server_lease.token
    assert lease.token == f"{later.token}!0", "good for nothing: the one before was not read in time"
    later.released = True


def test_s9_a_token_that_was_read_is_not_passed_on() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    _, [first] = local_waiters(rig, 1)
    before = lease.token
    rig.release(lease)
    assert first.server_lease is None
    assert first.waiter is not None
    assert first.waiter.old is not None
    assert first.waiter.old.token == before, "it is left in the script that queues the next one's"
    assert lease.token == before


def test_s9_a_second_release_of_the_first_owner_hits_nobody() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    _, [first] = local_waiters(rig, 1)
    rig.release(lease)
    for _ in range(2):
        with pytest.raises(pawlock.NotHeld, match="already released"):
            run(release_or_raise(rig.engine, lease))
    assert first.server_lease is not None
    assert first.server_lease.state is LeaseState.HELD
    assert rig.sent == ["acquire"]
    assert rig.departed() == []


# What forbids a hand-over. The first local waiter then speaks to the server itself, and gives the old token back.
FORBIDDEN: list[tuple[str, Callable[[Rig], object]]] = [
    ("a renewal failed", lambda rig: rig.maintenance(After(0.1, unanswered()))),
    ("little is left", lambda rig: setattr(rig.runtime, "clock", owner(rig).valid_until - 1.4)),
    ("a copy of its acquire may still come", lambda rig: setattr(owner(rig), "unanswered", True)),
    ("its block is used up", lambda rig: setattr(owner(rig), "used", 64)),
    ("the streak is long", lambda rig: setattr(owner(rig).local_queue, "streak", 64)),
]


def test_s9_what_may_not_be_handed_over() -> None:
    for what, spoil in FORBIDDEN:
        with case(what):
            rig = Rig(held())
            lease = rig.acquire()
            rig.runtime.clock += 10.0
            _, [first, _] = local_waiters(rig, 2)
            server_lease = owner(rig)
            spoil(rig)
            assert rig.release(lease) is Release.RELEASED
            assert first.server_lease is None
            assert first.waiter is not None
            assert first.waiter.old is not None
            assert first.waiter.old.token == server_lease.token
            assert first.waiter.token != server_lease.token, "a token that was ever left is dead"
            assert server_lease.state is LeaseState.RELEASED
            assert rig.engine.leases.schedule.all() == [], "it is renewed no more"


def test_a_run_of_hand_overs_is_short() -> None:
    """After 20 ms the next one goes through the server, so that others have their turn."""
    rig = Rig(held())
    rig.acquire()
    place, them = local_waiters(rig, 8)
    server_lease = owner(rig)
    handed = 0
    while place.hand_over(server_lease, rig.runtime.clock) is Turn.HANDED:
        handed += 1
        rig.runtime.clock += 0.006
    assert handed == 4, "at 0, 6, 12 and 18 ms"
    assert [local_waiter.fence for local_waiter in them[:4]] == [101, 102, 103, 104]


def test_a_run_of_hand_overs_has_few_members() -> None:
    for handover in (1, 3, 16):
        with case(handover):
            rig = Rig(held(), handover=handover)
            rig.acquire()
            place, _ = local_waiters(rig, 20)
            server_lease = owner(rig)
            turns = [place.hand_over(server_lease, rig.runtime.clock) for _ in range(20)]
            assert turns.count(Turn.HANDED) == handover
            assert rig.options.block == handover + 1, "a fence for each of them, and for the first owner"


def test_s9_locks_that_never_hand_over() -> None:
    for options in ({"handover": 0}, {"renew": False}, {"min_hold": 1.0}):
        with case(options):
            rig = Rig(held(), **options)
            assert rig.plan.alone
            assert rig.options.block == 1
            lease = rig.acquire()
            assert lease.server_lease.local_queue is None
            assert len(rig.engine.queues.local) == 0


def test_a_lost_tenure_is_not_handed_over() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    place, [first, second] = local_waiters(rig, 2)
    server_lease = owner(rig)
    rig.engine.lose(server_lease, LossReason.TAKEN)
    assert first.waiter is not None, "the first of them speaks for itself, with a token of its own"
    assert first.waiter.old is None
    assert place.hand_over(server_lease, rig.runtime.clock) is Turn.GONE
    assert rig.release(lease) is Release.LOST
    assert not second.served


def test_nobody_waits() -> None:
    rig = Rig(held(), RELEASED)
    lease = rig.acquire()
    assert len(rig.engine.queues.local) == 1
    rig.release(lease)
    assert rig.sent == ["acquire", "leave"]
    assert len(rig.engine.queues.local) == 0


def test_the_next_speaker_gives_back_and_queues_in_one_script() -> None:
    rig = Rig(held(), queued(), held(fence=900))
    lease = rig.acquire()
    place, [first] = local_waiters(rig, 1)
    place.streak = 64
    rig.release(lease)
    waiter = first.waiter
    assert waiter is not None
    from pawlock.core.acquire.queue import win

    grant = run(win(rig.engine, rig.plan.primitive, rig.options, waiter, None, wait=True))
    assert grant is not None
    assert rig.sent == ["acquire", "swap", "renew"]
    assert rig.runtime.sent[1].args[0] == lease.token
    assert waiter.old is None, "it is given back once"


def test_who_comes_back_in_a_run_waits_for_those_elsewhere() -> None:
    cases: list[tuple[bool, bool]] = [
        (True, True),
        (False, False),
    ]
    for lone, more in cases:
        with case(lone, more):
            rig = Rig(held())
            rig.acquire()
            server_lease = owner(rig)
            server_lease.uncontended = lone
            place, [first, second] = local_waiters(rig, 2)
            assert place.hand_over(server_lease, START) is Turn.HANDED
            local_waiters(rig, 1)
            assert place.hand_over(server_lease, START) is Turn.HANDED
            assert first.served
            assert second.served, "each of those who were there is served"
            assert (place.hand_over(server_lease, START) is Turn.HANDED) is more


@pytest.mark.parametrize("elsewhere", [True, False])
def test_the_next_one_queues_while_the_last_of_a_run_holds(*, elsewhere: bool) -> None:
    rig = Rig(held(), RELEASED, handover=1)
    lease = rig.acquire()
    server_lease = owner(rig)
    server_lease.uncontended = not elsewhere
    place, [last, heir, third] = local_waiters(rig, 3)
    assert rig.release(lease) is Release.RELEASED
    assert last.server_lease is server_lease
    assert (heir.waiter is not None) is elsewhere, "while nobody else waits, the run may go on"
    assert not third.served
    if heir.waiter is None:
        return
    assert heir.waiter.old is None, "the last owner gives it back by itself"
    assert place.turn_holder() is heir
    assert (server_lease.local_queue, place.streak) == (None, 0)
    later = HeldLease(rig.engine, server_lease, last.fence, "me")
    assert rig.release(later) is Release.RELEASED
    assert rig.sent == ["acquire", "leave"]
    assert not third.served, "its turn is for the one before to pass on"


def test_who_comes_while_the_last_of_a_run_holds_queues_by_itself() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    server_lease = owner(rig)
    server_lease.uncontended = False
    place, [last] = local_waiters(rig, 1)
    rig.release(lease)
    assert last.server_lease is server_lease
    assert place.closed
    assert server_lease.local_queue is None
    late = LocalWaiter()
    assert rig.engine.queues.local.join(rig.plan.queue_key, late) is not place
    assert not late.waits


def test_a_sleeper_leaves_or_is_served_never_both() -> None:
    rig = Rig(held())
    rig.acquire()
    place, [first, second, third] = local_waiters(rig, 3)
    assert place.withdraw(second)
    assert place.withdraw(second), "again changes nothing"
    assert place.promote(Waiter("t"), 0)
    assert first.waiter is not None
    assert place.promote(Waiter("again"), 0), "the turn before is over"
    assert not third.served
    assert not place.withdraw(first), "its turn came first: it must use it"
    assert place.promote(Waiter("u"), first.turn)
    assert third.waiter is not None
    assert not second.served
    assert not place.promote(Waiter("v"), third.turn)
    assert place.closed
    assert len(rig.engine.queues.local) == 0


def test_who_comes_to_a_closed_place_opens_a_new_one() -> None:
    rig = Rig()
    first, second = LocalWaiter(), LocalWaiter()
    old = rig.engine.queues.local.join("spot", first)
    assert not first.waits
    assert not old.promote(Waiter("t"), first.turn)
    new = rig.engine.queues.local.join("spot", second)
    assert not second.waits
    assert new is not old


def test_closing_wakes_all() -> None:
    rig = Rig(held())
    rig.acquire()
    _, them = local_waiters(rig, 3)
    rig.engine.queues.local.dismiss()
    assert all(local_waiter.closed for local_waiter in them)
    assert len(rig.engine.queues.local) == 0
    assert rig.runtime.clock == START


def test_a_renewal_that_comes_through_makes_up_for_one_that_failed() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    rig.runtime.clock += 10.0
    rig.maintenance(After(0.1, unanswered()))
    assert owner(rig).failures == 1
    rig.runtime.clock += 2.0
    rig.maintenance(held())
    _, [first] = local_waiters(rig, 1)
    rig.release(lease)
    assert first.server_lease is not None


def test_a_tenure_that_was_given_back_is_live_no_more() -> None:
    """Its renewal may be in hand: the answer to that is no loss."""
    rig = Rig(held(), RELEASED)
    lease = rig.acquire()
    server_lease = owner(rig)
    rig.release(lease)
    assert server_lease.state is LeaseState.RELEASED
    assert not server_lease.live


def test_whoever_comes_first_takes_the_turn_of_one_that_is_gone() -> None:
    rig = Rig()
    gone, heir, third = LocalWaiter(), LocalWaiter(), LocalWaiter()
    place = rig.engine.queues.local.join("spot", gone)
    del gone
    assert rig.engine.queues.local.join("spot", heir) is place
    assert not heir.waits
    assert place.turn_holder() is heir
    assert heir.local_queue is place
    assert rig.engine.queues.local.join("spot", third) is place
    assert third.waits
    assert not LocalQueues._inherit(place, LocalWaiter()), "somebody has it"
    del heir
    assert not LocalQueues._inherit(place, LocalWaiter()), "somebody was there before"
    assert place.withdraw(third)
    place.closed = True
    assert not LocalQueues._inherit(place, LocalWaiter())


def test_who_waits_notices_by_itself_that_the_one_before_is_gone() -> None:
    rig = Rig()
    gone, first = LocalWaiter(), LocalWaiter()
    place = rig.engine.queues.local.join("spot", gone)
    rig.engine.queues.local.join("spot", first)
    del gone
    run(
        await_turn(
            rig.engine, rig.plan, first, Attempt("me", START, START + 1.0, None, wait=True, or_none=False)
        )
    )
    assert first.waiter is not None
    assert place.turn_holder() is first


def test_row_12_who_was_interrupted_while_it_opened_the_queue_gives_it_back() -> None:
    rig = Rig(held())
    queues = rig.engine.queues.local
    at, where = 0, "begin"
    while where:
        at += 1
        mine = LocalWaiter()
        with contextlib.suppress(InterruptedError), Struck(at, _interrupt) as striking:
            queues.join(rig.plan.queue_key, mine)
        where = striking.where
        pass_back(rig.engine, rig.plan, mine, None)
        assert not len(queues), where
    assert at > 2


def _interrupt() -> None:
    raise InterruptedError
