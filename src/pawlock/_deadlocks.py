"""Finding threads, tasks and processes that wait for each other without an end.

A waiter that has waited for ``deadlock_after`` seconds, and holds something meanwhile, is written into a small record of
its client: what it waits for, since when, and what its thread or task holds. Of those that sleep inside the client for
as long, whom the server does not know, the record has how many they are and since when, name by name, for operators
(``_seen``). Nothing is written for anybody else.

A waiter that holds something then follows who is in its way: the holder of what it waits for, what that one waits for by
the records of its process, and so on. Only a name with exactly one holder is followed: of several, any may let go.

A way back to itself is at first only suspected: records are old as soon as they are written. It is a deadlock once it
was found twice, with the same grants and waits, and every record of the second reading was built after the first one
was over. A fence is never given twice, nor the number of a wait, so at the end of the first reading all of them held
and waited at once, and nothing but a timeout would have ended that. The waiter that came last gets the error, and the
others go on with what it gives back.
"""

from __future__ import annotations

import json
import logging
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pawlock.core.faults import or_raise
from pawlock.core.names import label_of
from pawlock.core.outcomes import NOBODY_MS
from pawlock.core.primitive import listed_as
from pawlock.core.reentry import waits_for_itself
from pawlock.core.runtime import Fault, FaultKind
from pawlock.errors import DeadlockDetected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawlock.core.engine import Engine
    from pawlock.core.outcomes import Look, Outcome
    from pawlock.core.primitive import Namespace, Primitive
    from pawlock.core.records import Attempt, Hold
    from pawlock.core.runtime import Request

__all__ = ["DeadlockWatch"]

_Waits: TypeAlias = "dict[Attempt, tuple[Primitive, object, float]]"
_Holds: TypeAlias = dict[object, list[tuple[str, int, int]]]

log: logging.Logger = logging.getLogger("pawlock.deadlocks")

_LONGEST = 32
"""Waiters in a cycle."""

_MOST_CHECKS, _MOST_WAITS, _MOST_HOLDS = 16, 500, 100
_PATIENCE, _RETRY, _DENIED_FOR = 0.25, 1.0, 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_REST = 0.0001
"""Seconds for each wait between two looks: ten thousand waits must leave the maintenance most of its time."""


class _Row(NamedTuple):
    """One waiter in a record.

    Attributes:
        client: Its client.
        number: Which of its waits; never used again.
        kind, name, mode: What it waits for.
        label: Its thread or task.
        since_ms: Since when, by the server's clock.
        holds: What its thread or task holds: key, first fence of the grant, local hand-overs since.
        process: Where it is.
        built_ms: A lower bound of the server's time at which all that was true.
    """

    client: str
    number: int
    kind: str
    name: str
    mode: str
    label: str
    since_ms: int
    holds: Sequence[tuple[str, int, int]]
    process: str = ""
    built_ms: int = 0

    @property
    def age(self) -> tuple[int, str, str, int]:
        """Larger for a waiter that came later; no two have the same."""
        return self.since_ms, self.process, self.client, self.number


class _Wait:
    """A wait that is published: whose, when to look for a cycle, how often that was done, and what is suspected."""

    __slots__ = ("check_at", "row", "suspected", "target", "tries", "who")

    def __init__(self, target: Attempt, who: object, row: _Row, now: float) -> None:
        self.target: Attempt = target
        self.who: object = who
        self.row: _Row = row
        self.check_at: float = now
        self.tries: int = 0
        self.suspected: tuple[object, int] | None = None


class DeadlockWatch:
    """Looks for cycles among the waiters of one client and those of others.

    Args:
        namespace: What is asked.
        after: Seconds after which a waiter looks.

    Attributes:
        armed: Whether the maintenance looks in again by itself; a waiter that begins while it is False wakes it.
    """

    def __init__(self, namespace: Namespace, after: float) -> None:
        self._names: Namespace = namespace
        self._after: float = after
        self._beat: float = max(0.02, min(0.5, after * 0.5))
        self._denied: bool = False
        self.forget()

    def forget(self) -> None:
        """Begin anew: after a fork, the waits and the record are the parent's."""
        self.armed: bool = False
        self._client: str = ""
        self._process: str = ""
        self._waits: dict[Attempt, _Wait] = {}
        self._numbers = count(1)
        self._published: bool = False
        self._asleep: list[tuple[str, str, int, int]] = []
        self._heard_at: float = -inf
        self._heard_ms: int = 0
        self._built_ms: int = 0
        self._next: float = -inf

    def leave(self, engine: Engine) -> None:
        """Take the record away, because the client closes."""
        if self._published:
            engine.post(self._names.calls.write_waits(self._process, self._client, ""), _RETRY)

    def sleep_until(self, engine: Engine, now: float) -> float:
        """See ``Watcher``."""
        # In this order: a waiter that begins after this line wakes the maintenance, and one that began before is seen.
        self.armed = False
        if engine.closed or not (engine.waits or self._published):
            return inf
        self.armed = True
        return max(now, self._next)

    async def ask(self, engine: Engine, now: float) -> None:
        """Publish those that wait long, and look for cycles."""
        if engine.closed or now < self._next:
            return
        waits = engine.waits.copy()
        self._next = now + self._after
        old: _Waits = {}
        for target, (primitive, who, since) in waits.items():
            if target.waiter is None and target.given is not None:
                continue
            if now - since >= self._after:
                old[target] = primitive, who, since
            else:
                self._next = min(self._next, since + self._after)
        try:
            holds = _holds_of(engine, {who for _, who, _ in old.values()}) if old else {}
            asleep = [wait for target, wait in old.items() if target.waiter is None]
            if holds or asleep or self._published:
                await self._write(engine, old, holds, asleep, now)
                for wait in [wait for wait in self._waits.values() if wait.check_at <= now][:_MOST_CHECKS]:
                    await self._check(engine, wait)
        except Fault as fault:
            # The server is slow or away: a waiter finds that out by itself. Later again.
            self._failed(fault, now)
            return
        if self._asleep:
            self._next = min(self._next, now + _RETRY)
        if self._waits:
            check_at = min(wait.check_at for wait in self._waits.values())
            self._next = min(self._next, now + self._beat, check_at)
        self._next = max(self._next, now + len(waits) * _REST)

    async def _write(
        self,
        engine: Engine,
        old: _Waits,
        holds: _Holds,
        asleep: Sequence[tuple[Primitive, object, float]],
        now: float,
    ) -> None:
        if not self._heard_ms:
            await self._introduce(engine)
        self._asleep = self._count(asleep)
        self._collect(engine, {target: wait for target, wait in old.items() if wait[1] in holds}, holds, now)
        await self._publish(engine)

    def _failed(self, fault: Fault, now: float) -> None:
        # A refused login is final, and no lack of a right: the next one may be right.
        denied = fault.kind is FaultKind.DENIED and not fault.final
        self._next = now + (_DENIED_FOR if denied else _RETRY)
        if denied and not self._denied:
            self._denied = True
            said = "deadlocks are not found, nor do operators see all who wait: no permission to write who waits (%s)"
            log.warning(said, fault.text)

    async def _introduce(self, engine: Engine) -> None:
        """Take a name in the records, and read the server's clock."""
        secret, _, public = engine.background.new_token().partition("@")
        self._client, self._process = secret[-12:], public.rpartition("/")[0]
        await self._rows(engine, self._process)

    def _collect(self, engine: Engine, old: _Waits, holds: _Holds, now: float) -> None:
        # What was read since then is newer: a lower bound.
        self._built_ms = self._server_ms(now)
        known: dict[Attempt, _Wait] = {}
        for target, (primitive, who, since) in list(old.items())[:_MOST_WAITS]:
            wait = self._waits.get(target)
            if wait is None or wait.who is not who:
                own, name = waits_for_itself(engine, primitive, who), primitive.name
                if own:
                    log.warning("acquire %r waits: %s", name, own, extra={"pawlock_name": name})
                row = _Row(
                    self._client, next(self._numbers), listed_as(primitive), name,
                    getattr(primitive, "mode", ""), label_of(who), self._server_ms(since), (), self._process,
                )  # fmt: skip
                wait = _Wait(target, who, row, now)
            wait.row = wait.row._replace(holds=holds[who])
            known[target] = wait
        self._waits = known

    def _count(self, asleep: Sequence[tuple[Primitive, object, float]]) -> list[tuple[str, str, int, int]]:
        """How many sleep for each kind and name, and since when the first of them does."""
        begun: dict[tuple[str, str], list[float]] = {}
        for primitive, _, since in asleep:
            begun.setdefault((primitive.kind, primitive.name), []).append(since)
        return [(*about, len(all_), self._server_ms(min(all_))) for about, all_ in begun.items()][
            :_MOST_HOLDS
        ]

    def _server_ms(self, at: float) -> int:
        return self._heard_ms + int((at - self._heard_at) * 1000)

    async def _publish(self, engine: Engine, channel: str = "", token: str = "") -> None:
        record = {
            "b": self._built_ms,
            "w": [wait.row[1:8] for wait in self._waits.values()],
            "s": self._asleep,
        }
        text = json.dumps(record, separators=(",", ":")) if self._waits or self._asleep else ""
        self._published = bool(text)
        await self._ask(
            engine, self._names.calls.write_waits(self._process, self._client, text, channel, token)
        )

    async def _ask(self, engine: Engine, call: Request) -> Outcome:
        patience = min(engine.within(_PATIENCE), engine.schedule.spare(engine.background.now()))
        outcome = or_raise((await engine.background.call_many([call], patience))[0])
        # Read before now: what is counted on from it is never above the server's clock.
        self._heard_at, self._heard_ms = engine.background.now(), outcome.now_ms
        return outcome

    async def _rows(self, engine: Engine, process: str) -> list[_Row]:
        """Who waits long in a process, and holds something."""
        texts = (await self._ask(engine, self._names.calls.read_waits(process))).texts
        rows: list[_Row] = []
        for client, text in zip(texts[::2], texts[1::2], strict=True):
            try:
                data = json.loads(text)
                for *row, holds in data["w"]:
                    held = [(str(key), int(fence), int(used)) for key, fence, used in holds]
                    rows.append(_Row._make((client, *row, held, process, int(data["b"]))))
            except (ValueError, TypeError, KeyError):
                # Of a later version, or not of pawlock.
                log.debug("the record of client %s of %s cannot be read", client, process)
        return rows

    async def _check(self, engine: Engine, wait: _Wait) -> None:
        engine.count("cycle_looks")
        now = engine.background.now()
        wait.check_at = now + min(self._after * _FIRST_PAUSE * 2 ** min(wait.tries, 30), _LONGEST_PAUSE)
        wait.tries += 1
        cycle, proof = await self._follow(engine, wait.row)
        if not cycle:
            wait.suspected = None
            return
        if wait.suspected is None or wait.suspected[0] != proof:
            wait.suspected = proof, self._heard_ms
        elif min(row.built_ms for row in cycle) >= wait.suspected[1]:
            await self._report(engine, wait, cycle)
        wait.check_at = now + self._beat

    async def _follow(self, engine: Engine, start: _Row) -> tuple[list[_Row], object]:
        """The cycle of which a waiter is the youngest, and what a second reading must find unchanged; or none."""
        cycle: list[_Row] = []
        proof: list[object] = []
        at = start
        while len(cycle) < _LONGEST:
            primitive = self._names.look(at.kind, at.name)
            if primitive is None:
                break
            fence, process = _in_the_way(await self._ask(engine, primitive.inspect(2)), at.mode)
            rows = await self._rows(engine, process) if process else []
            found = [(row, one) for row in rows for one in row.holds if one[:2] == (primitive.key, fence)]
            # A younger waiter than this one looks for itself.
            if not found or found[0][0].age > start.age:
                break
            at, hold = found[0]
            cycle.append(at)
            proof.append((*at.age, *hold))
            if at.age == start.age:
                # What it holds itself, another thread may give back.
                return ([at, *cycle[:-1]], proof) if len(cycle) > 1 else ([], None)
        return [], None

    async def _report(self, engine: Engine, wait: _Wait, cycle: list[_Row]) -> None:
        names = tuple(row.name for row in cycle)
        waiters = tuple((f"{row.process}/{row.label}", row.name, row.since_ms / 1000) for row in cycle)
        chain = ", ".join(f"{who} waits for {name!r}" for who, name, _ in waiters)
        text = f"acquire {names[0]!r}: deadlock: {chain}; each waits for what the next one holds, the last for the first"
        engine.count("deadlocks")
        target = wait.target
        target.wait_error = DeadlockDetected(
            text, name=names[0], holder=waiters[1][0], cycle=(*names, names[0]), waiters=waiters
        )
        del self._waits[target]
        # A message may be lost: a waiter on the server checks by itself within a third of its ticket's life.
        if target.waiter is not None:
            return await self._publish(engine, target.channel, target.waiter.token)
        engine.runtime.run_in_owner(target.unpark)
        return await self._publish(engine)


def _holds_of(engine: Engine, waiting: set[object]) -> _Holds:
    """What each thread or task that waits holds; those that hold nothing are left out: nobody waits for them."""
    found: _Holds = {}
    for hold in engine.schedule.all():
        who = _holder_of(hold)
        if who in waiting:
            holds = found.setdefault(who, [])
            if len(holds) < _MOST_HOLDS:
                holds.append((hold.primitive.key, hold.fence, hold.used))
    return found


def _holder_of(hold: Hold) -> object:
    # Of what is passed on inside the client, the present owner; of permits, the one that is in their block.
    known = hold.user is not None and not hold.primitive.transferable
    return hold.user if known else hold.who


def _in_the_way(look: Look, mode: str) -> tuple[int, str]:
    """The fence of the one holder that keeps a waiter waiting, and its process; ``""``: nobody, or not one alone."""
    fence, who = look.fence, look.holder
    if look.holders is not None:
        if look.holds != 1 or len(look.holders) != 1:
            return 0, ""
        holder = look.holders[0]
        fence, who = look.fence if holder.fence is None else holder.fence, holder.who
        full = mode.isdecimal() and 0 < look.limit < look.used + int(mode)
        if not ("x" in (mode, holder.mode) or full):
            return 0, ""
    return (0, "") if look.left_ms == NOBODY_MS or not fence else (fence, who.rpartition("/")[0])
