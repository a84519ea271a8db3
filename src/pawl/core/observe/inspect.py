"""Reading the state of a name."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from pawl.core.protocol.options import check_count
from pawl.core.retry import query
from pawl.model import HolderInfo, LockInfo, WaiterInfo

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.outcomes import Outcome
    from pawl.core.protocol.primitive import Primitive
    from pawl.core.protocol.terms import Terms

__all__ = ["inspect", "read_info", "text_of"]

_MOST_LISTED = 100_000
"""Waiters in one record: more would stop the server for long."""


async def inspect(engine: Engine, primitive: Primitive, options: Terms, limit: int) -> LockInfo:
    """What the server knows of a name: holder, fence, queue. Changes nothing."""
    check_count(limit, "waiters", 0, _MOST_LISTED)
    engine.check_open(primitive.name)
    reply, _ = await query(engine, primitive.inspect(limit), options, primitive.name, "inspect")
    return read_info(primitive, reply)


def read_info(primitive: Primitive, reply: Outcome) -> LockInfo:
    """The record that an answer to ``primitive.inspect`` stands for."""
    _, _, holder, left_ms, cur, last, now_ms, foreign, count, queue_length, listed, *many = reply
    waiters = tuple(
        WaiterInfo(text_of(listed[i]), i // 3, _left(listed[i + 2], now_ms), _age(listed[i + 1], now_ms))
        for i in range(0, len(listed), 3)
    )
    process = text_of(holder).rpartition("/")[0]
    pid = process.rpartition(":")[2]
    info = LockInfo(
        name=primitive.name,
        held=left_ms != -2,
        holder=text_of(holder),
        foreign=bool(foreign),
        ttl_left=0.0 if left_ms == -2 else inf if left_ms == -1 else left_ms / 1000,
        fence=cur if last and not foreign else None,
        count=count,
        queue_length=queue_length,
        waiters=waiters,
        kind=primitive.kind,
        host=process.rpartition(":")[0],
        pid=int(pid) if pid.isdecimal() else None,
        # A fence is the server's clock in µs at its grant, unless the clock was set back since.
        since=cur / 1e6 if left_ms != -2 and not foreign and 0 < cur <= (now_ms + 1) * 1000 else None,
    )
    return _with_holders(info, now_ms, *many) if many else info


def _with_holders(
    info: LockInfo, now_ms: int, permits: int, used: int, listed: list[Any], *_others: object
) -> LockInfo:
    holders = tuple(
        HolderInfo(text_of(who), *_mode(text_of(mode), permits), _left(expiry, now_ms))
        for mode, who, expiry in zip(listed[::3], listed[1::3], listed[2::3], strict=True)
    )
    return replace(info, limit=permits or None, used=used if permits else 0, holders=holders)


def _mode(mode: str, permits: int) -> tuple[str, int]:
    if permits:
        return "permits", int(mode)
    return {"u": "upgradable", "x": "write", "o": "owner"}.get(mode, "read"), 1


def _age(number: Any, now_ms: int) -> float:
    # A ticket's number is the server's clock in µs when it was drawn, or one more than the last.
    return max(0.0, now_ms / 1000 - int(number) / 1e6)


def _left(expires_ms: Any, now_ms: int) -> float:
    return max(0.0, (int(expires_ms) - now_ms) / 1000)


def text_of(value: object) -> str:
    """What a server's word says."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
