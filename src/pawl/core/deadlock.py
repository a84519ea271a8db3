"""Finding threads, tasks and processes that wait for each other in a circle.

A waiter that has waited long follows the chain: who holds what I wait for, and what does that one wait for? The
answers come from the sessions' records (see ``sessions``) and from the names themselves. A chain that comes back to
the waiter is a suspicion only: records are old as soon as they are written. It is a deadlock once it was read twice,
with equal fences and waits, and every record of the second reading was built after the first reading was over:

- a fence is never given twice, so the same grant held each name all the time between the two readings;
- the number of a wait is never given twice, so each waiter waited all the time between the two records.

So at the end of the first reading all of them waited for each other at once, and nothing but a time-out would have
ended it. Of the waiters, the one that came last is told, and the others go on with what it gives back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pawl.core.info import text_of
from pawl.core.runtime import Fault, Reply
from pawl.core.sessions import CARE, read_record
from pawl.errors import DeadlockDetected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawl.core.engine import Engine
    from pawl.core.primitive import Primitive
    from pawl.core.runtime import Call
    from pawl.core.sessions import Book, Record, Wait, WaitRow

__all__ = ["look_for_cycles"]

_MOST_CHECKS = 32
_MOST_STEPS = 64
_MOST_SESSIONS = 64
_MOST_HOLDERS = 100
_PATIENCE = 0.25
_POLL = 0.05
_FIRST_PAUSE = 0.1
_MOST_TRIES = 5

Who = tuple[str, str]
"""A thread or task: its session, and its number there."""


class _Step(NamedTuple):
    """One waiter of a chain; ``fence`` and ``used`` are of the hold that it waits for."""

    who: Who
    label: str
    wait: int
    since_ms: int
    name: str
    fence: int
    used: int


class _Holder(NamedTuple):
    who: Who
    fence: int
    used: int
    mode: str


def _must_leave(wanted: str, held: str, limit: int) -> bool:
    """Whether a waiter that wants permits as ``wanted`` gets nothing while this one holder stays.

    Any other holder may come and go: so it is true of each step of a circle, and the circle never ends by itself. A
    waiter who needs one of several holders to leave, and no certain one, proves nothing.
    """
    if not held or held == "o":
        return True
    if limit:
        return limit - int(held) < int(wanted or 1)
    return wanted == "x" or held == "x" or wanted == held == "u"


class _Cycle(NamedTuple):
    steps: tuple[_Step, ...]
    built_ms: int


async def look_for_cycles(engine: Engine, book: Book, patience: float) -> None:
    """Follow the chain of each wait that is due for it, and tell those that close a cycle as its youngest."""
    after = book.setup.deadlock_after
    now = engine.runtime.now()
    if not after or not book.published or engine.closed or now < book.check_from:
        return
    due = [wait for wait in book.waits.values() if wait.check_at <= now][:_MOST_CHECKS]
    reading = _Reading(engine, book, min(_PATIENCE, patience))
    for wait in due:
        engine.count("cycle_looks")
        try:
            cycle = await reading.cycle(wait)
        except Fault:
            # The server is slow or away: whoever waits finds that out by itself. Later again.
            cycle = None
        wait.check_at = engine.runtime.now() + _pause(wait, after)
        if cycle is None or max(cycle.steps, key=_youth).who != (book.id, wait.row.who):
            wait.suspicion = None
        elif wait.suspicion is None or wait.suspicion[0] != cycle.steps:
            wait.suspicion = cycle.steps, reading.last_ms
            wait.check_at = engine.runtime.now() + min(_POLL, book.beat)
        elif cycle.built_ms < wait.suspicion[1]:
            wait.check_at = engine.runtime.now() + min(_POLL, book.beat)
        else:
            await _tell(engine, book, wait, cycle.steps)
    book.check_from = now + len(book.waits) * CARE
    for wait in book.waits.values():
        book.next_check(max(wait.check_at, book.check_from))


def _pause(wait: Wait, after: float) -> float:
    """The last waiter finds a cycle at its first look; the next ones are for what was not written in time."""
    wait.tries += 1
    return min(float(after * _FIRST_PAUSE * 2 ** min(wait.tries - 1, _MOST_TRIES)), 5.0)


def _youth(step: _Step) -> tuple[int, str, int]:
    return step.since_ms, step.who[0], step.wait


async def _tell(engine: Engine, book: Book, wait: Wait, steps: tuple[_Step, ...]) -> None:
    names = tuple(step.name for step in steps)
    waiters = tuple(
        (f"{step.who[0].rpartition('/')[0]}/{step.label}", step.name, step.since_ms / 1000) for step in steps
    )
    chain = ", ".join(f"{who} waits for {name!r}" for who, name, _ in waiters)
    text = f"acquire {names[0]!r}: it would wait for ever: {chain}, and each is held by the next, the last by the first"
    holder = waiters[1 % len(waiters)][0]
    engine.count("deadlocks")
    wait.alarm(
        DeadlockDetected(text, name=names[0], holder=holder, cycle=(*names, names[0]), waiters=waiters)
    )
    await book.wake(wait)


class _Reading:
    """One look at the server: each name and each record is read once.

    Attributes:
        last_ms: The server's time of the last answer.
    """

    def __init__(self, engine: Engine, book: Book, patience: float) -> None:
        self._engine = engine
        self._book = book
        self._patience = patience
        self._records: dict[str, list[Record]] = {}
        self._holders: dict[str, tuple[list[_Holder], int]] = {}
        self.last_ms: int = 0

    async def cycle(self, wait: Wait) -> _Cycle | None:
        """The cycle that goes through a wait, if there is one. Raises ``Fault``."""
        goal = self._book.id, wait.row.who
        steps: list[_Step] = []
        await self._sessions(self._book.id.rpartition("/")[0] + "/")
        if self._wait_of(goal) is None or not await self._follow(goal, goal, steps, {goal}):
            return None
        ids = {step.who[0] for step in steps}
        built = [r.built_ms for records in self._records.values() for r in records if r.id in ids]
        return _Cycle(tuple(steps), min(built))

    async def _follow(self, who: Who, goal: Who, steps: list[_Step], seen: set[Who]) -> bool:
        row = self._wait_of(who)
        primitive = None if row is None else self._book.setup.look(row.kind, row.name)
        if row is None or primitive is None:
            return False
        holders, limit = await self._holders_of(primitive)
        for holder, fence, used, mode in holders:
            if (holder in seen and holder != goal) or not _must_leave(row.mode, mode, limit):
                continue
            if holder == who and mode:
                # It may give back some of its own permits, or write beside its own reader.
                continue
            seen.add(holder)
            steps.append(_Step(who, row.label, row.number, row.since_ms, row.name, fence, used))
            if holder == goal:
                return True
            if len(seen) <= _MOST_STEPS and await self._follow(holder, goal, steps, seen):
                return True
            steps.pop()
        return False

    def _wait_of(self, who: Who) -> WaitRow | None:
        for record in self._records.get(who[0].rpartition("/")[0] + "/", ()):
            if record.id == who[0]:
                return next((row for row in record.waits if row.who == who[1]), None)
        return None

    async def _holders_of(self, primitive: Primitive) -> tuple[list[_Holder], int]:
        known = self._holders.get(primitive.key)
        if known is not None:
            return known
        found: list[_Holder] = []
        reply = (await self._ask([primitive.inspect(_MOST_HOLDERS if hasattr(primitive, "mode") else 0)]))[0]
        self.last_ms = max(self.last_ms, reply[6])
        # An explicit owner's holds may be of several processes; a waiter waits for all of them.
        listed = reply[13][1::3] if len(reply) > 13 else [reply[2]]
        # Of permits each holder has a fence of its own, of a mutex there is one.
        modes = {reply[4]: ""}
        if len(reply) > 14:
            modes = {fence: text_of(mode) for fence, mode in zip(reply[14], reply[13][::3], strict=True)}
        known = self._holders[primitive.key] = found, int(reply[11]) if len(reply) > 11 else 0
        for process in {bytes(public).decode(errors="replace").rpartition("/")[0] for public in listed}:
            for record in await self._sessions(process + "/") if process else ():
                for row in record.holds:
                    held = self._book.setup.look(row.kind, row.name)
                    if held is not None and held.key == primitive.key and row.fence in modes:
                        found.append(_Holder((record.id, row.who), row.fence, row.used, modes[row.fence]))
        return known

    async def _sessions(self, prefix: str) -> list[Record]:
        records = self._records.get(prefix)
        if records is None:
            calls = self._book.setup.calls
            reply = (await self._ask([calls.find(prefix, "", _MOST_SESSIONS)]))[0]
            self.last_ms = max(self.last_ms, reply[2])
            ids = [bytes(one).decode(errors="replace") for one in reply[3]]
            replies = await self._ask([calls.read(one) for one in ids]) if ids else []
            self.last_ms = max([self.last_ms, *(one[2] for one in replies)])
            read = [read_record(session, one) for session, one in zip(ids, replies, strict=True)]
            records = self._records[prefix] = [record for record in read if record is not None]
        return records

    async def _ask(self, calls: Sequence[Call]) -> list[Reply]:
        replies: list[Reply] = []
        for outcome in await self._engine.runtime.call_many(calls, self._patience):
            if isinstance(outcome, Fault):
                raise outcome
            replies.append(outcome)
        return replies
