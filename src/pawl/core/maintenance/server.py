"""Questions to the server on which no lease depends: its settings, and whether it is back."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pawl.core.keep.server_check import look
from pawl.core.maintenance.duty import MaintenanceDuty, until_next_need

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine

__all__ = ["OpenBreaker", "ServerSettings"]


class ServerSettings(MaintenanceDuty):
    """Looks once, some time after the first lease, whether the server's settings break a promise."""

    async def ask(self, engine: Engine, now: float) -> bool:
        if engine.health.look_at <= now:
            engine.health.look_at, engine.health.looked = inf, True
            await look(engine, until_next_need(engine, engine.runtime.now()))
        return False

    def sleep_until(self, engine: Engine, now: float) -> float:
        return engine.health.look_at


class OpenBreaker(MaintenanceDuty):
    """Asks a server that was away whether it is back, while the circuit breaker is open."""

    async def ask(self, engine: Engine, now: float) -> bool:
        breaker = engine.health.circuit_breaker
        if breaker is not None:
            await breaker.look(engine, until_next_need(engine, engine.runtime.now()))
        return False

    def sleep_until(self, engine: Engine, now: float) -> float:
        breaker = engine.health.circuit_breaker
        return inf if breaker is None else breaker.due
