"""How leases end: the table of releases, losses that are final, and who may still touch a token."""

from __future__ import annotations

import logging
from functools import partial
from math import inf
from typing import Any
from unittest.mock import patch
from weakref import ref

import pytest

import pawlock
from pawlock.core.close import close
from pawlock.core.extend import extend
from pawlock.core.faults import is_transient, to_error
from pawlock.core.lease import end_block, release_or_raise
from pawlock.core.primitive import TOMB_MS
from pawlock.core.records import OutboxEntry
from pawlock.core.runtime import Fault, FaultKind, Reply
from pawlock.model import LeaseState, LossReason, Release
from pawlock.primitives.probe import probe
from tests.support.refusal import case
from tests.unit.scripted import (
    RELEASED,
    START,
    After,
    Answer,
    Rig,
    absent,
    held,
    queued,
    run,
    unanswered,
    unknown,
)

FAR = 29.0
"""Seconds within a validity of 30 s less drift."""

# What the server answers to the leave and to its copies, and what that means. "late": past the validity.
TABLE: list[tuple[str, list[Answer], float, Release]] = [
    ("answered at once", [RELEASED], 0.0, Release.RELEASED),
    ("somebody else has it, and every request was answered", [absent(b"other")], 0.0, Release.LOST),
    ("nobody has it, and every request was answered", [absent(b"none")], 0.0, Release.LOST),
    ("a foreign client has it", [absent(b"foreign")], 0.0, Release.LOST),
    ("the first copy was lost, the second freed it", [unanswered(), RELEASED], 0.0, Release.RELEASED),
    (
        "the first copy freed it, the next waiter has it",
        [unanswered(), absent(b"other")],
        0.0,
        Release.RELEASED,
    ),
    ("the first copy freed it, nobody has it", [unanswered(), absent(b"none")], 0.0, Release.RELEASED),
    (
        "as before, but said too late to be sure",
        [unanswered(), After(0.9, absent(b"other"))],
        FAR,
        Release.UNKNOWN,
    ),
    (
        "the first copy was never sent",
        [Fault(FaultKind.UNREACHABLE, "gone"), absent(b"other")],
        0.0,
        Release.LOST,
    ),
]


def test_o4_how_a_release_ends() -> None:
    for what, answers, wait, outcome in TABLE:
        with case(what):
            rig = Rig(held(), *answers)
            lease = rig.acquire()
            rig.runtime.clock += wait
            assert rig.release(lease) is outcome
            assert lease.state is (LeaseState.LOST if outcome is Release.LOST else LeaseState.RELEASED)
            assert rig.engine.schedule.all() == []


def test_o4_copies_of_a_leave_carry_a_tombstone() -> None:
    rig = Rig(held(), unanswered(), RELEASED)
    rig.release(rig.acquire())
    assert [sent.args[1] for sent in rig.runtime.sent if sent.script == "leave"] == ["0", str(TOMB_MS)]


def test_a_release_that_is_never_answered_is_unknown_and_goes_on_behind() -> None:
    rig = Rig(held(), *[lambda: After(0.5, unanswered())] * 200)
    lease = rig.acquire()
    assert rig.release(lease) is Release.UNKNOWN
    assert rig.departed() == [[lease.token, str(TOMB_MS)]]
    assert rig.engine.reports.counters["release_unknown"] == 1


def test_an_unknown_release_is_an_error_only_where_it_was_asked_for() -> None:
    asked = Rig(held(), *[lambda: After(0.5, unanswered())] * 200)
    with pytest.raises(pawlock.BackendUnavailable, match="within 30 s"):
        run(release_or_raise(asked.engine, asked.acquire()))
    at_the_end = Rig(held(), *[lambda: After(0.5, unanswered())] * 200)
    run(end_block(at_the_end.acquire(), None))


def test_the_error_of_a_body_wins_and_the_loss_is_its_note() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    rig.runtime.clock += 40.0
    error = RuntimeError("mine")
    run(end_block(lease, error))
    assert "is lost" in error.__notes__[0]


def test_on_exit_warn(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(held(), on_exit="warn")
    lease = rig.acquire()
    rig.runtime.clock += 40.0
    with caplog.at_level(logging.WARNING, "pawlock.lease"):
        run(end_block(lease, None))
    assert "is lost" in caplog.text


# Losses ---------------------------------------------------------------------------------------------------------


def test_o5_any_other_answer_to_a_holder_is_a_loss_and_its_token_is_left() -> None:
    """Queued, too: a failover brought the ticket back, and it must not be granted later."""
    for reply in (unknown(b"other"), unknown(b"none"), unknown(b"foreign"), queued()):
        with case(reply):
            rig = Rig(held())
            lease = rig.acquire()
            rig.runtime.clock += 10.0
            rig.maintenance(reply, absent(), absent())
            assert lease.state is LeaseState.LOST
            # The first leave asks whether an operator took it.
            assert rig.sent == ["acquire", "renew", "leave", "leave"]
            assert rig.departed() == [[lease.token, "0"]]
            with pytest.raises(pawlock.LeaseLost):
                lease.check()
            taken = reply[0] == b"U" and reply[2] in (b"other", b"foreign")
            assert lease.lost_error().reason == ("taken" if taken else "expired")


def test_o5_a_ticket_that_the_server_forgot_is_queued_anew_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(queued(), unknown(), held())
    with caplog.at_level(logging.INFO, "pawlock.acquire"):
        lease = rig.acquire()
    assert rig.engine.reports.counters["requeued"] == 1
    assert "queueing again" in caplog.text
    assert lease.token != rig.runtime.sent[0].token


def test_a4_a_good_renewal_that_comes_too_late_revives_nothing() -> None:
    told: list[Any] = []
    rig = Rig(held(), on_lost=told.append)
    lease = rig.acquire()
    rig.runtime.clock += 10.0
    rig.maintenance(After(25.0, held()), RELEASED)
    assert lease.state is LeaseState.LOST
    with pytest.raises(pawlock.LeaseLost) as caught:
        lease.check()
    assert caught.value.reason == "expired"
    assert lease.remaining() == 0.0
    assert rig.departed() == [[lease.token, "0"]], "what the late renewal raised is left"
    assert len(rig.runtime.reported) == 1
    rig.runtime.clock += 10.0
    rig.maintenance()
    assert rig.sent == ["acquire", "renew", "leave"], "nothing is renewed any more"


def test_a4_a_suspect_lease_is_held_again_only_in_time() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    rig.runtime.clock += 10.0
    rig.maintenance(After(0.5, unanswered()))
    states = [lease.state]
    lease.check()
    rig.runtime.clock += 2.0
    rig.maintenance(held())
    states.append(lease.state)
    assert states == [LeaseState.SUSPECT, LeaseState.HELD]
    assert lease.valid_until == pytest.approx(START + 12.5 + 30.0 - 0.302)


def test_the_local_clock_decides_without_any_answer() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    rig.runtime.clock = lease.valid_until - 0.001
    lease.check()
    rig.runtime.clock = lease.valid_until
    assert lease.state is LeaseState.LOST
    with pytest.raises(pawlock.LeaseLost):
        lease.check()
    assert rig.sent == ["acquire"]


def test_failed_renewals_end_as_unreachable() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    rig.runtime.clock += 10.0
    for _ in range(60):
        rig.maintenance(After(0.5, unanswered()))
        rig.runtime.answers.clear()
        rig.runtime.clock += 0.5
        if lease.state is LeaseState.LOST:
            break
    assert lease.lost_error().reason == "unreachable"


def test_a_release_of_a_lost_lease_touches_nothing() -> None:
    rig = Rig(held())
    lease = rig.acquire()
    rig.runtime.clock += 40.0
    with pytest.raises(pawlock.NotHeld, match="lost"):
        run(release_or_raise(rig.engine, lease))
    with pytest.raises(pawlock.NotHeld, match="already released"):
        run(release_or_raise(rig.engine, lease))
    assert rig.sent == ["acquire"]


# Extending ------------------------------------------------------------------------------------------------------


def test_extending_sets_and_never_adds() -> None:
    rig = Rig(held(), held(left_ms=60_000))
    lease = rig.acquire()
    run(extend(rig.engine, lease, 60.0))
    assert lease.valid_until == pytest.approx(START + 60.0 - 0.602)
    assert lease.ttl == 60.0


def test_a_shorter_life_is_a_local_matter() -> None:
    """The server's expiry never falls: a late copy could otherwise cut a newer renewal short."""
    rig = Rig(held())
    lease = rig.acquire()
    run(extend(rig.engine, lease, 5.0))
    assert rig.sent == ["acquire"]
    assert lease.valid_until == pytest.approx(START + 5.0 - 0.052)


def test_extending_what_was_taken() -> None:
    rig = Rig(held(), unknown(b"other"), absent())
    lease = rig.acquire()
    with pytest.raises(pawlock.NotHeld, match="taken"):
        run(extend(rig.engine, lease, 60.0))
    assert lease.state is LeaseState.LOST


# max_hold -------------------------------------------------------------------------------------------------------


def test_max_hold_ends_a_lease_and_leaves_the_rest_of_the_ttl_to_its_owner() -> None:
    rig = Rig(held(), max_hold=15.0)
    lease = rig.acquire()
    assert lease.valid_until == START + 15.0
    rig.runtime.clock += 15.0
    rig.maintenance()
    assert lease.lost_error().reason == "max_hold"
    assert rig.departed() == [], "the name stays closed until the owner has stopped"
    rig.runtime.answers.append(RELEASED)
    assert rig.release(lease) is Release.LOST
    assert rig.departed() == [[lease.token, "0"]]


def test_another_thread_that_notices_the_end_first_gets_the_reason_too() -> None:
    """The event loop of the lease is told, and has not got round to it yet."""
    rig = Rig(held(), max_hold=15.0)
    lease = rig.acquire()
    rig.runtime.clock += 15.0
    with patch.object(rig.runtime, "run_in_owner"), pytest.raises(pawlock.LeaseLost) as caught:
        lease.check()
    assert caught.value.code == "MAX_HOLD_EXCEEDED"


def test_beats_put_the_end_off_and_cost_one_renewal_at_most() -> None:
    rig = Rig(held(), max_hold=15.0)
    lease = rig.acquire()
    rig.runtime.clock += 14.0
    for _ in range(100):
        lease.beat()
    rig.maintenance(held())
    assert rig.sent == ["acquire", "renew"]
    assert lease.valid_until == START + 14.0 + 15.0
    rig.runtime.clock += 14.0
    lease.check()
    rig.runtime.clock += 2.0
    with pytest.raises(pawlock.LeaseLost):
        lease.beat()


def test_beats_far_from_the_end_cost_nothing() -> None:
    rig = Rig(held(), max_hold=100.0)
    lease = rig.acquire()
    for _ in range(9):
        rig.runtime.clock += 1.0
        lease.beat()
    rig.maintenance()
    assert rig.sent == ["acquire"]
    rig.runtime.clock += 1.0
    rig.maintenance(held())
    assert rig.sent == ["acquire", "renew"], "in the ordinary rhythm"
    assert lease.valid_until == pytest.approx(START + 10.0 + 30.0 - 0.302)


def test_nothing_keeps_a_lease_that_ended_before_the_limit_it_once_had() -> None:
    """``extend`` puts it into a rhythm that comes before ``max_hold``, and a release takes it out of that alone."""
    rig = Rig(held(), held(5_000), RELEASED, max_hold=15.0)
    lease = rig.acquire()
    run(extend(rig.engine, lease, 5.0))
    rig.release(lease)
    kept = ref(lease.hold)
    del lease
    assert kept() is None


def test_a_release_that_was_refused_names_the_cause() -> None:
    for kind in [kind for kind in FaultKind if not is_transient(kind) and kind != "closed"]:
        with case(kind):
            fault = Fault(kind, "so says the server")
            rig = Rig(held(), fault)
            with pytest.raises(type(to_error(fault, "n", "release")), match="so says the server") as caught:
                run(release_or_raise(rig.engine, rig.acquire()))
            assert "expires within 30 s" in str(caught.value)


def test_a_release_that_meets_another_owner_asks_whether_the_server_restarted() -> None:
    cases: list[tuple[Reply | Fault, Release]] = [
        ([b"P", b"", b"# Server\r\nuptime_in_seconds:60\r\n", 0], Release.RELEASED),
        ([b"P", b"", b"# Server\r\nuptime_in_seconds:1\r\n", 0], Release.UNKNOWN),
        ([b"P", b"", b"", 0], Release.UNKNOWN),
        (unanswered(), Release.UNKNOWN),
    ]
    for said, outcome in cases:
        with case(said, outcome):
            rig = Rig(held(), unanswered(), absent(b"other"), said)
            rig.engine.health.probe = partial(probe, "")
            lease = rig.acquire()
            rig.runtime.clock += 5
            assert rig.release(lease) is outcome
            assert rig.sent[-1] == "probe"


def refused() -> Fault:
    return Fault(FaultKind.NOT_READY, "TRYAGAIN")


def test_a_holder_asks_again_soon_while_the_slot_moves_and_a_waiter_does_not() -> None:
    rig = Rig(held(), *[refused()] * 30, RELEASED)
    lease = rig.acquire()
    assert rig.release(lease) is Release.RELEASED
    assert len(rig.runtime.sleeps) == 30
    assert max(rig.runtime.sleeps) <= 0.1
    waiting = Rig(*[refused()] * 30, held(), unavailable_after=60.0)
    waiting.acquire()
    assert max(waiting.runtime.sleeps) > 0.1


def test_a_release_that_came_too_late_says_what_is_known() -> None:
    """An operator may have taken the name before the lease ran out, or before the second copy of the release."""
    cases: list[tuple[list[Reply | Fault | After], Release]] = [
        ([refused(), After(31.0, absent(b"none"))], Release.RELEASED),
        ([refused(), After(31.0, absent(b"other"))], Release.RELEASED),
        ([refused(), After(31.0, absent(b"other", forced=1))], Release.LOST),
        ([refused(), After(31.0, absent(b"none", forced=1))], Release.LOST),
        ([refused(), After(31.0, absent(b"other", forced=None))], Release.UNKNOWN),
        ([refused(), After(61.0, absent(b"other"))], Release.UNKNOWN),
        ([unanswered(), absent(b"other", forced=1)], Release.LOST),
        ([unanswered(), absent(b"other", forced=None)], Release.UNKNOWN),
        ([unanswered(), absent(b"none", forced=None)], Release.RELEASED),
    ]
    for answers, outcome in cases:
        with case(answers, outcome):
            rig = Rig(held(), *answers)
            lease = rig.acquire()
            assert rig.release(lease) is outcome
            if outcome is Release.LOST:
                assert lease.hold.reason is LossReason.TAKEN


def test_a_client_that_closes_waits_for_a_silent_server_only_so_long() -> None:
    cases: list[tuple[list[int], float, float]] = [
        ([2], 1.0, 1.0),
        ([0, 2], 1.0, 1.0),
        ([1, 1], 1.0, 5.0),
        ([2], inf, 5.0),
        ([], 1.0, 0.0),
    ]
    for attempts, silent_for, seconds in cases:
        with case(attempts, silent_for, seconds):
            rig = Rig()
            rig.engine.maintenance_runs = True
            for attempt in attempts:
                entry = OutboxEntry(rig.plan.primitive.leave("token", TOMB_MS, 0), START + 60.0)
                entry.attempt = attempt
                rig.engine.outbox[entry] = None
            run(close(rig.engine, lambda: None, 5.0, silent_for))
            assert rig.runtime.clock - START == pytest.approx(seconds, abs=0.01)
            assert not rig.engine.outbox
