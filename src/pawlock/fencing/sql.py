"""Fences in SQL: the text of statements that write only where no later holder wrote, and what their answer means.

The comparison is part of the statement that writes, so nothing can come between the two. ``claim`` writes the fence
alone: from then on nobody who was granted the lock earlier can change the row, so what is read next stays true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pawlock.errors import ConfigurationError
from pawlock.fencing._fence import Fenced, fence_of, stale

__all__ = ["Cursor", "Dialect", "FencedTable", "ParamStyle"]

Dialect: TypeAlias = Literal["postgresql", "mysql", "sqlite"]
"""Whose SQL; ``mysql`` is MariaDB's too."""

ParamStyle: TypeAlias = Literal["named", "pyformat"]
"""``:fence`` or ``%(fence)s``, as the driver's ``paramstyle`` says."""

_STYLES: Mapping[str, ParamStyle] = {"postgresql": "pyformat", "mysql": "pyformat", "sqlite": "named"}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Cursor(Protocol):
    """What is needed of a cursor of the Python Database API (PEP 249)."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement wrote."""
        ...

    def execute(self, operation: Any, parameters: Any = ..., /) -> object:
        """Run a statement."""
        ...

    def fetchone(self) -> Any:
        """The next row of the answer, or None."""
        ...


def _checked(word: object, what: str) -> str:
    if not isinstance(word, str) or not _WORD.fullmatch(word):
        raise ConfigurationError(
            f"{what} {word!r:.60} must be a plain identifier: letters, digits, underscores"
        )
    return word


@dataclass(frozen=True, slots=True, init=False)
class FencedTable:
    """A table whose rows remember the fence under which they were last claimed or written.

    Claim the row, read it, write it: ``claim``, a ``SELECT`` of your own, ``update``. Without the claim a late holder
    can still write between your read and your write, and its change is lost.

    Its methods named for statements give their text, for any driver; ``claim``, ``update`` and ``put`` run them on a
    cursor and say what became of it. Nothing is committed here: the transaction is the caller's. Identifiers are
    quoted, so they are to be given as the database stores them (PostgreSQL: in lower case unless they were made with
    quotes).

    Rows should stay: a row that is deleted takes its fence along, and a late ``put`` would bring it back. Mark it as
    deleted instead.

    Args:
        name: The table, ``schema.table`` too.
        key: The column or columns of its primary key, or of a unique constraint: they name one row.
        dialect: ``"postgresql"``, ``"mysql"`` (also for MariaDB) or ``"sqlite"``.
        fence: The column of the fence, default ``fence``: a signed integer of 64 bits, not null, default 0. NULL counts
            as 0.
        paramstyle: How the driver writes parameters, default ``"named"`` (``:fence``) for SQLite and ``"pyformat"``
            (``%(fence)s``) for the others. SQLAlchemy's ``text()`` takes ``"named"``.

    Raises:
        ConfigurationError: An identifier, dialect or style that can never work.
    """

    name: str
    key: tuple[str, ...]
    dialect: Dialect
    fence: str
    paramstyle: ParamStyle

    def __init__(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        dialect: Dialect,
        fence: str = "fence",
        paramstyle: ParamStyle | None = None,
    ) -> None:
        if dialect not in _STYLES:
            raise ConfigurationError(
                f"dialect must be 'postgresql', 'mysql' or 'sqlite', got {dialect!r:.40}"
            )
        style = _STYLES[dialect] if paramstyle is None else paramstyle
        if style not in ("named", "pyformat"):
            raise ConfigurationError(f"paramstyle must be 'named' or 'pyformat', got {style!r:.40}")
        for word in str(name).split("."):
            _checked(word, "table")
        keys = (key,) if isinstance(key, str) else tuple(key)
        if not keys:
            raise ConfigurationError("key is empty: pass the column or columns that identify a row")
        for column in keys:
            _checked(column, "key")
        values: dict[str, object] = {"name": name, "key": keys, "dialect": dialect}
        values |= {"fence": _checked(fence, "fence"), "paramstyle": style}
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def column_statement(self) -> str:
        """``ALTER TABLE`` that adds the column of the fence."""
        return f"ALTER TABLE {self._table} ADD COLUMN {self._quoted(self.fence)} BIGINT NOT NULL DEFAULT 0"

    @property
    def guard(self) -> str:
        """The condition for a ``WHERE`` of one's own; the statement must set the column of the fence too."""
        return f"{self._known(self._quoted(self.fence))} <= {self._param(self.fence)}"

    def claim_statement(self, *columns: str) -> str:
        """``UPDATE`` of the fence of one row, unless a later holder was there.

        Args:
            columns: None: the row has to be there. Otherwise it is inserted with these columns where it is missing;
                they are not written where it is there.

        Raises:
            ConfigurationError: A column that can never work.
        """
        return self._upsert(columns, ()) if columns else self.update_statement()

    def update_statement(self, *columns: str) -> str:
        """``UPDATE`` of one row, unless a later holder wrote it.

        Args:
            columns: What is written besides the fence; each is a parameter of its own name, as are the key and the
                fence.

        Raises:
            ConfigurationError: A column that can never work.
        """
        written = [*self._written(columns), self.fence]
        pairs = ", ".join(f"{self._quoted(column)} = {self._param(column)}" for column in written)
        return f"UPDATE {self._table} SET {pairs} WHERE {self._row} AND {self.guard}"  # noqa: S608 - identifiers were checked

    def put_statement(self, *columns: str) -> str:
        """``INSERT`` of one row, or its update if it is there and no later holder wrote it.

        On MySQL and MariaDB the statement changes nothing, and reports no error, where another unique key of the table
        stands in the way; ``put`` does report it.

        Args:
            columns: As for ``update_statement``.

        Raises:
            ConfigurationError: A column that can never work.
        """
        return self._upsert(columns, columns)

    def _upsert(self, inserted: tuple[str, ...], updated: tuple[str, ...]) -> str:
        insert, written = self._insert_statement(inserted), [*updated, self.fence]
        if self.dialect == "mysql":
            # There is no WHERE in this clause, and it is run for a conflict on any unique key: only the row of our key
            # may change. Assignments take effect from left to right: the fence comes last.
            mine = f"{self._row} AND {self.guard}"
            pairs = ", ".join(f"{q} = IF({mine}, {self._param(c)}, {q})" for q, c in self._pairs(written))
            return f"{insert} ON DUPLICATE KEY UPDATE {pairs}"
        pairs = ", ".join(f"{q} = excluded.{q}" for q, _ in self._pairs(written))
        row = ", ".join(map(self._quoted, self.key))
        fence = self._quoted(self.fence)
        there = self._known(f"{self._quoted(self.name.rsplit('.', maxsplit=1)[-1])}.{fence}")
        return f"{insert} ON CONFLICT ({row}) DO UPDATE SET {pairs} WHERE {there} <= excluded.{fence}"

    def _insert_statement(self, columns: tuple[str, ...]) -> str:
        everything = [*self.key, *self._written(columns), self.fence]
        names = ", ".join(map(self._quoted, everything))
        values = ", ".join(map(self._param, everything))
        return f"INSERT INTO {self._table} ({names}) VALUES ({values})"  # noqa: S608 - identifiers were checked

    @property
    def seen_statement(self) -> str:
        """``SELECT`` of the fence that stands in a row, as it is now and not in an older snapshot."""
        now = "" if self.dialect == "sqlite" else " FOR UPDATE"
        return f"SELECT {self._known(self._quoted(self.fence))} FROM {self._table} WHERE {self._row}{now}"  # noqa: S608 - identifiers were checked

    def claim(self, cursor: Cursor, lease: Fenced | int, /, **values: object) -> bool:
        """Write the fence of a lease to one row and nothing else: from then on, earlier holders cannot write it.

        Claim each row that your write depends on before you read it, in the same transaction or an earlier one.

        Args:
            cursor: As for ``update``.
            lease: As for ``update``.
            values: The columns of the key; with others, a row that is missing is inserted with them.

        Returns:
            True if the row is claimed, False if there is no such row and no more than the key was given.

        Raises:
            StaleFence: A later holder claimed or wrote the row, or the lease is degraded. Nothing was written.
            ConfigurationError: Columns that can never work.
        """
        columns = self._columns(values)
        if not columns:
            return self._update(cursor, lease, values)
        self._put(cursor, lease, values, ())
        return True

    def update(self, cursor: Cursor, lease: Fenced | int, /, **values: object) -> bool:
        """Update one row under the fence of a lease, in the transaction that is open.

        Args:
            cursor: A cursor of a driver that follows PEP 249, such as sqlite3, psycopg, PyMySQL.
            lease: The lease under which this is written, or its fence.
            values: The columns of the key, and what is written.

        Returns:
            True if it was written, False if there is no such row.

        Raises:
            StaleFence: A later holder claimed or wrote the row, or the lease is degraded. Nothing was written.
            ConfigurationError: Columns that can never work, or a key that named several rows: roll back.
        """
        return self._update(cursor, lease, values)

    def put(self, cursor: Cursor, lease: Fenced | int, /, **values: object) -> None:
        """Insert one row, or update it, under the fence of a lease, in the transaction that is open.

        Where another unique key of the table stands in the way, the driver's own error for that is raised.

        Args:
            cursor: As for ``update``.
            lease: As for ``update``.
            values: As for ``update``.

        Raises:
            StaleFence: A later holder claimed or wrote the row, or the lease is degraded. Nothing was written.
            ConfigurationError: Columns that can never work.
        """
        self._put(cursor, lease, values, self._columns(values))

    def _update(self, cursor: Cursor, lease: Fenced | int, values: dict[str, object]) -> bool:
        fence, text = fence_of(lease), self.update_statement(*self._columns(values))
        cursor.execute(text, {**values, self.fence: fence})
        if self._counted(cursor):
            return True
        seen = self._seen(cursor, lease, values)
        if seen is not None and (seen != fence or self.dialect != "mysql"):
            # The row came, or its fence fell, between the two statements. Now it is locked.
            cursor.execute(text, {**values, self.fence: fence})
        return seen is not None

    def _put(
        self, cursor: Cursor, lease: Fenced | int, values: dict[str, object], updated: Sequence[str]
    ) -> None:
        columns = tuple(self._columns(values))
        cursor.execute(self._upsert(columns, tuple(updated)), {**values, self.fence: fence_of(lease)})
        if self._counted(cursor):
            return
        if self._seen(cursor, lease, values) is None:
            # Another unique key of the table stands in the way: the plain statement makes the database say so.
            cursor.execute(self._insert_statement(columns), {**values, self.fence: fence_of(lease)})
            return
        # Which row MySQL updated depends on the other unique keys, too. This statement can only meet the guarded row,
        # and changes nothing where that was the one.
        mine = {column: values[column] for column in (*self.key, *updated)}
        cursor.execute(self.update_statement(*updated), {**mine, self.fence: fence_of(lease)})

    def _columns(self, values: dict[str, object]) -> list[str]:
        missing = [column for column in self.key if column not in values]
        if missing:
            raise ConfigurationError(f"the key of a row of {self.name} lacks {', '.join(missing)}")
        if any(values[column] is None for column in self.key):
            raise ConfigurationError(f"the key of a row of {self.name} is NULL, which matches no row")
        return [column for column in values if column not in self.key]

    def _counted(self, cursor: Cursor) -> bool:
        """Whether the driver's count alone says that the row was written."""
        # What MySQL counts depends on a flag of the connection, and leaves out rows that did not change.
        if self.dialect == "mysql" or cursor.rowcount < 1:
            return False
        if cursor.rowcount > 1:
            text = f"the key of {self.name} matched {cursor.rowcount} rows: roll back, and pass a unique key"
            raise ConfigurationError(text)
        return True

    def _seen(self, cursor: Cursor, lease: Fenced | int, values: dict[str, object]) -> int | None:
        """The fence of the row, not above ours; None where there is no such row."""
        cursor.execute(self.seen_statement, {column: values[column] for column in self.key})
        row: Any = cursor.fetchone()
        if not row:
            return None
        # A row may come as a mapping, where the connection is configured so.
        seen = int(next(iter(row.values() if hasattr(row, "values") else row)))
        if seen > fence_of(lease):
            raise stale(f"the row of {self.name}", lease, seen)
        return seen

    def _written(self, columns: tuple[str, ...]) -> list[str]:
        # In PostgreSQL quoted columns that differ in case are two; elsewhere they are one.
        same: Callable[[str], str] = str if self.dialect == "postgresql" else str.lower
        own = {same(column) for column in (self.fence, *self.key)}
        for column in columns:
            if same(_checked(column, "column")) in own:
                raise ConfigurationError(
                    f"column {column} belongs to the key or the fence and is set automatically: remove it"
                )
        if len({same(column) for column in columns}) != len(columns):
            raise ConfigurationError(f"columns {', '.join(columns)}: one is listed twice")
        return list(columns)

    def _pairs(self, columns: Sequence[str]) -> list[tuple[str, str]]:
        return [(self._quoted(column), column) for column in columns]

    @staticmethod
    def _known(fence: str) -> str:
        return f"COALESCE({fence}, 0)"

    @property
    def _table(self) -> str:
        return ".".join(map(self._quoted, self.name.split(".")))

    @property
    def _row(self) -> str:
        return " AND ".join(f"{self._quoted(column)} = {self._param(column)}" for column in self.key)

    def _quoted(self, word: str) -> str:
        return f"`{word}`" if self.dialect == "mysql" else f'"{word}"'

    def _param(self, column: str) -> str:
        return f":{column}" if self.paramstyle == "named" else f"%({column})s"
