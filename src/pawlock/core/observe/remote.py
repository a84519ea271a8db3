"""What a client of a pawlock service asks the service for, instead of reading common records itself."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Protocol, cast

from pawlock.core.protocol.key_text import text_of
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.retry import pause_after, rest
from pawlock.core.state.records import Retry
from pawlock.errors import ConfigurationError
from pawlock.model import AuditEntry, Forced, HolderInfo, LockInfo, WaiterInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.key import Key
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.terms import Terms

_LONGEST_REASON = 400

__all__ = ["RemoteOperator", "ServiceRuntime", "remote_operator"]


class ServiceRuntime(Protocol):
    """A runtime whose server is a service that can be asked such things."""

    async def look_up(self, what: str, about: Mapping[str, str], timeout: float) -> Any:
        """Ask for ``"locks"`` or ``"audit"``; gives what the service said. Raises ``Fault``."""
        ...

    async def take_away(self, about: Mapping[str, str], reason: str, key: str, timeout: float) -> Any:
        """Have a name taken from its holder, once for each ``key``; gives what the service said. Raises ``Fault``."""
        ...


def remote_operator(engine: Engine) -> RemoteOperator | None:
    """Where an operator's questions of this client go; None with a server of one's own."""
    # Not ``isinstance``: that overlooks, since Python 3.12, what an observed client's runtime passes on.
    runtime: Any = engine.runtime
    return RemoteOperator(engine, runtime) if hasattr(runtime, "look_up") else None


class RemoteOperator:
    """What one client asks its service.

    Args:
        engine: The client's engine.
        service: Its runtime.
    """

    def __init__(self, engine: Engine, service: ServiceRuntime) -> None:
        self._engine = engine
        self._service = service

    async def locks(self, options: Terms) -> list[LockInfo]:
        """See ``Client.locks``."""
        return [_info(one) for one in (await self._ask(options, "locks", {}))["locks"]]

    async def audit(self, options: Terms, limit: int) -> list[AuditEntry]:
        """See ``Client.audit``."""
        answer = await self._ask(options, "audit", {"limit": str(limit)})
        return [AuditEntry(**one) for one in answer["audit"]]

    async def force_release(self, primitive: Primitive, options: Terms, reason: str) -> Forced:
        """See ``Client.force_release``."""
        if len(reason) > _LONGEST_REASON:
            raise ConfigurationError(
                f"reason must be at most {_LONGEST_REASON} characters through a service, got {len(reason)}"
            )
        answer = await self._ask(options, "force_release", _which(primitive), primitive.name, reason)
        return Forced(
            answer["name"], answer["released"], answer["holder"], answer["fence"], answer.get("held_as", "")
        )

    async def _ask(
        self, options: Terms, what: str, about: Mapping[str, str], name: str = "", reason: str = ""
    ) -> dict[str, Any]:
        """Ask, again after transient faults; whatever is asked for happens once."""
        engine, service, timeout = self._engine, self._service, options.request_timeout
        retry, name = Retry(), name or what
        key = engine.runtime.new_token().partition("@")[0]
        while True:
            engine.check_open()
            try:
                if what == "force_release":
                    answer = await service.take_away(about, reason, key, timeout)
                else:
                    answer = await service.look_up(what, about, timeout)
                if isinstance(answer, dict):
                    return cast("dict[str, Any]", answer)
                raise Fault(FaultKind.NOT_REDIS, "the answer does not come from pawlock serve")
            except Fault as fault:
                pause = pause_after(engine, fault, retry, options, None, what, name)
            await rest(engine, pause, name, what)


def _which(primitive: Primitive) -> dict[str, str]:
    source: Key | None = getattr(primitive, "source", None)
    if source is not None:
        return {"kind": "key", "name": text_of(source)}
    return {"kind": "lock", "name": primitive.name}


def _info(answer: dict[str, Any]) -> LockInfo:
    left = answer["ttl_left"]
    record: dict[str, Any] = {
        **answer,
        "ttl_left": inf if left is None else left,
        "waiters": tuple(WaiterInfo(**one) for one in answer["waiters"]),
        "holders": tuple(HolderInfo(**one) for one in answer["holders"]),
    }
    return LockInfo(**record)
