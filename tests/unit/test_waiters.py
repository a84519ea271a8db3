"""What a client may believe: the rules of a waiter, one by one, against canned replies."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

import pawlock
from pawlock.core.acquire import _begin, acquire
from pawlock.core.base_lease import LossSignal
from pawlock.core.engine import Engine
from pawlock.core.lease import HeldLease
from pawlock.core.local_queue import Waiter, WaiterState
from pawlock.core.primitive import TOMB_MS
from pawlock.core.records import Attempt, Hold
from pawlock.core.runtime import Fault, FaultKind, Wakeup
from pawlock.model import LeaseState
from tests.support.refusal import case
from tests.unit.scripted import (
    GONE,
    NOW_MS,
    RELEASED,
    START,
    WITHDRAWN,
    After,
    Rig,
    busy,
    held,
    queued,
    run,
    unanswered,
    unknown,
)

# They take leases of a script, and look no further.
pytestmark = pytest.mark.filterwarnings("ignore:lease of .* was never released:ResourceWarning")


def drift(ttl: float) -> float:
    return ttl * 0.01 + 0.002


# Rule 1: validity --------------------------------------------------------------------------------------------


def test_validity_counts_from_the_send() -> None:
    rig = Rig(After(0.7, held()))
    lease = rig.acquire()
    assert lease.valid_until == pytest.approx(START + 30.0 - drift(30.0))
    assert lease.remaining() == pytest.approx(29.3 - drift(30.0))


def test_validity_counts_from_the_send_of_the_very_request_that_was_answered() -> None:
    """The first copy took the lock and its answer was lost: the server's remaining time is the shorter."""
    rig = Rig(After(1.0, unanswered()), held(left_ms=29_000))
    lease = rig.acquire()
    assert rig.sent == ["acquire", "acquire"]
    assert rig.runtime.sent[0].token == rig.runtime.sent[1].token, "a resend carries the same token"
    assert lease.valid_until == pytest.approx(START + 1.0 + 29.0 - drift(29.0))


def test_what_nobody_renews_is_raised_once_if_an_earlier_copy_took_it() -> None:
    """Else it would end as much too soon as the question was repeated late."""
    rig = Rig(After(1.0, unanswered()), held(left_ms=29_000), held(), renew=False)
    lease = rig.acquire()
    assert rig.sent == ["acquire", "acquire", "renew"]
    assert lease.valid_until == pytest.approx(START + 1.0 + 30.0 - drift(30.0))


def test_a_longer_life_on_the_server_gives_no_more_than_was_asked() -> None:
    lease = Rig(held(left_ms=90_000)).acquire()
    assert lease.valid_until == pytest.approx(START + 30.0 - drift(30.0))


def test_validity_only_rises() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    before = lease.valid_until
    rig.runtime.clock += 10.0
    rig.maintenance(held(left_ms=5_000))
    assert lease.valid_until == before, "an answer with less left lowers nothing"
    rig.runtime.clock += 10.0
    rig.maintenance(held())
    assert lease.valid_until == pytest.approx(START + 50.0 - drift(30.0))


def test_a_grant_without_validity_is_confirmed_before_it_counts() -> None:
    rig = Rig(After(31.0, held(left_ms=30_000)), held())
    lease = rig.acquire()
    assert rig.sent == ["acquire", "renew"]
    assert lease.remaining() > 29.0


def test_grants_that_always_come_too_late_are_refused_and_left() -> None:
    rig = Rig(*[After(31.0, held())] * 4)
    with pytest.raises(pawlock.ClockDrift):
        rig.acquire()
    assert rig.departed() == [["t1@host:1/main", str(TOMB_MS)]]


# Rule 2: messages --------------------------------------------------------------------------------------------


def test_a_message_is_a_grant_and_its_validity_counts_from_the_last_answer() -> None:
    rig = Rig(After(0.2, queued()))
    rig.runtime.wakeups.append(Wakeup(200, NOW_MS + 3000))
    lease = rig.acquire()
    assert rig.sent == ["acquire"], "nothing more is asked"
    assert lease.fence == 200
    assert lease.valid_until == pytest.approx(START + 3.0 - drift(3.0)), "the ticket's life, not the ttl"


def test_s2_a_late_message_of_an_earlier_grant_is_only_a_hint() -> None:
    """Its expiry is below that of the last answer, so it tells of a grant that was over before: ask."""
    rig = Rig(queued(expires_ms=NOW_MS + 3000), queued(), held(fence=300))
    rig.runtime.wakeups.extend([Wakeup(200, NOW_MS + 2999), None])
    lease = rig.acquire()
    assert rig.sent == ["acquire", "renew", "renew"]
    assert lease.fence == 300


def test_s2_a_message_past_its_validity_is_only_a_hint() -> None:
    rig = Rig(After(2.9, queued()), held(fence=300))
    rig.runtime.wakeups.append(Wakeup(200, NOW_MS + 3000))
    lease = rig.acquire()
    assert rig.sent == ["acquire", "renew"]
    assert lease.fence == 300


def test_s2_a_token_is_never_queued_twice() -> None:
    """The server forgot the ticket: a new token, and the old one is left behind so that it is never granted."""
    rig = Rig(queued(), unknown(), held())
    lease = rig.acquire()
    tokens = [sent.token for sent in rig.runtime.sent]
    assert rig.sent == ["acquire", "renew", "acquire"]
    assert tokens[0] == tokens[1] != tokens[2]
    assert lease.token == tokens[2]
    assert rig.departed() == [[tokens[0], "0"]]
    assert rig.engine.reports.counters["requeued"] == 1


def test_a_tombstone_on_the_own_token_brings_a_new_one() -> None:
    rig = Rig(After(0.1, unanswered()), GONE, held())
    lease = rig.acquire()
    assert lease.token == rig.runtime.sent[2].token != rig.runtime.sent[1].token
    assert rig.departed() == [[rig.runtime.sent[0].token, str(TOMB_MS)]]


def test_without_renewal_a_message_is_confirmed_before_the_lease_is_given() -> None:
    rig = Rig(queued(), held(fence=200), renew=False)
    rig.runtime.wakeups.append(Wakeup(200, NOW_MS + 3000))
    lease = rig.acquire()
    assert rig.sent == ["acquire", "renew"]
    assert lease.remaining() > 29.0


# Rule 3: after a leave ---------------------------------------------------------------------------------------


def test_a_renewal_answered_after_the_release_changes_nothing() -> None:
    rig = Rig(held(), RELEASED)
    lease = rig.acquire()
    rig.runtime.clock += 11.0

    def answer() -> Any:
        # The owner releases while the renewal is on its way.
        assert rig.release(lease) == "released"
        return held()

    rig.runtime.answers.appendleft(answer)
    before = lease.valid_until
    rig.maintenance()
    assert rig.sent == ["acquire", "renew", "leave"]
    assert lease.state is LeaseState.RELEASED
    assert lease.valid_until == before
    assert rig.engine.schedule.all() == []


def test_a_released_lease_is_renewed_no_more() -> None:
    rig = Rig(held(), RELEASED)
    lease = rig.acquire()
    rig.release(lease)
    rig.runtime.clock += 100.0
    rig.maintenance()
    assert rig.sent == ["acquire", "leave"]


def test_a_timeout_withdraws_before_the_caller_goes_on() -> None:
    rig = Rig(queued(rank=3), queued(rank=2), queued(rank=1), WITHDRAWN)
    with pytest.raises(pawlock.AcquireTimeout) as caught:
        rig.acquire(2.5)
    assert rig.sent[-1] == "leave"
    assert rig.runtime.sent[-1].args[1] == "0", "every request was answered: no tombstone"
    assert caught.value.position == 1
    assert caught.value.waited == pytest.approx(2.5, abs=0.1)


def test_a_withdrawal_after_a_lost_answer_carries_a_tombstone() -> None:
    rig = Rig(After(1.0, unanswered()), queued(), WITHDRAWN)
    with pytest.raises(pawlock.AcquireTimeout):
        rig.acquire(1.5)
    assert rig.runtime.sent[-1].args[1] == str(TOMB_MS)


# Rule 4: outcomes --------------------------------------------------------------------------------------------


def test_a_try_that_finds_it_held_says_who() -> None:
    rig = Rig(busy())
    with pytest.raises(pawlock.AcquireTimeout, match="other:1/main") as caught:
        rig.acquire(0)
    assert caught.value.holder == "other:1/main"
    assert rig.sent == ["acquire"], "nothing was queued, nothing is left"


def test_a_try_whose_first_answer_was_lost_is_left_with_a_tombstone() -> None:
    rig = Rig(After(0.3, unanswered()), busy(), RELEASED)
    with pytest.raises(pawlock.AcquireTimeout):
        rig.acquire(0)
    assert rig.sent == ["acquire", "acquire", "leave"]
    assert rig.runtime.sent[-1].args[1] == str(TOMB_MS)


def test_an_unknown_reply_is_an_error_and_not_a_grant() -> None:
    rig = Rig([b"Z", b""])
    with pytest.raises(pawlock.ScriptError):
        rig.acquire()
    assert rig.departed() == [["t1@host:1/main", str(TOMB_MS)]]


def test_a_full_queue() -> None:
    rig = Rig([b"F", b"", 7], max_waiters=7)
    with pytest.raises(pawlock.QueueFull, match="7 waiters"):
        rig.acquire()


FINAL: list[tuple[FaultKind, type[pawlock.PawlockError]]] = [
    (FaultKind.OUT_OF_MEMORY, pawlock.BackendOutOfMemory),
    (FaultKind.DENIED, pawlock.BackendDenied),
    (FaultKind.WRONG_KEY, pawlock.WrongKey),
    (FaultKind.SCRIPT, pawlock.ScriptError),
    (FaultKind.UNSUPPORTED, pawlock.NotSupported),
    (FaultKind.CLOSED, pawlock.ClientClosed),
]


def test_a_fault_that_does_not_pass_is_told_at_once() -> None:
    for kind, error in FINAL:
        with case(kind, error):
            # The first request leaves a fault to the loop that can judge it, so there is one more question.
            rig = Rig(Fault(kind, "no"), Fault(kind, "no"))
            with pytest.raises(error):
                rig.acquire()
            assert rig.runtime.clock == START


def test_a_fault_that_passes_is_borne_as_long_as_was_asked() -> None:
    cases: list[FaultKind] = [
        FaultKind.UNREACHABLE,
        FaultKind.UNANSWERED,
        FaultKind.NOT_READY,
        FaultKind.READ_ONLY,
    ]
    for kind in cases:
        with case(kind):

            def down() -> Any:
                return After(0.2, Fault(kind, "down"))

            rig = Rig(*[down] * 1000, unavailable_after=4.0)
            with pytest.raises((pawlock.BackendUnavailable, pawlock.BackendReadOnly)):
                rig.acquire()
            assert 3.0 <= rig.runtime.clock - START <= 4.5
            recovered = Rig(*[down] * 10, held(), unavailable_after=10.0)
            recovered.acquire()


def test_a_hung_server_is_unreachable_since_the_first_request() -> None:
    """Each request takes a second to fail, and the first of them counts."""
    for after in (0.2, 1.5, 4.0):
        with case(after):
            rig = Rig(*[lambda: After(1.0, unanswered())] * 20, unavailable_after=after)
            with pytest.raises(pawlock.BackendUnavailable):
                rig.acquire()
            assert len(rig.sent) >= 1 + (after > 1)
            assert rig.runtime.clock - START <= max(1.0, after + 1.0)


# Rule 5: patience --------------------------------------------------------------------------------------------

PATIENCE: list[tuple[Callable[[], Any], dict[str, Any], float]] = [
    (lambda: queued(rank=1, holder_ms=20_000), {}, 1.0),
    (lambda: queued(rank=0, holder_ms=20_000), {}, 1.0),
    (lambda: queued(rank=0, holder_ms=100), {}, 0.101),
    (lambda: queued(rank=0, holder_ms=0), {}, 0.001),
    (lambda: queued(rank=5, holder_ms=100), {}, 1.0),
    (lambda: queued(rank=1, holder_ms=20_000), {"ticket_ttl": 0.9}, 0.3),
    (lambda: queued(rank=1, holder_ms=-1), {"ttl": 0.6}, 0.2),
]


def test_a_waiter_looks_again_in_time() -> None:
    for reply, options, wait in PATIENCE:
        with case(reply, options, wait):
            rig = Rig(reply(), held(), **options)
            rig.acquire()
            assert rig.runtime.waits[0] == pytest.approx(wait, rel=0.05)


def test_the_head_polls_a_foreign_holder() -> None:
    """Nobody tells pawlock when a foreign client deletes its key."""
    rig = Rig(queued(rank=0, holder_ms=-1, foreign=1), queued(rank=1, foreign=1), held())
    rig.acquire()
    assert 0.02 <= rig.runtime.waits[0] <= 0.1
    assert rig.runtime.waits[1] == pytest.approx(1.0, rel=0.05), "those behind it do not"


def test_two_tries_fit_into_a_ticket() -> None:
    cases: list[tuple[dict[str, Any], float]] = [
        ({}, 1.0),
        ({"ticket_ttl": 0.9}, 0.3),
        ({"ttl": 0.3}, 0.1),
    ]
    for options, deadline in cases:
        with case(options, deadline):
            rig = Rig(held(left_ms=int(options.get("ttl", 30) * 1000)), **options)
            rig.acquire()
            assert rig.runtime.sent[0].timeout == pytest.approx(deadline)


def test_the_last_request_before_the_timeout_is_not_longer_than_what_is_left() -> None:
    rig = Rig(queued(rank=1), queued(rank=1), WITHDRAWN)
    with pytest.raises(pawlock.AcquireTimeout):
        rig.acquire(1.2)
    assert rig.runtime.sent[1].timeout == pytest.approx(0.2)


# Local queue -------------------------------------------------------------------------------------------------


def test_a_speaker_that_fails_passes_its_ticket_to_the_next() -> None:
    """The error is the speaker's; its place in the server's queue is the next waiter's."""
    rig = Rig(queued())
    second: list[Attempt] = []

    def another() -> Any:
        # While the first waits for an answer, a second one comes and sleeps; the error then wakes it.
        second.append(Attempt("other", START, None, None, wait=True))
        assert not _begin(rig.engine, rig.plan, second[0])
        return Fault(FaultKind.DENIED, "no")

    rig.runtime.answers.append(another)
    with pytest.raises(pawlock.BackendDenied):
        rig.acquire()
    waiter = second[0].given
    assert isinstance(waiter, Waiter)
    assert waiter.token == "t1@host:1/main"
    assert waiter.state is WaiterState.QUEUED
    assert rig.departed() == [], "the ticket is kept"


def test_a_lease_that_needed_a_second_question_goes_when_it_is_dropped() -> None:
    """The first fault kept the frame of acquire alive, and with it the lease: renewed until the collector ran."""
    rig = Rig(unanswered(), held())
    gc.collect()
    gc.disable()
    try:
        lease = rig.acquire(keep=False)
        gone = weakref.ref(lease)
        with pytest.warns(ResourceWarning, match="never released"):
            del lease
        assert gone() is None
    finally:
        gc.enable()


# What is told --------------------------------------------------------------------------------------------------


def test_a_holder_that_nothing_ends_is_counted_once() -> None:
    for reply in (queued(holder_ms=-1, foreign=1), queued(rank=3, holder_ms=-1, foreign=1)):
        with case(reply):
            rig = Rig(reply, reply, held())
            rig.acquire()
            assert rig.engine.reports.counters["endless"] == 1


def test_a_try_counts_a_holder_that_nothing_ends() -> None:
    rig = Rig(busy(holder_ms=-1, foreign=1), WITHDRAWN)
    with pytest.raises(pawlock.AcquireTimeout):
        rig.acquire(timeout=0)
    assert rig.engine.reports.counters["endless"] == 1


def test_a_grant_that_cannot_be_owned_is_given_back_and_what_went_wrong_is_told() -> None:
    cases: list[list[Any]] = [
        # at once
        [],
        # after a wait
        [queued()],
    ]
    for before in cases:
        with case(before):
            rig = Rig(*before, held())

            def broken(engine: Engine, hold: Hold | None, who: object) -> HeldLease:
                if hold is not None:
                    raise KeyboardInterrupt
                return HeldLease(engine, hold, who)

            with (
                patch("pawlock.core.acquire.HeldLease", broken),
                pytest.raises(KeyboardInterrupt),
            ):
                run(acquire(rig.engine, rig.plan, None))
            assert [token for token, _ in rig.departed()] == [rig.runtime.sent[0].token]
            assert rig.engine.held == {}
            assert rig.engine.schedule.all() == []


def test_nobody_gets_a_lock_that_was_granted_while_the_client_was_closed() -> None:
    cases: list[list[Any]] = [
        # at once
        [],
        # after a wait
        [queued()],
    ]
    for before in cases:
        with case(before):

            def grant() -> Any:
                rig.engine.closed = True
                return held()

            rig = Rig(*before, grant)
            with pytest.raises(pawlock.ClientClosed):
                run(acquire(rig.engine, rig.plan, None))
            assert [token for token, _ in rig.departed()] == [rig.runtime.sent[0].token]
            assert rig.engine.held == {}


def test_a_wait_for_the_loss_ends_with_its_time() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    signal = LossSignal(lease)
    assert run(signal._wait(2.0)) is False
    assert rig.runtime.clock == START + 2.0
    assert run(signal._wait(60.0)) is True
    assert rig.runtime.clock == pytest.approx(lease.valid_until)
