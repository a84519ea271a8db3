"""What happened: operations with the instants between which they took effect, and what is known of each lease.

Nothing here reads a clock or a file: the caller gives every instant, in seconds on one clock for all processes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

__all__ = ["History", "Journal", "Mode", "Operation", "Outcome"]


class Outcome(StrEnum):
    """How an operation ended, as its caller saw it.

    ``OK`` took effect; ``FAIL`` took none; ``INFO`` is unknown: it may have taken effect, now or later, or never.
    """

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Mode(StrEnum):
    """What a lease asks for: the name alone, together with other readers, or some permits of it."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    PERMITS = "permits"


@dataclass(slots=True)
class Operation:
    """One call, from its invocation to its end.

    Attributes:
        id: Unique in its history.
        process: Who called: one that does one thing at a time (a thread, a task).
        action: ``acquire``, ``release``, ``downgrade`` or ``write`` (to what the lock protects).
        name: The name concerned.
        start: When it was invoked.
        end: When its outcome was known; ``inf`` for one that never ended.
        outcome: How it ended; ``INFO`` until something is known.
        mode: Of an acquire: what it asked for.
        permits: Of an acquire with ``Mode.PERMITS``: how many.
        limit: How many permits there are, as the caller knew it; 0 where there are none.
        lease: Of a release, downgrade or write: the ``id`` of its acquire.
        fence: Of an acquire that is ``OK``, or of a write: its fence; None: not known.
        deadline: Of an acquire that is ``OK``: until when its owner may rely on it, as last heard.
        queued: When its place in the queue was confirmed; None if it never was.
        lapsed: Whether its place in the queue may have been lost (its process was paused, the server forgot).
        told: When its owner was notified of a loss, or ``inf``.
        died: When its process crashed, or ``inf``.
        forgotten: When the server lost its memory of it, or ``inf``.
    """

    id: str
    process: str
    action: str
    name: str
    start: float
    end: float = inf
    outcome: Outcome = Outcome.INFO
    mode: Mode = Mode.EXCLUSIVE
    permits: int = 1
    limit: int = 0
    lease: str = ""
    fence: int | None = None
    deadline: float = inf
    queued: float | None = None
    lapsed: bool = False
    told: float = inf
    died: float = inf
    forgotten: float = inf
    ended_by: list[Operation] = field(default_factory=lambda: [], repr=False)  # noqa: PIE807 - typed

    @property
    def granted(self) -> bool:
        """Whether it is an acquire that is known to have succeeded."""
        return self.action == "acquire" and self.outcome is Outcome.OK

    @property
    def sure_until(self) -> float:
        """Until when the owner of a granted lease was surely right to rely on it."""
        left = min((r.start for r in self.ended_by if r.action == "release"), default=inf)
        return min(self.deadline, left, self.told, self.died, self.forgotten)

    def describe(self, origin: float = 0.0) -> str:
        """One line on it, with instants counted from ``origin``."""
        end = "..." if self.end == inf else f"{self.end - origin:.6f}"
        words = [f"[{self.start - origin:.6f} – {end}]", self.process, self.action, self.outcome]
        if self.action == "acquire" and self.mode is not Mode.EXCLUSIVE:
            words.append(self.mode if self.mode is Mode.SHARED else f"{self.permits} of {self.limit} permits")
        if self.fence is not None:
            words.append(f"fence {self.fence}")
        if self.queued is not None:
            words.append(f"queued {self.queued - origin:.6f}")
        if self.granted:
            words.append(f"sure until {self.sure_until - origin:.6f}")
        return " ".join(words)


class _Recording(ABC):
    """The calls that record a history, turned into plain rows; what a row becomes is its subclass's."""

    _count = 0

    @abstractmethod
    def _row(self, what: str, at: float, **values: Any) -> None:
        """Take one row."""

    def invoke(
        self,
        at: float,
        process: str,
        action: str,
        name: str,
        *,
        mode: Mode = Mode.EXCLUSIVE,
        permits: int = 1,
        limit: int = 0,
        lease: str = "",
        fence: int | None = None,
    ) -> str:
        """An operation begins: note it before its first byte is sent.

        Args:
            at: The instant, in seconds on the clock of the whole history.
            process: Who calls; it must do one thing at a time.
            action: ``acquire``, ``release``, ``downgrade`` or ``write``.
            name: The name concerned.
            mode: Of an acquire: what it asks for.
            permits: Of an acquire with ``Mode.PERMITS``: how many; default 1.
            limit: How many permits there are; default 0, for what has none.
            lease: Of a release, downgrade or write: what ``invoke`` gave for its acquire.
            fence: Of a write: the fence that it shows.

        Returns:
            Its id, for the calls that follow.
        """
        self._count += 1
        identity = f"{process}#{self._count}"
        self._row(
            "invoke",
            at,
            id=identity,
            process=process,
            action=action,
            name=name,
            mode=mode,
            permits=permits,
            limit=limit,
            lease=lease,
            fence=fence,
        )
        return identity

    def queued(self, at: float, operation: str) -> None:
        """The place of a waiting acquire is confirmed by now."""
        self._row("queued", at, id=operation)

    def ok(self, at: float, operation: str, *, fence: int | None = None, deadline: float = inf) -> None:
        """An operation took effect: note it after its answer came.

        Args:
            at: The instant.
            operation: What ``invoke`` gave.
            fence: Of an acquire: its fence.
            deadline: Of an acquire: ``lease.valid_until``, on the clock of the history.
        """
        self._row("ok", at, id=operation, fence=fence, deadline=deadline)

    def fail(self, at: float, operation: str) -> None:
        """An operation is known to have taken no effect (a time-out that was withdrawn, ``NotHeld``)."""
        self._row("fail", at, id=operation)

    def info(self, at: float, operation: str) -> None:
        """Nobody knows whether an operation took effect, or will."""
        self._row("info", at, id=operation)

    def renewed(self, at: float, operation: str, deadline: float) -> None:
        """The lease of an acquire now lasts until ``deadline``; the last call counts, also when it shortens."""
        self._row("renewed", at, id=operation, deadline=deadline)

    def lost(self, at: float, operation: str) -> None:
        """The owner of an acquire's lease was notified of the loss: it no longer relies on it."""
        self._row("lost", at, id=operation)

    def crash(self, at: float, process: str) -> None:
        """A process is dead by now; what it was doing ends as ``INFO``."""
        self._row("crash", at, process=process)

    def pause(self, at: float, process: str) -> None:
        """A process stops running: its place in queues may lapse."""
        self._row("pause", at, process=process)

    def amnesia(self, at: float, name: str = "") -> None:
        """The server lost its memory: of one name, or of all (default). Leases from before exclude nobody after."""
        self._row("amnesia", at, name=name)


class Journal(_Recording):
    """Writes a history down as lines of JSON, one for each call, so that a process that is killed leaves its part.

    Args:
        write: Takes one line with its line end. It should write it in one step: ``os.write`` on a file opened with
            ``O_APPEND`` does.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def _row(self, what: str, at: float, **values: Any) -> None:
        row = {"what": what, "at": at, **{k: v for k, v in values.items() if v not in (None, "", inf)}}
        self._write(json.dumps(row) + "\n")


class History(_Recording):
    """A history in memory, recorded call by call or read from journals.

    Attributes:
        operations: Every operation, by its id, in the order of invocation.
    """

    def __init__(self) -> None:
        self.operations: dict[str, Operation] = {}
        self._by_name: dict[str, list[Operation]] = {}
        self._open: dict[str, list[Operation]] = {}

    @classmethod
    def read(cls, lines: Iterable[str]) -> History:
        """Put together what the journals of any number of processes say, in whatever order.

        Args:
            lines: Their lines. One that a killed process left unfinished is passed over.

        Raises:
            ValueError: A finished line is no row of a journal, or names an operation that nobody invoked.
        """
        history = cls()
        rows = [json.loads(line) for line in lines if line.endswith("\n") and line.strip()]
        # Of one instant, what begins comes first: a completion must find its operation.
        for row in sorted(rows, key=lambda row: (row["at"], row["what"] != "invoke")):
            history._row(row.pop("what"), row.pop("at"), **row)
        return history

    @property
    def names(self) -> list[str]:
        """Every name that occurs, sorted."""
        return sorted(self._by_name)

    @property
    def origin(self) -> float:
        """The instant of the first invocation, 0 for an empty history."""
        return min((operation.start for operation in self.operations.values()), default=0.0)

    def of(self, name: str, action: str = "") -> Iterator[Operation]:
        """The operations on a name, of one action or (default) all, in the order of invocation."""
        for operation in self._by_name.get(name, ()):
            if action in ("", operation.action):
                yield operation

    def _row(self, what: str, at: float, **values: Any) -> None:
        if what == "invoke":
            self._begin(at, **values)
        elif what in ("crash", "pause"):
            self._interrupt(what, at, values["process"])
        elif what == "amnesia":
            self._forget(at, values.get("name", ""))
        else:
            found = self.operations.get(values["id"])
            if found is None:
                raise ValueError(f"{what}: no operation {values['id']!r} was invoked")
            self._update(what, at, found, values)

    def _begin(self, at: float, id: str, **values: Any) -> None:  # noqa: A002 - the field's name
        values["mode"] = Mode(values.get("mode", Mode.EXCLUSIVE))
        operation = Operation(id, start=at, **values)
        if id in self.operations:
            raise ValueError(f"operation {id!r} was invoked twice")
        self.operations[id] = operation
        self._by_name.setdefault(operation.name, []).append(operation)
        self._open.setdefault(operation.process, []).append(operation)
        if operation.lease and operation.action != "write":
            self.operations[operation.lease].ended_by.append(operation)

    def _update(self, what: str, at: float, operation: Operation, values: dict[str, Any]) -> None:
        if what == "queued":
            operation.queued = at
        elif what == "renewed":
            operation.deadline = values["deadline"]
        elif what == "lost":
            operation.told = min(operation.told, at)
        else:
            operation.outcome, operation.end = Outcome(what), at
            if values.get("fence") is not None:
                operation.fence = values["fence"]
            operation.deadline = values.get("deadline", inf)

    def _interrupt(self, what: str, at: float, process: str) -> None:
        for operation in self._open.get(process, ()):
            if what == "crash":
                operation.died = min(operation.died, at)
                if operation.end == inf:
                    operation.end = at
            elif operation.end == inf:
                operation.lapsed = True

    def _forget(self, at: float, name: str) -> None:
        for operation in self.operations.values():
            if name in ("", operation.name):
                operation.forgotten = min(operation.forgotten, at)
                operation.lapsed = operation.lapsed or operation.end == inf
