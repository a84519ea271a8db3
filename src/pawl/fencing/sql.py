"""Fences in SQL: the text of statements that write only where no later holder wrote, and what their answer means.

The comparison stands in the statement that writes, so nothing can come between the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pawl.errors import ConfigurationError
from pawl.fencing._fence import Fenced, fence_of, stale

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
        raise ConfigurationError(f"{what} {word!r:.60} is no plain identifier: letters, digits, underscores")
    return word


@dataclass(frozen=True, slots=True, init=False)
class FencedTable:
    """A table whose rows remember the fence under which they were last written.

    Its methods named for statements give their text, for any driver; ``update`` and ``put`` run them on a cursor and
    say what became of it. Nothing is committed here: the transaction is the caller's. Identifiers are quoted, so they
    are to be given as the database stores them (PostgreSQL: in lower case unless they were made with quotes).

    Rows should stay: a row that is deleted takes its fence along, and a late ``put`` would bring it back. Mark it as
    deleted instead.

    Args:
        name: The table, ``schema.table`` too.
        key: The column or columns of its primary key, or of a unique constraint.
        dialect: ``"postgresql"``, ``"mysql"`` (also for MariaDB) or ``"sqlite"``.
        fence: The column of the fence, default ``fence``: a signed integer of 64 bits, not null, default 0.
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
            raise ConfigurationError(f"dialect is {dialect!r:.40}; give 'postgresql', 'mysql' or 'sqlite'")
        style = _STYLES[dialect] if paramstyle is None else paramstyle
        if style not in ("named", "pyformat"):
            raise ConfigurationError(f"paramstyle is {style!r:.40}; give 'named' or 'pyformat'")
        for word in str(name).split("."):
            _checked(word, "table")
        keys = (key,) if isinstance(key, str) else tuple(key)
        if not keys:
            raise ConfigurationError("key is empty: give the column or columns that name a row")
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
        return f"{self._quoted(self.fence)} <= {self._param(self.fence)}"

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

        Args:
            columns: As for ``update_statement``.

        Raises:
            ConfigurationError: A column that can never work.
        """
        written = [*self._written(columns), self.fence]
        everything = [*self.key, *written]
        names = ", ".join(map(self._quoted, everything))
        values = ", ".join(map(self._param, everything))
        insert = f"INSERT INTO {self._table} ({names}) VALUES ({values})"  # noqa: S608 - identifiers were checked
        if self.dialect == "mysql":
            # There is no WHERE in this clause, and assignments take effect from left to right: the fence comes last.
            pairs = ", ".join(
                f"{q} = IF({self.guard}, {self._param(c)}, {q})" for q, c in self._pairs(written)
            )
            return f"{insert} ON DUPLICATE KEY UPDATE {pairs}"
        pairs = ", ".join(f"{q} = excluded.{q}" for q, _ in self._pairs(written))
        row = ", ".join(map(self._quoted, self.key))
        fence = self._quoted(self.fence)
        there = self._quoted(self.name.rsplit(".", maxsplit=1)[-1])
        return f"{insert} ON CONFLICT ({row}) DO UPDATE SET {pairs} WHERE {there}.{fence} <= excluded.{fence}"

    @property
    def seen_statement(self) -> str:
        """``SELECT`` of the fence that stands in a row, as it is now and not in an older snapshot."""
        now = "" if self.dialect == "sqlite" else " FOR UPDATE"
        return f"SELECT {self._quoted(self.fence)} FROM {self._table} WHERE {self._row}{now}"  # noqa: S608 - identifiers were checked

    def update(self, cursor: Cursor, lease: Fenced | int, /, **values: object) -> bool:
        """Update one row under the fence of a lease, in the transaction that is open.

        Args:
            cursor: A cursor of a driver that follows PEP 249, such as sqlite3, psycopg, PyMySQL.
            lease: The lease under which this is written, or its fence.
            values: The columns of the key, and what is written.

        Returns:
            True if it was written, False if there is no such row.

        Raises:
            StaleFence: A later holder wrote the row, or the lease is degraded. Nothing was written.
            ConfigurationError: Columns that can never work.
        """
        return self._run(cursor, lease, self.update_statement, values)

    def put(self, cursor: Cursor, lease: Fenced | int, /, **values: object) -> None:
        """Insert one row, or update it, under the fence of a lease, in the transaction that is open.

        Args:
            cursor: As for ``update``.
            lease: As for ``update``.
            values: As for ``update``.

        Raises:
            StaleFence: A later holder wrote the row, or the lease is degraded. Nothing was written.
            ConfigurationError: Columns that can never work.
        """
        self._run(cursor, lease, self.put_statement, values)

    def _run(self, cursor: Cursor, lease: Fenced | int, statement: Any, values: dict[str, object]) -> bool:
        missing = [column for column in self.key if column not in values]
        if missing:
            raise ConfigurationError(f"the key of a row of {self.name} lacks {', '.join(missing)}")
        fence = fence_of(lease)
        text: str = statement(*[column for column in values if column not in self.key])
        cursor.execute(text, {**values, self.fence: fence})
        # What MySQL counts depends on a flag of the connection, and leaves out rows that did not change: only the
        # fence that stands there tells.
        if self.dialect != "mysql" and cursor.rowcount > 0:
            return True
        cursor.execute(self.seen_statement, {column: values[column] for column in self.key})
        row: Any = cursor.fetchone()
        # A row may come as a mapping, where the connection was told so.
        values_of = list(row.values() if hasattr(row, "values") else row or ())
        seen = int(values_of[0]) if values_of else 0
        if seen > fence:
            raise stale(f"the row of {self.name}", lease, seen)
        return self.dialect == "mysql" and seen == fence

    def _written(self, columns: tuple[str, ...]) -> list[str]:
        for column in columns:
            if _checked(column, "column") == self.fence or column in self.key:
                raise ConfigurationError(f"column {column} is of the key or the fence; it is set anyway")
        if len(set(columns)) != len(columns):
            raise ConfigurationError(f"columns {', '.join(columns)}: one is named twice")
        return list(columns)

    def _pairs(self, columns: Sequence[str]) -> list[tuple[str, str]]:
        return [(self._quoted(column), column) for column in columns]

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
