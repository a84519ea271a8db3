"""How the engine of a client is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakMethod

from pawlock.core.keep.engine import Engine
from pawlock.core.maintenance.loop import maintain

if TYPE_CHECKING:
    from pawlock.core.protocol.engine import Namespace
    from pawlock.core.protocol.runtime import Runtime
    from pawlock.core.state.reports import Watcher

__all__ = ["make_engine", "weak_suspect_all"]


def weak_suspect_all(engine: Engine) -> Callable[[], None]:
    """``engine.suspect_all``, for a runtime to call, without keeping the engine alive: it ends with its client."""
    weak = WeakMethod(engine.suspect_all)

    def suspect_all() -> None:
        method = weak()
        if method is not None:
            method()

    return suspect_all


def make_engine(
    runtime: Runtime, client: object, namespace: Namespace | None = None, watcher: Watcher | None = None
) -> Engine:
    """The engine of a client."""
    engine = Engine(runtime, client, maintain)
    engine.reports.namespace, engine.reports.watcher = namespace, watcher
    return engine
