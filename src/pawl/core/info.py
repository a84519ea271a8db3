"""Reading the state of a name."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pawl.core.endings import query
from pawl.core.options import check_count
from pawl.model import LockInfo, WaiterInfo

if TYPE_CHECKING:
    from pawl.core.engine import Engine
    from pawl.core.options import LockOptions
    from pawl.core.primitive import Primitive

__all__ = ["inspect"]

_MOST_LISTED = 100_000
"""Waiters in one record: more would stop the server for long."""


async def inspect(engine: Engine, primitive: Primitive, options: LockOptions, limit: int) -> LockInfo:
    """What the server knows of a name: holder, fence, queue. Changes nothing."""
    check_count(limit, "waiters", 0, _MOST_LISTED)
    engine.check_open(primitive.name)
    reply, _ = await query(engine, primitive.inspect(limit), options, primitive.name, "inspect")
    _, _, holder, left_ms, cur, last, now_ms, foreign, count, queue_length, listed = reply
    waiters = tuple(
        WaiterInfo(_text(listed[i]), i // 3, max(0.0, (int(listed[i + 2]) - now_ms) / 1000))
        for i in range(0, len(listed), 3)
    )
    return LockInfo(
        name=primitive.name,
        held=left_ms != -2,
        holder=_text(holder),
        foreign=bool(foreign),
        ttl_left=0.0 if left_ms == -2 else inf if left_ms == -1 else left_ms / 1000,
        fence=cur if last else None,
        count=count,
        queue_length=queue_length,
        waiters=waiters,
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
