"""What a client makes of several masters: who has a vote, what time it is there, and when to give up."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from pawlock.core.outcomes import Absent, Busy, Dead, Gone, Granted, Look, Outcome, Released
from pawlock.core.runtime import Call, Fault, FaultKind, run
from pawlock.primitives.probe import probe
from pawlock.redlock.link import _CLOCK_FOR, MastersRuntime
from pawlock.redlock.nodes import Incarnation, KnownMasters, Node
from pawlock.redlock.options import RedlockOptions
from pawlock.redlock.requests import RedlockMutex
from pawlock.redlock.votes import Question, Votes
from pawlock.topology.endpoint import Endpoint
from tests.support.refusal import case

DOWN = Fault(FaultKind.UNREACHABLE, "gone")
DENIED = Fault(FaultKind.DENIED, "no password")
FINAL = Fault(FaultKind.UNREACHABLE, "no such host", final=True)


BUSY = Busy(900, foreign=False, holder="h:1/other")


def test_a_majority_is_lacking_where_more_than_a_minority_failed() -> None:
    votes = Votes(5)
    answers = [Granted(1, 1000, 0), DOWN, DOWN, BUSY, DOWN]
    decided = [votes.take(index, answer) for index, answer in enumerate(answers[:4])]
    assert (any(decided), votes.won, votes.lacking) == (False, False, False)
    votes.take(4, answers[4])
    assert votes.lacking


def test_masters_that_can_never_answer_are_told_from_those_that_may() -> None:
    for faults, final in (
        ([FINAL] * 3, True),
        ([FINAL] * 2, True),
        ([FINAL], False),
        ([FINAL, DOWN, DOWN], False),
        ([FINAL, DOWN, FINAL], True),
    ):
        votes = Votes(3)
        for index, fault in enumerate(faults):
            votes.take(index, fault)
        found = votes.result()
        assert isinstance(found, Fault)
        assert found.final is final, faults


def told(run_id: str, uptime: int) -> str:
    return f"# Server\nrun_id:{run_id}\nuptime_in_seconds:{uptime}\n"


def known_masters(*, fresh: bool = False, node_timeout: float | None = None) -> KnownMasters:
    options = RedlockOptions(fresh=fresh, node_timeout=node_timeout)
    return KnownMasters([Endpoint("redis", name, {}) for name in "abc"], options, probe("n"))


def node_at(now: float) -> Node:
    return Node(0, known_masters(), lambda: now, lambda: 1.0)


def counts_from(known: KnownMasters, index: int) -> float:
    life = known.present[index]
    assert life is not None
    return life.counts_from


def test_a_node_that_fails_is_looked_at_again_after_a_pause_that_grows() -> None:
    node = node_at(100.0)
    node.failed(DOWN)
    assert node.retry_at <= 100.0, "a connection may end although the node is there"
    node.failed(DOWN)
    assert node.retry_at == pytest.approx(100.05 + 0.1)
    for _ in range(20):
        node.failed(DOWN)
    assert node.retry_at == pytest.approx(102.05)
    node.met(None)
    assert node.retry_at <= 100.0


def test_nothing_is_applied_on_a_node_that_is_not_asked() -> None:
    node = node_at(100.0)
    node.failed(Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True))
    assert node.fault is not None
    assert (node.fault.kind, node.fault.maybe_applied) == (FaultKind.UNANSWERED, False)


def test_a_master_counts_once_what_it_may_have_forgotten_is_over() -> None:
    masters = known_masters()
    # Of the whole seconds that it tells, one may not be over yet.
    life = masters.met(0, told("x", 21), 1000.0)
    assert life == Incarnation("x", 1040.0)
    assert life.objection(1039.0) is not None
    assert life.objection(1040.0) is None
    masters.met(1, told("y", 61), 1000.0)
    assert counts_from(masters, 1) == 1000.0
    masters.met(2, "", 1000.0)
    assert counts_from(masters, 2) == 1000.0
    assert known_masters(fresh=True).met(0, told("x", 1), 1000.0).counts_from == -inf


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
            masters = known_masters(fresh=True)
            masters.met(0, told("x", 1000), 1000.0)
            masters.met(0, told("z", uptime), 1000.0 + heard)
            assert counts_from(masters, 0) == pytest.approx(1000.0 + heard + left)


def test_it_cannot_be_older_than_the_last_answer_of_the_one_before() -> None:
    masters = known_masters(fresh=True)
    masters.met(0, told("x", 1000), 1000.0)
    node, question = Node(0, masters, lambda: 4010.0, lambda: 0.0), Question([probe("n")] * 2, 3, 1.0)
    question.sent_at = 4000.0
    node.take(question, 0, DOWN)
    assert masters.heard_at[0] == 1000.0
    node.take(question, 1, Released())
    masters.met(0, told("z", 500), 4010.0)
    assert counts_from(masters, 0) == pytest.approx(4010.0 + 60.0 - 10.0)


def test_a_restart_that_was_learnt_is_a_restart_for_who_knew_the_node_before() -> None:
    """Each event loop of a client has connections of its own; a master that restarted is nobody's first sight."""
    masters = known_masters(fresh=True)
    masters.met(0, told("x", 1000), 1000.0)
    assert masters.met(0, told("z", 1), 1010.0).objection(1010.0) is not None


def test_a_timeout_follows_a_slow_majority_within_bounds() -> None:
    lives = known_masters()
    assert lives.timeout == 0.05
    lives.took(0.001)
    assert lives.timeout == 0.05
    lives.took(0.2)
    assert lives.timeout == pytest.approx(0.8)
    lives.took(30.0)
    assert lives.timeout == 2.0
    for _ in range(200):
        lives.took(0.001)
    assert lives.timeout == 0.05
    fixed = known_masters(node_timeout=0.3)
    fixed.took(5.0)
    assert fixed.timeout == 0.3
    assert fixed.patience == 0.3, "who gives a node's time means it"


def test_an_attempt_that_nobody_refused_listens_longer_than_a_node_may_take() -> None:
    lives = known_masters()
    assert lives.patience == 1.0
    lives.took(0.4)
    assert lives.patience == pytest.approx(1.6)
    votes = Votes(3)
    votes.take(0, DOWN)
    assert votes.worth_a_wait, "it may be won with the two others"
    split = Votes(3)
    split.take(1, BUSY)
    assert not split.worth_a_wait, "a split vote is given up in time, so that others get on"
    question = Question([probe("n")], 3, 0.1, 0.7)
    question.sent_at = 10.0
    assert question.until == pytest.approx(10.7)
    assert not question.over(10.1)
    assert question.over(10.71)
    assert [outcome is not None for outcome in question.votes[0].outcomes] == [True] * 3
    question = Question([probe("n")], 3, 0.1, 0.7)
    question.sent_at = 10.0
    question.take(0, 0, BUSY)
    assert not question.over(10.09)
    assert question.over(10.11)
    renewal = Question([probe("n")], 3, 0.1, since=9.0)
    renewal.sent_at = 10.0
    assert renewal.over(10.0), "it has no more time where it had to wait for connections"


def test_an_answer_after_the_decision_is_for_the_record() -> None:
    told: list[bool] = []
    question = Question([probe("n")] * 2, 3, 0.1)
    question.sent_at, question.told = 10.0, lambda: told.append(True)
    for at in (0, 1):
        for index in (0, 2):
            assert not question.over(10.0)
            question.take(index, at, Granted(5, 900, 0))
    assert question.over(10.0)
    assert told == [True]
    question.take(1, 0, BUSY)
    assert question.votes[0].outcomes[1] is BUSY
    assert question.votes[0].won
    assert told == [True]


def test_a_majority_that_says_the_same_decides() -> None:
    yes, no, look = Granted(5, 900, 0), Released(), Look("h:1/a", 900, 5, 5, 1)
    cases: list[tuple[list[Any], int | None]] = [
        ([yes, yes, yes], 2),
        ([yes, BUSY, yes, Gone("none"), Dead()], 4),
        ([no, Absent(), no], 2),
        ([DOWN, DOWN, DOWN, yes], None),
        ([look, look._replace(holder="h:1/b"), look, look], 3),
        ([look, DOWN, DOWN, DOWN, DOWN], 4),
    ]
    for answers, decides in cases:
        with case(answers, decides):
            votes = Votes(5)
            found = [index for index, answer in enumerate(answers) if votes.take(index, answer)]
            assert found == ([] if decides is None else [decides])


def test_a_vote_of_the_caller_that_is_not_undone_yet_is_nobody_elses() -> None:
    mine = Busy(900, foreign=False, holder="h:1/me")
    cases: list[tuple[list[Any], Busy | None]] = [
        ([mine, Granted(1, 1, 0), DOWN], None),
        ([mine, BUSY, DOWN], BUSY),
        # a lease of its own, which it forgot
        ([mine, mine, DOWN], mine),
        ([BUSY, DOWN, DOWN], BUSY),
        ([DOWN, Granted(1, 1, 0), DOWN], None),
    ]
    for outcomes, held in cases:
        with case(outcomes, held):
            votes = Votes(3)
            votes.outcomes = outcomes
            assert votes.held_by("h:1/me") is held


def test_one_server_under_two_addresses_has_one_vote() -> None:
    masters = known_masters()
    masters.met(0, told("x", 100), 1000.0)
    with pytest.raises(Fault) as caught:
        masters.met(1, told("x", 100), 1000.0)
    assert caught.value.final
    assert masters.present[1] is None
    masters.met(0, told("x", 100), 1001.0)  # of itself it is no copy
    for index in (1, 2):
        masters.met(index, "nothing", 1000.0)  # two that say nothing may be two
    assert not masters.remembers()


class Masters(MastersRuntime[Any]):
    """Three masters whose answers are given beforehand."""

    def __init__(self, *answers: list[Outcome | Fault]) -> None:
        self.now = lambda: 1.0
        self.random = lambda: 0.0
        self._treat(known_masters(fresh=True))
        self._ending = False
        self.answers = list(answers)
        self.asked: list[Call] = []

    async def _ask(self, question: Question, timeout: float) -> None:
        del timeout
        question.sent_at = 1.0
        for at, call in enumerate(question.calls):
            self.asked.append(call)
            for node, outcome in zip(self._nodes, self.answers.pop(0), strict=True):
                node.take(question, at, outcome)

    async def sleep(self, seconds: float) -> None:
        assert seconds == 0.0

    def _begin_meeting(self, node: Node) -> None:
        raise AssertionError(node)

    async def _join(self, node: Node, timeout: float) -> None:
        raise AssertionError(node)

    def acquire(self) -> Any:
        mutex = RedlockMutex("lock", "n", "n", RedlockOptions())
        vote = mutex.acquire("t@h:1/me", 30_000, 3_000, wait=True, block=1, channel="-", max_queue=1)
        return run(self.call(vote, 1.0))


def given(fence: int, clock: int = 0) -> Granted:
    return Granted(fence, 30_000, clock)


def test_a_majority_that_minted_the_same_fence_grants_at_once() -> None:
    masters = Masters([given(7), given(7), DOWN])
    granted = masters.acquire()
    assert (granted.fence, granted.left_ms) == (7, 30_000)
    info = granted.quorum[1]()
    assert [vote.granted for vote in info.nodes] == [True, True, False]
    assert len(masters.asked) == 1


def test_a_fence_that_they_do_not_share_is_written_back_before_it_counts() -> None:
    masters = Masters([given(7), given(9), DOWN], [given(9), given(9), DOWN])
    assert masters.acquire().fence == 9
    assert [call.name for call in masters.asked] == ["grant", "renew"]
    with pytest.raises(Fault) as caught:
        Masters([given(7), given(9), DOWN], [given(9), DOWN, DOWN]).acquire()
    assert caught.value.outcomes is not None
    assert isinstance(Masters([given(7), given(9), DOWN], [Gone("none"), Gone("none"), DOWN]).acquire(), Gone)


def test_held_too_few_and_too_late_are_three_answers() -> None:
    masters = Masters([given(7), BUSY, BUSY], [Released()] * 3)
    busy = masters.acquire()
    assert (type(busy), busy.holder, len(busy.outcomes)) == (Busy, "h:1/other", 3)
    assert [call.name for call in masters.asked] == ["grant", "leave"], "what it got is undone everywhere"
    masters = Masters([given(7), DOWN, DOWN])
    with pytest.raises(Fault) as caught:
        masters.acquire()
    assert (caught.value.kind, caught.value.maybe_applied) == (FaultKind.UNREACHABLE, True)
    assert len(masters.asked) == 1, "the same token is asked for again, or left"
    broke = Fault(FaultKind.UNANSWERED, "broke", maybe_applied=True)
    with pytest.raises(Fault) as caught:
        Masters([given(7), broke, DOWN]).acquire()
    assert (caught.value.kind, caught.value.maybe_applied) == (FaultKind.UNANSWERED, True)
    with pytest.raises(Fault) as caught:
        Masters([DOWN] * 3).acquire()
    assert (caught.value.kind, caught.value.maybe_applied) == (FaultKind.UNREACHABLE, False)
    with pytest.raises(Fault) as caught:
        Masters([Granted(7, 1, 0)] * 3).acquire()
    assert caught.value.kind is FaultKind.LATE
    with pytest.raises(Fault) as caught:
        Masters([DENIED, DENIED, given(1)]).acquire()
    assert (caught.value.kind, caught.value.final) == (FaultKind.DENIED, True)


def test_a_token_that_is_over_is_said_to_be() -> None:
    assert isinstance(Masters([Dead()] * 3).acquire(), Dead)
    assert isinstance(Masters([Dead(), Dead(), BUSY], [Released()] * 3).acquire(), Busy)


def test_a_vote_of_its_own_that_is_not_undone_yet_is_no_answer_of_another() -> None:
    mine = Busy(900, foreign=False, holder="h:1/me")
    cases: list[list[Outcome | Fault]] = [[mine, given(7), DOWN], [mine, given(7), given(7)]]
    for answers in cases:
        masters = Masters(answers)
        if DOWN in answers:
            with pytest.raises(Fault) as caught:
                masters.acquire()
            assert caught.value.maybe_applied, "the same token is asked for again, or left"
        else:
            assert masters.acquire().fence == 7
        assert len(masters.asked) == 1


def test_what_a_node_did_not_answer_is_sent_once_more() -> None:
    masters = Masters([given(7), BUSY, BUSY], [Released(), DOWN, Released()])
    masters.acquire()
    owed = [[call.name for call in node.take_owed()] for node in masters._nodes]
    assert owed == [[], ["leave"], []]
    assert not masters._nodes[1].take_owed(), "once"


def test_the_clock_of_a_majority_is_learnt() -> None:
    cases: list[tuple[list[int], int]] = [
        # the highest
        ([5_000_000, 5_000_300, 5_000_100], 4_000_300),
        # one that is far ahead
        ([5_000_000, 5_000_300, 9_999_999], 4_000_300),
        # one second is not far
        ([5_000_000, 5_000_100, 6_000_099], 5_000_099),
        # one did not tell
        ([5_000_000, 0, 0], 4_000_000),
    ]
    for clocks, ahead in cases:
        with case(clocks, ahead):
            masters = Masters([given(1, clock) for clock in clocks])
            masters.acquire()
            assert (masters._ahead_us, masters._ahead_at) == (ahead, 1.0)
    masters = Masters([given(1)] * 3)
    masters.acquire()
    assert masters._ahead_us == 0.0, "nothing is learnt from nobody"


@pytest.mark.parametrize(
    ("ahead", "age", "proposes"),
    [(0.0, 0.0, False), (5e6, _CLOCK_FOR - 0.1, True), (5e6, _CLOCK_FOR + 0.1, False)],
    ids=["no clock was seen", "of late", "long ago"],
)
def test_nothing_is_proposed_after_a_while_so_that_the_nodes_tell_their_clocks(
    ahead: float, age: float, *, proposes: bool
) -> None:
    masters = Masters([given(1, 7_000_000)] * 3)
    masters._ahead_us, masters._ahead_at = ahead, 1.0 - age
    masters.acquire()
    proposal = int(masters.asked[0].words()[4])
    assert proposal > 1e6 if proposes else proposal == 0
    assert masters._ahead_us == (ahead if proposes else 6e6)
