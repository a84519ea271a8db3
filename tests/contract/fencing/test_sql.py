"""Guards in SQL refuse late holders: on SQLite always, on PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlglot

import pawlock
from pawlock.fencing import Dialect, FencedTable, fence_of
from tests.contract.fencing import databases
from tests.contract.fencing.conftest import DIALECTS
from tests.support.refusal import refused
from tests.support.servers import Server

READ = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mysql"}


@pytest.fixture
def stock(database: Any) -> Iterator[tuple[FencedTable, Any, Any]]:
    """A table with its fence, a cursor, its connection. `left` and `order` are reserved words in places."""
    dialect, connection = database
    cursor = connection.cursor()
    quote = "`" if dialect == "mysql" else '"'
    cursor.execute("DROP TABLE IF EXISTS stock")
    cursor.execute(f"CREATE TABLE stock (product VARCHAR(20) PRIMARY KEY, {quote}left{quote} INTEGER)")
    table = FencedTable("stock", key="product", dialect=dialect)
    cursor.execute(table.column_statement)
    cursor.execute("INSERT INTO stock VALUES ('tea', 10, 0)")
    connection.commit()
    yield table, cursor, connection
    connection.rollback()
    cursor.close()


def row(cursor: Any) -> tuple[Any, ...] | None:
    cursor.execute("SELECT * FROM stock WHERE product = 'tea'")
    found = cursor.fetchone()
    return None if found is None else tuple(found)


@pytest.mark.parametrize("how", ["update", "put"])
def test_a_late_holder_writes_nothing(stock: Any, how: str) -> None:
    table, cursor, _ = stock
    write = getattr(table, how)
    write(cursor, 100, product="tea", left=9)
    write(cursor, 200, product="tea", left=8)
    with pytest.raises(pawlock.StaleFence) as caught:
        write(cursor, 199, product="tea", left=7)
    assert caught.value.fence == 199
    assert "200" in str(caught.value)
    assert row(cursor) == ("tea", 8, 200)


@pytest.mark.parametrize("how", ["update", "put"])
def test_one_holder_writes_more_than_once_also_the_same_again(stock: Any, how: str) -> None:
    table, cursor, _ = stock
    write = getattr(table, how)
    for left in (9, 9, 8):
        assert write(cursor, 2**63 - 1, product="tea", left=left) in (True, None)
        assert row(cursor) == ("tea", left, 2**63 - 1)


def test_update_says_that_there_is_no_such_row_and_put_makes_it(stock: Any) -> None:
    table, cursor, _ = stock
    assert table.update(cursor, 5, product="salt", left=1) is False
    table.put(cursor, 5, product="salt", left=1)
    with pytest.raises(pawlock.StaleFence):
        table.put(cursor, 4, product="salt", left=2)
    assert table.update(cursor, 6, product="salt", left=3) is True


@pytest.mark.parametrize("how", ["update", "put"])
def test_fence_0_is_refused_before_anything_is_sent(stock: Any, how: str) -> None:
    table, cursor, _ = stock
    with pytest.raises(pawlock.StaleFence, match="degraded"):
        getattr(table, how)(cursor, 0, product="tea", left=1)
    assert row(cursor) == ("tea", 10, 0)


def test_a_holder_that_was_paused_past_its_lease_is_refused(stock: Any, valkey: Server) -> None:
    table, cursor, _ = stock
    with pawlock.connect(valkey.url) as client, pawlock.connect(valkey.url) as other:
        lock = other.lock("stock:tea", ttl=0.1, renew=False, on_exit="warn")
        with lock.acquire() as paused:
            # Nothing renews: its lease runs out under it, as if it had been stopped, and the next one comes.
            with client.lock("stock:tea").acquire(timeout=10) as present:
                assert table.update(cursor, present, product="tea", left=9)
            with pytest.raises(pawlock.StaleFence) as caught:
                table.update(cursor, paused, product="tea", left=99)
        assert caught.value.name == "stock:tea"
        assert row(cursor) == ("tea", 9, present.fence)


def test_a_degraded_lease_is_refused(stock: Any) -> None:
    table, cursor, _ = stock
    with (
        pawlock.connect("redis://127.0.0.1:1") as client,
        client.lock("stock:tea", on_unavailable="open", unavailable_after=0).acquire() as lease,
        pytest.raises(pawlock.StaleFence, match="degraded") as caught,
    ):
        table.put(cursor, lease, product="tea", left=1)
    assert caught.value.name == "stock:tea"


@pytest.mark.parametrize("how", ["claim", "update", "put"])
def test_a_row_without_a_fence_counts_as_fence_0(database: Any, how: str) -> None:
    dialect, connection = database
    cursor = connection.cursor()
    cursor.execute("DROP TABLE IF EXISTS stock")
    cursor.execute("CREATE TABLE stock (product VARCHAR(20) PRIMARY KEY, pieces INTEGER, fence BIGINT)")
    cursor.execute("INSERT INTO stock VALUES ('tea', 10, NULL)")
    table = FencedTable("stock", key="product", dialect=dialect)
    values = {"product": "tea"} | ({} if how == "claim" else {"pieces": 9})
    assert getattr(table, how)(cursor, 5, **values) in (True, None)
    assert row(cursor) == ("tea", 10 if how == "claim" else 9, 5)
    with pytest.raises(pawlock.StaleFence):
        getattr(table, how)(cursor, 4, **values)
    connection.rollback()


def test_a_claim_refuses_earlier_holders_before_anything_is_written(stock: Any) -> None:
    table, cursor, _ = stock
    assert table.claim(cursor, 100, product="tea") is True
    assert table.claim(cursor, 200, product="tea") is True
    assert table.claim(cursor, 200, product="tea") is True
    for late in (table.claim, lambda *call, **key: table.update(*call, **key, left=0)):
        with pytest.raises(pawlock.StaleFence, match="200"):
            late(cursor, 199, product="tea")
    assert row(cursor) == ("tea", 10, 200)
    assert table.claim(cursor, 5, product="salt") is False


def test_a_claim_inserts_what_is_missing_and_leaves_what_is_there(stock: Any) -> None:
    table, cursor, _ = stock
    assert table.claim(cursor, 5, product="salt", left=1) is True
    assert table.claim(cursor, 6, product="salt", left=2) is True
    assert table.claim(cursor, 6, product="tea", left=2) is True
    with pytest.raises(pawlock.StaleFence):
        table.claim(cursor, 5, product="salt", left=3)
    cursor.execute("SELECT * FROM stock ORDER BY product")
    assert [tuple(found) for found in cursor.fetchall()] == [("salt", 1, 6), ("tea", 10, 6)]


@pytest.fixture(params=["id", "email"])
def accounts(database: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A table whose rows have two unique keys, guarded by one or the other of them."""
    dialect, connection = database
    cursor = connection.cursor()
    cursor.execute("DROP TABLE IF EXISTS accounts")
    text = "id INTEGER PRIMARY KEY, email VARCHAR(20) UNIQUE, v INTEGER, fence BIGINT NOT NULL DEFAULT 0"
    cursor.execute(f"CREATE TABLE accounts ({text})")
    cursor.execute("INSERT INTO accounts VALUES (1, 'a', 10, 100), (2, 'b', 20, 100)")
    connection.commit()
    yield FencedTable("accounts", key=request.param, dialect=dialect), cursor, connection
    connection.rollback()
    cursor.close()


TAKEN = [
    {"id": 3, "email": "a", "v": 0}, {"id": 1, "email": "c", "v": 0},
    {"id": 2, "email": "a", "v": 0}, {"id": 1, "email": "b", "v": 0},
]  # fmt: skip


def test_no_row_of_another_key_is_written_and_none_is_reported(accounts: Any) -> None:
    table, cursor, connection = accounts
    before: dict[int, tuple[Any, ...]] = {1: (1, "a", 10), 2: (2, "b", 20)}
    for how, fence, values in itertools.product(["put", "claim"], [50, 100, 200], TAKEN):
        try:
            getattr(table, how)(cursor, fence, **values)
        except (pawlock.StaleFence, sqlite3.IntegrityError, psycopg.IntegrityError, pymysql.IntegrityError):
            connection.rollback()
            expected = before
        else:
            # It was done: on the row of the key, and on no other.
            (number,) = (n for n, found in before.items() if values[table.key[0]] in found)
            assert fence >= 100, (how, values)
            done = (values["id"], values["email"], 0) if how == "put" else before[number]
            expected = {**before, number: done}
        cursor.execute("SELECT id, email, v FROM accounts ORDER BY v DESC")
        found = sorted(tuple(one) for one in cursor.fetchall())
        assert found == sorted(expected.values()), (how, fence, values)
        connection.rollback()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_text_is_of_the_dialect_and_compares_in_the_statement_that_writes(dialect: Dialect) -> None:
    table = FencedTable("shop.stock", key=("product", "place"), dialect=dialect, paramstyle="named")
    for text in (table.column_statement, table.seen_statement):
        assert len(sqlglot.parse(text, read=READ[dialect])) == 1
    update = sqlglot.parse_one(table.update_statement("left", "order"), read=READ[dialect])
    assert isinstance(update, sqlglot.exp.Update)
    conditions = [node.this.name for node in update.args["where"].find_all(sqlglot.exp.EQ)]
    (least,) = update.args["where"].find_all(sqlglot.exp.LTE)
    assert sorted(conditions) == ["place", "product"]
    assert isinstance(least.this, sqlglot.exp.Coalesce)
    assert (least.this.this.name, least.expression.name) == ("fence", "fence")
    assert [node.this.name for node in update.expressions] == ["left", "order", "fence"]
    put = sqlglot.parse_one(table.put_statement("left", "order"), read=READ[dialect])
    assert isinstance(put, sqlglot.exp.Insert)
    assert put.args["conflict"] is not None
    assert len(list(put.args["conflict"].find_all(sqlglot.exp.LTE))) == (3 if dialect == "mysql" else 1)
    claim = sqlglot.parse_one(table.claim_statement("left"), read=READ[dialect])
    assert isinstance(claim, sqlglot.exp.Insert)
    assert len(claim.args["conflict"].expressions) == 1, "only the fence is written to a row that is there"


@pytest.mark.parametrize("dialect", ["postgresql", pytest.param("mysql", marks=pytest.mark.slow)])
def test_a_database_that_is_not_installed_is_missed_once(dialect: str) -> None:
    if reason := databases.missing().get(dialect):
        pytest.skip(reason)


def test_the_placeholders_are_those_of_the_driver() -> None:
    named = FencedTable("t", key="id", dialect="postgresql", paramstyle="named")
    assert named.guard == 'COALESCE("fence", 0) <= :fence'
    assert FencedTable("t", key="id", dialect="mysql", fence="f").guard == "COALESCE(`f`, 0) <= %(f)s"


def test_a_table_that_can_never_work_is_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": "a b"}, "table"), ({"name": 't"; DROP TABLE t; --'}, "table"), ({"name": ""}, "table"),
        ({"name": 5}, "table"), ({"key": ()}, "key"), ({"key": "a-b"}, "key"), ({"fence": "1f"}, "fence"),
        ({"dialect": "oracle"}, "dialect"), ({"paramstyle": "qmark"}, "paramstyle"),
    ]  # fmt: skip
    for kwargs, word in wrong:
        refused(partial(FencedTable, **{"name": "t", "key": "id", "dialect": "sqlite", **kwargs}), word)


def test_columns_that_can_never_work_are_refused() -> None:
    table = FencedTable("t", key="id", dialect="sqlite")
    for columns in (("fence",), ("id",), ("a", "a"), ("a'b",), ("FENCE",), ("Id",), ("a", "A")):
        refused(partial(table.update_statement, *columns), "column")
        refused(partial(table.put_statement, *columns), "column")


def test_a_row_without_its_key_is_refused() -> None:
    table = FencedTable("t", key=("a", "b"), dialect="sqlite")
    connection = sqlite3.connect(":memory:")
    with pytest.raises(pawlock.ConfigurationError, match="lacks b"):
        table.put(connection.cursor(), 1, a=1, x=2)
    connection.close()


@pytest.mark.parametrize("how", ["put", "claim", "update"])
def test_a_key_that_is_null_names_no_row_and_is_refused(how: str) -> None:
    table, connection = FencedTable("t", key=("a", "b"), dialect="sqlite"), sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, b, x, fence INTEGER NOT NULL DEFAULT 0, UNIQUE (a, b))")
    with pytest.raises(pawlock.ConfigurationError, match="NULL"):
        getattr(table, how)(connection.cursor(), 2, a=1, b=None, x=2)
    assert connection.execute("SELECT * FROM t").fetchall() == []
    connection.close()


@pytest.mark.parametrize("how", ["put", "claim", "update"])
def test_a_holder_cannot_write_another_fence_than_its_own(how: str) -> None:
    table, connection = FencedTable("t", key="id", dialect="sqlite"), sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (id PRIMARY KEY, x, fence INTEGER NOT NULL DEFAULT 0)")
    for column in ("fence", "Fence", "FENCE", "ID"):
        with pytest.raises(pawlock.ConfigurationError, match="fence"):
            getattr(table, how)(connection.cursor(), 7, **{"id": 1, "x": 2, column: 1})
    assert connection.execute("SELECT * FROM t").fetchall() == []
    connection.close()


def test_what_is_no_fence_is_refused() -> None:
    wrong: list[Any] = [None, True, 1.5, "7", -1, 2**63, object()]
    for given in wrong:
        refused(partial(fence_of, given), "fenc")


class _Bound:
    """A connection of a database as `sqlite3` has it: `execute` at the connection, `:name` for a parameter."""

    def __init__(self, connection: Any, dialect: str) -> None:
        self._connection = connection
        self._named = (lambda text: text) if dialect == "sqlite" else partial(re.sub, r":(\w+)", r"%(\1)s")

    def execute(self, statement: str, values: dict[str, object] | None = None) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(self._named(statement), *([] if values is None else [values]))
        return cursor

    def close(self) -> None:
        self._connection.rollback()


def test_the_first_example_of_the_page_runs_on_each(
    database: Any, valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that every database takes: no reserved word, and one of 64 bits for the fencing token."""
    dialect, connection = database
    page = (Path(__file__).parents[3] / "docs/how-to/fence-your-writes.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    example = "".join(blocks[:2])
    assert "FencedTable" not in example
    monkeypatch.setenv("PAWLOCK_URL", valkey.url)
    connection.cursor().execute("DROP TABLE IF EXISTS stock")
    names: dict[str, Any] = {"pawlock": pawlock, "opened": _Bound(connection, dialect)}
    exec(example.replace('sqlite3.connect(":memory:")', "opened"), names)
    names["client"].close()
    assert names["late"].fence > 2**32, "too large for a column of 32 bits"
