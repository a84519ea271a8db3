"""Every order in which writers can take their steps, against each guard: with the claim no update is lost.

Each writer was granted the lock in turn, and can be paused past its lease before any of its steps. So every
interleaving of their steps can happen, and all of them are run: on the guards themselves and what they write to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
import redis.asyncio
import sqlalchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import pawlock
from pawlock.fencing import (
    AsyncRedisGuard,
    FencedMixin,
    FencedTable,
    RedisGuard,
)
from tests.contract.fencing import databases
from tests.support.servers import Server

FIRST = 101
START = 10
CLAIM, READ, WRITE = "claim", "read", "write"
RULE = (CLAIM, READ, WRITE)
NAIVE = (READ, WRITE)


def interleavings(programs: list[int]) -> Iterator[tuple[int, ...]]:
    """Every order of so many steps for each writer: whose turn it is, again and again."""
    if not any(programs):
        yield ()
    for writer, left in enumerate(programs):
        if left:
            rest = [count - (number == writer) for number, count in enumerate(programs)]
            for order in interleavings(rest):
                yield (writer, *order)


class Target:
    """One number that is guarded: what every guard offers, in one interface."""

    def reset(self) -> None:
        raise NotImplementedError

    def claim(self, fence: int) -> None:
        raise NotImplementedError

    def read(self, fence: int) -> int:
        raise NotImplementedError

    def write(self, fence: int, value: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing stays open."""


@dataclass
class Run:
    """What became of one interleaving.

    Attributes:
        accepted: How many writes were accepted.
        lost: Whether one of them was overwritten by a writer that had not read it.
        refused: The writers that were refused.
    """

    accepted: int = 0
    lost: bool = False
    refused: set[int] = field(default_factory=set[int])


def run(target: Target, programs: list[tuple[str, ...]], order: tuple[int, ...]) -> Run:
    """Take the steps in that order; each writer subtracts one from what it has read, and stops when refused."""
    target.reset()
    done = Run()
    at, seen = [0] * len(programs), [0] * len(programs)
    for writer in order:
        step = programs[writer][at[writer]]
        at[writer] += 1
        fence = FIRST + writer
        if writer in done.refused:
            continue
        try:
            if step == CLAIM:
                target.claim(fence)
            elif step == READ:
                seen[writer] = target.read(fence)
            else:
                target.write(fence, seen[writer] - 1)
                done.accepted += 1
        except pawlock.StaleFence:
            done.refused.add(writer)
    done.lost = target.read(FIRST + len(programs)) != START - done.accepted
    return done


def overtaken(programs: list[tuple[str, ...]], order: tuple[int, ...]) -> set[int]:
    """The model: a writer is refused from the first step that compares after a later holder was there."""
    at, there, refused = [0] * len(programs), -1, set[int]()
    for writer in order:
        step = programs[writer][at[writer]]
        at[writer] += 1
        if writer in refused or step == READ:
            continue
        if there > writer:
            refused.add(writer)
        there = max(there, writer)
    return refused


class Table(Target):
    """``FencedTable`` on a real database, each step in a transaction of its own."""

    def __init__(self, database: Any) -> None:
        dialect, connection = database
        self.connection = databases.impatient(dialect, connection)
        self.cursor = self.connection.cursor()
        self.cursor.execute("DROP TABLE IF EXISTS steps")
        self.cursor.execute(
            "CREATE TABLE steps (id INTEGER PRIMARY KEY, v INTEGER, fence BIGINT NOT NULL DEFAULT 0)"
        )
        self.cursor.execute(f"INSERT INTO steps VALUES (1, {START}, 0)")
        self.table = FencedTable("steps", key="id", dialect=dialect)

    def reset(self) -> None:
        self.cursor.execute(f"UPDATE steps SET v = {START}, fence = 0")

    def claim(self, fence: int) -> None:
        assert self.table.claim(self.cursor, fence, id=1)

    def read(self, fence: int) -> int:
        self.cursor.execute("SELECT v FROM steps")
        return int(self.cursor.fetchone()[0])

    def write(self, fence: int, value: int) -> None:
        assert self.table.update(self.cursor, fence, id=1, v=value)

    def close(self) -> None:
        self.connection.close()


class Put(Table):
    """The same with ``put``, and a row that is not there at first: a claim inserts it."""

    def reset(self) -> None:
        self.cursor.execute("DELETE FROM steps")

    def claim(self, fence: int) -> None:
        assert self.table.claim(self.cursor, fence, id=1, v=START)

    def read(self, fence: int) -> int:
        self.cursor.execute("SELECT v FROM steps")
        found = self.cursor.fetchone()
        return START if found is None else int(found[0])

    def write(self, fence: int, value: int) -> None:
        self.table.put(self.cursor, fence, id=1, v=value)


class Base(DeclarativeBase):
    pass


class Steps(FencedMixin, Base):
    __tablename__ = "orm_steps"

    number: Mapped[int] = mapped_column(primary_key=True)
    v: Mapped[int]


class Mixin(Target):
    """``FencedMixin``: a session for each writer, which keeps the object that it has read."""

    def __init__(self) -> None:
        self.engine = sqlalchemy.create_engine("sqlite://")
        Base.metadata.create_all(self.engine)
        self.sessions: dict[int, Session] = {}
        self.rows: dict[int, Steps] = {}

    def _session(self, fence: int) -> Session:
        if fence not in self.sessions:
            self.sessions[fence] = Session(self.engine, expire_on_commit=False)
            # Each has the row loaded from long ago: only a claim may be what makes it read anew.
            self.rows[fence] = self.sessions[fence].get_one(Steps, 1)
        return self.sessions[fence]

    def reset(self) -> None:
        self.close_sessions()
        with Session(self.engine) as session:
            session.execute(sqlalchemy.delete(Steps))
            session.add(Steps(number=1, v=START))
            session.commit()

    def claim(self, fence: int) -> None:
        session = self._session(fence)
        assert Steps.claim(session, fence, Steps.number == 1)
        session.commit()

    def read(self, fence: int) -> int:
        self._session(fence)
        return self.rows[fence].v

    def write(self, fence: int, value: int) -> None:
        session = self._session(fence)
        assert Steps.write(session, fence, Steps.number == 1, v=value)
        assert self.rows[fence].v == value
        session.commit()

    def close_sessions(self) -> None:
        for session in self.sessions.values():
            session.close()
        self.sessions.clear()
        self.rows.clear()

    def close(self) -> None:
        self.close_sessions()
        self.engine.dispose()


class Key(Target):
    """``RedisGuard`` on a real server."""

    def __init__(self, server: Server) -> None:
        self.plain = redis.Redis(unix_socket_path=server.socket_path)
        self.guard = RedisGuard(self.plain)

    def reset(self) -> None:
        self.plain.delete("{steps}", "{steps}:pawlock:guard")
        self.plain.set("{steps}", START)

    def claim(self, fence: int) -> None:
        self.guard.claim(fence, "{steps}")

    def read(self, fence: int) -> int:
        return int(self.plain.get("{steps}") or 0)

    def write(self, fence: int, value: int) -> None:
        self.guard(fence, "SET", "{steps}", value)

    def close(self) -> None:
        self.plain.close()


class AsyncKey(Key):
    """``AsyncRedisGuard`` on a real server."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.loop = asyncio.new_event_loop()
        self.client = redis.asyncio.Redis(unix_socket_path=server.socket_path)
        self.awaited = AsyncRedisGuard(self.client)

    def claim(self, fence: int) -> None:
        self.loop.run_until_complete(self.awaited.claim(fence, "{steps}"))

    def write(self, fence: int, value: int) -> None:
        self.loop.run_until_complete(self.awaited(fence, "SET", "{steps}", value))

    def close(self) -> None:
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()
        super().close()


@pytest.fixture
def targets(valkey: Server) -> Iterator[Callable[..., Target]]:
    """Makes a guard and what it guards; closed with the test."""
    made: list[Target] = []

    def make(kind: type[Target], database: Any = None) -> Target:
        arguments = [database] if issubclass(kind, Table) else [valkey] if issubclass(kind, Key) else []
        made.append(kind(*arguments))
        return made[-1]

    yield make
    for target in made:
        target.close()


def explore(target: Target, programs: list[tuple[str, ...]]) -> tuple[int, int]:
    """Run all interleavings, hold each to the model; how many there were, and how many lost an update."""
    count = lost = 0
    for order in interleavings([len(program) for program in programs]):
        done = run(target, programs, order)
        assert done.refused == overtaken(programs, order), order
        assert len(programs) - 1 not in done.refused, f"{order}: the latest holder is never refused"
        count += 1
        lost += done.lost
    return count, lost


def loses_nothing(target: Target, rule: tuple[str, ...], writers: int, orders: int) -> None:
    count, lost = explore(target, [rule] * writers)
    assert (count >= orders, lost) == (True, 0), f"{type(target).__name__}: {lost} of {count}"


def test_every_order_of_steps_is_tried() -> None:
    assert len(set(interleavings([3, 3]))) == 20
    assert len(set(interleavings([3, 3, 3]))) == 1680


def test_no_update_of_two_writers_is_lost_after_a_claim(
    database: Any, targets: Callable[..., Target]
) -> None:
    for kind in (Table, Put):
        loses_nothing(targets(kind, database), RULE, 2, 20)


def test_elsewhere_no_update_of_two_writers_is_lost_after_a_claim(targets: Callable[..., Target]) -> None:
    for kind in (Mixin, Key, AsyncKey):
        loses_nothing(targets(kind), RULE, 2, 20)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Table, Put])
def test_in_sql_no_update_of_more_writers_and_writes_is_lost(
    kind: type[Target], database: Any, targets: Callable[..., Target]
) -> None:
    loses_nothing(targets(kind, database), (*RULE, READ, WRITE), 2, 252)
    loses_nothing(targets(kind, database), RULE, 3, 1680)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Mixin, Key, AsyncKey])
def test_elsewhere_no_update_of_more_writers_and_writes_is_lost(
    kind: type[Target], targets: Callable[..., Target]
) -> None:
    loses_nothing(targets(kind), (*RULE, READ, WRITE), 2, 252)
    if kind not in (Mixin, AsyncKey):
        loses_nothing(targets(kind), RULE, 3, 1680)


def test_without_the_claim_updates_are_lost(database: Any, targets: Callable[..., Target]) -> None:
    """What shows that the others look: the same guards, the same steps, but nobody claims."""
    for kind in (Table, Put, Mixin, Key):
        count, lost = explore(targets(kind, database), [NAIVE, NAIVE])
        # The late one writes between the read and the write of the later one.
        assert (count, lost) == (6, 2), kind
