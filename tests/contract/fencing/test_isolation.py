"""Claim, read and write in one transaction, in every order of two writers, at every isolation level of each database.

A step that would wait for a lock, and a transaction that the database gives up, end their writer: it is rolled back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pymysql
import pytest

import pawlock
from pawlock.fencing import FencedTable
from tests.contract.fencing import databases
from tests.contract.fencing.conftest import HERE
from tests.contract.fencing.test_interleavings import START, interleavings

LEVELS = {
    "sqlite": ("SERIALIZABLE",),
    "postgresql": ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
    "mysql": ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
}
WITH_LEVELS = [one for one in HERE if one.values != ("sqlite",)]
GIVEN_UP = (pawlock.StaleFence, sqlite3.OperationalError, psycopg.OperationalError, pymysql.OperationalError)
RULE = ("claim", "read", "write", "commit")
# The transaction has looked at the row before: its snapshot, where it has one, is older than the claim.
OLD_SNAPSHOT = ("read", *RULE)
NAIVE = ("read", "write", "commit")


class Writer:
    """One writer and its connection."""

    def __init__(self, database: Any, fence: int) -> None:
        self.dialect, connection = database
        self.fence = fence
        self.connection = databases.again(self.dialect, connection)
        if self.dialect == "postgresql":
            self.connection.autocommit = True
        elif self.dialect == "mysql":
            self.connection.autocommit(True)
        self.cursor = self.connection.cursor()
        self.table = FencedTable("steps", key="id", dialect=self.dialect)
        waits = {"postgresql": "SET lock_timeout = '5ms'", "mysql": "SET innodb_lock_wait_timeout = 0"}
        if self.dialect in waits:
            self.cursor.execute(waits[self.dialect])

    def begin(self, level: str) -> None:
        """Open a transaction; nothing of it is sent to the rows yet."""
        self.seen, self.over, self.committed = 0, False, False
        words = {"sqlite": ["BEGIN"], "postgresql": [f"BEGIN ISOLATION LEVEL {level}"]}
        for word in words.get(self.dialect, [f"SET TRANSACTION ISOLATION LEVEL {level}", "BEGIN"]):
            self.cursor.execute(word)

    def step(self, what: str) -> None:
        """Take one step; whoever cannot is rolled back."""
        if self.over:
            return
        try:
            if what == "claim":
                assert self.table.claim(self.cursor, self.fence, id=1)
            elif what == "read":
                self.cursor.execute("SELECT v FROM steps WHERE id = 1")
                self.seen = self.cursor.fetchone()[0]
            elif what == "write":
                assert self.table.update(self.cursor, self.fence, id=1, v=self.seen - 1)
            else:
                self.cursor.execute("COMMIT")
                self.committed = True
        except GIVEN_UP:
            self.over = True
            self.rollback()

    def rollback(self) -> None:
        if self.dialect != "sqlite" or self.connection.in_transaction:
            self.cursor.execute("ROLLBACK")


@pytest.fixture
def writers(database: Any) -> Iterator[list[Writer]]:
    made = [Writer(database, 101), Writer(database, 102)]
    cursor = made[0].cursor
    cursor.execute("DROP TABLE IF EXISTS steps")
    cursor.execute("CREATE TABLE steps (id INTEGER PRIMARY KEY, v INTEGER, fence BIGINT NOT NULL DEFAULT 0)")
    cursor.execute(f"INSERT INTO steps VALUES (1, {START}, 0)")
    yield made
    for writer in made:
        writer.connection.close()


def explore(writers: list[Writer], program: tuple[str, ...], level: str) -> tuple[int, int]:
    """All orders; how many lost an update, and in how many both committed."""
    lost = both = 0
    for order in interleavings([len(program)] * 2):
        writers[0].cursor.execute(f"UPDATE steps SET v = {START}, fence = 0")
        at = [0, 0]
        for writer in writers:
            writer.begin(level)
        for number in order:
            writers[number].step(program[at[number]])
            at[number] += 1
        for writer in writers:
            writer.rollback()
        writers[0].cursor.execute("SELECT v FROM steps")
        committed = sum(writer.committed for writer in writers)
        lost += writers[0].cursor.fetchone()[0] != START - committed
        both += committed == 2
    return lost, both


def loses_nothing(writers: list[Writer], levels: tuple[str, ...]) -> None:
    for level in levels:
        for program in (RULE, OLD_SNAPSHOT):
            lost, both = explore(writers, program, level)
            assert lost == 0, (level, program)
            # One after the other, in the order of their grants, both may.
            assert both >= 1, (level, program)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_no_transaction_of_sqlite_loses_an_update_after_a_claim(writers: list[Writer]) -> None:
    loses_nothing(writers, LEVELS["sqlite"])


@pytest.mark.slow
@pytest.mark.parametrize("database", WITH_LEVELS, indirect=True)
def test_no_transaction_loses_an_update_after_a_claim(writers: list[Writer]) -> None:
    loses_nothing(writers, LEVELS[writers[0].dialect])


@pytest.mark.slow
@pytest.mark.parametrize("database", WITH_LEVELS, indirect=True)
def test_without_the_claim_a_transaction_does_not_help(writers: list[Writer]) -> None:
    lost, _ = explore(writers, NAIVE, "READ COMMITTED")
    assert lost > 0
