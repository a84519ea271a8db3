"""A runtime that times each request, for those who observe a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from pawlock.core.observers import Observers
from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Fault, Request

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.observers import Observer
    from pawlock.core.runtime import Background, Runtime

__all__ = ["observe"]


class _Timed:
    """A runtime as another one, with each request timed. What is not here is the other's own."""

    def __init__(self, runtime: Runtime | Background, observers: Observers) -> None:
        self._runtime: Runtime | Background = runtime
        self._observers: Observers = observers

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._runtime, name)
        if callable(found):
            # The next look finds it here: what is asked for at each step costs no more than without.
            self.__dict__[name] = found
        return found

    async def call(self, call: Request, timeout: float) -> Outcome:
        """Run one script; see ``Runtime``."""
        since = self._runtime.now()
        try:
            reply = await self._runtime.call(call, timeout)
        except Fault as fault:
            self._observers.called(call.name, since, fault)
            raise
        self._observers.called(call.name, since, None)
        return reply

    async def call_many(self, calls: Sequence[Request], timeout: float) -> list[Outcome | Fault]:
        """Run several scripts in one write; see ``Runtime``."""
        since = self._runtime.now()
        outcomes = await self._runtime.call_many(calls, timeout)
        faults = [outcome for outcome in outcomes if isinstance(outcome, Fault)]
        self._observers.called("batch", since, faults[0] if faults and len(faults) == len(outcomes) else None)
        return outcomes


def observe(engine: Engine, observer: Observer) -> None:
    """Notify an observer of what an engine does from here on; one that is registered already stays so."""
    if engine.reports.observer is None:
        observers = engine.reports.observer = Observers(engine.runtime.now)
        timed = _Timed(engine.background, observers)
        # In threads it is one object, which is no type of both.
        alone = id(engine.runtime) == id(engine.background)
        engine.runtime = cast("Runtime", timed if alone else _Timed(engine.runtime, observers))
        engine.background = cast("Background", timed)
    if observer not in engine.reports.observer.members:
        engine.reports.observer.members.append(observer)
