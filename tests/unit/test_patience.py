"""How long a client bears what is wrong, and how soon it asks again."""

from __future__ import annotations

import pawlock
from pawlock.core.extend import extend
from pawlock.core.local_queue import Retry
from pawlock.core.outcomes import Released
from pawlock.core.retry import pause_after, query
from pawlock.core.runtime import Fault, FaultKind
from pawlock.model import Release
from tests.support.refusal import case
from tests.unit.scripted import RELEASED, START, After, Rig, held, run, unanswered

GONE = Fault(FaultKind.UNREACHABLE, "gone")
BUSY = Fault(FaultKind.NOT_READY, "a script runs")


def release(rig: Rig, *faults: Fault) -> None:
    rig.runtime.answers.extend([held(), *faults, RELEASED])
    assert rig.release(rig.acquire()) is Release.RELEASED


def prolong(rig: Rig, *faults: Fault) -> None:
    rig.runtime.answers.extend([held(), *faults, held(left_ms=40_000)])
    run(extend(rig.engine, rig.acquire(), 40.0))


def ask(rig: Rig, *faults: Fault) -> None:
    rig.runtime.answers.extend([*faults, RELEASED])
    call = rig.plan.primitive.leave("t9", 0, 0)
    assert run(query(rig.engine, call, rig.options, "x", "force_release"))[0] == Released()


DOINGS = [release, prolong, ask]


def test_a_fault_that_is_borne_keeps_no_frames() -> None:
    """They are those of its callers too, since Python 3.13, and keep alive what a user has dropped."""
    rig = Rig()
    try:
        try:
            raise OSError("cut")
        except OSError as error:
            raise Fault(FaultKind.UNREACHABLE, "gone") from error
    except Fault as fault:
        borne = fault
    assert (
        pause_after(rig.engine, borne, Retry(), rig.options, None, "acquire lock", "x", rig.runtime.clock)
        == 0.0
    )
    assert (borne.__traceback__, borne.__cause__, borne.__context__) == (None, None, None)


def test_the_first_lost_link_is_tried_again_at_once() -> None:
    for doing in DOINGS:
        with case(doing):
            rig = Rig()
            doing(rig, GONE, GONE)
            first, second = rig.runtime.sleeps
            assert first == 0.0
            assert 0.0 < second < 1.0


def test_a_server_that_is_busy_is_given_time_from_the_first() -> None:
    for doing in DOINGS:
        with case(doing):
            rig = Rig()
            doing(rig, BUSY)
            assert 0.0 < rig.runtime.sleeps[0] < 0.5


def test_a_release_that_began_in_time_is_repeated_for_one_request_longer() -> None:
    rig = Rig(held(), After(0.4, unanswered()), RELEASED)
    lease = rig.acquire()
    rig.runtime.clock = lease.valid_until - 0.1
    assert rig.release(lease) is Release.RELEASED
    assert rig.sent == ["acquire", "leave", "leave"]


def test_the_time_for_a_server_that_is_down_is_counted_from_the_first_failure_of_the_client() -> None:
    rig = Rig()
    given = rig.options.unavailable_after

    def fails(retry: Retry, sent_at: float, fault: Fault = GONE) -> bool:
        try:
            pause_after(rig.engine, fault, retry, rig.options, None, "acquire", "x", sent_at)
        except pawlock.BackendUnavailable:
            return True
        return False

    rig.runtime.clock = START + 1
    assert not fails(Retry(), START)
    rig.runtime.clock = START + given - 1
    assert not fails(Retry(), START), "in the time that the client gives it"
    rig.runtime.clock = START + given
    assert fails(Retry(), START), "who comes later makes one try"
    late = Retry()
    assert not fails(late, rig.runtime.clock), "what broke at once may have been one connection"
    assert fails(late, rig.runtime.clock), "two are not"
    assert not fails(Retry(holds=True), START), "a holder has its own time"
    rig.engine.note_answer()
    assert not fails(Retry(), rig.runtime.clock - 1), "an answer ends it"
    rig.runtime.clock += given + 61
    assert not fails(Retry(), rig.runtime.clock - 1), "and so does a minute in which nobody asked"


def test_no_answer_at_once_is_no_sign_of_a_server_that_is_down() -> None:
    rig = Rig()
    pause_after(rig.engine, unanswered(), Retry(), rig.options, None, "acquire", "x", rig.runtime.clock)
    assert rig.engine.health.down_since is None
    pause_after(rig.engine, unanswered(), Retry(), rig.options, None, "acquire", "x", rig.runtime.clock - 1)
    assert rig.engine.health.down_since == rig.runtime.clock - 1
