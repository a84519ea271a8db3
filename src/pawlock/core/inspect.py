"""Reading the state of a name."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from pawlock.core.options import check_count
from pawlock.core.outcomes import ENDLESS_MS, NOBODY_MS, Look
from pawlock.core.retry import query
from pawlock.model import HolderInfo, LockInfo, WaiterInfo

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.options import LockOptions
    from pawlock.core.primitive import Primitive

__all__ = ["MOST_LISTED", "inspect", "read_info"]

MOST_LISTED = 100_000
"""Waiters in one record: more would stop the server for long."""


async def inspect(engine: Engine, primitive: Primitive, options: LockOptions, limit: int) -> LockInfo:
    """What the server knows of a name: holder, fence, queue. Changes nothing."""
    check_count(limit, "waiters", 0, MOST_LISTED)
    engine.check_open(primitive.name)
    look, _ = await query(engine, primitive.inspect(limit), options, primitive.name, "inspect")
    return read_info(primitive, look)


def read_info(primitive: Primitive, look: Look) -> LockInfo:
    """The record that an answer to ``primitive.inspect`` stands for."""
    now_ms, held = look.now_ms, look.left_ms != NOBODY_MS
    waiters = tuple(
        WaiterInfo(one.who, place, _left(one.expires_ms, now_ms), _age(one.number, now_ms))
        for place, one in enumerate(look.waiters)
    )
    process = look.holder.rpartition("/")[0]
    pid = process.rpartition(":")[2]
    info = LockInfo(
        name=primitive.name,
        held=held,
        holder=look.holder,
        foreign=look.foreign,
        ttl_left=0.0 if not held else inf if look.left_ms == ENDLESS_MS else look.left_ms / 1000,
        fence=look.fence if look.last > 0 and not look.foreign else None,
        count=look.holds,
        queue_length=look.queue_length,
        waiting=look.queue_length,
        longest_wait=waiters[0].age if waiters else None if look.queue_length else 0.0,
        waiters=waiters,
        kind=primitive.kind,
        host=process.rpartition(":")[0],
        pid=int(pid) if pid.isdecimal() else None,
        # A fence is the server's clock in µs at its grant, unless the clock was set back since.
        since=look.fence / 1e6
        if held and not look.foreign and 0 < look.fence <= (now_ms + 1) * 1000
        else None,
    )
    if look.holders is None:
        return info
    holders = tuple(
        HolderInfo(one.who, *_mode(one.mode, look.limit), _left(one.expires_ms, now_ms))
        for one in look.holders
    )
    return replace(info, limit=look.limit or None, used=look.used if look.limit else 0, holders=holders)


def _mode(mode: str, permits: int) -> tuple[str, int]:
    if permits:
        return "permits", int(mode)
    return "write" if mode == "x" else "read", 1


def _age(number: int, now_ms: int) -> float:
    # A ticket's number is the server's clock in µs when it was drawn, or one more than the last.
    return max(0.0, now_ms / 1000 - number / 1e6)


def _left(expires_ms: int, now_ms: int) -> float:
    return max(0.0, (expires_ms - now_ms) / 1000)
