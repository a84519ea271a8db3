"""What locks need of the client that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pawlock._factory import Settings
    from pawlock.core.protocol.options import Seconds
    from pawlock.core.state.plan import Plan
    from pawlock.model import LockInfo

__all__ = ["Context"]


class Context(Protocol):
    """A client, as its locks know it."""

    @property
    def _settings(self) -> Settings: ...

    @property
    def _origin(self) -> tuple[object, dict[str, Any]]: ...

    def _prepare(self, plan: Plan, ttl: Seconds | None) -> Plan: ...

    def inspect(self, name: str, *, waiters: int = ...) -> LockInfo:
        """See ``Client.inspect``."""
        ...
