"""The engines of this process: a lock without the server has to respect leases that the server granted here before.

Nothing here takes a lock: each step on the table is one C call, and an engine that is collected leaves it by itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine

__all__ = ["is_held_beside", "register_engine"]

_engines: dict[int, ref[Engine]] = {}


def register_engine(engine: Engine) -> None:
    """Let the other engines of this process find this one, for as long as it exists."""
    number = id(engine)
    # Not a Python function: a signal handler could raise in one, and Python drops what is raised there.
    _engines[number] = ref(engine, partial(_engines.pop, number))


def is_held_beside(engine: Engine, key: str, who: object) -> bool:
    """Whether anybody else of this process has a valid lease of a key, which the server granted.

    Args:
        engine: The engine of the thread or task that asks.
        key: The key.
        who: The thread or task that asks.
    """
    for found in list(_engines.values()):
        other = found()
        if other is None or other.health.server != engine.health.server:
            continue
        now = other.runtime.now()
        for server_lease in (*list(other.leases.held.values()), *other.leases.schedule.all()):
            if server_lease.primitive.key != key or server_lease.degraded or server_lease.owner.who is who:
                continue
            if server_lease.live and now < server_lease.valid_until:
                return True
    return False
