"""How long a client bears what is wrong, and how soon it asks again."""

from __future__ import annotations

import pytest

import pawlock
from pawlock.core.acquire.local_wait import remaining
from pawlock.core.protocol.outcomes import Released
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.release.extend import extend
from pawlock.core.retry import pause_after, query
from pawlock.core.state.circuit_breaker import CircuitBreaker
from pawlock.core.state.records import Retry
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
    assert pause_after(rig.engine, borne, Retry(), rig.options, None, "acquire lock", "x") == 0.0
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


def breaker(first: Exception | None = None) -> CircuitBreaker:
    rig = Rig()
    return CircuitBreaker(rig.plan.primitive.inspect(0), START, first or OSError("it is off"), START)


def test_a_breaker_lets_pass_who_would_bear_more() -> None:
    open_now = breaker()
    open_now.check("x", 10.0, START + 9.9)
    with pytest.raises(pawlock.BackendUnavailable, match=r"10\.0 s.*it is off"):
        open_now.check("x", 10.0, START + 10.0)
    open_now.waited = 3.0
    with pytest.raises(pawlock.BackendUnavailable):
        open_now.check("x", 3.0, START + 1.0)
    open_now.check("x", 3.3, START + 1.0)


def test_a_breaker_of_several_masters_tells_of_each() -> None:
    first = pawlock.QuorumNotReached("two of three", name="x", outcomes={"a": "no answer"})
    with pytest.raises(pawlock.QuorumNotReached) as caught:
        breaker(first).check("x", 1.0, START + 2.0)
    assert caught.value.outcomes == {"a": "no answer"}


def test_what_is_over_is_waited_for_no_longer_than_a_moment() -> None:
    runtime = Rig().runtime
    assert remaining(runtime, None) is None
    assert remaining(runtime, START + 5.0) == 5.0
    for until in (START, START - 5.0):
        wait = remaining(runtime, until)
        assert wait is not None
        assert 0.0 < wait < 0.001
