"""How the engine of a client is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakMethod, ref

from pawlock.core.engine import Engine
from pawlock.core.maintenance import maintain

if TYPE_CHECKING:
    from pawlock.core.primitive import Namespace
    from pawlock.core.reports import Watcher
    from pawlock.core.runtime import Background, Runtime

__all__ = ["make_engine", "weak_suspect_all"]


def weak_suspect_all(engine: Engine) -> Callable[[], None]:
    """``engine.suspect_all``, for a runtime to call, without keeping the engine alive: it ends with its client."""
    weak = WeakMethod(engine.suspect_all)

    def suspect_all() -> None:
        method = weak()
        if method is not None:
            method()

    return suspect_all


def _when_collected(engine: Engine, background: Background) -> Callable[[object], None]:
    """What ends the background thread once nobody can use the client; for a finaliser, so no locks."""
    weak = ref(engine)

    def collected(_: object) -> None:
        engine = weak()
        if engine is not None and engine.outbox:
            # What an interrupted call has on the server is still to be left: the maintenance ends itself after that.
            background.nudge()
        else:
            background.abandon()

    return collected


def make_engine(
    runtime: Runtime,
    background: Background,
    client: object,
    namespace: Namespace | None = None,
    watcher: Watcher | None = None,
) -> Engine:
    """The engine of a client."""
    engine = Engine(runtime, background, client, maintain)
    # Each lease keeps its client alive: there is none left to serve then.
    engine.client = ref(client, _when_collected(engine, background))
    engine.reports.namespace, engine.reports.watcher = namespace, watcher
    return engine
