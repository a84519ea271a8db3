"""Servers to throw away, real and in memory, and a fault-injecting proxy: for tests of pawl and of what uses it.

What is here is imported when it is first used: pytest imports this package at each of its runs, for the fixtures of
``pawl.testing.plugin``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pawl.testing._resp import ReplyError
    from pawl.testing.groups import ClusterGroup, SentinelGroup
    from pawl.testing.lock_table import LockTable
    from pawl.testing.memory import Memory, Sim
    from pawl.testing.order import LockOrder, LockOrderWarning, lock_order
    from pawl.testing.outages import Faults, Outage
    from pawl.testing.proxy import Proxy, Request, Rule
    from pawl.testing.servers import Server, available

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
    "pawl.testing._resp": ("ReplyError",),
    "pawl.testing.groups": ("ClusterGroup", "SentinelGroup"),
    "pawl.testing.lock_table": ("LockTable",),
    "pawl.testing.memory": ("Memory", "Sim"),
    "pawl.testing.order": ("LockOrder", "LockOrderWarning", "lock_order"),
    "pawl.testing.outages": ("Faults", "Outage"),
    "pawl.testing.proxy": ("Proxy", "Request", "Rule"),
    "pawl.testing.servers": ("Server", "available"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
