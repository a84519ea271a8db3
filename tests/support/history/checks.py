"""The checks that take one look at each operation: who held what when, in which order, and for how long nobody did."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from tests.support.history.records import History, Mode, Operation, Outcome

__all__ = ["Rules", "Violation", "check", "exclusion", "fences", "fifo", "orphans", "report", "resource"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What is promised for the names of a history.

    Attributes:
        ttl: Seconds that a lease lives on the server without renewal, the longest of all; None: ``orphans`` is not
            checked.
        slack: Seconds that a free name may stay ungranted while somebody waits, and by which a dead holder's name may
            be late; default 1.
        overtakes: How many that came later may be served before one waiter; None: order is not checked. Default 0.
        grace: Seconds that an answer may be under way at most; default 0.05.
    """

    ttl: float | None = None
    slack: float = 1.0
    overtakes: int | None = 0
    grace: float = 0.05


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise.

    Attributes:
        check: Which check found it.
        name: The name concerned.
        text: What is wrong, in one sentence.
        operations: The operations that show it.
    """

    check: str
    name: str
    text: str
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        origin = min((operation.start for operation in self.operations), default=0.0)
        lines = [f"{self.check} of {self.name!r}: {self.text}"]
        lines += [f"    {operation.describe(origin)}" for operation in self.operations]
        return "\n".join(lines)


def check(history: History, rules: Rules | None = None) -> list[Violation]:
    """Every violation of the promises that need no search; see ``linearizable`` for the one that does.

    Args:
        history: What happened.
        rules: What is promised; default ``Rules()``.
    """
    rules = rules or Rules()
    found = [*exclusion(history), *fences(history), *resource(history)]
    if rules.overtakes is not None:
        found += fifo(history, rules.overtakes, rules.grace)
    if rules.ttl is not None:
        found += orphans(history, rules.ttl, rules.slack)
    return found


def report(violations: Iterable[Violation], most: int = 10) -> str:
    """What is wrong, for a person to read; ``""`` if nothing is.

    Args:
        violations: What ``check`` found.
        most: How many to spell out; the rest are counted.
    """
    found = list(violations)
    lines = [str(violation) for violation in found[:most]]
    if len(found) > most:
        lines.append(f"… and {len(found) - most} more")
    return "\n".join(lines)


# Who holds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """A time during which an owner was sure of a lease."""

    start: float
    end: float
    mode: Mode
    operation: Operation


def _spans(history: History, name: str) -> list[_Span]:
    spans: list[_Span] = []
    for operation in history.of(name, "acquire"):
        if not operation.granted:
            continue
        start, end, mode = operation.end, operation.sure_until, operation.mode
        for other in operation.ended_by:
            # From when it was asked for a downgrade on, the owner counts as a reader.
            if other.action == "downgrade":
                spans.append(_Span(start, min(other.start, end), mode, operation))
                start, mode = other.start, Mode.SHARED
        spans.append(_Span(start, end, mode, operation))
    return sorted((span for span in spans if span.start < span.end), key=lambda span: span.start)


def exclusion(history: History) -> list[Violation]:
    """Leases that were relied on at the same time although one excludes the other, and permits beyond their limit.

    A lease counts from the moment its owner knew of it to its release, its loss, or its deadline, whichever came
    first. So whatever is found here was truly wrong.
    """
    return [violation for name in history.names for violation in _overlaps(name, _spans(history, name))]


def _overlaps(name: str, spans: list[_Span]) -> Iterator[Violation]:
    active: list[_Span] = []
    for span in spans:
        active = [other for other in active if other.end > span.start]
        for other in active:
            if _excludes(span, other):
                long = min(span.end, other.end) - span.start
                text = f"two were sure of it for {long:.6f} s"
                yield Violation("exclusion", name, text, (other.operation, span.operation))
        active.append(span)
        used = [s.operation for s in active if s.mode is Mode.PERMITS]
        total, limit = sum(operation.permits for operation in used), span.operation.limit
        if span.mode is Mode.PERMITS and total > limit:
            text = f"{total} permits were out, with a limit of {limit}"
            yield Violation("exclusion", name, text, tuple(used))


def _excludes(one: _Span, other: _Span) -> bool:
    return one.operation is not other.operation and Mode.EXCLUSIVE in (one.mode, other.mode)


# Fences -------------------------------------------------------------------------------------------------------------


def fences(history: History) -> list[Violation]:
    """Fences that do not rise from one grant to a later one, and fences that two owners share.

    Two readers that were let in at the same time may share one: several masters may each be the one that mints the
    largest number of one of them. The fence of a reader only orders it, and of these two neither was first.
    """
    return [violation for name in history.names for violation in _fences_of(history, name)]


def _let_in_together(one: Operation, other: Operation) -> bool:
    shared = one.mode is Mode.SHARED and other.mode is Mode.SHARED
    return shared and one.start <= other.end and other.start <= one.end


def _fences_of(history: History, name: str) -> Iterator[Violation]:
    grants = [op for op in history.of(name, "acquire") if op.granted and op.fence is not None]
    seen: dict[int | None, Operation] = {}
    for operation in grants:
        first = seen.setdefault(operation.fence, operation)
        if first is not operation and not _let_in_together(first, operation):
            yield Violation("fences", name, f"two owners have {operation.fence}", (first, operation))
    by_end = sorted(grants, key=lambda op: op.end)
    highest: Operation | None = None
    at = 0
    for operation in sorted(grants, key=lambda op: op.start):
        while at < len(by_end) and by_end[at].end < operation.start:
            highest = by_end[at] if highest is None or _fence(by_end[at]) > _fence(highest) else highest
            at += 1
        if highest is not None and _falls(highest, operation):
            yield _fallen(name, highest, operation)
    # Of two exclusive leases, the one that was known first was granted first, though both had been asked for before.
    sure = [
        op for op in by_end if op.mode is Mode.EXCLUSIVE and min(op.deadline, op.forgotten, op.died) > op.end
    ]
    for before, after in pairwise(sure):
        if after.start <= before.end and _falls(before, after):
            yield _fallen(name, before, after)


def _fence(operation: Operation) -> int:
    return -1 if operation.fence is None else operation.fence


def _falls(before: Operation, after: Operation) -> bool:
    return _fence(after) <= _fence(before)


def _fallen(name: str, before: Operation, after: Operation) -> Violation:
    text = f"the fence falls from {before.fence} to {after.fence}"
    return Violation("fences", name, text, (before, after))


def resource(history: History) -> list[Violation]:
    """Writes that the protected resource took although it had taken one with a higher fence before."""
    found: list[Violation] = []
    for name in history.names:
        taken = [op for op in history.of(name, "write") if op.outcome is Outcome.OK and op.fence is not None]
        by_end = sorted(taken, key=lambda op: op.end)
        highest: Operation | None = None
        at = 0
        for operation in taken:
            while at < len(by_end) and by_end[at].end < operation.start:
                highest = by_end[at] if highest is None or _fence(by_end[at]) > _fence(highest) else highest
                at += 1
            if highest is not None and _fence(operation) < _fence(highest):
                text = f"a write with fence {operation.fence} was taken after one with {highest.fence}"
                found.append(Violation("resource", name, text, (highest, operation)))
    return found


# Order --------------------------------------------------------------------------------------------------------------


def fifo(history: History, overtakes: int = 0, grace: float = 0.05) -> list[Violation]:
    """Waiters that were overtaken by too many who came later.

    One came later if it was invoked after the other's place in the queue was confirmed (``queued``). A waiter whose
    place may have lapsed is left out.

    Args:
        history: What happened.
        overtakes: How many are allowed for each waiter; default 0.
        grace: Seconds before the end of a wait that was given up, in which the name may have come and been given back.
    """
    found: list[Violation] = []
    for name in history.names:
        operations = list(history.of(name, "acquire"))
        granted = sorted((op for op in operations if op.granted), key=lambda op: op.start)
        waiters = sorted(
            (op for op in operations if op.queued is not None and not op.lapsed),
            key=lambda op: op.queued or 0.0,
        )
        later = _Later()
        # The last to be queued is the first to be judged: those who came after it came after all before it, too.
        for waiter in reversed(waiters):
            while granted and granted[-1].start > (waiter.queued or 0.0):
                later.add(granted.pop())
            passed = later.served_before(waiter, grace)
            if len(passed) > overtakes:
                text = f"{len(passed)} that came later were served before one waiter, {overtakes} allowed"
                found.append(Violation("fifo", name, text, (waiter, *passed[:5])))
    return found[::-1]


class _Later:
    """The grants to those who came after a moment, each list in the order of service; the newest service comes first.

    Since they are added from the last to the first, they go to the end of the lists, but for those that overtook.
    """

    def __init__(self) -> None:
        self._fenced: list[tuple[float, int, Operation]] = []
        self._unfenced: list[tuple[float, int, Operation]] = []
        self._all: list[tuple[float, int, Operation]] = []
        self._number = 0

    def add(self, operation: Operation) -> None:
        self._number += 1
        insort(self._all, (-operation.end, self._number, operation))
        if operation.fence is None:
            insort(self._unfenced, (-operation.end, self._number, operation))
        else:
            insort(self._fenced, (-operation.fence, self._number, operation))

    def served_before(self, waiter: Operation, grace: float) -> list[Operation]:
        if not waiter.granted:
            # It never heard of a grant. While it lived and waited, nobody who came later was to be served.
            exclusive = waiter.mode is Mode.EXCLUSIVE
            return self._before(self._all, min(waiter.end - grace, waiter.died)) if exclusive else []
        if waiter.fence is None:
            return self._before(self._all, waiter.end)
        return [*self._before(self._fenced, waiter.fence), *self._before(self._unfenced, waiter.end)]

    def _before(self, served: list[tuple[float, int, Operation]], moment: float) -> list[Operation]:
        first = bisect_right(served, (-moment, self._number + 1))
        return [operation for _, _, operation in reversed(served[first:])]


# Nobody holds -------------------------------------------------------------------------------------------------------


def orphans(history: History, ttl: float, slack: float = 1.0) -> list[Violation]:
    """Names that nobody can have held for longer than ``slack`` while somebody waited for them.

    A holder that died, or an answer that nobody knows, may hold for one more ttl; whatever lasts longer is an orphan.

    Args:
        history: What happened.
        ttl: Seconds that a lease lives on the server without renewal.
        slack: Seconds that a hand-off may take.
    """
    return [
        violation for name in history.names for violation in _idle(name, list(history.of(name)), ttl, slack)
    ]


def _idle(name: str, operations: list[Operation], ttl: float, slack: float) -> Iterator[Violation]:
    acquires = [operation for operation in operations if operation.action == "acquire"]
    alive = [op for op in acquires if op.outcome is not Outcome.INFO and not op.lapsed and op.died > op.end]
    most = max((op.permits for op in acquires if op.mode is Mode.PERMITS), default=1)
    for mode in Mode:
        waiting = [op for op in alive if op.mode is mode and op.end - op.start > slack]
        for start, end in _free(acquires, mode, most, ttl) if waiting else ():
            for waiter in waiting:
                long = min(end, waiter.end) - max(start, waiter.start)
                if long > slack:
                    text = f"nobody held it for {long:.3f} s while one waited, {slack:g} s allowed"
                    yield Violation("orphans", name, text, (waiter,))


def _free(acquires: list[Operation], mode: Mode, most: int, ttl: float) -> Iterator[tuple[float, float]]:
    """The times at which nothing kept a waiter of a mode out."""
    steps: list[tuple[float, float]] = []
    room = 0.0
    if mode is Mode.PERMITS:
        room = min(op.limit for op in acquires if op.mode is Mode.PERMITS) - most
    for operation in acquires:
        weight = _weight(operation, mode)
        if not weight:
            continue
        since = operation.end if operation.granted else operation.start
        if operation.outcome is Outcome.FAIL:
            since = operation.end
        if mode is Mode.SHARED:
            # A writer that waits keeps readers out as well.
            since = operation.start
        until = _gone(operation, ttl)
        if until > since:
            steps += [(since, weight), (until, -weight)]
    level, before = 0.0, -inf
    for at, change in sorted(steps):
        if level <= room and at > before:
            yield before, at
        level, before = level + change, at
    yield before, inf


def _weight(operation: Operation, mode: Mode) -> float:
    if mode is Mode.EXCLUSIVE or operation.mode is Mode.EXCLUSIVE:
        return 1e9
    return float(operation.permits) if mode is Mode.PERMITS else 0.0


def _gone(operation: Operation, ttl: float) -> float:
    """When the server surely had nothing of an acquire any more."""
    if operation.outcome is Outcome.FAIL:
        return operation.end
    left = [op.end for op in operation.ended_by if op.action == "release" and op.outcome is not Outcome.INFO]
    if left:
        return min(left)
    ends = [operation.told, operation.died]
    ends += [op.end for op in operation.ended_by if op.action == "release"]
    if operation.outcome is Outcome.INFO:
        ends.append(operation.end)
    return min(ends) + ttl
