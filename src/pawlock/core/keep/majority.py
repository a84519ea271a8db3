"""What a lease of several masters needs once it is granted: its renewals, its release, and what is still to send."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, cast

from pawlock.core.keep.outbox import leave_votes
from pawlock.core.keep.replicas import renew_durably
from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.faults import or_raise
from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.quorum import spread
from pawlock.core.protocol.runtime import Fault
from pawlock.core.protocol.validity import to_ms
from pawlock.core.quorum.votes import Delivery, EachVote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.quorum import Question, QuorumPrimitive, QuorumRuntime
    from pawlock.core.quorum.ballot import GrantedVotes
    from pawlock.core.state.records import ServerLease

__all__ = ["ask_to_leave", "redeliver", "renew_one", "renew_votes", "renewal_patience"]

log: logging.Logger = logging.getLogger("pawlock.redlock")

_RESENT_PER_SECOND = 1000
"""How many deliveries are sent again in a second, at most about: each costs some 30 us of a client's CPU."""

_RESEND_WITHIN = 0.5
"""Seconds after which, at most, a request that one of several masters did not answer is sent again."""

_HEARD_WITHIN = 0.5
"""Seconds for which the maintenance waits for the answers to such requests at most: a lease that is granted meanwhile
may end soon. An answer that comes later counts all the same."""


async def ask_to_leave(engine: Engine, server_lease: ServerLease, call: Request) -> Outcome:
    """Send a release, and hear what became of it. Raises ``Fault``."""
    timeout = server_lease.options.request_timeout
    if engine.quorum is None:
        return await engine.runtime.call(call, timeout)
    nodes = cast("QuorumRuntime", engine.runtime)
    votes = leave_votes(engine, server_lease)
    await nodes.ask([(spread(call, votes.nodes), votes)], max(timeout, nodes.node_timeout))
    return votes.outcome()


def renewal_patience(engine: Engine, server_lease: ServerLease, now: float) -> float:
    """How long the answers to a renewal are waited for; of several masters half of what is left, if that is more."""
    if engine.quorum is None:
        return server_lease.options.request_timeout
    nodes = cast("QuorumRuntime", engine.runtime)
    return max(nodes.node_timeout, min(nodes.patience, (server_lease.valid_until - now) / 2))


async def renew_one(engine: Engine, server_lease: ServerLease, call: Request) -> Outcome:
    """Send one renewal. Raises ``Fault``."""
    if engine.quorum is None:
        return await renew_durably(engine.runtime, server_lease, call, server_lease.options.request_timeout)
    patience = renewal_patience(engine, server_lease, engine.runtime.now())
    return or_raise((await renew_votes(engine, [server_lease], [call], patience))[0])


async def redeliver(engine: Engine, leaving: Sequence[object], most: float) -> None:
    """Send each of several masters what it has not answered yet, within ``most`` seconds."""
    deliveries = [delivery for delivery in leaving if isinstance(delivery, Delivery)]
    runtime = engine.runtime
    nodes = cast("QuorumRuntime", runtime)
    try:
        questions = [(list(delivery.calls), delivery) for delivery in deliveries if not delivery.done]
        await nodes.ask(questions, min(nodes.node_timeout, most, _HEARD_WITHIN))
    except Fault as fault:
        log.debug("masters could not be reached: %s", fault.text)
    now = runtime.now()
    for delivery in deliveries:
        if not delivery.done and now < delivery.until:
            delivery.attempt += 1
            pause = full_jitter(delivery.attempt, runtime.random(), cap=_RESEND_WITHIN)
            # Many requests may wait for a hung node: what is left of a CPU is for those who work.
            delivery.due = now + 0.01 + pause + len(engine.outbox.entries) / _RESENT_PER_SECOND
            continue
        engine.count("departed" if delivery.done else "departure_given_up")
        engine.outbox.entries.pop(delivery, None)
        # In this order: a node that is added from now on is posted again, and one added before is seen here.
        delivery.posted = False
        if not delivery.done and now < delivery.until:
            delivery.posted = True
            engine.outbox.entries[delivery] = None


async def renew_votes(
    engine: Engine, batch: Sequence[ServerLease], calls: Sequence[Request], timeout: float
) -> list[Outcome | Fault]:
    """Renew leases on all nodes, and win back the votes of nodes that have none for anybody.

    A vote that is won back counts at once, as one that was given at the grant would: the node is not barred after a
    restart, and had the name free. But where a node said yes and, without a restart, has nothing now, somebody deleted
    it there, or the node lost it: such a vote does not count towards a majority.

    Returns:
        For each lease what its nodes said, as one answer.
    """
    nodes = cast("QuorumRuntime", engine.runtime)
    ballots = [EachVote(len(nodes.nodes)) for _ in calls]
    questions: list[Question] = [(spread(call, b.nodes), b) for call, b in zip(calls, ballots, strict=True)]
    urgent = [one for one in map(partial(_regain_at_once, engine), batch, ballots) if one is not None]
    for one in urgent:
        questions += one.questions()
    try:
        await nodes.ask(questions, timeout)
    except Fault as fault:
        return [fault] * len(calls)
    for one in urgent:
        one.count()
    needed: list[_Regain] = []
    for server_lease, votes in zip(batch, ballots, strict=True):
        regain = (
            _regain(engine, server_lease, votes) if server_lease.quorum is not None and votes.held else None
        )
        if regain is not None and votes.held >= votes.needed:
            # The lease does not depend on it, so nothing waits for it.
            for calls_of, ballot in regain.questions():
                nodes.send(calls_of, ballot)
        elif regain is not None:
            needed.append(regain)
    if needed:
        await nodes.ask([question for one in needed for question in one.questions()], timeout)
        for one in needed:
            one.count()
    return [votes.result() for votes in ballots]


def _regain_at_once(engine: Engine, server_lease: ServerLease, votes: EachVote) -> _Regain | None:
    """What asks nodes for their vote with the renewal itself, where the last one found no majority; None: it did.

    Others take and give back such votes all the time. Whoever first looks whether one is free comes too late.
    """
    kept = server_lease.quorum
    before = None if kept is None else kept.renewed
    if before is None or before.held >= before.needed:
        return None
    return _make_regain(engine, server_lease, votes, before.others())


def _regain(engine: Engine, server_lease: ServerLease, votes: EachVote) -> _Regain | None:
    """What asks nodes again that have no vote for anybody; None: there are none."""
    kept = cast("GrantedVotes", server_lease.quorum)
    before, kept.renewed = kept.renewed, votes
    lacking = {*votes.free(), *(before.free() if before is not None else ())}
    lacking = {index for index in lacking if not votes.has(index)}
    return _make_regain(engine, server_lease, votes, sorted(lacking))


def _make_regain(
    engine: Engine, server_lease: ServerLease, votes: EachVote, lacking: list[int]
) -> _Regain | None:
    with engine.guard:
        # A release reads who may have the token after it took the server lease: what is asked from here on it takes
        # back.
        return _Regain(engine, server_lease, votes, lacking) if lacking and server_lease.live else None


class _Regain(EachVote):
    """Asks nodes that have no vote for anybody for a vote for a lease that lives; counts who knows the fence then."""

    __slots__ = ("_engine", "_forgot", "_kept", "_server_lease", "_votes")

    def __init__(
        self, engine: Engine, server_lease: ServerLease, votes: EachVote, lacking: list[int]
    ) -> None:
        super().__init__(votes.nodes)
        nodes = cast("QuorumRuntime", engine.runtime)
        kept = cast("GrantedVotes", server_lease.quorum)
        self._engine = engine
        self._server_lease = server_lease
        self._votes = votes
        self._kept = kept
        # The nodes to ask, and whether each of them forgot without a restart that it had voted.
        self._forgot = {index: kept.voted_since(index, nodes.met_at(index)) for index in lacking}
        kept.ask_again(lacking)

    def questions(self) -> list[Question]:
        """The vote, and behind it the fence, which counts only where the token has the vote."""
        server_lease, options = self._server_lease, self._server_lease.options
        primitive = cast("QuorumPrimitive", server_lease.primitive)
        life_ms = to_ms(server_lease.rhythm.ttl) + options.delay_ms
        grant = primitive.grant(
            server_lease.token,
            life_ms,
            options.block,
            server_lease.fence,
            clock=True,
            wait=False,
            again=True,
        )
        ratify = primitive.ratify(server_lease.token, server_lease.fence, options.block)
        return [
            ([call if index in self._forgot else None for index in range(self.nodes)], ballot)
            for call, ballot in ((grant, EachVote(self.nodes)), (ratify, self))
        ]

    def add(self, index: int, outcome: Outcome | Fault) -> bool:
        """Take note of a vote that was won back; everybody who was asked is waited for."""
        self.outcomes[index] = outcome
        if isinstance(outcome, Granted):
            self._kept.won_back(index, outcome, self._engine.runtime.now())
        return False

    def late(self, index: int, outcome: Outcome | Fault) -> None:
        """The same."""
        self.add(index, outcome)

    def count(self) -> None:
        """Add the votes to those that the renewal found."""
        for index, forgot in self._forgot.items():
            if self.has(index) and not forgot:
                self._votes.outcomes[index] = self.outcomes[index]
