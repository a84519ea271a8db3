"""Runs in strict order, step by step: who is served next, when nobody is, and what becomes of who was."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from pawlock.core.lease.in_progress import OngoingRelease
from pawlock.core.lease.record import HeldLease
from pawlock.core.protocol.carrier import Request
from pawlock.core.release.decision import Step, decide
from pawlock.core.release.transfer import end_run
from pawlock.core.state.records import ServerLease, StrictRun, Waiter
from pawlock.core.state.strict_handover import enlist, pass_on
from pawlock.model import LeaseState
from tests.unit.scripted import Rig, held

pytestmark = pytest.mark.slow


class Line:
    """A lease of a strict lock, and waiters that stand behind it."""

    def __init__(self, behind: int = 2) -> None:
        self.rig = Rig(held(fence=500), handover=0)
        self.lease: HeldLease = self.rig.acquire()
        self.server_lease: ServerLease = self.rig.engine.leases.schedule.all()[0]
        self.server_lease.follow_key = "follow_key"
        self.rung: list[str] = []
        self.waiters = [self._waiter(f"w{number}") for number in range(behind)]
        self.run = self.server_lease.run = StrictRun(deque(waiter.token for waiter in self.waiters))
        self.rig.engine.queues.followers.update({waiter.token: waiter for waiter in self.waiters})

    def _waiter(self, token: str) -> Waiter:
        waiter = Waiter(token)
        waiter.set_keys("follow_key", "")
        waiter.strict.wake = lambda: self.rung.append(token)
        return waiter

    def release(self) -> Step | Request:
        mark = OngoingRelease()
        mark.lease, mark.ended = self.lease, False
        return decide(self.rig.engine, mark, waited_for=True)

    def pass_on(self, number: int | None = None) -> bool:
        return pass_on(self.rig.engine, self.server_lease, self.rig.runtime.clock, number)


def test_the_next_is_served_from_the_same_block() -> None:
    line = Line()
    first, second = line.waiters
    assert line.pass_on()
    assert first.strict.server_lease is line.server_lease
    assert (first.strict.fence, line.rung) == (501, ["w0"])
    assert line.server_lease.owner.who is None, "nobody's, until it is taken"
    assert list(line.rig.engine.queues.followers) == ["w1"]
    assert line.pass_on(0), "who had it before has passed it on already"
    assert line.rung == ["w0"]
    assert line.pass_on(1)
    assert (second.strict.fence, line.rung) == (502, ["w0", "w1"])
    assert line.run.spent == ["w0", "w1"]
    assert not line.pass_on(), "nobody is left"


SPOILS: list[tuple[str, Callable[[Line], object]]] = [
    (
        "nobody is behind",
        lambda line: line.run.behind.clear() if line.run.behind else None,
    ),
    ("it is lost", lambda line: setattr(line.server_lease, "state", LeaseState.LOST)),
    (
        "its block is used up",
        lambda line: setattr(line.server_lease, "used", line.server_lease.options.block - 1),
    ),
    ("a renewal failed", lambda line: setattr(line.server_lease, "failures", 1)),
    ("a copy of its acquire may still come", lambda line: setattr(line.server_lease, "unanswered", True)),
    ("little is left", lambda line: setattr(line.rig.runtime, "clock", line.server_lease.valid_until - 1.4)),
    ("who is next asks right now", lambda line: line.rig.engine.queues.followers.pop("w0")),
    ("who is next is of another lock", lambda line: setattr(line.waiters[0].strict, "follow_key", "other")),
]


@pytest.mark.parametrize("spoil", [case[1] for case in SPOILS], ids=[case[0] for case in SPOILS])
def test_when_the_server_has_to_decide(spoil: Callable[[Line], object]) -> None:
    line = Line()
    spoil(line)
    assert not line.pass_on()
    assert line.release() in (Step.SEND, Step.LOST)
    assert line.rung == []
    assert [waiter.strict.server_lease for waiter in line.waiters] == [None, None]


def test_an_owner_hands_on_and_holds_it_no_more() -> None:
    line = Line()
    assert line.release() is Step.HANDED_OVER
    assert line.lease.released
    assert line.waiters[0].strict.server_lease is line.server_lease
    assert line.rung == ["w0"]
    assert line.rig.engine.leases.held == {}
    assert line.release() is Step.ALREADY_RELEASED, "once"


class _Interrupted(nullcontext[None]):
    def __enter__(self) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_before_anybody_is_chosen_changes_nothing() -> None:
    line = Line()
    line.rig.engine.guard = _Interrupted()
    with pytest.raises(KeyboardInterrupt):
        line.pass_on()
    with pytest.raises(KeyboardInterrupt):
        line.release()
    assert (line.rung, line.waiters[0].strict.server_lease, line.lease.released) == ([], None, False)


def test_an_interrupt_after_the_choice_still_wakes_who_was_chosen() -> None:
    for pass_it in (Line.pass_on, Line.release):
        line = Line()
        rings: list[int] = []

        def ring(rings: list[int] = rings) -> None:
            rings.append(1)
            if len(rings) == 1:
                raise KeyboardInterrupt

        line.waiters[0].strict.wake = ring
        with pytest.raises(KeyboardInterrupt):
            pass_it(line)
        assert line.waiters[0].strict.server_lease is line.server_lease
        assert len(rings) == 2


def test_who_was_served_leaves_by_itself_when_the_tenure_goes_elsewhere() -> None:
    line = Line()
    line.pass_on()
    end_run(line.rig.engine, line.server_lease)
    assert line.rig.departed() == [["w0", "0"]]


def test_who_waits_alone_is_in_no_run() -> None:
    rig = Rig(handover=0)
    waiter, other = Waiter("w0"), Waiter("w1")
    waiter.set_keys("", "batch_key")
    rig.runtime.waker = lambda _token: lambda: None  # type: ignore[method-assign,assignment]
    rig.engine.queues.waits[waiter] = rig.plan.primitive, "me", 0.0
    assert not enlist(rig.engine, waiter)
    rig.engine.queues.waits[other] = rig.plan.primitive, "you", 0.0
    assert enlist(rig.engine, waiter)
    assert rig.engine.queues.followers == {"w0": waiter}
    assert waiter.strict.wake is not None
    waiter.unanswered = True
    assert not enlist(rig.engine, waiter)
    waiter.unanswered, waiter.batch.batch_key = False, ""
    assert not enlist(rig.engine, waiter)
