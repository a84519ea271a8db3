"""Fences for SQLAlchemy: a mixin for mapped classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

try:
    from sqlalchemy import BigInteger, CursorResult, Select, Update, select, update
    from sqlalchemy.orm import Mapped, mapped_column
except ImportError as _error:
    raise ImportError(
        "pawl.fencing.FencedMixin needs SQLAlchemy 2: pip install 'pawlock[sqlalchemy]'"
    ) from _error

from pawl.errors import ConfigurationError
from pawl.fencing._fence import Fenced, fence_of, stale

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

__all__ = ["FencedMixin"]


class FencedMixin:
    """A mapped class whose rows remember the fence under which they were last written.

    It adds the column ``fence``, and ``write`` to change rows only where no later holder wrote. What the session
    flushes by itself is not guarded.
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
        return update(cls).where(cls.fence <= fence).values(fence=fence)

    @classmethod
    def write(
        cls, session: Session | Connection, lease: Fenced | int, /, *row: ColumnElement[bool], **values: Any
    ) -> bool:
        """Update rows under the fence of a lease, in the transaction that is open.

        Args:
            session: A session or connection.
            lease: The lease under which this is written, or its fence.
            row: Which row, as conditions: at least one.
            values: What is written, by attribute: values, or expressions such as ``Stock.left - 1``.

        Returns:
            True if it was written, False if no row fits.

        Raises:
            StaleFence: A later holder wrote the row, or the lease is degraded. Nothing was written.
            ConfigurationError: No condition was given.
        """
        statement, look = cls._statements(lease, row, values)
        done = cast("CursorResult[Any]", session.execute(statement))
        return done.rowcount > 0 or cls._verdict(lease, session.execute(look).scalar())

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
            True if it was written, False if no row fits.

        Raises:
            StaleFence: A later holder wrote the row, or the lease is degraded. Nothing was written.
            ConfigurationError: No condition was given.
        """
        statement, look = cls._statements(lease, row, values)
        done = cast("CursorResult[Any]", await session.execute(statement))
        return done.rowcount > 0 or cls._verdict(lease, (await session.execute(look)).scalar())

    @classmethod
    def _statements(
        cls, lease: Fenced | int, row: tuple[ColumnElement[bool], ...], values: dict[str, Any]
    ) -> tuple[Update, Select[int]]:
        if not row:
            raise ConfigurationError(f"{cls.__name__}.write needs a condition that names the row")
        if "fence" in values:
            raise ConfigurationError(f"{cls.__name__}.write sets the fence itself")
        # The session's objects of these rows are read anew at their next use.
        statement = cls.fenced_update(lease).where(*row).values(**values)
        statement = statement.execution_options(synchronize_session="fetch")
        look = select(cls.fence).where(*row).order_by(cls.fence.desc()).limit(1).with_for_update()
        return statement, look

    @classmethod
    def _verdict(cls, lease: Fenced | int, seen: int | None) -> bool:
        if seen is not None and seen > fence_of(lease):
            raise stale(f"the row of {cls.__name__}", lease, seen)
        return False
