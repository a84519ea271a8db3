"""What a client makes of several masters: who has a vote, what time it is there, and when to give up."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pawl.core.candidate import _CLOCK_FOR, learn_clock, question_of
from pawl.core.options import LockOptions
from pawl.core.redlock import _Attempt
from pawl.core.roster import Node, Roster
from pawl.core.runtime import Fault, FaultKind

DOWN = Fault(FaultKind.UNREACHABLE, "gone")
DENIED = Fault(FaultKind.DENIED, "no password")
FINAL = Fault(FaultKind.UNREACHABLE, "no such host", final=True)


def told(run_id: str, uptime: int) -> str:
    return f"# Server\nrun_id:{run_id}\nuptime_in_seconds:{uptime}\n"


def roster(*, fresh: bool = False) -> Roster:
    return Roster(("a", "b", "c"), 60.0, fresh=fresh)


def test_a_node_that_fails_is_looked_at_again_after_a_pause_that_grows() -> None:
    node = Node("a")
    node.failed(DOWN, 100.0, 0.0)
    assert node.retry_at == pytest.approx(100.05)
    node.failed(DOWN, 100.0, 1.0)
    assert node.retry_at == pytest.approx(100.05 + 0.1)
    for _ in range(20):
        node.failed(DOWN, 100.0, 1.0)
    assert node.retry_at == pytest.approx(102.05)


def test_a_master_counts_once_what_it_may_have_forgotten_is_over() -> None:
    masters = roster()
    # Of the whole seconds that it tells, one may not be over yet.
    assert masters.met(0, told("x", 21), 1000.0) is None
    assert masters.nodes[0].counts_from == 1040.0
    assert masters.met(1, told("y", 61), 1000.0) is None
    assert masters.nodes[1].counts_from == -inf
    assert roster(fresh=True).met(0, told("x", 1), 1000.0) is None


@pytest.mark.parametrize(
    ("uptime", "heard", "left"),
    [(4, 10.0, 57.0), (31, 10.0, 50.0), (500, 100.0, 0.0), (0, 10.0, 60.0)],
    ids=["by its own word", "it was another ten seconds ago", "long ago", "just now"],
)
def test_a_restart_is_never_believed_to_be_older_than_it_can_be(
    uptime: int, heard: float, left: float
) -> None:
    masters = roster(fresh=True)
    masters.met(0, told("x", 1000), 1000.0)
    masters.met(0, told("z", uptime), 1000.0 + heard)
    assert masters.nodes[0].counts_from == pytest.approx(1000.0 + heard + left)
    assert masters.nodes[0].run_id == "z"


def test_one_server_under_two_addresses_has_one_vote() -> None:
    masters = roster()
    assert masters.met(0, told("x", 100), 1000.0) is None
    fault = masters.met(1, told("x", 100), 1000.0)
    assert fault is not None
    assert fault.final
    assert masters.nodes[1].run_id is None
    assert masters.met(0, told("x", 100), 1001.0) is None, "of itself it is no copy"
    assert masters.met(1, "nothing", 1000.0) is None
    assert masters.met(2, "nothing", 1000.0) is None, "two that say nothing may be two"
    assert not masters.remembers()


@pytest.mark.parametrize(
    ("clocks", "ahead"),
    [
        ([5_000_000, 5_000_300, 5_000_100], 4_000_300),
        ([5_000_000, 5_000_300, 9_999_999], 4_000_300),
        ([5_000_000, 5_000_100, 6_000_099], 5_000_099),
        ([5_000_000, 7_000_000], 6_000_000),
        ([5_000_000, 9_500_000, 5_000_300, 9_000_000, 5_000_100], 4_000_300),
        ([5_000_000], 4_000_000),
        ([5_000_000, 0], 4_000_000),
    ],
    ids=[
        "the highest",
        "one that is far ahead",
        "one second is not far",
        "of two",
        "two of five are ahead",
        "of one",
        "one did not tell",
    ],
)
def test_the_clock_of_a_majority_is_learnt(clocks: list[int], ahead: int) -> None:
    nodes = SimpleNamespace(ahead_us=0.0, ahead_at=0.0)
    votes = SimpleNamespace(outcomes=[None, DOWN, *([b"H", b"", 1, clock] for clock in clocks)])
    learn_clock(cast("Any", nodes), cast("Any", votes), 1.0)
    assert (nodes.ahead_us, nodes.ahead_at) == (ahead, 1.0)


@pytest.mark.parametrize(
    ("ahead", "age", "wish", "clock"),
    [(0.0, 0.0, False, True), (5.0, _CLOCK_FOR - 0.1, True, False), (5.0, _CLOCK_FOR + 0.1, True, True)],
    ids=["no clock was seen", "of late", "long ago"],
)
def test_a_clock_is_asked_for_again_after_a_while(
    ahead: float, age: float, *, wish: bool, clock: bool
) -> None:
    asked: list[tuple[int, bool]] = []
    primitive = SimpleNamespace(grant=lambda *args, clock, wait: asked.append((args[3], clock)))
    nodes = SimpleNamespace(ahead_us=ahead, ahead_at=1000.0)
    question_of(cast("Any", nodes), cast("Any", primitive), "t", LockOptions(), 1000.0 + age, wait=False)
    [(hint, asks)] = asked
    assert asks is clock
    assert hint == 0 if not wish else hint > (1000.0 + age) * 1e6


def test_nothing_is_learnt_from_nobody() -> None:
    nodes = SimpleNamespace(ahead_us=7.0, ahead_at=3.0)
    learn_clock(cast("Any", nodes), cast("Any", SimpleNamespace(outcomes=[DOWN, [b"H", b"", 1, 0]])), 1.0)
    assert (nodes.ahead_us, nodes.ahead_at) == (7.0, 3.0)


@pytest.mark.parametrize(
    ("outcomes", "refused"),
    [
        ([DENIED, DENIED, [b"H"]], DENIED),
        ([FINAL, DENIED, DOWN], FINAL),
        ([FINAL, FINAL, None], FINAL),
        ([DENIED, DOWN, DOWN], None),
        ([DOWN, DOWN, DOWN], None),
    ],
)
def test_it_gives_up_once_no_majority_can_be_left(outcomes: list[Any], refused: Fault | None) -> None:
    attempt = SimpleNamespace(votes=SimpleNamespace(outcomes=outcomes, nodes=3, needed=2))
    assert _Attempt._finally_refused(cast("Any", attempt)) is refused
