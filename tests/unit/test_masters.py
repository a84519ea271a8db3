"""What a client makes of several masters: who has a vote, what time it is there, and when to give up."""

from __future__ import annotations

from contextlib import nullcontext
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pawlock.core.protocol.options import LockOptions
from pawlock.core.protocol.outcomes import Busy, Granted
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.protocol.terms import Terms
from pawlock.core.quorum.ballot import _CLOCK_FOR, learn_clock, question_of
from pawlock.core.quorum.nodes import Incarnation, Incarnations, KnownNodes, Node
from pawlock.core.quorum.votes import GrantVotes, MergedVotes
from pawlock.transport.node import Question
from tests.support.refusal import case

DOWN = Fault(FaultKind.UNREACHABLE, "gone")
DENIED = Fault(FaultKind.DENIED, "no password")
FINAL = Fault(FaultKind.UNREACHABLE, "no such host", final=True)


def test_a_write_back_is_lacking_where_more_than_a_minority_failed() -> None:
    votes = GrantVotes(5)
    answers = [Granted(1, 1000, 0), DOWN, DOWN, Busy(0, foreign=False, holder=""), DOWN]
    decided = [votes.add(index, answer) for index, answer in enumerate(answers[:4])]
    assert (decided, votes.granted, votes.lacking) == ([False, False, False, True], 1, False)
    votes.add(4, answers[4])
    assert votes.lacking


def test_masters_that_can_never_answer_are_told_from_those_that_may() -> None:
    for faults, final in (
        ([FINAL] * 3, True),
        ([FINAL] * 2, True),
        ([FINAL], False),
        ([FINAL, DOWN, FINAL], False),
    ):
        votes = MergedVotes(3)
        for index, fault in enumerate(faults):
            votes.add(index, fault)
        found = votes.result()
        assert isinstance(found, Fault)
        assert found.final is final, faults


def told(run_id: str, uptime: int) -> str:
    return f"# Server\nrun_id:{run_id}\nuptime_in_seconds:{uptime}\n"


def known_nodes(*, fresh: bool = False) -> KnownNodes:
    return KnownNodes(Incarnations(("a", "b", "c"), 60.0, fresh=fresh, guard=nullcontext()))


def counts_from(masters: KnownNodes, index: int) -> float:
    life = masters.incarnations.present[index]
    assert life is not None
    return life.counts_from


def test_a_node_that_fails_is_looked_at_again_after_a_pause_that_grows() -> None:
    node = Node("a")
    node.failed(DOWN, 100.0, 0.0)
    assert node.retry_at == 100.0, "a connection may end although the node is there"
    node.failed(DOWN, 100.0, 1.0)
    assert node.retry_at == pytest.approx(100.05 + 0.1)
    for _ in range(20):
        node.failed(DOWN, 100.0, 1.0)
    assert node.retry_at == pytest.approx(102.05)


def test_nothing_is_applied_on_a_node_that_is_not_asked() -> None:
    node = Node("a")
    node.failed(Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True), 100.0, 0.0)
    assert node.fault is not None
    assert (node.fault.kind, node.fault.maybe_applied) == (FaultKind.UNANSWERED, False)


def test_a_master_counts_once_what_it_may_have_forgotten_is_over() -> None:
    masters = known_nodes()
    # Of the whole seconds that it tells, one may not be over yet.
    life = masters.met(0, told("x", 21), 1000.0)
    assert life == Incarnation("x", 1040.0)
    assert masters.objection(0, 1039.0) is not None
    assert masters.objection(0, 1040.0) is None
    masters.met(1, told("y", 61), 1000.0)
    assert counts_from(masters, 1) == -inf
    young = known_nodes(fresh=True)
    young.met(0, told("x", 1), 1000.0)
    assert young.objection(0, 1000.0) is None


def test_a_restart_is_never_believed_to_be_older_than_it_can_be() -> None:
    cases: list[tuple[int, float, float]] = [
        # by its own word
        (4, 10.0, 57.0),
        # it was another ten seconds ago
        (31, 10.0, 50.0),
        # long ago
        (500, 100.0, 0.0),
        # just now
        (0, 10.0, 60.0),
    ]
    for uptime, heard, left in cases:
        with case(uptime, heard, left):
            masters = known_nodes(fresh=True)
            masters.met(0, told("x", 1000), 1000.0)
            masters.met(0, told("z", uptime), 1000.0 + heard)
            assert counts_from(masters, 0) == pytest.approx(1000.0 + heard + left)


def test_it_cannot_be_older_than_the_last_answer_of_the_one_before() -> None:
    masters = known_nodes(fresh=True)
    life = masters.met(0, told("x", 1000), 1000.0)
    assert isinstance(life, Incarnation)
    masters.incarnations.heard(0, life, 4000.0)
    masters.met(0, told("z", 500), 4010.0)
    assert counts_from(masters, 0) == pytest.approx(4010.0 + 60.0 - 10.0)


def test_what_one_loop_learns_of_a_restart_the_others_know() -> None:
    """Each event loop of a client has connections of its own; a master that restarted is nobody's first sight."""
    first = known_nodes(fresh=True)
    second = KnownNodes(first.incarnations)
    first.met(0, told("x", 1000), 1000.0)
    life = second.met(0, told("z", 1), 1010.0)
    assert isinstance(life, Incarnation)
    assert life.objection(1010.0) is not None
    assert first.objection(0, 1010.0) is not None


def test_a_timeout_follows_the_slowest_node_within_bounds() -> None:
    lives = known_nodes().incarnations
    assert lives.timeout == 0.05
    lives.took(0, 0.001)
    assert lives.timeout == 0.05
    lives.took(1, 0.2)
    assert lives.timeout == pytest.approx(0.8)
    lives.took(2, 30.0)
    assert lives.timeout == 2.0
    for _ in range(200):
        lives.took(2, 0.001)
        lives.took(1, 0.001)
    assert lives.timeout == 0.05
    fixed = Incarnations(("a",), 60.0, fresh=True, guard=nullcontext(), node_timeout=0.3)
    fixed.took(0, 5.0)
    assert fixed.timeout == 0.3
    assert fixed.patience == 0.3, "who gives a node's time means it"


def test_an_attempt_that_nobody_refused_listens_longer_than_a_node_may_take() -> None:
    lives = known_nodes().incarnations
    assert lives.patience == 1.0
    lives.took(0, 0.4)
    assert lives.patience == pytest.approx(1.6)
    votes = GrantVotes(3, None, lives.patience)
    votes.add(0, Fault(FaultKind.UNREACHABLE, "gone"))
    assert votes.patience() == pytest.approx(1.6), "it may be won with the two others"
    votes.add(1, Busy(100, foreign=False, holder="somebody"))
    assert not votes.patience(), "a split vote is given up in time, so that others get on"
    question = Question(GrantVotes(3, None, 0.7), 3, 10.0, 0.1)
    assert question.listen_on()
    assert question.deadline == pytest.approx(10.7)
    assert not question.listen_on(), "once"
    assert not Question(MergedVotes(3), 3, 10.0, 0.1).listen_on(), "a release is repeated"


def test_one_server_under_two_addresses_has_one_vote() -> None:
    masters = known_nodes()
    assert isinstance(masters.met(0, told("x", 100), 1000.0), Incarnation)
    fault = masters.met(1, told("x", 100), 1000.0)
    assert isinstance(fault, Fault)
    assert fault.final
    assert masters.incarnations.present[1] is None
    assert isinstance(masters.met(0, told("x", 100), 1001.0), Incarnation), "of itself it is no copy"
    assert isinstance(masters.met(1, "nothing", 1000.0), Incarnation)
    assert isinstance(masters.met(2, "nothing", 1000.0), Incarnation), "two that say nothing may be two"
    assert not masters.incarnations.remembers()


def test_the_clock_of_a_majority_is_learnt() -> None:
    cases: list[tuple[list[int], int]] = [
        # the highest
        ([5_000_000, 5_000_300, 5_000_100], 4_000_300),
        # one that is far ahead
        ([5_000_000, 5_000_300, 9_999_999], 4_000_300),
        # one second is not far
        ([5_000_000, 5_000_100, 6_000_099], 5_000_099),
        # of two
        ([5_000_000, 7_000_000], 6_000_000),
        # two of five are ahead
        ([5_000_000, 9_500_000, 5_000_300, 9_000_000, 5_000_100], 4_000_300),
        # of one
        ([5_000_000], 4_000_000),
        # one did not tell
        ([5_000_000, 0], 4_000_000),
    ]
    for clocks, ahead in cases:
        with case(clocks, ahead):
            nodes = SimpleNamespace(ahead_us=0.0, ahead_at=0.0)
            votes = SimpleNamespace(outcomes=[None, DOWN, *(Granted(1, 1, clock) for clock in clocks)])
            learn_clock(cast("Any", nodes), cast("Any", votes), 1.0)
            assert (nodes.ahead_us, nodes.ahead_at) == (ahead, 1.0)


@pytest.mark.parametrize(
    ("ahead", "age", "proposes", "clock"),
    [(0.0, 0.0, False, True), (5.0, _CLOCK_FOR - 0.1, True, False), (5.0, _CLOCK_FOR + 0.1, True, True)],
    ids=["no clock was seen", "of late", "long ago"],
)
def test_a_clock_is_asked_for_again_after_a_while(
    ahead: float, age: float, *, proposes: bool, clock: bool
) -> None:
    asked: list[tuple[int, bool]] = []
    primitive = SimpleNamespace(grant=lambda *args, clock: asked.append((args[3], clock)))
    nodes = SimpleNamespace(ahead_us=ahead, ahead_at=1000.0)
    question_of(cast("Any", nodes), cast("Any", primitive), "t", Terms(LockOptions()), 1000.0 + age)
    [(proposal, asks)] = asked
    assert asks is clock
    assert proposal == 0 if not proposes else proposal > (1000.0 + age) * 1e6


def test_nothing_is_learnt_from_nobody() -> None:
    nodes = SimpleNamespace(ahead_us=7.0, ahead_at=3.0)
    learn_clock(cast("Any", nodes), cast("Any", SimpleNamespace(outcomes=[DOWN, Granted(1, 1, 0)])), 1.0)
    assert (nodes.ahead_us, nodes.ahead_at) == (7.0, 3.0)


def test_it_gives_up_once_no_majority_can_be_left() -> None:
    cases: list[tuple[list[Any], Fault | None]] = [
        ([DENIED, DENIED, Granted(1, 1, 0)], DENIED),
        ([FINAL, DENIED, DOWN], FINAL),
        ([FINAL, FINAL, None], FINAL),
        ([DENIED, DOWN, DOWN], None),
        ([DOWN, DOWN, DOWN], None),
    ]
    for outcomes, refused in cases:
        with case(outcomes, refused):
            votes = GrantVotes(3)
            votes.outcomes = outcomes
            assert votes.refused_for_good() is refused
