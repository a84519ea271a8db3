"""Reading the state of a name."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from pawl.core.endings import query
from pawl.core.options import check_count
from pawl.model import HolderInfo, LockInfo, WaiterInfo

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
    _, _, holder, left_ms, cur, last, now_ms, foreign, count, queue_length, listed, *many = reply
    waiters = tuple(
        WaiterInfo(_text(listed[i]), i // 3, _left(listed[i + 2], now_ms)) for i in range(0, len(listed), 3)
    )
    info = LockInfo(
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
    return _with_holders(info, now_ms, *many) if many else info


def _with_holders(info: LockInfo, now_ms: int, permits: int, used: int, listed: list[Any]) -> LockInfo:
    holders = tuple(
        HolderInfo(_text(who), *_mode(_text(mode), permits), _left(expiry, now_ms))
        for mode, who, expiry in zip(listed[::3], listed[1::3], listed[2::3], strict=True)
    )
    return replace(info, limit=permits or None, used=used if permits else 0, holders=holders)


def _mode(mode: str, permits: int) -> tuple[str, int]:
    if permits:
        return "permits", int(mode)
    return {"u": "upgradable", "x": "write", "o": "owner"}.get(mode, "read"), 1


def _left(expires_ms: Any, now_ms: int) -> float:
    return max(0.0, (int(expires_ms) - now_ms) / 1000)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
