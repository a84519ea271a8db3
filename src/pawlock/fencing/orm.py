"""Fences for SQLAlchemy: a mixin for mapped classes."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

try:
    from sqlalchemy import (
        BigInteger,
        CursorResult,
        Select,
        Update,
        and_,
        event,
        false,
        func,
        inspect,
        or_,
        select,
        update,
    )
    from sqlalchemy.orm import Mapped, Mapper, mapped_column
except ImportError as _error:
    raise ImportError(
        "pawlock.fencing.FencedMixin needs SQLAlchemy 2: pip install 'sqlalchemy>=2.0.2'"
    ) from _error

from pawlock.errors import ConfigurationError
from pawlock.fencing._fence import Fenced, fence_of, stale

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

__all__ = ["FencedMixin"]

_Session: TypeAlias = "Session | Connection | AsyncSession | AsyncConnection"
# Statements go out, their results come in: what runs them is the caller's, a session with or without asyncio.
_Steps: TypeAlias = "Generator[Select[Any] | Update, Any, bool]"
_BATCH = 500


class FencedMixin:
    """A mapped class whose rows remember the fence under which they were last claimed or written.

    It adds the column ``fence``; ``claim`` to take rows over before they are read, and ``write`` to change them only
    where no later holder was. What the session flushes by itself is not guarded.

    The fence has to be in the table of the class itself, beside all that it guards. A subclass that keeps a part of its
    row in a table of its own (joined-table inheritance) is refused with ``ConfigurationError`` when it is mapped.
    """

    fence: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0", nullable=False)

    @classmethod
    def fenced_update(cls, lease: Fenced | int) -> Update:
        """``UPDATE`` that sets the fence and leaves out rows of later holders; add ``where`` and ``values`` to it.

        Args:
            lease: The lease under which this is written, or its fence.

        Raises:
            StaleFence: The lease is degraded.
        """
        fence = fence_of(lease)
        return update(cls).where(func.coalesce(cls.fence, 0) <= fence).values(fence=fence)

    @classmethod
    def claim(cls, session: Session | Connection, lease: Fenced | int, /, *row: ColumnElement[bool]) -> bool:
        """Write the fence of a lease to rows and nothing else: from then on, earlier holders cannot write them.

        Call it before you read what your write depends on. The session's own objects of these rows are read anew.

        Args:
            session: A session or connection.
            lease: The lease, or its fence.
            row: Which rows, as conditions: at least one.

        Returns:
            True if they are claimed, False if no row fits.

        Raises:
            StaleFence: A later holder claimed or wrote one of the rows, or the lease is degraded. Nothing was written.
            ConfigurationError: No condition was given.
        """
        return _run(session, cls._steps(session, lease, row, {}))

    @classmethod
    async def claim_async(
        cls, session: AsyncSession | AsyncConnection, lease: Fenced | int, /, *row: ColumnElement[bool]
    ) -> bool:
        """``claim`` for asyncio.

        Args:
            session: A session or connection of asyncio.
            lease: As for ``claim``.
            row: As for ``claim``.

        Returns:
            True if they are claimed, False if no row fits.

        Raises:
            StaleFence: A later holder claimed or wrote one of the rows, or the lease is degraded. Nothing was written.
            ConfigurationError: No condition was given.
        """
        return await _run_async(session, cls._steps(session, lease, row, {}))

    @classmethod
    def write(
        cls, session: Session | Connection, lease: Fenced | int, /, *row: ColumnElement[bool], **values: Any
    ) -> bool:
        """Update rows under the fence of a lease, in the transaction that is open: all that fit, or none.

        The session's own objects of these rows are read anew: after ``write``, ``tea.left`` is what was written.

        Args:
            session: A session or connection.
            lease: The lease under which this is written, or its fence.
            row: Which rows, as conditions: at least one.
            values: What is written, by attribute: values, or expressions such as ``Stock.left - 1``.

        Returns:
            True if they were written, False if no row fits.

        Raises:
            StaleFence: A later holder claimed or wrote one of the rows, or the lease is degraded. Nothing was written.
            ConfigurationError: No condition was given.
        """
        return _run(session, cls._steps(session, lease, row, values))

    @classmethod
    async def write_async(
        cls,
        session: AsyncSession | AsyncConnection,
        lease: Fenced | int,
        /,
        *row: ColumnElement[bool],
        **values: Any,
    ) -> bool:
        """``write`` for asyncio.

        Args:
            session: A session or connection of asyncio.
            lease: As for ``write``.
            row: As for ``write``.
            values: As for ``write``.

        Returns:
            True if they were written, False if no row fits.

        Raises:
            StaleFence: A later holder claimed or wrote one of the rows, or the lease is degraded. Nothing was written.
            ConfigurationError: No condition was given.
        """
        return await _run_async(session, cls._steps(session, lease, row, values))

    @classmethod
    def _steps(
        cls,
        session: _Session,
        lease: Fenced | int,
        row: tuple[ColumnElement[bool], ...],
        values: dict[str, Any],
    ) -> _Steps:
        if not row:
            raise ConfigurationError(f"{cls.__name__} needs a condition that names the row")
        if "fence" in values:
            raise ConfigurationError(f"{cls.__name__}.write sets the fence itself")
        mapper = cast("Mapper[Any]", inspect(cls))
        fence, key = func.coalesce(cls.fence, 0), mapper.primary_key
        look = select(fence, *key).select_from(cls).where(*row).with_for_update(of=cls)
        # It is read anew below, as far as it was loaded.
        written = cls.fenced_update(lease).where(*row).execution_options(synchronize_session=False)
        if _dialect(session, cls) == "sqlite":
            # It has no FOR UPDATE. A statement that writes, if only to no row, shuts other writers out until the end.
            yield update(cls).where(false()).values(fence=0).execution_options(synchronize_session=False)
        found = [tuple(one) for one in (yield look)]
        if not found:
            return False
        cls._refuse(lease, found)
        done = cast("CursorResult[Any]", (yield written.values(**values) if values else written))
        if 0 <= done.rowcount < len(found):
            # Without a transaction (autocommit) nothing was locked: somebody came between.
            cls._refuse(lease, [tuple(one) for one in (yield look)])
        loaded = _loaded(session, mapper, [one[1:] for one in found])
        for start in range(0, len(loaded), _BATCH):
            one_of = [
                and_(*(column == part for column, part in zip(key, one, strict=True)))
                for one in loaded[start : start + _BATCH]
            ]
            anew = select(cls).where(or_(*one_of)).with_for_update(of=cls)
            (yield anew.execution_options(populate_existing=True)).unique().all()
        return True

    @classmethod
    def _refuse(cls, lease: Fenced | int, found: list[tuple[Any, ...]]) -> None:
        seen = max((int(one[0]) for one in found), default=0)
        if seen > fence_of(lease):
            raise stale(f"the row of {cls.__name__}", lease, seen)


def _run(session: Session | Connection, steps: _Steps) -> bool:
    result: Any = None
    while True:
        try:
            statement = steps.send(result)
        except StopIteration as end:
            return cast("bool", end.value)
        result = session.execute(statement)


async def _run_async(session: AsyncSession | AsyncConnection, steps: _Steps) -> bool:
    result: Any = None
    while True:
        try:
            statement = steps.send(result)
        except StopIteration as end:
            return cast("bool", end.value)
        result = await session.execute(statement)


def _dialect(session: _Session, cls: type[FencedMixin]) -> str:
    # A session may have several databases, one for each class; a connection has one.
    asked: Any = session
    bind = asked.get_bind(mapper=cls) if hasattr(session, "get_bind") else asked
    return str(bind.dialect.name)


def _loaded(session: _Session, mapper: Mapper[Any], keys: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Those keys whose objects the session has."""
    known = getattr(session, "identity_map", None)
    return [key for key in keys if known and mapper.identity_key_from_primary_key(key) in known]


@event.listens_for(FencedMixin, "after_mapper_constructed", propagate=True)
def _check(mapper: Mapper[Any], cls: type[FencedMixin]) -> None:
    """Refuse a class whose rows lie in several tables: nothing would join them in its statements."""
    fence = mapper.columns.get("fence")
    if fence is None or list(mapper.tables) != [fence.table]:
        tables = " and ".join(str(table) for table in mapper.tables)
        where = "without a column of its fence" if fence is None else f"with its fence only in {fence.table}"
        raise ConfigurationError(
            f"{cls.__name__} has its rows in {tables}, {where}: the fence column must be in the same table as all "
            "that it guards. Joined-table inheritance cannot be guarded; a concrete subclass needs a fence of its own"
        )
