"""What a client knows of each of several independent masters, and whether its vote may count.

A node that restarted without its data has forgotten its votes: with it, two majorities could form for one name. Its
vote counts again once every lease that it may have forgotten is over, one ``max_ttl`` after the restart (the delayed
restart of the Redlock description). The run id shows a restart, the uptime since when; the uptime follows the
node's wall clock, so it is never believed beyond what the client's own clock allows.

What is known of the nodes' incarnations belongs to the client: all its threads and event loops share one
``KnownMasters``, and the rule is applied to what each connection's own handshake said. Whether a node can be reached is
each runtime's own knowledge, a ``Node``.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from pawlock.core.faults import is_transient
from pawlock.core.outcomes import Outcome
from pawlock.core.retry import full_jitter
from pawlock.core.runtime import Call, Fault, FaultKind
from pawlock.redlock.options import RedlockOptions
from pawlock.redlock.votes import Question
from pawlock.topology.endpoint import Endpoint

__all__ = ["Incarnation", "KnownMasters", "Node"]

log: logging.Logger = logging.getLogger("pawlock.redlock")

_FACT = re.compile(r"^(run_id|uptime_in_seconds):(\w+)", re.MULTILINE)

_QUICKEST, _SLOWEST = 0.05, 2.0
"""Bounds of a node's time to answer, in seconds, where it follows from how long the nodes take."""

_TIMES = 4.0
"""So many round trips a node may take: a vote is a script, and a busy server has others to run."""

_LISTENS = 1.0
"""Seconds for which an attempt that nobody refused listens at least: masters may be slow from one moment on."""

_FORGOTTEN = 0.125
"""How much of the difference to a faster answer is taken off what is known of a node's round trip."""

_MOST_OWED = 1000
"""Requests that a node still gets once it is back."""


class Incarnation(NamedTuple):
    """One run of a master's process, from a start to an end, as a connection saw it.

    Attributes:
        run_id: Its run id; "" if it will not say.
        counts_from: Before this its votes do not count, on the client's clock.
    """

    run_id: str
    counts_from: float

    def objection(self, now: float) -> Fault | None:
        """Why the votes of this incarnation do not count now; None: they do."""
        if now >= self.counts_from:
            return None
        left = self.counts_from - now
        text = f"restarted recently and may have lost leases; no vote for {left:.1f} s (fresh=True for new masters)"
        return Fault(FaultKind.NOT_READY, text)


class KnownMasters:
    """What one client knows of its masters: their incarnations, and how fast they answer. Shared by threads and loops.

    Args:
        endpoints: Where they are.
        options: How they are treated.
        probe: What asks one of them for its incarnation.

    Attributes:
        shown: Their addresses.
        present: The present incarnation of each; None before the first meeting.
        heard_at: When each was surely there.
        timeout: Seconds that one node may take to answer now.
        patience: Seconds for which an attempt listens that nobody refused, and that has no majority yet.
    """

    def __init__(self, endpoints: Sequence[Endpoint], options: RedlockOptions, probe: Call) -> None:
        self.endpoints: Sequence[Endpoint] = endpoints
        self.shown: list[str] = [endpoint.shown for endpoint in endpoints]
        self.options: RedlockOptions = options
        self.probe: Call = probe
        self.present: list[Incarnation | None] = [None] * len(endpoints)
        self.heard_at: list[float] = [-inf] * len(endpoints)
        self.timeout: float = options.node_timeout or _QUICKEST
        self.patience: float = options.node_timeout or _LISTENS
        self._trip = 0.0

    def met(self, index: int, info: str, now: float) -> Incarnation:
        """Take note of what a node says of itself to a new connection.

        Args:
            index: Which node.
            info: The server section of ``INFO``; empty if it will not say.
            now: The present.

        Returns:
            The incarnation that this connection leads to.

        Raises:
            Fault: It is another node as well, so its votes can never count.
        """
        facts = dict(_FACT.findall(info))
        run_id = facts.get("run_id", "")
        incarnation = before = self.present[index]
        if incarnation is None or run_id != incarnation.run_id:
            # The difference of two times in whole seconds: it may be almost one more than the truth.
            uptime = max(0.0, float(facts.get("uptime_in_seconds", inf)) - 1.0)
            incarnation = Incarnation(run_id, self._counts_from(index, before, uptime, now))
        # Noted before the others are looked at: of two threads that meet one server at once, one sees the other.
        self.present[index] = incarnation
        for other, known in enumerate(self.present):
            if run_id and other != index and known is not None and known.run_id == run_id:
                self.present[index] = before
                text = f"{self.shown[index]} and {self.shown[other]} are one server, which has one vote"
                raise Fault(FaultKind.UNSUPPORTED, text, final=True)
        self.heard_at[index] = now
        return incarnation

    def _counts_from(self, index: int, before: Incarnation | None, uptime: float, now: float) -> float:
        if before is None and self.options.fresh:
            return -inf
        # It was the one before when that last answered, so it cannot be older than that.
        age = uptime if before is None else min(uptime, now - self.heard_at[index])
        return now + self.options.max_ttl - max(0.0, min(age, self.options.max_ttl))

    def took(self, seconds: float) -> None:
        """A majority took so long to answer."""
        self._trip = max(seconds, self._trip - (self._trip - seconds) * _FORGOTTEN)
        if self.options.node_timeout is None:
            self.timeout = min(_SLOWEST, max(_QUICKEST, _TIMES * self._trip))
            self.patience = max(_LISTENS, self.timeout)

    def remembers(self) -> bool:
        """Whether every node that was met disclosed its run id."""
        return all(incarnation is None or incarnation.run_id for incarnation in self.present)


class Node:
    """One master, as one runtime can reach it.

    Args:
        index: Which of them.
        known: What the client knows of them.
        now: The runtime's clock.
        random: The runtime's jitter.

    Attributes:
        endpoint: Where it is.
        fault: Why there was no connection last; None while there is one.
        retry_at: When to look again after a fault.
        meetings: Who connects to it now.
    """

    def __init__(
        self, index: int, known: KnownMasters, now: Callable[[], float], random: Callable[[], float]
    ) -> None:
        self.index: int = index
        self.endpoint: Endpoint = known.endpoints[index]
        self.fault: Fault | None = Fault(FaultKind.UNREACHABLE, "not connected yet")
        self.retry_at: float = -inf
        self.meetings: set[object] = set()
        self._known = known
        self._now = now
        self._random = random
        self._failures = 0
        self._logged = ""
        self._owed: deque[Call] = deque(maxlen=_MOST_OWED)

    def met(self, facts: Outcome) -> Incarnation:
        """Take note of what it said on a new connection, and to which incarnation that leads. Raises ``Fault``."""
        incarnation = self._known.met(self.index, getattr(facts, "info", ""), self._now())
        self.fault, self.retry_at, self._failures = None, -inf, 0
        return incarnation

    def take_owed(self) -> Sequence[Call]:
        """What is to be sent on a new connection before anybody has it."""
        owed, self._owed = self._owed, deque(maxlen=_MOST_OWED)
        return tuple(owed)

    def take(self, question: Question, at: int, outcome: Outcome | Fault) -> None:
        """Count its answer. What gives a token back, and was not answered, is sent once more."""
        if not isinstance(outcome, Fault):
            heard_at = self._known.heard_at
            heard_at[self.index] = max(heard_at[self.index], question.sent_at)
        elif question.calls[at].name == "leave":
            self._owed.append(question.calls[at])
        question.take(self.index, at, outcome)

    def failed(self, fault: Fault) -> None:
        """A connection to it broke, or could not be made: a node that is gone must cost nothing."""
        # What is refused for this from here on is not sent at all: nothing of it can be applied there.
        self.fault = Fault(fault.kind, fault.text, final=fault.final)
        lasts = fault.kind is FaultKind.READ_ONLY or not is_transient(fault.kind)
        if lasts and self._logged != fault.text:
            # The others go on without it, so nobody would hear of an address or a login that is wrong.
            self._logged = fault.text
            shown = self.endpoint.shown
            log.warning("%s has no vote: %s", shown, fault.text, extra={"pawlock_node": shown})
        # A connection may end although the node is there: the first time it is looked for at once.
        pause = 0.05 + full_jitter(self._failures, self._random(), base=0.05, cap=2.0)
        self.retry_at = self._now() + pause if self._failures else -inf
        self._failures += 1
