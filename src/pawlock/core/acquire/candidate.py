"""How a majority of independent masters grants a name: one candidate asks all at once, and retries at random times.

Rules:

1. Every attempt has a token of its own. A vote of an attempt that failed is taken back on the connection that asked
   for it, behind the question, so that it cannot overtake it. A token that was taken back is never used again.
2. Taking a vote back is a delivery (``votes.Delivery``): it is repeated for each node, with a tombstone, until that
   node has answered or the token has expired. Only the maintenance waits for it.
3. Validity is counted from before the first question was sent, and checked again when the fence is known to a
   majority.
4. A grant counts once a majority that holds the token knows its fence (see ``votes``).
5. The outcome of an attempt is decided by the answers that came in time, before anything is taken back. "Held by
   another" is only said where a node said so, and "too few answered" only where failures alone leave no majority.
6. A candidate that was refused waits for a random time, so that split votes do not split again.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, cast

from pawlock.core.keep.outbox import barred, delivery_of, granted
from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.faults import to_error
from pawlock.core.protocol.outcomes import Busy
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.quorum import QuorumRuntime, spread
from pawlock.core.protocol.redlock_options import RedlockOptions
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.quorum.ballot import learn_clock, patience_until, question_of, word_of
from pawlock.core.quorum.votes import (
    Delivery,
    GrantVotes,
    LeaveVotes,
    may_hold,
)
from pawlock.core.retry import NO_SIGN_WITHIN, check_stop, rest
from pawlock.core.state.records import WaiterState
from pawlock.errors import ClockDrift, QuorumNotReached
from pawlock.model import Grant

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.quorum import QuorumPrimitive
    from pawlock.core.protocol.terms import Terms
    from pawlock.core.state.records import Former, Waiter

__all__ = ["win"]

log: logging.Logger = logging.getLogger("pawlock.redlock")

_MOST_LATE_GRANTS = 3
_LONGEST_PAUSE = 0.4
_LAST_TRY = 0.01
_DOUBLINGS = 4

_TRIES_AT_ONCE = 4
"""Attempts of a caller that does not wait, where neither "held" nor "failed" is certain: votes were split, or
connections had ended while nobody used them."""

_MEETING = 2.0
"""Seconds within which the first caller of a client expects handshakes with a majority."""

_AT_ONCE = 2.0
"""Seconds after which a caller that does not wait makes no further attempt."""

_RATE = 0.01
"""How much faster a node's clock may go than this machine's: as for the drift of a lease."""

_GRANTED_WITHIN_MS = 5
"""How much less a token may have left than was asked for: milliseconds that are rounded."""

_MOMENT = 0.1
"""Seconds for a node to be connected again, at most, before a caller that does not wait makes another attempt."""


async def win(
    engine: Engine,
    primitive: QuorumPrimitive,
    options: Terms,
    waiter: Waiter,
    until: float | None,
    *,
    wait: bool,
) -> Grant | None:
    """Drive a waiter to its grant by a majority.

    Args:
        engine: The client's engine.
        primitive: What to send to each node.
        options: The lock's options.
        waiter: The waiter; a token of this client that it is to leave first (``old``) is left.
        until: When to give up, on the runtime's clock; None never.
        wait: False to try once.

    Returns:
        The grant, or None if somebody else holds the name and the time is up.

    Raises:
        QuorumNotReached: Too few nodes answered, for ``unavailable_after`` or until the time was up.
        ClockDrift: Grants came, but too late to be of use.
        ClientClosed: The client was closed meanwhile.
    """
    nodes = cast("QuorumRuntime", engine.runtime)
    most = _MEETING if until is None or not wait else max(0.0, min(_MEETING, until - engine.runtime.now()))
    try:
        await nodes.meet(most)
        if not wait:
            # What counts is how long the nodes take, not how long it took to meet them.
            until = None
        if waiter.old is not None:
            await _leave_old(engine, primitive, waiter.old)
            waiter.old = None
        attempt = _Attempt(engine, primitive, options, waiter, until, wait=wait)
        tries = 0
        while True:
            grant = await attempt.run()
            if grant is not None:
                return grant
            check_stop(waiter.stop, primitive.name)
            tries += 1
            pause = attempt.pause(tries, until)
            if pause is None:
                await attempt.await_undo(until)
                attempt.raise_refusal()
                return None
            await rest(engine, pause, primitive.name, "acquire")
    except Fault as fault:
        # The client was closed between two requests: the next one could not even be sent.
        raise to_error(fault, primitive.name, "acquire") from fault


async def _leave_old(engine: Engine, primitive: QuorumPrimitive, old: Former) -> None:
    """Release what the owner before was promised as released; asked, since this thread may have no connection yet."""
    nodes = cast("QuorumRuntime", engine.runtime)
    kept = old.votes
    call = primitive.leave(old.token, TOMB_MS if old.unanswered else 0, 0)
    if kept is not None and not old.unanswered:
        call = barred(engine, kept, call, primitive, old.token)
    count = len(nodes.nodes)
    voted = None if kept is None else kept.votes.outcomes
    votes = LeaveVotes(count, partial(delivery_of, engine, primitive, old.token), voted)
    await nodes.ask([(spread(call, count), votes)], nodes.node_timeout)


def _open_at(delivery: Delivery) -> list[int]:
    """The nodes on which it is still to be done."""
    return [index for index, call in enumerate(delivery.calls) if call is not None]


class _Attempt:
    """The tries of one acquisition."""

    def __init__(
        self,
        engine: Engine,
        primitive: QuorumPrimitive,
        options: Terms,
        waiter: Waiter,
        until: float | None,
        *,
        wait: bool,
    ) -> None:
        self.engine = engine
        self.nodes: QuorumRuntime = cast("QuorumRuntime", engine.runtime)
        self.primitive = primitive
        self.options = options
        self.waiter = waiter
        self.until = until
        self.wait = wait
        self.began = engine.runtime.now()
        self.settings: RedlockOptions = engine.quorum or RedlockOptions()
        self.votes = self.asked = GrantVotes(len(self.nodes.nodes))
        self.undo: Delivery | None = None
        self.undone: list[Delivery] = []
        self.not_undone: dict[int, bool] = {}
        self.late_grants = 0
        self.late = False
        self.lacking = False
        self.at_once = False
        self.failing_since: float | None = None

    async def run(self) -> Grant | None:
        """One try: ask all, write the fence back where that is needed, check the time; or take all of it back."""
        runtime, waiter, nodes = self.engine.runtime, self.waiter, self.nodes
        waiter.asks()
        self.not_undone = self._find_not_undone()
        if waiter.answer is None:
            sent_at, count = runtime.now(), len(nodes.nodes)
            call = question_of(nodes, self.primitive, waiter.token, self.options, sent_at)
            self.votes = votes = GrantVotes(count, call.asked, patience_until(nodes, sent_at, self.until))
            await nodes.ask([([call] * count, votes)], nodes.node_timeout)
        else:
            # It was asked already, by ``first_request``.
            (outcome, sent_at), waiter.answer = waiter.answer, None
            self.votes = votes = outcome.votes
            self.began = min(self.began, sent_at)
        learn_clock(self.nodes, votes, sent_at)
        now = runtime.now()
        self.at_once = now - sent_at < NO_SIGN_WITHIN
        down_since = self.engine.health.failed(sent_at, now) if votes.lacking else now
        if not votes.lacking:
            self.engine.note_answer()
        written: GrantVotes | None = None
        self.late = False
        if votes.won:
            left_ms = votes.left_ms
            valid = self.settings.valid_until(sent_at, left_ms, self.options.ttl_ms)
            if valid > runtime.now() and not votes.agreed:
                written = await self._ratify(votes.fence, self.options.block)
            self.late = valid <= runtime.now()
            if not self.late and (written is None or written.won):
                kept = granted(self.engine, votes, valid, self.options.ttl_ms)
                return Grant(votes.fence, valid, True, kept)
            self.late_grants += self.late
        # What comes from here on does not change the outcome of this try; it may appear in an error text.
        self.asked, self.votes = votes, votes.copy()
        self._ignore_own_votes(self.votes)
        self.lacking = votes.lacking or (written is not None and written.lacking)
        self.failing_since = min(self.failing_since or sent_at, down_since) if self.lacking else None
        self._take_back()
        return None

    def _find_not_undone(self) -> dict[int, bool]:
        """The nodes that may still have a token of this client that is given up; True: only of this acquisition."""
        self.undone = [delivery for delivery in self.undone if not delivery.done]
        outbox = [delivery for delivery in list(self.engine.outbox.entries) if isinstance(delivery, Delivery)]
        before = (delivery for delivery in outbox if delivery not in self.undone)
        found = dict.fromkeys((index for delivery in self.undone for index in _open_at(delivery)), True)
        found.update((index, False) for delivery in before for index in _open_at(delivery))
        return found

    def _ignore_own_votes(self, votes: GrantVotes) -> None:
        """An earlier try of this caller that is still to be undone on a node does not mean that another holds it."""
        caller = self.waiter.token.partition("@")[2]
        # What has less left was granted before this acquisition began: a lease of the caller's that it forgot.
        since = (self.engine.runtime.now() - self.began) * (1 + _RATE)
        least_ms = self.options.ttl_ms - since * 1000 - _GRANTED_WITHIN_MS
        for index, by_a_try in self.not_undone.items():
            outcome = votes.outcomes[index]
            if not isinstance(outcome, Busy) or outcome.holder != caller:
                continue
            if not by_a_try or outcome.holder_ms >= least_ms:
                votes.outcomes[index] = Fault(
                    FaultKind.NOT_READY, "an earlier try of this caller is to be undone there"
                )

    async def _ratify(self, fence: int, block: int) -> GrantVotes:
        call = self.primitive.ratify(self.waiter.token, fence, block)
        patience = patience_until(self.nodes, self.engine.runtime.now(), self.until)
        votes = GrantVotes(self.votes.nodes, None, patience)
        calls = [call if may_hold(outcome) else None for outcome in self.votes.outcomes]
        await self.nodes.ask([(calls, votes)], self.nodes.node_timeout)
        return votes

    def _take_back(self) -> None:
        """Undo what may have been granted, behind the questions themselves."""
        leave = self.primitive.leave(self.waiter.token, 0, 0)
        # The connection that was asked is gone there: another may serve the undo first, and the question after it.
        barring = self.primitive.leave(self.waiter.token, TOMB_MS, 0)
        calls = [
            (barring if isinstance(outcome, Fault) else leave) if may_hold(outcome) else None
            for outcome in self.votes.outcomes
        ]
        self.undo = delivery_of(self.engine, self.primitive, self.waiter.token, calls)
        self.undone.append(self.undo)
        self.nodes.send(calls, self.undo)
        self._use_no_more()

    def _use_no_more(self) -> None:
        """The token is dead: the waiter goes on, by this caller or another, with a new one."""
        self.waiter.become(WaiterState.NEW)
        self.waiter.token = self.engine.runtime.new_token()

    async def await_undo(self, until: float | None) -> None:
        """Wait until the nodes that answer have nothing of the last try any more: for one node's time at most."""
        left = self.nodes.node_timeout
        if until is not None:
            left = min(left, until + left - self.engine.runtime.now())
        if self.undo is not None and not self.undo.done and left > 0:
            await self.nodes.ask([(list(self.undo.calls), self.undo)], left)

    def pause(self, tries: int, until: float | None) -> float | None:
        """How long to rest before the next try; None: there is none."""
        runtime, settings = self.engine.runtime, self.settings
        now = runtime.now()
        bound = settings.retry_delay * (1 << min(tries - 1, _DOUBLINGS))
        pause = full_jitter(0, runtime.random(), base=min(bound, _LONGEST_PAUSE))
        enough = settings.retry_count is not None and tries > settings.retry_count
        given = (
            None if self.failing_since is None else self.failing_since + self.options.given.unavailable_after
        )
        if given is not None and now >= given and tries == 1 and self.at_once:
            # However long the masters have been down: what broke at once may have been this caller's connections.
            given = None
        over = given is not None and now >= given
        if (
            over
            or enough
            or self.late_grants > _MOST_LATE_GRANTS
            or self.votes.refused_for_good() is not None
        ):
            return None
        if not self.wait:
            return self._pause_at_once(tries, pause)
        limit = min((one for one in (given, until) if one is not None), default=None)
        if limit is None or now + pause < limit:
            return pause
        # The last try is made when the time is nearly up, and not given up before.
        left = limit - now - _LAST_TRY
        return left if left > 0 else None

    def _pause_at_once(self, tries: int, pause: float) -> float | None:
        """The same for a caller that does not wait, where it is not certain that somebody else has the name."""
        votes = self.votes
        late = self.engine.runtime.now() > self.began + _AT_ONCE
        if late or tries >= _TRIES_AT_ONCE or votes.held >= votes.needed:
            return None
        return max(pause, min(self.nodes.node_timeout, _MOMENT)) if votes.failed else pause

    def raise_refusal(self) -> None:
        """Say why there is no grant: on return, because somebody else holds the name.

        Raises:
            PawlockError: It is for another reason.
        """
        name, votes = self.primitive.name, self.votes
        late = self.asked.outcomes
        heard = [late[index] if outcome is None else outcome for index, outcome in enumerate(votes.outcomes)]
        words = {node: word_of(o) for node, o in zip(self.nodes.nodes, heard, strict=True)}
        summary = "; ".join(f"{node}: {word}" for node, word in words.items())
        if self.late:
            text = (
                f"acquire {name!r}: {self.late_grants} grants had expired by the time a majority had answered"
            )
            raise ClockDrift(text, name=name, outcomes=words)
        fault = self.votes.refused_for_good()
        if fault is not None:
            error = to_error(fault, name, "acquire")
            error.add_note(summary)
            raise error from fault
        if self.lacking or not votes.held:
            given = sum(word == "granted" for word in words.values())
            text = (
                f"acquire {name!r}: {given} of {votes.nodes} nodes granted it, "
                f"{votes.needed} are needed, and {votes.failed} did not answer ({summary})"
            )
            if self.lacking:
                self.engine.report_outage(text)
            raise QuorumNotReached(text, name=name, outcomes=words)
        self.waiter.blocker = self.waiter.blocker._replace(holder=votes.holder, outcomes=words)
