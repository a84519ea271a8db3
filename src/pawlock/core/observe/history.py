"""The history of names, read: who had them, with which fence, from when to when, and how it ended.

``state.history`` writes it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pawlock.core.keep.engine import Engine
from pawlock.core.observe.inspect import read_info
from pawlock.core.observe.operator import audit, setup_of
from pawlock.core.observe.remote import remote_operator
from pawlock.core.protocol.options import check_count
from pawlock.core.retry import query
from pawlock.core.state.history import MOST_KEPT
from pawlock.model import HistoryEntry

if TYPE_CHECKING:
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.terms import Terms
    from pawlock.model import LockInfo

__all__ = ["history"]

log: logging.Logger = logging.getLogger("pawlock.history")


_LOOKS = 6
_BETWEEN_LOOKS = 0.2


# Reading ------------------------------------------------------------------------------------------------------------


async def history(engine: Engine, primitive: Primitive, options: Terms, limit: int) -> list[HistoryEntry]:
    """The newest entries of a name's history, the newest first."""
    check_count(limit, "limit", 1, MOST_KEPT)
    if (service := remote_operator(engine)) is not None:
        return await service.history(primitive, options, limit)
    setup = setup_of(engine, f"history of {primitive.name!r}")
    call = setup.calls.recall(primitive.key, limit)
    entries: list[HistoryEntry] = []
    for look in range(_LOOKS):
        if look:
            # A grant that is over, and whose end is not written: it may be on its way.
            await engine.runtime.pause(_BETWEEN_LOOKS)
        # In this order: what is held afterwards and was granted before, was held all the time.
        kept, _ = await query(engine, call, options, primitive.name, "history")
        entries = [_entry_of(primitive.name, line) for line in kept.texts]
        if all(entry.how != "held" for entry in entries):
            break
        answer, _ = await query(engine, primitive.inspect(0), options, primitive.name, "history")
        info = read_info(primitive, answer)
        newest = max(entry.fence for entry in entries)
        entries = [
            entry if entry.fence == newest and _lasts(entry, info) else _inferred(entry) for entry in entries
        ]
        if all(entry.how != "expired" or entry.ended is not None for entry in entries):
            break
    return (await _forced(engine, options, entries))[::-1]


def _entry_of(name: str, line: str) -> HistoryEntry:
    fence, granted_ms, ended_ms, how, kind, _, who = line.split(" ", 6)
    ended = None if ended_ms == "-" else int(ended_ms) / 1000
    return HistoryEntry(
        name=name, kind=kind, who=who, fence=int(fence), granted=int(granted_ms) / 1000, ended=ended, how=how
    )


def _lasts(entry: HistoryEntry, info: LockInfo) -> bool:
    """Whether the newest grant is the one that the name has now; its fences are a block from ``info.fence`` on."""
    if not info.holder or info.foreign or info.fence is None or entry.fence < info.fence:
        return False
    holders = [holder.holder for holder in info.holders] or [info.holder]
    return entry.who.rpartition("/")[0] in {holder.rpartition("/")[0] for holder in holders}


def _inferred(entry: HistoryEntry) -> HistoryEntry:
    return replace(entry, how="expired") if entry.how == "held" else entry


async def _forced(engine: Engine, options: Terms, entries: list[HistoryEntry]) -> list[HistoryEntry]:
    """Say which losses were an operator's doing: the audit log has the fence that the name rose to."""
    if not any(entry.how in ("taken", "expired") for entry in entries):
        return entries
    name = entries[0].name
    for done in await audit(engine, options, 1000):
        if done.name != name or done.outcome != "released" or done.fence is None:
            continue
        index = max((i for i, entry in enumerate(entries) if entry.fence < done.fence), default=None)
        if index is not None and entries[index].how in ("taken", "expired"):
            ended = entries[index].ended
            entries[index] = replace(entries[index], how="forced", ended=done.at if ended is None else ended)
    return entries
