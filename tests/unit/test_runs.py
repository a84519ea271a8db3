"""Runs in strict order, step by step: who is served next, when nobody is, and what becomes of who was."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from pawl.core.lease.base import BaseLease
from pawl.core.release.fast import hand_on
from pawl.core.release.transfer import disband
from pawl.core.state.records import Claim, Tenure
from pawl.core.state.strict_handover import enlist, pass_on
from pawl.model import LeaseState
from tests.unit.scripted import Rig, held


class Line:
    """A lease of a strict lock, and claims that stand behind it."""

    def __init__(self, behind: int = 2) -> None:
        self.rig = Rig(held(fence=500), handover=0)
        self.lease: BaseLease = self.rig.acquire()
        self.tenure: Tenure = self.rig.engine.schedule.all()[0]
        self.tenure.spot = "spot"
        self.rung: list[str] = []
        self.claims = [self._claim(f"w{number}") for number in range(behind)]
        self.tenure.behind = deque(claim.token for claim in self.claims)
        self.rig.engine.lined.update({claim.token: claim for claim in self.claims})

    def _claim(self, token: str) -> Claim:
        claim = Claim(token)
        claim.spot = "spot"
        claim.ring = lambda: self.rung.append(token)
        return claim

    def pass_on(self, number: int | None = None) -> bool:
        return pass_on(self.rig.engine, self.tenure, self.rig.runtime.clock, number)


def test_the_next_is_served_from_the_same_block() -> None:
    line = Line()
    first, second = line.claims
    assert line.pass_on()
    assert first.tenure is line.tenure
    assert (first.fence, line.rung) == (501, ["w0"])
    assert line.tenure.who is None, "nobody's, until it is taken"
    assert list(line.rig.engine.lined) == ["w1"]
    assert line.pass_on(0), "who had it before has passed it on already"
    assert line.rung == ["w0"]
    assert line.pass_on(1)
    assert (second.fence, line.rung) == (502, ["w0", "w1"])
    assert line.tenure.spent == ["w0", "w1"]
    assert not line.pass_on(), "nobody is left"


SPOILS: list[tuple[str, Callable[[Line], object]]] = [
    ("nobody is behind", lambda line: line.tenure.behind.clear() if line.tenure.behind else None),
    ("it is lost", lambda line: setattr(line.tenure, "state", LeaseState.LOST)),
    ("its block is used up", lambda line: setattr(line.tenure, "used", line.tenure.options.block - 1)),
    ("a renewal failed", lambda line: setattr(line.tenure, "failures", 1)),
    ("a copy of its acquire may still come", lambda line: setattr(line.tenure, "unanswered", True)),
    ("little is left", lambda line: setattr(line.rig.runtime, "clock", line.tenure.valid_until - 1.4)),
    ("who is next asks right now", lambda line: line.rig.engine.lined.pop("w0")),
    ("who is next is of another lock", lambda line: setattr(line.claims[0], "spot", "other")),
]


@pytest.mark.parametrize("spoil", [case[1] for case in SPOILS], ids=[case[0] for case in SPOILS])
def test_when_the_server_has_to_decide(spoil: Callable[[Line], object]) -> None:
    line = Line()
    spoil(line)
    assert not line.pass_on()
    assert not hand_on(line.rig.engine, line.lease)
    assert line.rung == []
    assert [claim.tenure for claim in line.claims] == [None, None]


def test_an_owner_hands_on_and_holds_it_no_more() -> None:
    line = Line()
    assert hand_on(line.rig.engine, line.lease)
    assert line.lease._released
    assert line.claims[0].tenure is line.tenure
    assert line.rung == ["w0"]
    assert line.rig.engine.held == {}
    assert not hand_on(line.rig.engine, line.lease), "once"


class _Interrupted(nullcontext[None]):
    def __enter__(self) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_before_anybody_is_chosen_changes_nothing() -> None:
    line = Line()
    line.rig.engine.guard = _Interrupted()
    with pytest.raises(KeyboardInterrupt):
        line.pass_on()
    with pytest.raises(KeyboardInterrupt):
        hand_on(line.rig.engine, line.lease)
    assert (line.rung, line.claims[0].tenure, line.lease._released) == ([], None, False)


def test_an_interrupt_after_the_choice_still_wakes_who_was_chosen() -> None:
    for pass_it in (Line.pass_on, lambda line: hand_on(line.rig.engine, line.lease)):
        line = Line()
        rings: list[int] = []

        def ring(rings: list[int] = rings) -> None:
            rings.append(1)
            if len(rings) == 1:
                raise KeyboardInterrupt

        line.claims[0].ring = ring
        with pytest.raises(KeyboardInterrupt):
            pass_it(line)
        assert line.claims[0].tenure is line.tenure
        assert len(rings) == 2


def test_who_was_served_leaves_by_itself_when_the_tenure_goes_elsewhere() -> None:
    line = Line()
    line.pass_on()
    disband(line.rig.engine, line.tenure)
    assert line.rig.departed() == [["w0", "0"]]


def test_who_waits_alone_is_in_no_run() -> None:
    rig = Rig(handover=0)
    claim, other = Claim("w0"), Claim("w1")
    claim.kin = "kin"
    rig.runtime.bell = lambda _token: lambda: None  # type: ignore[method-assign,assignment]
    rig.engine.waits[claim] = rig.plan.primitive, "me", 0.0
    assert not enlist(rig.engine, claim)
    rig.engine.waits[other] = rig.plan.primitive, "you", 0.0
    assert enlist(rig.engine, claim)
    assert rig.engine.lined == {"w0": claim}
    assert claim.ring is not None
    claim.unanswered = True
    assert not enlist(rig.engine, claim)
    claim.unanswered, claim.kin = False, ""
    assert not enlist(rig.engine, claim)
