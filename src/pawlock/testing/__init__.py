"""Servers to throw away, real and in memory, and a fault-injecting proxy: for tests of pawlock and of what uses it.

What is here is imported when it is first used: pytest imports this package at each of its runs, for the fixtures of
``pawlock.testing.plugin``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pawlock.testing._resp import ReplyError
    from pawlock.testing.lock_table import LockTable
    from pawlock.testing.memory import Memory, Sim
    from pawlock.testing.order import LockOrder, LockOrderWarning, lock_order
    from pawlock.testing.outages import Faults, Outage
    from pawlock.testing.servers import Server, available
    from tests.support.groups import ClusterGroup, SentinelGroup
    from tests.support.proxy import Proxy, Request, Rule

__all__ = [
    "ClusterGroup",
    "Faults",
    "LockOrder",
    "LockOrderWarning",
    "LockTable",
    "Memory",
    "Outage",
    "Proxy",
    "ReplyError",
    "Request",
    "Rule",
    "SentinelGroup",
    "Server",
    "Sim",
    "available",
    "lock_order",
]

_HOMES = {
    "pawlock.testing._resp": ("ReplyError",),
    "tests.support.groups": ("ClusterGroup", "SentinelGroup"),
    "pawlock.testing.lock_table": ("LockTable",),
    "pawlock.testing.memory": ("Memory", "Sim"),
    "pawlock.testing.order": ("LockOrder", "LockOrderWarning", "lock_order"),
    "pawlock.testing.outages": ("Faults", "Outage"),
    "tests.support.proxy": ("Proxy", "Request", "Rule"),
    "pawlock.testing.servers": ("Server", "available"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
