"""What operators see of names: what the server knows of them, and who waits inside clients, of whom it does not know.

The callers of one client stand behind the one of them that has a place on the server, or holds the name; each client
writes them down (``_deadlocks``), by process. Who holds a name or waits for it on the server says which processes to ask.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from pawlock.core import operator
from pawlock.core.faults import or_raise
from pawlock.core.inspect import MOST_LISTED, read_info
from pawlock.core.options import check_count
from pawlock.core.runtime import Fault
from pawlock.primitives.registry import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pawlock.core.engine import Engine
    from pawlock.core.operator import Progress
    from pawlock.core.options import LockOptions
    from pawlock.core.plan import Plan
    from pawlock.core.primitive import NamespaceCalls
    from pawlock.model import LockInfo

__all__ = ["inspect", "locks", "states", "with_sleepers"]

_PATIENCE = 1.0
_MOST_PROCESSES = 1000
_Sleepers: TypeAlias = "dict[tuple[str, str], list[tuple[int, float]]]"


async def locks(engine: Engine, options: LockOptions, progress: Progress | None = None) -> list[LockInfo]:
    """List the held names of the namespace, in order."""
    return await with_sleepers(engine, [info for _, info in await operator.held(engine, options, progress)])


async def inspect(engine: Engine, plan: Plan, waiters: int) -> LockInfo:
    """The state of a lock; if it is free, also the other kind that holds its name."""
    info = await operator.inspect(engine, plan.primitive, plan.options, waiters)
    return (await with_sleepers(engine, [info]))[0]


async def states(engine: Engine, plan: Plan, waiters: int) -> list[LockInfo]:
    """The state of every kind that is held or waited for under one name; of its mutex if none is."""
    check_count(waiters, "waiters", 0, MOST_LISTED)
    primitive = plan.primitive
    engine.check_open(primitive.name)
    looks = [primitive, *operator.other_kinds(engine, primitive).values()]
    found = await operator.looks_at(engine, looks, plan.options, primitive.name, waiters)
    infos = [read_info(one, look) for one, look in zip(looks, found, strict=True) if look is not None]
    return await with_sleepers(
        engine, [info for info in infos if info.held or info.queue_length] or infos[:1]
    )


async def with_sleepers(
    engine: Engine, infos: Sequence[LockInfo], calls: NamespaceCalls | None = None
) -> list[LockInfo]:
    """The records, with who waits inside clients.

    Args:
        engine: Of the client that asks.
        infos: What the server says, all of one namespace.
        calls: Of that namespace; default the client's own.
    """
    names = engine.reports.namespace
    if calls is None and names is not None:
        calls = names.calls
    processes = (
        sorted(set[str]().union(*map(_processes, infos)))[:_MOST_PROCESSES] if calls is not None else []
    )
    if not processes or calls is None:
        return list(infos)
    questions = [calls.read_waits(process) for process in processes]
    found: _Sleepers = {}
    for answer in await engine.runtime.call_many(questions, engine.within(_PATIENCE)):
        # A courtesy: who may not read them, or gets no answer, sees what the server knows.
        if not isinstance(answer, Fault):
            _read(or_raise(answer).now_ms, answer.texts[1::2], found)
    return [_added(info, found.get((_family(info.kind), info.name), ())) for info in infos]


def _processes(info: LockInfo) -> set[str]:
    """Where those are, as ``host:pid``, behind whom others may stand."""
    whose = [info.holder, *(one.holder for one in info.holders), *(one.holder for one in info.waiters)]
    return {who.rpartition("/")[0] for who in whose} - {""}


def _read(now_ms: int, texts: Iterable[str], found: _Sleepers) -> None:
    for text in texts:
        try:
            for kind, name, number, since_ms in json.loads(text).get("s", ()):
                waited = max(0.0, (now_ms - int(since_ms)) / 1000)
                found.setdefault((_family(kind), str(name)), []).append((int(number), waited))
        except (ValueError, TypeError, AttributeError):
            # Of a later version, or not of pawlock.
            continue


def _family(kind: str) -> str:
    """What those have in common that keep each other out: readers and writers, and the three kinds of a lock."""
    entry = REGISTRY.get(kind)
    return "mutex" if entry and entry.family == "mutex" else kind.partition(".")[0]


def _added(info: LockInfo, sleepers: Sequence[tuple[int, float]]) -> LockInfo:
    if not sleepers:
        return info
    longest = max(info.longest_wait or 0.0, *(waited for _, waited in sleepers))
    return replace(info, waiting=info.waiting + sum(number for number, _ in sleepers), longest_wait=longest)
