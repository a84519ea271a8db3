"""What a program that uses pawlock is tested with: a real server, one in memory with a time of its own, and faults.

What is here is imported when it is first used: pytest imports this package at each of its runs, for the fixtures of
``pawlock.testing.plugin``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pawlock.testing.memory.sim import Sim
    from pawlock.testing.order import LockOrder, LockOrderWarning, lock_order
    from pawlock.testing.outages import Faults, Outage
    from pawlock.testing.server import Server

__all__ = ["Faults", "LockOrder", "LockOrderWarning", "Outage", "Server", "Sim", "lock_order"]

_HOMES = {
    "pawlock.testing.memory.sim": ("Sim",),
    "pawlock.testing.order": ("LockOrder", "LockOrderWarning", "lock_order"),
    "pawlock.testing.outages": ("Faults", "Outage"),
    "pawlock.testing.server": ("Server",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        from pawlock._hints import missing

        raise AttributeError(missing(__name__, name, __all__), name=name)
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
