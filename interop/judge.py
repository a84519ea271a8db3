"""What a counter that several clients share came to: judged by the history checker and by the counter itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from interop.line import Reply
from tests.support.history import History, Rules, Violation, check

__all__ = ["Part", "Verdict", "judge"]


@dataclass(slots=True)
class Part:
    """One process that took part.

    Attributes:
        name: Unique among those of a run.
        kind: The name of its kind.
        pid: Its process.
        events: What it reported.
        start: When it began, on the machine's monotonic clock.
        end: When it ended, or was killed.
        killed: Whether it was killed.
        least: The share of all grants that is to be its own.
        hold: Seconds for which it holds each time before it releases: one that is killed later may have released.
        queues: Whether its fences are pawlock's: they rise across all grants of such parts.
    """

    name: str
    kind: str
    pid: int
    events: Sequence[Reply]
    start: float
    end: float = inf
    killed: bool = False
    least: float = 0.01
    hold: float = inf
    queues: bool = False

    @property
    def grants(self) -> list[Reply]:
        return [event for event in self.events if event["event"] == "held"]

    @property
    def errors(self) -> list[str]:
        return [event["error"] for event in self.events if event["event"] == "error"]

    @property
    def longest_wait(self) -> float:
        """Seconds from its start or a release of its own to its next grant, or to the end of the run, at most."""
        since: float | None = self.start
        waits: list[float] = []
        for event in self.events:
            if event["event"] == "held" and since is not None:
                waits.append(event["t"] - since)
            # An error between a grant and its release ends it as well; one while waiting does not begin a new wait.
            if event["event"] == "held":
                since = None
            elif since is None:
                since = event["t"]
        if since is not None and not self.killed and self.end < inf:
            waits.append(self.end - since)
        return max(waits, default=0.0)


@dataclass(slots=True)
class Verdict:
    """What was found.

    Attributes:
        overlaps: How often one found another inside.
        lost_updates: How many increments were overwritten.
        violations: What the history checker says.
        parts: Who took part.
        shares: The share of all grants that each had.
        meetings: Each of the overlaps: who found whom, and for how long that one was inside.
    """

    overlaps: int
    lost_updates: int
    violations: list[Violation]
    parts: Sequence[Part]
    shares: dict[str, float] = field(default_factory=dict[str, float])
    meetings: Sequence[str] = ()

    @property
    def safe(self) -> bool:
        return not (self.overlaps or self.lost_updates or self.violations)

    def starved(self) -> list[str]:
        """Who got less of the grants than its share."""
        return [part.name for part in self.parts if self.shares[part.name] < part.least]

    def as_json(self) -> dict[str, Any]:
        """For a person or a program that compares runs."""
        return {
            "grants": sum(len(part.grants) for part in self.parts),
            "overlaps": self.overlaps,
            "meetings": list(self.meetings[:5]),
            "lost_updates": self.lost_updates,
            "violations": [str(one).splitlines()[0] for one in self.violations[:5]],
            "longest_wait_s": round(max((part.longest_wait for part in self.parts), default=0.0), 3),
            "starved": self.starved(),
            "participants": [
                {
                    "name": part.name,
                    "kind": part.kind,
                    "grants": len(part.grants),
                    "share": round(self.shares[part.name], 4),
                    "longest_wait_s": round(part.longest_wait, 3),
                    "errors": len(part.errors),
                    "error": part.errors[-1] if part.errors else "",
                    "killed": part.killed,
                }
                for part in self.parts
            ],
        }


def judge(parts: Sequence[Part], key: str, ttl: float, final: int, *, slack: float | None = None) -> Verdict:
    """Judge a run of ``count`` by every process.

    Args:
        parts: Who took part.
        key: The key that they locked.
        ttl: Seconds that each lock was asked for; 0: as its library likes.
        final: What the counter came to.
        slack: Seconds that the name may stay free while one waits; None: not judged.
    """
    history = _history(parts, key, ttl)
    rules = Rules(ttl=ttl if slack is not None else None, slack=slack or 0.0, overtakes=None)
    total = sum(len(part.grants) for part in parts)
    meetings = list(_meetings(parts))
    return Verdict(
        len(meetings),
        _lost(parts, final),
        check(history, rules),
        parts,
        {part.name: len(part.grants) / total if total else 0.0 for part in parts},
        meetings,
    )


def _meetings(parts: Sequence[Part]) -> Iterator[str]:
    """Who entered and found the mark of one that lived: it is taken off before the lock is released."""
    ended = {str(part.pid): part.end if part.killed else inf for part in parts}
    for part in parts:
        for grant in part.grants:
            if grant["found"] and ended.get(grant["found"], inf) > grant["t"]:
                before = [one for one in parts if str(one.pid) == grant["found"]]
                yield f"{part.name} entered at {grant['t'] - part.start:.3f} s and found {_stay(before, grant)}"


def _stay(parts: Sequence[Part], found: Reply) -> str:
    """Who was found inside, and since when it had been: one that stood still for longer than its TTL may be."""
    if not parts:
        return f"process {found['found']}"
    part = parts[0]
    since = [grant["t"] for grant in part.grants if grant["t"] <= found["t"]]
    until = [event["t"] for event in part.events if event["event"] != "held" and event["t"] > found["t"]]
    entered = f"{found['t'] - since[-1]:.3f} s before" if since else "later, by its own account"
    left = f"{until[0] - found['t']:.3f} s after" if until else "not known when"
    return f"{part.name}, which had entered {entered} and left {left}"


def _lost(parts: Sequence[Part], final: int) -> int:
    """How many read the same value as another, those left out that were killed before they had written it."""
    values: Counter[int] = Counter()
    cut = 0
    for part in parts:
        grants = part.grants
        if part.killed and part.events and part.events[-1]["event"] == "held":
            grants, cut = grants[:-1], cut + 1
        values.update(grant["value"] for grant in grants)
    twice = sum(number - 1 for number in values.values())
    # Of those that were cut off, each may have written or not.
    return max(twice, values.total() - final, final - values.total() - cut, 0)


def _history(parts: Sequence[Part], key: str, ttl: float) -> History:
    history = History()
    for part in parts:
        open_ = ""
        since = 0.0
        for event in part.events:
            if event["event"] == "held":
                since = event["t"]
                open_ = history.invoke(event["t0"], part.name, "acquire", key)
                until = event.get("until", event["t0"] + ttl if ttl else inf)
                # The fences of a library are its own numbers.
                fence = event.get("fence") if part.queues else None
                history.ok(event["t"], open_, fence=fence, deadline=until)
            elif event["event"] == "left" and open_:
                history.renewed(event["t0"], open_, event.get("until", history.operations[open_].deadline))
                left = history.invoke(event["t0"], part.name, "release", key, lease=open_)
                history.ok(event["t"], left)
                open_ = ""
            elif open_:
                # It failed somewhere between the two, so from its grant on nothing is claimed.
                history.lost(since, open_)
                open_ = ""
        if open_ and part.killed and since + part.hold < part.end:
            # It reports a release once that is done.
            history.invoke(since + part.hold, part.name, "release", key, lease=open_)
        if part.killed:
            history.crash(part.end, part.name)
    return history
