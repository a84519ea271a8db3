"""Real throw-away servers and a fault-injecting proxy, for tests of pawl and of code that uses it."""

from __future__ import annotations

from pawl.testing._resp import ReplyError
from pawl.testing.servers import Server, available

__all__ = ["ReplyError", "Server", "available"]
