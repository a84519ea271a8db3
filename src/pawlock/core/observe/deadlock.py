"""Finding threads, tasks and processes that wait for each other without an end.

A waiter that has waited long, and holds something meanwhile, follows what it waits for: who holds that, and what do
those wait for? The answers come from the sessions' records (see ``session``) and from the names themselves; only what
lies on the way is read. Whether they wait for each other is decided by ``wait_graph``. At first it is only suspected:
records are old as soon as they are written. It is a deadlock once it was read twice, with equal fences, tickets and
waits, and every record of the second reading was built after the first reading was over:

- a fence is never given twice, so the same grant held each name all the time between the two readings;
- neither is a ticket nor the number of a wait, so each waiter waited all the time between the two records.

So at the end of the first reading all of them waited for each other at once, and nothing but a timeout would have ended
it. The waiter that came last gets the error, and the others go on with what it gives back. That one holds something:
nobody waits for one that holds nothing, but for those who stand behind it in a queue, and they came later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pawlock.core.observe.wait_graph import Held, Name, Queued, Waiter, WaitGraph, Who
from pawlock.core.protocol.outcomes import Look, Outcome
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.state.session import CHECK_EVERY, read_record
from pawlock.errors import DeadlockDetected

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.carrier import Request
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.state.session import HoldRow, Record, SessionPublisher, Wait, WaitRow

__all__ = ["look_for_cycles"]

_MOST_CHECKS = 32
_MOST_NAMES = 256
_MOST_SESSIONS = 64
_MOST_LISTED = 100
"""Holders and waiters of one name that are checked: those behind them are assumed to make progress."""

_PATIENCE = 0.25
_POLL = 0.05
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0


class _Deadlock(NamedTuple):
    cycle: list[Waiter]
    youngest: Who
    proof: object
    built_ms: int


async def look_for_cycles(engine: Engine, publisher: SessionPublisher, patience: float) -> None:
    """Look whether waiters that are due for it are in a deadlock, and report it to its youngest."""
    after = publisher.setup.deadlock_after
    now = engine.runtime.now()
    if not after or not publisher.published or engine.activity.closed or now < publisher.check_from:
        return
    due = [wait for wait in publisher.waits.values() if wait.holds and wait.check_at <= now][:_MOST_CHECKS]
    if due:
        await _look(engine, publisher, due, min(_PATIENCE, patience))
    publisher.check_from = now + len(publisher.waits) * CHECK_EVERY
    for wait in publisher.waits.values():
        if wait.holds:
            publisher.next_check(max(wait.check_at, publisher.check_from))


async def _look(engine: Engine, publisher: SessionPublisher, due: Sequence[Wait], patience: float) -> None:
    reading = _Reading(engine, publisher, patience)
    try:
        await reading.follow(wait.row for wait in due)
        read = True
    except Fault:
        # The server is slow or away: a waiter finds that out by itself. Later again.
        read = False
    for wait in due:
        engine.count("cycle_looks")
        deadlock = reading.deadlock(wait) if read else None
        wait.check_at = engine.runtime.now() + _pause(wait, publisher.setup.deadlock_after)
        soon = engine.runtime.now() + min(_POLL, publisher.beat)
        if deadlock is None or deadlock.youngest != (publisher.id, wait.row.who):
            wait.suspected = None
        elif wait.suspected is None or wait.suspected[0] != deadlock.proof:
            wait.suspected = deadlock.proof, reading.last_ms
            wait.check_at = soon
        elif deadlock.built_ms < wait.suspected[1]:
            wait.check_at = soon
        else:
            await _report(engine, publisher, wait, deadlock.cycle)


def _pause(wait: Wait, after: float) -> float:
    """The last waiter finds a cycle at its first look; the next ones are for what was not written in time."""
    wait.tries += 1
    return min(float(after * _FIRST_PAUSE * 2 ** min(wait.tries - 1, 30)), _LONGEST_PAUSE)


async def _report(engine: Engine, publisher: SessionPublisher, wait: Wait, cycle: list[Waiter]) -> None:
    names = tuple(one.name for one in cycle)
    waiters = tuple((_shown(one), one.name, one.since_ms / 1000) for one in cycle)
    chain = ", ".join(f"{who} waits for {name!r}" for who, name, _ in waiters)
    text = (
        f"acquire {names[0]!r}: deadlock: {chain}; each waits for what the next one holds or has queued for,"
        " the last for the first"
    )
    holder = waiters[1 % len(waiters)][0]
    engine.count("deadlocks")
    closed = (*names, names[0])
    wait.target.wait_error = DeadlockDetected(
        text, name=names[0], holder=holder, cycle=closed, waiters=waiters
    )
    await publisher.wake(engine, wait)


def _shown(one: Waiter) -> str:
    return f"{one.who[0].rpartition('/')[0]}/{one.label}" if one.number else one.label


class _Reading:
    """One look at the server: each name and each record is read once, all that are known of in one go.

    Attributes:
        last_ms: The server's time of the last answer.
    """

    def __init__(self, engine: Engine, publisher: SessionPublisher, patience: float) -> None:
        self._engine = engine
        self._publisher = publisher
        self._until = engine.runtime.now() + patience
        self._graph = WaitGraph()
        self._records: dict[str, list[Record]] = {}
        # What this client knows of itself is newer than what the server has.
        self._own = [] if publisher.record is None else [publisher.record]
        self.last_ms: int = 0

    async def follow(self, rows: Iterable[WaitRow]) -> None:
        """Read what these wait for, who holds that, what those wait for, and so on. Raises ``Fault``."""
        ahead = [(self._publisher.id, row) for row in rows]
        while ahead:
            wanted: dict[str, Primitive] = {}
            for session, row in ahead:
                primitive = self._publisher.setup.look(row.kind, row.name)
                if primitive is None:
                    continue
                self._note(session, row, primitive)
                if primitive.key not in self._graph.names:
                    wanted[primitive.key] = primitive
            if len(self._graph.names) + len(wanted) > _MOST_NAMES:
                return
            ahead = await self._read(list(wanted.values())) if wanted else []

    def deadlock(self, wait: Wait) -> _Deadlock | None:
        """The deadlock that a waiter is part of, if any."""
        me = self._publisher.id, wait.row.who
        deadlocks = self._graph.deadlocks()
        deadlock = deadlocks.containing(me) if me in self._graph.waits else frozenset[Who]()
        if not deadlock:
            return None
        sessions = {who[0] for who in deadlock}
        built = [
            record.built_ms for found in self._records.values() for record in found if record.id in sessions
        ]
        youngest = max(
            (self._graph.waits[who] for who in deadlock if who in self._graph.waits), key=_order
        ).who
        return _Deadlock(deadlocks.cycle(me, deadlock), youngest, deadlocks.proof(deadlock), min(built))

    def _note(self, session: str, row: WaitRow, primitive: Primitive) -> None:
        who = session, row.who
        self._graph.waits[who] = Waiter(
            who, row.label, row.number, row.since_ms, primitive.key, row.name, row.tag
        )

    async def _read(self, primitives: Sequence[Primitive]) -> list[tuple[str, WaitRow]]:
        """Read names and who holds them; what the holders wait for."""
        looks: list[Look] = await self._ask(
            [one.inspect(_MOST_LISTED if hasattr(one, "mode") else 0) for one in primitives]
        )
        self.last_ms = max([self.last_ms, *(look.now_ms for look in looks)])
        await self._find({process for look in looks for process in _processes(look)})
        ahead: list[tuple[str, WaitRow]] = []
        for primitive, look in zip(primitives, looks, strict=True):
            held = self._held(primitive, look)
            self._graph.names[primitive.key] = _name(look, held, self._publisher.setup.deadlock_after)
            for who in {one.who for one in held} - self._graph.waits.keys():
                row = self._wait_of(who)
                if row is not None:
                    ahead.append((who[0], row))
        return ahead

    def _held(self, primitive: Primitive, look: Look) -> tuple[Held, ...]:
        # Of permits each holder has a fence of its own, of a mutex there is one.
        modes = {look.fence: ""}
        if look.shows_modes:
            modes = {holder.fence: holder.mode for holder in look.holders or () if holder.fence is not None}
        return tuple(
            Held((record.id, row.who), row.fence, row.used, modes[row.fence], bool(row.bound))
            for process in _processes(look)
            for record in self._records.get(process, ())
            for row in record.holds
            if row.fence in modes and self._is_of(row, primitive)
        )

    def _is_of(self, row: HoldRow, primitive: Primitive) -> bool:
        held = self._publisher.setup.look(row.kind, row.name)
        return held is not None and held.key == primitive.key

    def _wait_of(self, who: Who) -> WaitRow | None:
        for record in self._records.get(_process(who[0]), ()):
            if record.id == who[0]:
                return next((row for row in record.waits if row.who == who[1]), None)
        return None

    async def _find(self, processes: set[str]) -> None:
        """Read the records of all clients of these processes."""
        new = sorted(processes - self._records.keys())
        calls = self._publisher.setup.calls
        found = await self._ask([calls.find(process, "", _MOST_SESSIONS) for process in new])
        ids = [[one for one in listed.ids if one != self._publisher.id] for listed in found]
        pages = iter(await self._ask([calls.read(some) for some in ids if some]))
        for process, some, listed in zip(new, ids, found, strict=True):
            self.last_ms = max(self.last_ms, listed.now_ms)
            read = next(pages) if some else None
            records = list(self._own) if process == _process(self._publisher.id) else []
            if read is not None:
                self.last_ms = max(self.last_ms, read.now_ms)
                known = (read_record(session, text) for session, text in zip(some, read.texts, strict=True))
                records += [record for record in known if record is not None]
            self._records[process] = records

    async def _ask(self, calls: Sequence[Request]) -> list[Outcome]:
        answers: list[Outcome] = []
        if not calls:
            return answers
        left = self._until - self._engine.runtime.now()
        if left <= 0:
            raise Fault(FaultKind.UNANSWERED, "the deadlock check took too long")
        for outcome in await self._engine.runtime.call_many(calls, left):
            if isinstance(outcome, Fault):
                raise outcome
            answers.append(outcome)
        return answers


def _order(waiter: Waiter) -> tuple[int, str, int]:
    return waiter.since_ms, waiter.who[0], waiter.number


def _process(session: str) -> str:
    return session.rpartition("/")[0] + "/"


def _processes(look: Look) -> set[str]:
    # An explicit owner's holds may be of several processes; a waiter waits for all of them.
    listed = [look.holder] if look.holders is None else [holder.who for holder in look.holders]
    return {process for public in listed if (process := _process(public)) != "/"}


def _name(look: Look, held: tuple[Held, ...], after: float) -> Name:
    if not look.shows_modes:
        return Name(shared=False, limit=0, held=held, queue=())
    # A ticket is numbered by the server's clock in µs when it was drawn, or one more than the last.
    oldest = look.now_ms - after * 1000
    queue = tuple(
        Queued(waiter.tag, waiter.asked, waiter.number / 1000 <= oldest)
        for waiter in look.waiters
        if waiter.expires_ms > look.now_ms
    )
    return Name(shared=True, limit=look.limit, held=held, queue=queue)
