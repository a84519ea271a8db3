"""Handing over inside a client: when it may be, what the next owner gets, and what the one before may do then."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import pawlock
from pawlock.core.acquire import _begin, win
from pawlock.core.close import close
from pawlock.core.lease import HeldLease, release_or_raise
from pawlock.core.local_queue import ASK, LocalQueue, Waiter
from pawlock.core.records import Attempt, Hold
from pawlock.core.wait import sleep
from pawlock.model import LeaseState, LossReason, Release
from tests.support.refusal import case
from tests.unit.scripted import RELEASED, START, After, Rig, held, queued, run, unanswered

# They take leases of a script, and look no further.
pytestmark = pytest.mark.filterwarnings("ignore:lease of .* was never released:ResourceWarning")


def callers(rig: Rig, count: int) -> list[Attempt]:
    """Let some more come to the name."""
    them = [Attempt(f"caller {number}", START, None, None, wait=True) for number in range(count)]
    for attempt in them:
        _begin(rig.engine, rig.plan, attempt)
    return them


def owner(rig: Rig) -> Hold:
    """The hold of whoever holds it."""
    return rig.engine.schedule.all()[0]


def test_an_owner_hands_over_without_the_network() -> None:
    rig = Rig(held(fence=500))
    lease = rig.acquire()
    first, second = callers(rig, 2)
    before, hold = lease.valid_until, owner(rig)
    assert rig.release(lease) is Release.RELEASED
    assert rig.sent == ["acquire"]
    assert first.given is hold
    assert first.number == 1, "the next fence of the block"
    assert hold.valid_until == before, "the validity is inherited, not counted anew"
    assert second.given is None


def test_s9_no_local_owner_has_the_token_of_another() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    [first] = callers(rig, 1)
    hold = owner(rig)
    rig.release(lease)
    assert first.given is hold
    later = HeldLease(rig.engine, hold, "me")
    later.number = hold.used
    assert later.token == hold.token
    assert lease.token == f"{later.token}!0", "good for nothing: the one before was not read in time"
    later.released = True


def test_s9_a_token_that_was_read_is_not_passed_on() -> None:
    rig = Rig(held(), RELEASED)
    lease = rig.acquire()
    [first] = callers(rig, 1)
    before = lease.token
    rig.release(lease)
    assert first.given is ASK
    assert rig.runtime.sent[-1].token == before
    assert lease.token == before


def test_s9_a_second_release_of_the_first_owner_hits_nobody() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    callers(rig, 1)
    hold = owner(rig)
    rig.release(lease)
    for _ in range(2):
        with pytest.raises(pawlock.NotHeld, match="already released"):
            run(release_or_raise(rig.engine, lease))
    assert hold.state is LeaseState.HELD
    assert rig.sent == ["acquire"]
    assert rig.departed() == []


# What forbids a hand-over. The token is given back, and then the next one asks the server itself.
FORBIDDEN: list[tuple[str, Callable[[Rig], object]]] = [
    ("a renewal failed", lambda rig: rig.maintenance(After(0.1, unanswered()))),
    ("little is left", lambda rig: setattr(rig.runtime, "clock", owner(rig).valid_until - 1.4)),
    ("a copy of its acquire may still come", lambda rig: setattr(owner(rig), "unanswered", True)),
    ("its block is used up", lambda rig: setattr(owner(rig), "used", 64)),
]


def test_s9_what_may_not_be_handed_over() -> None:
    for what, spoil in FORBIDDEN:
        with case(what):
            rig = Rig(held())
            lease = rig.acquire()
            rig.runtime.clock += 10.0
            first, second = callers(rig, 2)
            hold = owner(rig)
            spoil(rig)
            lease.number = hold.used
            asleep: list[object] = []

            def left(asleep: list[object] = asleep, first: Attempt = first) -> Any:
                asleep.append(first.given)
                return RELEASED

            rig.runtime.answers.append(left)
            assert rig.release(lease) is Release.RELEASED
            assert rig.sent[-1] == "leave"
            assert asleep == [None], "who asked before it was left would queue behind its own client"
            assert first.given is ASK
            assert second.given is None
            assert hold.state is LeaseState.RELEASED
            assert rig.engine.schedule.all() == [], "it is renewed no more"


def test_a_block_of_fences_is_as_long_as_a_run() -> None:
    for handover in (1, 3, 16):
        assert Rig(held(), handover=handover).options.block == handover + 1


def test_s9_locks_that_never_hand_over() -> None:
    for options in ({"handover": 0}, {"renew": False}, {"min_hold": 1.0}):
        with case(options):
            rig = Rig(held(), **options)
            assert rig.options.block == 1
            lease = rig.acquire()
            assert lease.hold.queue is None
            assert not rig.engine.local_queues


def test_only_so_many_ask_at_once() -> None:
    rig = Rig(handover=0)
    them = callers(rig, rig.plan.capacity + 2)
    assert [attempt.parker is not None for attempt in them] == [False] * 100 + [True] * 2
    rig.engine.end_turn(them[0].queue, them[0])
    assert them[-2].given is ASK
    assert them[-1].given is None


def test_a_lost_tenure_is_not_handed_over() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    first, second = callers(rig, 2)
    rig.engine.lose(owner(rig), LossReason.TAKEN)
    assert first.given is ASK, "the first of them asks for itself, with a token of its own"
    assert rig.release(lease) is Release.LOST
    assert second.given is None


def test_nobody_waits() -> None:
    rig = Rig(held(), RELEASED)
    lease = rig.acquire()
    assert len(rig.engine.local_queues) == 1
    rig.release(lease)
    assert rig.sent == ["acquire", "leave"]
    assert not rig.engine.local_queues


def test_who_gives_up_leaves_its_ticket_to_the_next_one() -> None:
    rig = Rig(queued(), held(fence=900))
    first, second = callers(rig, 2)
    first.waiter, first.until = Waiter("t"), START
    assert run(win(rig.engine, rig.plan, first)) is None
    rig.engine.end_turn(None, first)
    from pawlock.core.giving_up import end_wait

    run(end_wait(rig.engine, rig.plan, first))
    assert isinstance(second.given, Waiter)
    assert second.given.token == "t"
    second.waiter = second.given
    grant = run(win(rig.engine, rig.plan, second))
    assert grant is not None
    assert grant.fence == 900
    assert rig.sent == ["acquire", "renew"], "nothing was left"


def test_closing_wakes_all() -> None:
    rig = Rig(held())
    rig.acquire()
    them = callers(rig, 3)
    for attempt in them:
        rig.engine.waits[attempt] = rig.plan.primitive, attempt.who, START
    run(close(rig.engine, lambda: None, 0.0))
    for attempt in them:
        with pytest.raises(pawlock.ClientClosed):
            run(sleep(rig.engine, rig.plan, attempt))


def test_a_renewal_that_comes_through_makes_up_for_one_that_failed() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    rig.runtime.clock += 10.0
    rig.maintenance(After(0.1, unanswered()))
    assert owner(rig).failures == 1
    rig.runtime.clock += 2.0
    rig.maintenance(held())
    [first] = callers(rig, 1)
    rig.release(lease)
    assert first.given is not None
    assert first.given is not ASK


def test_a_tenure_that_was_given_back_is_live_no_more() -> None:
    """Its renewal may be in hand: the answer to that is no loss."""
    rig = Rig(held(), RELEASED)
    lease = rig.acquire()
    hold = owner(rig)
    rig.release(lease)
    assert hold.state is LeaseState.RELEASED
    assert not hold.live


def test_who_waits_goes_on_where_the_one_before_is_gone() -> None:
    rig = Rig()
    gone, first = callers(rig, 2)
    first.until = START + 5.0
    del gone
    rig.engine.heal()
    assert run(sleep(rig.engine, rig.plan, first))
    assert first.given is ASK


def test_who_was_given_something_and_not_woken_is_woken_soon() -> None:
    """A signal handler raised between the two."""
    rig = Rig()
    first, second = callers(rig, 2)
    woken: list[Attempt] = []
    for attempt in (first, second):
        rig.engine.waits[attempt] = rig.plan.primitive, attempt.who, START
        attempt.unpark = partial(woken.append, attempt)  # type: ignore[method-assign]
    first.given = ASK
    rig.engine.heal()
    assert woken == [first]


def test_a_queue_that_ended_is_not_healed_in_place_of_the_next_one() -> None:
    rig = Rig()
    (one,) = callers(rig, 1)
    (queue,) = rig.engine.local_queues.values()
    queue.leave(one)
    queue.turns.clear()

    class Late(dict[Any, LocalQueue]):
        """What was looked up a moment ago."""

        def values(self) -> Any:
            return [queue, *super().values()]

    rig.engine.local_queues = Late()
    later = LocalQueue(queue.key, rig.engine.local_queues, 1, one)
    queue.by_key = rig.engine.local_queues
    rig.engine.heal()
    assert rig.engine.local_queues.get(queue.key) is later


def test_whoever_is_done_is_given_nothing() -> None:
    """It was interrupted before it left the queue, and its error is kept."""
    rig = Rig(held())
    lease = rig.acquire()
    first, second = callers(rig, 2)
    first.done = True
    rig.release(lease)
    assert first.given is None
    assert second.given is not None
