"""Real throw-away servers and a fault-injecting proxy, for tests of pawl and of code that uses it."""

from __future__ import annotations

from pawl.testing._resp import ReplyError
from pawl.testing.groups import ClusterGroup, SentinelGroup
from pawl.testing.order import LockOrder, LockOrderWarning, lock_order
from pawl.testing.proxy import Proxy, Request, Rule
from pawl.testing.servers import Server, available

__all__ = [
    "ClusterGroup",
    "LockOrder",
    "LockOrderWarning",
    "Proxy",
    "ReplyError",
    "Request",
    "Rule",
    "SentinelGroup",
    "Server",
    "available",
    "lock_order",
]
