"""What a client knows of each of several independent masters, and whether its vote may count.

A node that restarted without its data has forgotten its votes: with it, two majorities could form for one name. Its
vote counts again once every lease that it may have forgotten is over, one ``max_ttl`` after the restart (the delayed
restart of the Redlock description). The run id tells of a restart, the uptime since when; the uptime follows the
node's wall clock, so it is never believed beyond what the client's own clock allows.
"""

from __future__ import annotations

import logging
import re
from math import inf

from pawl.core.backoff import full_jitter
from pawl.core.faults import passes
from pawl.core.runtime import Fault, FaultKind

__all__ = ["Node", "Roster"]

log: logging.Logger = logging.getLogger("pawl.redlock")

_RUN_ID = re.compile(r"^run_id:(\w+)", re.MULTILINE)
_UPTIME = re.compile(r"^uptime_in_seconds:(\d+)", re.MULTILINE)


class Node:
    """One master.

    Attributes:
        shown: Its address without credentials.
        run_id: What it called itself last; None before the first meeting, "" if it will not say.
        fault: Why it is not asked; None while it is.
        retry_at: When to look again after a fault.
        meeting: True while somebody looks.
        told: What was logged of it last.
        counts_from: Before this its votes do not count.
        heard_at: When it last answered.
    """

    __slots__ = (
        *("counts_from", "failures", "fault", "heard_at"),
        *("meeting", "retry_at", "run_id", "shown", "told"),
    )

    def __init__(self, shown: str) -> None:
        self.shown: str = shown
        self.run_id: str | None = None
        self.fault: Fault | None = Fault(FaultKind.UNREACHABLE, "not connected yet")
        self.retry_at: float = -inf
        self.meeting: bool = False
        self.counts_from: float = -inf
        self.heard_at: float = -inf
        self.failures: int = 0
        self.told: str = ""

    def failed(self, fault: Fault, now: float, random: float) -> None:
        """Ask it no more until somebody looked: a node that is gone must cost nothing."""
        self.fault = fault
        lasts = fault.kind is FaultKind.READ_ONLY or not passes(fault.kind)
        if lasts and self.told != fault.text and fault.kind is not FaultKind.CLOSED:
            # The others go on without it, so nobody would hear of an address or a login that is wrong.
            self.told = fault.text
            log.warning("%s has no vote: %s", self.shown, fault.text, extra={"pawl_node": self.shown})
        self.retry_at = now + 0.05 + full_jitter(self.failures, random, base=0.05, cap=2.0)
        self.failures += 1

    def objection(self, now: float) -> Fault | None:
        """Why it is not asked now; None: ask."""
        if self.fault is not None:
            return self.fault
        if now < self.counts_from:
            left = self.counts_from - now
            text = f"it restarted not long ago and may have forgotten leases; not asked for {left:.1f} s"
            return Fault(FaultKind.NOT_READY, text)
        return None


class Roster:
    """All masters of one client.

    Args:
        shown: Their addresses.
        max_ttl: Seconds; the longest ttl of any client of these nodes.
        fresh: Whether a node that is young at the first meeting counts all the same.
    """

    def __init__(self, shown: tuple[str, ...], max_ttl: float, *, fresh: bool) -> None:
        self.nodes: tuple[Node, ...] = tuple(Node(address) for address in shown)
        self._max_ttl = max_ttl
        self._fresh = fresh

    def met(self, index: int, info: str, now: float) -> Fault | None:
        """Take note of what a node says of itself.

        Args:
            index: Which node.
            info: The server section of ``INFO``; empty if it will not say.
            now: The present.

        Returns:
            Why its votes can never count, or None.
        """
        node = self.nodes[index]
        found, age = _RUN_ID.search(info), _UPTIME.search(info)
        run_id = found[1] if found else ""
        for other in self.nodes:
            if run_id and other is not node and other.run_id == run_id:
                text = f"{node.shown} and {other.shown} are one server: two votes of it are not two nodes"
                return Fault(FaultKind.UNSUPPORTED, text, final=True)
        # The difference of two times in whole seconds: it may be almost one more than the truth.
        uptime = max(0.0, float(age[1]) - 1.0) if age else inf
        if node.run_id is None:
            if not self._fresh and uptime < self._max_ttl:
                node.counts_from = now + self._max_ttl - uptime
        elif run_id != node.run_id:
            # It was the one before when it last answered, so it cannot be older than that.
            node.counts_from = now + self._max_ttl - max(0.0, min(uptime, now - node.heard_at, self._max_ttl))
        node.run_id = run_id
        node.heard_at = now
        node.fault = None
        node.failures = 0
        return None

    def remembers(self) -> bool:
        """Whether every node that was met told its run id."""
        return all(node.run_id != "" for node in self.nodes)

    def forget(self) -> None:
        """No connection is ours any more, as after a fork."""
        for node in self.nodes:
            node.fault = Fault(FaultKind.UNREACHABLE, "not connected yet")
            node.retry_at = -inf
            node.meeting = False
