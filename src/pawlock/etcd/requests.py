r"""What the scripts do on Redis, done by transactions of etcd: the same keys, arguments and replies.

Everything of a name lies under its key: ``KEY\0TOKEN`` for each holder and waiter, bound to a lease of its own, and
``KEY\1…`` for what is beside them. Their order is that in which they were created. The first holds; of permits, as many
of the first as fit. So a hand-off writes nothing: whoever is before goes, and the next one holds.

Rules:

1. Who comes and holds is written only if nothing of the name has changed since it was looked at; who waits, behind all.
2. A row goes with its lease, with the release of its token, or by an operator. The lease of a token that is left is
   revoked: no late copy of its transaction can be carried out.
3. A lease is one token's alone, and counts from before the request that granted it or kept it alive was sent.
4. Fences follow from the revision at which a row was created: a later holder of a name was created later.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from pawlock._system import now, wall
from pawlock.core.names import helper_key
from pawlock.core.outcomes import NOBODY_MS, Outcome
from pawlock.core.runtime import Call, Fault, FaultKind, Wakeup
from pawlock.core.scripts import load
from pawlock.etcd.gateway import Gateway, Gone, decoded, encoded

__all__ = ["LEAST_TTL", "Book", "Lease", "Requests", "Row", "State", "Wish"]

Reply: TypeAlias = "list[Any]"
Answer: TypeAlias = "dict[str, Any]"

FENCES = 100
"""Fences of each revision: more than a grant reserves for hand-overs inside its client."""

LEAST_TTL = 2
"""Seconds: etcd's leases last one and a half of its election timeouts, which are a second each by default."""

_ROW, _SIDE, _END = b"\x00", b"\x01", b"\x02"
_EXCLUSIVE, _CLOSED = "x", "closed"
_ANY_LIMIT = 1_000_000_000
_MANY = 64
_OF_A_TOKEN = 5
"""Arguments of a script of permits that are about a token; the others have fewer."""

_LOGICAL_MS = 1_000_000
"""Of a revision: records of waiters are compared by revisions, which all clocks agree on, and milliseconds since."""


@dataclass(slots=True)
class Lease:
    """A lease of etcd.

    Attributes:
        id: Its number.
        ttl: Seconds that it lasts after each keep-alive.
        since: When the last of these was sent, on the client's clock.
    """

    id: str
    ttl: int
    since: float

    def left_ms(self, most_ms: int) -> int:
        """What is left of it, of that which was asked for."""
        return max(0, min(most_ms, self.ttl * 1000) - int((now() - self.since) * 1000) - 1)


class Book:
    """What a client remembers beside etcd. Its event loop and its background share it.

    Attributes:
        leases: By token.
        waits: What waits, by token.
        observed: What is observed, by token: a key, and the revision at which it was looked at.
        watching: Who sleeps until a token may hold.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, in the child of a fork."""
        self.leases: dict[str, Lease] = {}
        self.waits: dict[str, Wish] = {}
        self.observed: dict[str, tuple[bytes, int]] = {}
        self.watching: dict[str, asyncio.Task[Wakeup | None]] = {}
        self._most = _MANY

    def note(self, token: str, lease: Lease) -> None:
        """Note whose a lease is. Those of tokens that nobody left go once they have doubled: detached, or lost."""
        self.leases[token] = lease
        if len(self.leases) > self._most:
            # A list in one step: the other loop takes from it meanwhile.
            for one, other in list(self.leases.items()):
                if now() - other.since > 2 * other.ttl:
                    self.leases.pop(one, None)
            self._most = 2 * len(self.leases) + _MANY


class Row(NamedTuple):
    """A holder or a waiter.

    Attributes:
        key: Its key.
        made: The revision at which it came.
        changed: The revision of its last change.
        lease: Its lease.
        token: Its token.
        mode: A weight, or ``"x"``.
        permits: How many there are in all, as it declared; 0: no limit.
        ttl: Seconds that its lease lasts.
        held: Whether it is known to hold, whatever comes.
        at: The wall clock at its creation, to show its age.
    """

    key: bytes
    made: int
    changed: int
    lease: str
    token: str
    mode: str
    permits: int
    ttl: int
    held: bool
    at: float

    @property
    def fence(self) -> int:
        """Its first fence."""
        return self.made * FENCES

    @property
    def public(self) -> str:
        """What others see of its token."""
        return self.token.partition("@")[2]


class State:
    """A name at a revision.

    Args:
        base: Its key.
        revision: The revision.
        kvs: All that is under it.

    Attributes:
        rows: All holders and waiters, in the order in which they came.
        beside: What else is kept, by name.
        limit, declared: The limit in force, and the number that was declared for it; 0: there is none.
        holders: Who holds.
        waiters: The others.
    """

    def __init__(self, base: bytes, revision: int, kvs: Sequence[Mapping[str, Any]]) -> None:
        self.revision: int = revision
        self.rows: list[Row] = []
        self.beside: dict[str, Any] = {}
        cut = len(base) + 1
        for kv in kvs:
            key, made, changed = decoded(kv["key"]), int(kv["create_revision"]), int(kv["mod_revision"])
            try:
                value = json.loads(decoded(kv["value"]))
                if key[cut - 1 : cut] == _SIDE:
                    self.beside[key[cut:].decode()] = value
                else:
                    self.rows.append(Row(key, made, changed, kv.get("lease", "0"), *value))
            except (TypeError, ValueError):
                raise Fault(FaultKind.WRONG_KEY, f"{key!r} is not of pawlock") from None
        self.rows.sort(key=lambda row: row.made)
        limit = max((row.permits % _ANY_LIMIT for row in self.rows), default=0)
        self.limit: int
        self.declared: int
        self.limit, self.declared = self.beside.get("limit", (limit, limit))
        self.holders: list[Row] = [row for row in self.rows if row.held]
        self.waiters: list[Row] = []
        for row in self.rows:
            if not row.held:
                fits = not self.waiters and self.fits(row.mode)
                (self.holders if fits else self.waiters).append(row)

    def fits(self, mode: str) -> bool:
        """Whether one more holder goes with those that there are."""
        if mode == _EXCLUSIVE or any(row.mode == _EXCLUSIVE for row in self.holders):
            return not self.holders
        return not self.limit or sum(int(row.mode) for row in self.holders) + int(mode) <= self.limit

    def of(self, token: str) -> Row | None:
        """The row of a token."""
        return next((row for row in self.rows if row.token == token), None)

    @property
    def shown(self) -> str:
        """Who holds it first."""
        return self.holders[0].public if self.holders else ""

    def present(self) -> str:
        """What there is."""
        return "held" if self.holders else "none"


class Wish(NamedTuple):
    """Who wants what of a name."""

    base: bytes
    token: str
    mode: str = _EXCLUSIVE
    permits: int = 0

    @property
    def key(self) -> bytes:
        """Where its row is, unless it was adopted."""
        return self.base + _ROW + self.token.encode()

    def value(self, ttl: int, *, held: bool) -> str:
        """Its row; see ``Row``."""
        row = (self.token, self.mode, self.permits, ttl, held, wall())
        return encoded(json.dumps(row).encode())


def _compare(key: bytes, what: str, target: str, value: int, end: bytes = b"") -> Answer:
    there = {"key": encoded(key), "range_end": encoded(end)}
    return {**there, "target": target, "result": what, f"{target.lower()}_revision": str(value)}


def _range(base: bytes) -> Answer:
    return {"request_range": {"key": encoded(base + _ROW), "range_end": encoded(base + _END)}}


def _delete(key: bytes) -> Answer:
    return {"request_delete_range": {"key": encoded(key)}}


def _put(key: bytes, value: str, lease: str) -> Answer:
    return {"request_put": {"key": encoded(key), "value": value, "lease": lease}}


def _seconds(ms: int) -> int:
    return max(LEAST_TTL, -(-ms // 1000))


class Requests:
    """Carries out requests; belongs to one event loop.

    Args:
        gateway: The members.
        book: What the client remembers.
    """

    def __init__(self, gateway: Gateway, book: Book) -> None:
        self._gateway = gateway
        self._book = book
        self._revoking: set[asyncio.Task[None]] = set()

    async def ask(self, call: Call, timeout: float) -> Outcome:
        """Carry out one request. Raises ``Fault``; after ``timeout`` seconds, ``UNANSWERED``."""
        shape, act = _KNOWN.get(call.script.sha, ("", None))
        if act is None:
            raise Fault(FaultKind.UNSUPPORTED, f"{call.script.name} is not available on etcd", final=True)
        words = call.words()
        args = [word.decode() for word in words[call.script.numkeys :]]
        member = self._gateway.at
        try:
            async with asyncio.timeout(timeout):
                letter, *fields = await act(self, *_wish(shape, words[0], args))
        except TimeoutError:
            self._gateway.leave(member)
            text = f"no answer within {timeout:.3g} s"
            raise Fault(FaultKind.UNANSWERED, text, maybe_applied=True) from None
        except Gone:
            raise Fault(FaultKind.UNANSWERED, "the lease ended on the way", maybe_applied=True) from None
        return call.answer([letter, 0, *fields])

    async def ask_all(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """Carry out several; one outcome each, in order."""
        # Each is a connection meanwhile.
        few = asyncio.Semaphore(_MANY)

        async def one(call: Call) -> Outcome | Fault:
            try:
                async with few:
                    return await self.ask(call, timeout)
            except Fault as fault:
                return fault.without_traceback()

        return list(await asyncio.gather(*map(one, calls)))

    async def close(self) -> None:
        """Close the connections."""
        for token, watching in list(self._book.watching.items()):
            if watching.get_loop() is asyncio.get_running_loop():
                self.ended(token)
        await asyncio.gather(*self._revoking)
        await self._gateway.close()

    # Steps ------------------------------------------------------------------------------------------------------

    async def _txn(
        self, base: bytes, compare: Sequence[Answer], then: Sequence[Answer], *, before: bool = False
    ) -> tuple[bool, State]:
        """Carry out a transaction.

        Returns:
            Whether all that is compared held; and the name as it is if not, and as it was ``before``, if that is asked for.
        """
        look = [_range(base)]
        body = {"compare": compare, "success": [*(look if before else ()), *then], "failure": look}
        answer = await self._gateway.ask("kv/txn", body)
        done = bool(answer.get("succeeded"))
        found: Answer = answer["responses"][0].get("response_range", {}) if before or not done else {}
        return done, State(base, int(answer["header"]["revision"]), found.get("kvs", ()))

    async def _look(self, base: bytes) -> State:
        return (await self._txn(base, [], [], before=True))[1]

    async def _grant(self, ttl: int) -> Lease:
        since = now()
        answer = await self._gateway.ask("lease/grant", {"TTL": str(ttl)})
        return Lease(answer["ID"], ttl, since)

    async def _keep(self, lease: Lease) -> None:
        """Keep a lease alive. Raises ``Gone`` if it is over."""
        since = now()
        answer = await self._gateway.ask("lease/keepalive", {"ID": lease.id})
        if int(answer["result"].get("TTL", 0)) <= 0:
            raise Gone
        lease.since = since

    async def _revoke(self, lease: str) -> None:
        try:
            await self._gateway.ask("lease/revoke", {"ID": lease})
        except Gone:
            return

    async def _left_ms(self, lease: str) -> int:
        with suppress(Gone):
            answer = await self._gateway.ask("lease/timetolive", {"ID": lease})
            return max(0, int(answer.get("TTL", 0)) * 1000)
        return 0

    async def _lease_for(self, token: str, ttl: int) -> Lease:
        """A lease for a token, which lives its whole time from now on: its own, or a new one."""
        lease = self._book.leases.get(token)
        if lease is not None:
            with suppress(Gone):
                if lease.ttl == ttl:
                    await self._keep(lease)
                    return lease
                # Nothing that may still come binds a row to it.
                await self._revoke(lease.id)
        lease = await self._grant(ttl)
        self._book.note(token, lease)
        return lease

    # Taking -----------------------------------------------------------------------------------------------------

    async def acquire(self, wish: Wish, ttl_ms: int, ticket_ms: int, *, wait: bool, most: int) -> Reply:
        """See ``acquire.lua`` of the mutex and of permits."""
        ttl, base = _seconds(ttl_ms), wish.base
        # What is free, as most are, needs no look before.
        state = await self._look(base) if wish.permits else State(base, 0, ())
        guard = _compare(base + _ROW, "LESS", "CREATE", 1, base + _SIDE)
        while True:
            if state.revision:
                guard = _compare(base + _ROW, "LESS", "MOD", state.revision + 1, base + _END)
            if mine := state.of(wish.token):
                return await self._renewed(wish, mine, state, ttl_ms)
            if refused := _refused(state, wish):
                return refused
            if state.waiters or not state.fits(wish.mode):
                if wait:
                    return await self._queue(wish, state, ttl_ms, ticket_ms, most)
                if unused := self._book.leases.pop(wish.token, None):
                    await self._revoke(unused.id)
                return [b"B", state.rows[0].ttl * 1000, 0, state.rows[0].public]
            lease = await self._lease_for(wish.token, ttl)
            put = _put(wish.key, wish.value(ttl, held=True), lease.id)
            done, state = await self._txn(base, [guard], [put])
            if done:
                return [b"H", state.revision * FENCES, lease.left_ms(ttl_ms), 0]

    async def _queue(self, wish: Wish, state: State, ttl_ms: int, ticket_ms: int, most: int) -> Reply:
        if len(state.waiters) >= most:
            return [b"F", len(state.waiters)]
        ticket = _seconds(ticket_ms)
        lease = await self._lease_for(wish.token, ticket)
        put = _put(wish.key, wish.value(ticket, held=False), lease.id)
        await self._txn(wish.base, [_compare(wish.key, "LESS", "CREATE", 1)], [put])
        state = await self._look(wish.base)
        mine = state.of(wish.token)
        if mine is None:
            return [b"U", state.present()]
        if mine in state.waiters and state.waiters.index(mine) >= most:
            await self._txn(wish.base, [], [_delete(mine.key)])
            return [b"F", most]
        return await self._renewed(wish, mine, state, ttl_ms, kept=True)

    async def _renewed(
        self, wish: Wish, mine: Row, state: State, ttl_ms: int, *, kept: bool = False
    ) -> Reply:
        """Answer who holds or waits, with its life raised."""
        lease = self._book.leases.get(mine.token)
        if lease is None or lease.id != mine.lease:
            # Another client's, or bound to it by what was given up.
            lease, kept = Lease(mine.lease, mine.ttl, 0.0), False
        try:
            if mine in state.waiters:
                if _refused(state, wish):
                    # The limit was lowered: it would stand in the way of all behind it.
                    await self._txn(wish.base, [], [_delete(mine.key)])
                    return [b"U", state.present()]
                self._book.waits[wish.token] = wish
                if not kept:
                    await self._keep(lease)
                holds = state.holders[0].ttl * 1000 if state.holders else 0
                return [b"Q", state.waiters.index(mine), holds, 0, 0, 0]
            self.ended(wish.token)
            if ttl_ms <= 1:
                # Only to be confirmed, not raised.
                left = await self._left_ms(mine.lease)
                return [b"H", mine.fence, left, 0] if left else [b"U", "none"]
            if mine.ttl < _seconds(ttl_ms) or not mine.held or mine.mode != wish.mode:
                return await self._bound(wish, mine, max(ttl_ms, mine.ttl * 1000))
            if not kept:
                await self._keep(lease)
        except Gone:
            return [b"U", state.present()]
        return [b"H", mine.fence, lease.left_ms(ttl_ms), 0]

    async def _bound(self, wish: Wish, mine: Row, ttl_ms: int) -> Reply:
        """Bind a row to another lease: one that lasts longer, or of another token, or because it reads from now on."""
        ttl = _seconds(ttl_ms)
        lease = await self._grant(ttl)
        mode = mine.mode if mine.mode != _EXCLUSIVE else wish.mode
        put = _put(mine.key, wish._replace(mode=mode).value(ttl, held=True), lease.id)
        done, state = await self._txn(wish.base, [_compare(mine.key, "EQUAL", "MOD", mine.changed)], [put])
        if done:
            self._book.note(wish.token, lease)
            return [b"H", mine.fence, lease.left_ms(ttl_ms), 0]
        await self._revoke(lease.id)
        again = state.of(wish.token)
        return [b"U", state.present()] if again is None else await self._renewed(wish, again, state, ttl_ms)

    async def renew(self, wish: Wish, ttl_ms: int) -> Reply:
        """See ``renew.lua``."""
        state = await self._look(wish.base)
        mine = state.of(wish.token)
        if mine is None:
            return [b"U", state.present()]
        return await self._renewed(wish, mine, state, ttl_ms)

    async def adopt(self, wish: Wish, old: str, ttl_ms: int) -> Reply:
        """See ``adopt.lua``."""
        state = await self._look(wish.base)
        if mine := state.of(wish.token):
            return await self._renewed(wish, mine, state, ttl_ms)
        given = state.of(old)
        if given is None or given not in state.holders:
            return [b"U", state.present()]
        reply = await self._bound(wish, given, ttl_ms)
        # A last renewal of its former owner may have come between.
        return await self.adopt(wish, old, ttl_ms) if reply[0] == b"U" else reply

    # Leaving ----------------------------------------------------------------------------------------------------

    async def leave(self, wish: Wish, *, for_good: bool, close_ms: int) -> Reply:
        """See ``leave.lua``."""
        self.ended(wish.token)
        # Its row may be another's by now, who adopted it, but not with this lease. Without one it is looked for.
        guard = _compare(wish.key, "LESS", "CREATE", 0)
        if lease := self._book.leases.get(wish.token):
            guard = {"key": guard["key"], "target": "LEASE", "result": "EQUAL", "lease": lease.id}
        reply = await self._end(wish, guard, close_ms)
        # The one that it has now: a renewal may have bound it to another.
        lease = self._book.leases.get(wish.token)
        if lease is not None and for_good:
            # Before the answer: no copy that comes late may bind a row to it.
            try:
                await self._revoke(lease.id)
            except Fault as fault:
                # The row has gone already.
                fault.maybe_applied = True
                raise
        elif lease is not None:
            task = asyncio.create_task(self._revoke_soon(lease.id))
            self._revoking.add(task)
            task.add_done_callback(self._revoking.discard)
        self._book.leases.pop(wish.token, None)
        return reply

    async def _revoke_soon(self, lease: str) -> None:
        with suppress(Fault):
            # Else it ends by itself: nothing is bound to it.
            await self._revoke(lease)

    async def _end(self, wish: Wish, guard: Answer, close_ms: int) -> Reply:
        key = wish.key
        while True:
            last = _delete(key)
            if close_ms:
                kept = await self._grant(_seconds(close_ms))
                last = _put(key, wish._replace(token=_CLOSED).value(kept.ttl, held=True), kept.id)
            done, state = await self._txn(wish.base, [guard], [last], before=True)
            mine = state.of(wish.token)
            if mine is None:
                # Closed by a request whose answer was lost.
                closed = close_ms and any(row.key == key and row.token == _CLOSED for row in state.rows)
                return [b"R"] if closed else [b"A", state.present(), int(wish.token in state.beside)]
            if done:
                return [b"R"] if mine in state.holders else [b"W"]
            # Its row has the key of who gave it away.
            key, guard = mine.key, _compare(mine.key, "EQUAL", "MOD", mine.changed)

    async def force(self, base: bytes, made: int) -> Reply:
        """See ``force.lua``; a holder is named by the revision at which it came."""
        state = await self._look(base)
        mine = next((row for row in state.holders if row.made == made), None)
        if mine is None:
            forced = any(value == made for value in state.beside.values())
            return [b"R", (made + 1) * FENCES - 1, ""] if forced else [b"A", state.shown, 0]
        kept = await self._grant(60)
        mark = _put(base + _SIDE + mine.token.encode(), encoded(b"%d" % made), kept.id)
        done, state = await self._txn(
            base, [_compare(mine.key, "EQUAL", "CREATE", made)], [_delete(mine.key), mark]
        )
        return [b"R", mine.fence + FENCES - 1, mine.public] if done else [b"A", state.shown, 0]

    # Waiting ----------------------------------------------------------------------------------------------------

    async def granted(self, token: str) -> Wakeup | None:
        """Sleep until a token holds, or until it is time to ask. What is cut short goes on when it is called again."""
        watching = self._book.watching.get(token)
        if watching is None:
            watching = self._book.watching[token] = asyncio.create_task(self._watch(token))
        wakeup = await asyncio.shield(watching)
        self._book.watching.pop(token, None)
        return wakeup

    def ended(self, token: str) -> None:
        """Forget that a token waits."""
        self._book.waits.pop(token, None)
        self._book.observed.pop(token, None)
        if watching := self._book.watching.pop(token, None):
            # The background leaves tokens of the client's loop, which may be closed.
            with suppress(RuntimeError):
                watching.get_loop().call_soon_threadsafe(watching.cancel)

    async def _watch(self, token: str) -> Wakeup | None:
        try:
            if seen := self._book.observed.get(token):
                await self._gateway.changes(seen[0] + _ROW, seen[0] + _END, seen[1], frees=False)
                return None
            while (wish := self._book.waits.get(token)) is not None:
                state = await self._look(wish.base)
                mine = state.of(token)
                if mine is None or mine in state.holders:
                    return Wakeup(mine.fence, 0) if mine is not None else None
                where = wish.base + _ROW, wish.base + _END
                if wish.mode == _EXCLUSIVE:
                    # Nothing but the one before it can let it in.
                    where = state.rows[state.rows.index(mine) - 1].key, b""
                await self._gateway.changes(*where, state.revision)
        except Fault:
            # Who waits asks then, and learns of it.
            await asyncio.sleep(0.2)
        return None

    # Looking ----------------------------------------------------------------------------------------------------

    async def inspect(self, wish: Wish, most: int) -> Reply:
        """See ``inspect.lua``; all times are counted from now."""
        state = await self._look(wish.base)
        listed = state.waiters[:most]
        lives = await asyncio.gather(*[self._left_ms(row.lease) for row in [*state.holders, *listed]])
        ends = dict(zip([row.made for row in [*state.holders, *listed]], lives, strict=True))
        waiters = [
            word for row in listed for word in (row.public, int((row.at - wall()) * 1e6), ends[row.made])
        ]
        last = max(state.holders, key=lambda row: ends[row.made], default=None)
        # A present of -1: no fence is taken for a time.
        reply: Reply = [b"I", "", NOBODY_MS, 0, -1, -1, 0, 0, len(state.waiters), waiters]
        if last is not None:
            fences = max(row.fence for row in state.holders), state.revision * FENCES
            reply[1:8] = [last.public, ends[last.made], *fences, -1, 0, len(state.holders)]
        if wish.mode == _EXCLUSIVE:
            return reply
        holders = [word for row in state.holders for word in (row.mode, row.public, ends[row.made])]
        used = sum(int(row.mode) for row in state.holders) if state.limit else 0
        return [*reply, state.limit, used, holders, [row.fence for row in state.holders]]

    async def peek(self, base: bytes) -> Reply:
        """See ``peek.lua``."""
        state = await self._look(base)
        listed = [word for row in state.holders for word in (b"%d" % row.made, row.public)]
        return [b"V", state.holders[0].fence if state.holders else 0, listed]

    async def observe(self, wish: Wish, *, listens: bool) -> Reply:
        """See ``observe.lua``."""
        state = await self._look(wish.base)
        if listens:
            self._book.observed[wish.token] = wish.base, state.revision
        leader = state.holders[0] if state.holders else None
        return [b"I", leader.public, leader.ttl * 1000, leader.fence] if leader else [b"I", "", NOBODY_MS, 0]

    async def hush(self, token: str) -> Reply:
        """See ``hush.lua``."""
        self.ended(token)
        return [b"A"]

    async def limit(self, base: bytes, limit: int, declared: int) -> Reply:
        """See ``limit.lua``."""
        kept = await self._grant(24 * 3600)
        value = json.dumps([limit, declared if declared < _ANY_LIMIT else limit]).encode()
        await self._txn(base, [], [_put(base + _SIDE + b"limit", encoded(value), kept.id)])
        return [b"L", 0]

    # Namespaces -------------------------------------------------------------------------------------------------

    async def _texts(self, base: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
        """What is beside a key, in order, and the revision."""
        request = {"key": encoded(base + _SIDE), "range_end": encoded(base + _END), "sort_target": "CREATE"}
        answer = await self._gateway.ask("kv/range", request)
        found = [(decoded(kv["key"])[len(base) + 1 :], decoded(kv["value"])) for kv in answer.get("kvs", ())]
        return int(answer["header"]["revision"]), found

    async def scan(self, pattern: str) -> Reply:
        """See ``scan.lua``: all at once."""
        stem = pattern.strip("*")
        everywhere = stem == ":fence"
        found: dict[str, None] = {}
        for begin in ("\0",) if everywhere else (stem, "{" + stem):
            end = "\0" if everywhere else begin[:-1] + chr(ord(begin[-1]) + 1)
            request = {"key": encoded(begin.encode()), "range_end": encoded(end.encode()), "keys_only": True}
            for kv in (await self._gateway.ask("kv/range", request)).get("kvs", ()):
                base, row, _ = decoded(kv["key"]).partition(_ROW)
                name = base.decode(errors="surrogateescape")
                if row:
                    # What they are found by: see ``Finder``.
                    names = (helper_key(name, "fence"), f"{name}:fence") if everywhere else (name,)
                    found.update(dict.fromkeys(names))
        return [b"K", "0", len(found), list(found)]

    async def note(self, base: bytes, line: str, data: str, life_ms: int) -> Reply:
        """See ``note.lua``."""
        kept = await self._grant(_seconds(life_ms))
        text = f"{int(wall() * 1000)} {line} {data}".encode()
        key = base + _SIDE + line.encode()
        await self._txn(base, [_compare(key, "LESS", "CREATE", 1)], [_put(key, encoded(text), kept.id)])
        return [b"N", 0]

    async def lines(self, base: bytes, limit: int) -> Reply:
        """See ``lines.lua``."""
        _, found = await self._texts(base)
        return [b"A", 0, [text for _, text in reversed(found)][:limit]]

    async def waits(self, base: bytes, client: str, record: str, life_ms: int) -> Reply:
        """See ``waits.lua``; a waiter that is to ask does so by itself, soon."""
        key = base + _SIDE + client.encode()
        end = _delete(key)
        if record:
            lease = await self._lease_for(f"waits {client}", _seconds(life_ms))
            end = _put(key, encoded(record.encode()), lease.id)
        _, state = await self._txn(base, [], [end])
        return [b"N", state.revision * _LOGICAL_MS]

    async def waiting(self, base: bytes) -> Reply:
        """See ``waiting.lua``."""
        revision, found = await self._texts(base)
        return [b"A", revision * _LOGICAL_MS, [word for row in found for word in row]]

    async def probe(self) -> Reply:
        """See ``probe.lua``: what a quorum has acknowledged no restart forgets."""
        return [b"P", "uptime_in_seconds:1000000000", 0]


def _refused(state: State, wish: Wish) -> Reply | None:
    """The answer to a number of permits that does not go with what is known."""
    if not wish.permits:
        return None
    limit, declared = (state.limit, state.declared) if state.limit else (wish.permits, wish.permits)
    if wish.permits not in (limit, declared):
        return [b"N", "limit", limit, declared]
    return [b"N", "weight", limit, declared] if int(wish.mode) > limit else None


# Of each script ------------------------------------------------------------------------------------------------------

_Act: TypeAlias = "Callable[[Requests, Wish, Sequence[str]], Awaitable[Reply]]"

_ACTS: dict[str, _Act] = {
    "acquire": lambda at, wish, more: at.acquire(
        wish, int(more[0]), int(more[1]), wait=more[2] == "1", most=int(more[-2])
    ),
    "renew": lambda at, wish, more: at.renew(wish, int(more[0])),
    "leave": lambda at, wish, more: at.leave(wish, for_good=more[0] != "0", close_ms=int(more[1])),
    "adopt": lambda at, wish, more: at.adopt(wish, more[0], int(more[1])),
    "force": lambda at, wish, _: at.force(wish.base, int(wish.token)),
    "peek": lambda at, wish, _: at.peek(wish.base),
    "inspect": lambda at, wish, more: at.inspect(wish, int([wish.token, *more][-1])),
    "limit": lambda at, wish, more: at.limit(wish.base, int(wish.token), int(more[0])),
    "observe": lambda at, wish, more: at.observe(wish, listens=more[0] != "0"),
    "hush": lambda at, wish, _: at.hush(wish.token),
    "scan": lambda at, _, more: at.scan(more[0]),
    "note": lambda at, wish, more: at.note(wish.base, wish.token, more[0], int(more[2])),
    "lines": lambda at, wish, _: at.lines(wish.base, int(wish.token)),
    "waits": lambda at, wish, more: at.waits(wish.base, wish.token, more[0], int(more[1])),
    "waiting": lambda at, wish, _: at.waiting(wish.base),
    "probe": lambda at, _wish, _more: at.probe(),
}
"""By the name of a script, with its first argument as the token of the wish and the others behind it."""

_SHAPES = {
    "mutex": "acquire renew leave adopt force peek inspect",
    "election": "acquire renew leave force observe hush",
    "permits": "acquire renew leave limit force peek inspect",
    "namespace": "scan note lines waits waiting",
    "probe": "probe",
}

_KNOWN = {
    load(f"pawlock.primitives.{shape}", name).sha: (shape, _ACTS[name])
    for shape, names in _SHAPES.items()
    for name in names.split()
}
"""By the script that a request runs on Redis."""


def _wish(shape: str, base: bytes, args: Sequence[str]) -> tuple[Wish, Sequence[str]]:
    """What is wanted, and the arguments behind that."""
    first = args[0] if args else ""
    if shape != "permits":
        return Wish(base, first), args[1:]
    if len(args) < _OF_A_TOKEN:
        return Wish(base, first, ""), args[1:]
    return Wish(base, first, args[1], int(args[2])), args[3:]
