"""What a client knows of each of several independent masters, and whether its vote may count.

A node that restarted without its data has forgotten its votes: with it, two majorities could form for one name. Its
vote counts again once every lease that it may have forgotten is over, one ``max_ttl`` after the restart (the delayed
restart of the Redlock description). The run id shows a restart, the uptime since when; the uptime follows the
node's wall clock, so it is never believed beyond what the client's own clock allows.

What is known of the nodes' incarnations belongs to the client: all its threads and event loops share one
``Incarnations``, and the rule is applied to what each connection's own handshake said. Whether a node can be reached is
each runtime's own knowledge, a ``KnownNodes``.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from contextlib import AbstractContextManager
from math import inf
from typing import NamedTuple

from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.faults import is_transient
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Call, Fault, FaultKind

__all__ = ["Incarnation", "Incarnations", "KnownNodes", "Node"]

log: logging.Logger = logging.getLogger("pawlock.redlock")

_RUN_ID = re.compile(r"^run_id:(\w+)", re.MULTILINE)
_UPTIME = re.compile(r"^uptime_in_seconds:(\d+)", re.MULTILINE)


_QUICKEST, _SLOWEST = 0.05, 2.0
"""Bounds of a node's time to answer, in seconds, where it follows from how long the nodes take."""

_TIMES = 4.0
"""So many round trips a node may take: a vote is a script, and a busy server has others to run."""

_LISTENS = 1.0
"""Seconds for which an attempt that nobody refused listens at least: masters may be slow from one moment on."""

_FORGOTTEN = 0.125
"""How much of the difference to a faster answer is taken off what is known of a node's round trip."""


_NOT_AGAIN_WITHIN = 0.5
"""Seconds within which a second lost connection counts as the loss of the node."""

_MOST_OWED = 1000
_OWED_FOR = TOMB_MS / 1000
"""Requests that a node still gets once it is back, and seconds: after that their tokens are over."""


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


class Incarnations:
    """What one client knows of its masters' incarnations and how fast they answer. Shared by threads and loops.

    Args:
        shown: Their addresses.
        max_ttl: Seconds; the longest ttl of any client of these nodes.
        fresh: Whether a node that is young at the first meeting counts all the same.
        node_timeout: Seconds that one node may take; None: what follows from their round trips.
        guard: Makes a meeting one step: one thread at a time.

    Attributes:
        shown: Their addresses.
        present: The present incarnation of each; None before the first meeting.
        timeout: Seconds that one node may take to answer now.
        patience: Seconds for which an attempt listens that nobody refused, and that has no majority yet.
        guard: Makes a meeting one step; a child of a fork needs another.
    """

    def __init__(
        self,
        shown: tuple[str, ...],
        max_ttl: float,
        *,
        fresh: bool,
        guard: AbstractContextManager[object],
        node_timeout: float | None = None,
    ) -> None:
        self.shown: tuple[str, ...] = shown
        self.present: list[Incarnation | None] = [None] * len(shown)
        self.timeout: float = _QUICKEST if node_timeout is None else node_timeout
        self._adapts = node_timeout is None
        self.patience: float = max(_LISTENS, self.timeout) if self._adapts else self.timeout
        self._trip = 0.0
        self._heard_at: list[float] = [-inf] * len(shown)
        self._max_ttl = max_ttl
        self._fresh = fresh
        self.guard: AbstractContextManager[object] = guard

    def met(self, index: int, info: str, now: float) -> Incarnation | Fault:
        """Take note of what a node says of itself to a new connection.

        Args:
            index: Which node.
            info: The server section of ``INFO``; empty if it will not say.
            now: The present.

        Returns:
            The incarnation that this connection leads to; or why its votes can never count.
        """
        found, age = _RUN_ID.search(info), _UPTIME.search(info)
        run_id = found[1] if found else ""
        with self.guard:
            for other, incarnation in enumerate(self.present):
                if run_id and other != index and incarnation is not None and incarnation.run_id == run_id:
                    both = f"{self.shown[index]} and {self.shown[other]}"
                    text = f"{both} are one server, which has one vote"
                    return Fault(FaultKind.UNSUPPORTED, text, final=True)
            incarnation = self.present[index]
            if incarnation is None or run_id != incarnation.run_id:
                # The difference of two times in whole seconds: it may be almost one more than the truth.
                uptime = max(0.0, float(age[1]) - 1.0) if age else inf
                incarnation = self.present[index] = Incarnation(
                    run_id, self._counts_from(index, incarnation, uptime, now)
                )
            self._heard_at[index] = now
            return incarnation

    def _counts_from(self, index: int, before: Incarnation | None, uptime: float, now: float) -> float:
        if before is None:
            return -inf if self._fresh or uptime >= self._max_ttl else now + self._max_ttl - uptime
        # It was the one before when it last answered, so it cannot be older than that.
        age = max(0.0, min(uptime, now - self._heard_at[index], self._max_ttl))
        return now + self._max_ttl - age

    def heard(self, index: int, incarnation: Incarnation, at: float) -> None:
        """A connection to that incarnation of a node heard of it last at that time."""
        if incarnation is self.present[index]:
            self._heard_at[index] = max(self._heard_at[index], at)

    def took(self, seconds: float) -> None:
        """A majority took so long to answer."""
        trip = seconds if seconds > self._trip else self._trip - (self._trip - seconds) * _FORGOTTEN
        self._trip = trip
        if self._adapts:
            self.timeout = min(_SLOWEST, max(_QUICKEST, _TIMES * trip))
            self.patience = max(_LISTENS, self.timeout)

    def remembers(self) -> bool:
        """Whether every node that was met disclosed its run id."""
        return all(incarnation is None or incarnation.run_id for incarnation in self.present)


class Node:
    """One master, as one runtime can reach it.

    Attributes:
        shown: Its address without credentials.
        fault: Why it cannot be asked; None while it can.
        retry_at: When to look again after a fault.
        meetings: Who connects to it now, and looks whether it is back.
        logged: What was logged of it last.
        lost_at: When a connection to it, or an attempt to make one, failed last.
    """

    __slots__ = ("_owed", "failures", "fault", "logged", "lost_at", "meetings", "retry_at", "shown")

    def __init__(self, shown: str) -> None:
        self.shown: str = shown
        self.fault: Fault | None = Fault(FaultKind.UNREACHABLE, "not connected yet")
        self.retry_at: float = -inf
        self.meetings: set[object] = set()
        self.failures: int = 0
        self.lost_at: float = -inf
        self.logged: str = ""
        self._owed: deque[tuple[Call, float]] = deque(maxlen=_MOST_OWED)

    def owe(self, call: Call, now: float) -> None:
        """It may not have got what gives a token back: that is sent once more, on the next connection to it."""
        self._owed.append((call, now))

    def take_owed(self, now: float) -> list[Call]:
        """What is to be sent on a new connection before anything else."""
        owed, self._owed = self._owed, deque(maxlen=_MOST_OWED)
        return [call for call, since in owed if now - since < _OWED_FOR]

    def failed(self, fault: Fault, now: float, random: float) -> None:
        """Ask it no more until somebody looked: a node that is gone must cost nothing."""
        # What is refused for this from here on is not sent at all: nothing of it can be applied there.
        self.fault = Fault(fault.kind, fault.text, final=fault.final)
        lasts = fault.kind is FaultKind.READ_ONLY or not is_transient(fault.kind)
        if lasts and self.logged != fault.text and fault.kind is not FaultKind.CLOSED:
            # The others go on without it, so nobody would hear of an address or a login that is wrong.
            self.logged = fault.text
            log.warning("%s has no vote: %s", self.shown, fault.text, extra={"pawlock_node": self.shown})
        # A connection may end although the node is there; one that ends all the time is not made all the time.
        at_once = not self.failures and now > self.lost_at + _NOT_AGAIN_WITHIN
        self.retry_at = (
            now if at_once else now + 0.05 + full_jitter(self.failures, random, base=0.05, cap=2.0)
        )
        self.failures += 1
        self.lost_at = now


class KnownNodes:
    """All masters of one client, as one of its runtimes can reach them.

    Args:
        incarnations: What the client knows of them.
    """

    def __init__(self, incarnations: Incarnations) -> None:
        self.incarnations: Incarnations = incarnations
        self.nodes: tuple[Node, ...] = tuple(Node(address) for address in incarnations.shown)

    def met(self, index: int, info: str, now: float) -> Incarnation | Fault:
        """Take note of a new connection and of what the node said on it; see ``Incarnations.met``."""
        incarnation = self.incarnations.met(index, info, now)
        if not isinstance(incarnation, Fault):
            node = self.nodes[index]
            node.fault = None
            node.failures = 0
        return incarnation

    def objection(self, index: int, now: float) -> Fault | None:
        """Why a node is not asked now, as far as that is known without a connection; None: ask."""
        fault, incarnation = self.nodes[index].fault, self.incarnations.present[index]
        return fault if fault is not None else None if incarnation is None else incarnation.objection(now)

    def forget(self) -> None:
        """No connection is ours any more, as after a fork."""
        for node in self.nodes:
            node.fault = Fault(FaultKind.UNREACHABLE, "not connected yet")
            node.retry_at = -inf
            node.meetings = set()
