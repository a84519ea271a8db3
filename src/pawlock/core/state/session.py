"""What a client publishes about itself: the names that it holds and those that its threads or tasks wait for.

The maintenance writes one record, and only with holds and waits that are old: a short hold costs nothing. The record
has a ttl of its own, so that of a client that dies goes within it. No record holds a secret: a hold is known by its
name and its fence, a thread or task by a number that means something to its own client alone.

Rules:

1. ``built_ms`` is a lower bound of the server's time at which the rows were true. It is what makes two readings of a
   record a proof (see ``deadlock``).
2. A row of a hold names the present local owner; a server lease that is on its way from one to the next has none.
3. A record that cannot be written costs one line in the log, and nothing else.
"""

from __future__ import annotations

import json
import logging
from hashlib import sha1
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pawlock.core.protocol.names import part_of_holder
from pawlock.core.protocol.outcomes import Listed, Outcome, Published
from pawlock.core.protocol.primitive import listed_as
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.state.local_queue import LocalWaiter
from pawlock.core.state.records import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pawlock.core.protocol.carrier import Request
    from pawlock.core.protocol.engine import SessionCalls
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.state.client import ClientState
    from pawlock.core.state.records import ServerLease

__all__ = [
    "CHECK_EVERY",
    "HoldRow",
    "Record",
    "SessionPublisher",
    "Setup",
    "Wait",
    "WaitRow",
    "grant_tag",
    "label_of",
    "read_record",
]

_Waits: TypeAlias = "dict[Waiter | LocalWaiter, tuple[Primitive, object, float]]"

log: logging.Logger = logging.getLogger("pawlock.sessions")

SESSION_TTL_MS = 15_000
"""Life of a record on the server: a client that died is listed no longer than this."""

CHECK_EVERY = 0.0001
"""Seconds per wait between two checks of all waits: each costs a little, and ten thousand waits must leave the
maintenance most of its time."""

_REST = 0.004
"""Seconds per hold of a record that it stays as it is while nobody waits: many leases that come and go are to cost the
maintenance little."""

_REFRESH = 5.0
_PUBLISH_AFTER = 1.0
_LEAST_STEP = 0.02
_MOST_ROWS = 500
_RETRY = 1.0
_JITTER_MS = 20.0
_LEAST_PATIENCE = 0.1
_DENIED_FOR = 60.0


class Setup(NamedTuple):
    """What an engine needs to publish its session.

    Attributes:
        calls: What to send.
        make: The primitive of a kind and name, or None if one holder of it does not keep all others out.
        look: The same of every kind that can be inspected; None of others.
        deadlock_after: Seconds after which a waiter looks for a cycle; 0 never.
    """

    calls: SessionCalls
    make: Callable[[str, str], Primitive | None]
    look: Callable[[str, str], Primitive | None]
    deadlock_after: float


class HoldRow(NamedTuple):
    """One hold in a record.

    ``fence`` is the first of its grant, ``used`` counts local hand-overs since. ``bound``: 1 if its holder is inside
    the ``with`` block that ends it, so that no other thread or task will.
    """

    kind: str
    name: str
    fence: int
    used: int
    who: str
    label: str
    since_ms: int
    bound: int = 0


class WaitRow(NamedTuple):
    """One wait in a record.

    ``number`` is never used again by its session. ``mode``: which permits are wanted; ``tag``: which ticket of their
    queue it is.
    """

    kind: str
    name: str
    number: int
    who: str
    label: str
    since_ms: int
    rank: int
    mode: str = ""
    tag: str = ""


class Record(NamedTuple):
    """A session as the server has it."""

    id: str
    number: int
    built_ms: int
    channel: str
    holds: list[HoldRow]
    waits: list[WaitRow]
    left_out: int


class Wait:
    """A wait that is old enough to be published.

    Attributes:
        target: What sleeps; its ``wait_error`` is the error that it raises when it checks next.
        primitive: What it waits for.
        who: The thread or task.
        row: How it stands in the record.
        holds: Whether its thread or task holds anything meanwhile: nobody waits for one that does not.
        check_at: When to look for a cycle.
        tries: How often that was done.
        channel: On which it hears, if it waits on the server.
        suspected: A cycle that was seen once, and the server's time since when it must be seen again.
    """

    __slots__ = ("channel", "check_at", "holds", "primitive", "row", "suspected", "target", "tries", "who")

    def __init__(
        self, target: Waiter | LocalWaiter, primitive: Primitive, who: object, row: WaitRow, now: float
    ) -> None:
        self.target: Waiter | LocalWaiter = target
        self.primitive: Primitive = primitive
        self.who: object = who
        self.row: WaitRow = row
        self.holds: bool = False
        self.check_at: float = now
        self.tries: int = 0
        self.channel: str = target.channel if isinstance(target, Waiter) else ""
        self.suspected: tuple[object, int] | None = None


def label_of(who: object) -> str:
    """The name of a thread or task, spelled as in its tokens."""
    name: Any = getattr(who, "get_name", None)
    return part_of_holder(str(name())) if callable(name) else ""


def _key(who: object) -> str:
    # Alive for as long as the row: its wait or server lease refers to it.
    return "-" if who is None else f"{id(who):x}"


def _holder_of(server_lease: ServerLease) -> object:
    # Of what is passed on inside the client, the present owner; of permits, the one that is in their block.
    return (
        server_lease.owner.who
        if server_lease.owner.user is None or server_lease.primitive.transferable
        else server_lease.owner.user
    )


def _tag_of(token: str) -> str:
    # As the scripts name a ticket to other clients: it shows nothing of the secret.
    return sha1(token.encode(), usedforsecurity=False).hexdigest()[:16]


def grant_tag(primitive: Primitive, fence: int) -> str:
    """What names a grant to the client that has it; all holds of an explicit owner are of one."""
    return _tag_of(f"{primitive.key} {fence}")


def read_record(session: str, text: str) -> Record | None:
    """A record as ``SessionCalls.read`` gave it; None if it is gone or not readable."""
    words = text.split(" ", 2)
    if len(words) != 3:
        return None
    try:
        data = json.loads(words[2])
        holds = [HoldRow(*row) for row in data["h"]]
        waits = [WaitRow(*row) for row in data["w"]]
        return Record(session, int(words[1]), int(data["b"]), str(data["c"]), holds, waits, int(data["o"]))
    except (ValueError, TypeError, KeyError):
        # Of a later version, or not of pawlock.
        log.debug("the record of session %s cannot be read", session)
        return None


class SessionPublisher:
    """The session of one engine.

    Attributes:
        id: ``host:pid/`` and something random; ``""`` before its first use.
        waits: The waits that are published, by what sleeps.
        record: What it would publish now, if anything.
        published: Whether a record of it may be on the server.
        armed: Whether the maintenance looks in again by itself; a waiter that begins while it is False nudges it.
        check_from: When the next look for cycles may be.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup: Setup = setup
        self._denied: bool = False
        self.forget()

    def forget(self) -> None:
        """Begin anew, as another session: after a fork the old one is the parent's."""
        self.id: str = ""
        self.waits: dict[Waiter | LocalWaiter, Wait] = {}
        self.record: Record | None = None
        self.published: bool = False
        self.armed: bool = False
        self._number = 0
        self._wait_number = 0
        self._rows: object = None
        self._written_at = -inf
        self._rest_until = -inf
        self._look_at = -inf
        self._not_before = -inf
        self.check_from: float = -inf
        self._offset_ms: float | None = None

    @property
    def age(self) -> float:
        """Seconds after which a wait is published."""
        return self.setup.deadlock_after or _PUBLISH_AFTER

    @property
    def beat(self) -> float:
        """Seconds between two records while somebody waits long: two of them prove a cycle."""
        if not self.setup.deadlock_after:
            return _REFRESH
        return max(_LEAST_STEP, min(0.4, self.age * 0.4))

    def sleep_until(self, engine: ClientState, now: float) -> float:
        """When the maintenance must look in again; infinity if there is nothing to publish."""
        # In this order: a waiter that begins after this line nudges the maintenance, and one that began before is seen.
        self.armed = False
        if engine.activity.closed or not (
            engine.queues.waits or self.published or engine.leases.schedule.busy()
        ):
            return inf
        self.armed = True
        return max(now, self._look_at)

    def due(self, engine: ClientState, now: float) -> Request | None:
        """What to send now, if anything; its outcome goes to ``answered``."""
        calls = self.setup.calls
        if engine.activity.closed or now < self._look_at:
            return None
        if not self.id:
            public = engine.runtime.new_token().partition("@")
            self.id = f"{public[2].rpartition('/')[0]}/{public[0][:12]}"
        self._look_at = now + min(_PUBLISH_AFTER, max(2 * _LEAST_STEP, self.age / 2))
        old = self._old_waits(engine, now)
        if not old and not self.waits and now < self._rest_until:
            return None
        holding: set[object] = set()
        holds = self._holds(engine, now, {wait[1] for wait in old.values()}, holding)
        if self._offset_ms is None and (old or holds):
            self._look_at = now
            return calls.find(self.id, "", 1)
        self._collect(old, now, holding)
        if not (self.waits or holds):
            published, self.published, self._rows, self.record = self.published, False, None, None
            return calls.drop(self.id) if published else None
        return self._record(engine, holds, now)

    def _record(self, engine: ClientState, holds: list[HoldRow], now: float) -> Request | None:
        left_out = max(0, len(holds) - _MOST_ROWS) + max(0, len(self.waits) - _MOST_ROWS)
        rows = holds[:_MOST_ROWS], [wait.row for wait in islice(self.waits.values(), _MOST_ROWS)], left_out
        channel, built_ms = engine.runtime.channel(), self._server_ms(now)
        self.record = Record(self.id, self._number, built_ms, channel, *rows)
        # Two records prove a deadlock, and only a holder is in one.
        every = self.beat if any(wait.holds for wait in self.waits.values()) else _REFRESH
        if rows == self._rows and now - self._written_at < every:
            return None
        self._rows = rows
        self._number += 1
        data = {"b": built_ms, "c": channel, "h": rows[0], "w": rows[1]}
        text = json.dumps({**data, "o": left_out}, separators=(",", ":"))
        self._written_at = now
        self._rest_until = now + len(rows[0]) * _REST
        return self.setup.calls.publish(self.id, self._number, SESSION_TTL_MS, text)

    def answered(self, engine: ClientState, outcome: Outcome | Fault) -> None:
        """Take the outcome of what ``due`` gave into account."""
        now = engine.runtime.now()
        if not isinstance(outcome, Fault):
            if isinstance(outcome, (Published, Listed)):
                # Read before now: what is counted on from it is never above the server's clock.
                offset_ms = outcome.now_ms - now * 1000
                had = self._offset_ms
                if had is None or not had <= offset_ms <= had + _JITTER_MS:
                    self._offset_ms = offset_ms
            if isinstance(outcome, Published):
                self.published = True
                engine.take_away(outcome.taken)
            return
        self.published |= outcome.maybe_applied
        self._rows = None
        self._rest_until = -inf
        self._look_at = now + _RETRY
        if outcome.kind is not FaultKind.DENIED:
            log.debug("the session could not be published (%s)", outcome.text)
            return
        self._look_at = now + _DENIED_FOR
        if not self._denied:
            self._denied = True
            text = "no permission to write session records (%s): locks work, locks() and deadlock detection do not"
            log.warning(text, outcome.text)

    async def wake(self, engine: ClientState, wait: Wait) -> None:
        """Wake a waiter that was given an error."""
        if isinstance(wait.target, LocalWaiter):
            wait.target.parker.unpark()
        elif wait.channel:
            call = self.setup.calls.wake(wait.channel, wait.target.token)
            # Lost or not: it checks by itself within a third of its ticket's life.
            await engine.runtime.call_many([call], _LEAST_PATIENCE)

    def leave(self, engine: ClientState) -> None:
        """Have the record taken away, because the client closes."""
        if self.published:
            self.published = False
            engine.post(self.setup.calls.drop(self.id), _RETRY)

    def next_check(self, at: float) -> None:
        """Look in again no later than ``at``."""
        self._look_at = min(self._look_at, max(at, self._not_before))

    def _server_ms(self, at: float) -> int:
        return int((self._offset_ms or 0.0) + at * 1000)

    def _old_waits(self, engine: ClientState, now: float) -> _Waits:
        # A copy, made in one step: other threads come and go meanwhile.
        waits = engine.queues.waits.copy()
        if not waits:
            return waits
        old: _Waits = {}
        step, next_at = self.beat, inf
        for target, wait in waits.items():
            if isinstance(target, LocalWaiter) and target.served:
                continue
            if now - wait[2] >= self.age:
                old[target] = wait
            else:
                next_at = min(next_at, wait[2] + self.age)
        self._not_before = now + len(waits) * CHECK_EVERY
        self._look_at = max(self._not_before, min(self._look_at, next_at, now + step if old else inf))
        return old

    def _collect(self, old: _Waits, now: float, holding: set[object]) -> None:
        known: dict[Waiter | LocalWaiter, Wait] = {}
        for target, (primitive, who, since) in old.items():
            rank = -1 if isinstance(target, LocalWaiter) or target.rank is None else target.rank
            mode: str = getattr(primitive, "mode", "")
            tag = _tag_of(target.token) if mode and isinstance(target, Waiter) else ""
            wait = self.waits.get(target)
            if wait is None or wait.who is not who:
                self._wait_number += 1
                row = WaitRow(
                    listed_as(primitive), primitive.name, self._wait_number, _key(who), label_of(who),
                    self._server_ms(since), rank, mode, tag,
                )  # fmt: skip
                wait = Wait(target, primitive, who, row, now)
            elif wait.row.rank != rank or wait.row.tag != tag:
                wait.row = wait.row._replace(rank=rank, tag=tag)
            wait.holds = who in holding
            known[target] = wait
        self.waits = known

    def _holds(
        self, engine: ClientState, now: float, waiting: set[object], holding: set[object]
    ) -> list[HoldRow]:
        schedule = engine.leases.schedule
        server_leases: Iterable[ServerLease] = schedule.all() if waiting else schedule.some(_MOST_ROWS)
        first: list[HoldRow] = []
        rest: list[HoldRow] = []
        due_at = inf
        for server_lease in server_leases:
            who = _holder_of(server_lease)
            if who in waiting:
                holding.add(who)
                first.append(self._hold(server_lease, who))
            elif now - server_lease.owner.granted_at >= _PUBLISH_AFTER:
                rest.append(self._hold(server_lease, who))
            else:
                due_at = min(due_at, server_lease.owner.granted_at + _PUBLISH_AFTER)
        self._look_at = min(self._look_at, max(due_at, now + _LEAST_STEP))
        return first + rest

    def _hold(self, server_lease: ServerLease, who: object) -> HoldRow:
        primitive = server_lease.primitive
        since_ms = self._server_ms(server_lease.owner.granted_at) // 100 * 100
        return HoldRow(
            listed_as(primitive), primitive.name, server_lease.fence, server_lease.used, _key(who), label_of(who),
            since_ms,
            int(server_lease.owner.user is not None and not primitive.transferable),
        )  # fmt: skip
