"""How the engine of a client is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakMethod

from pawlock.core.acquire.this_process import register_engine
from pawlock.core.keep.engine import Engine
from pawlock.core.maintenance.loop import maintain
from pawlock.core.state.history import History

if TYPE_CHECKING:
    from pawlock.core.protocol.runtime import Runtime
    from pawlock.core.state.records import ServerLease
    from pawlock.core.state.session import Setup

__all__ = ["HistoryEngine", "make_engine", "weak_suspect_all"]


def weak_suspect_all(engine: Engine) -> Callable[[], None]:
    """``engine.suspect_all``, for a runtime to call, without keeping the engine alive: it ends with its client."""
    weak = WeakMethod(engine.suspect_all)

    def suspect_all() -> None:
        method = weak()
        if method is not None:
            method()

    return suspect_all


class HistoryEngine(Engine):
    """An engine that keeps histories: it notes the end of each grant, however it ends."""

    def __init__(self, runtime: Runtime, client: object, setup: Setup) -> None:
        super().__init__(runtime, client, maintain, setup)
        self._history: History = History(self, setup)
        self.reports.history = self._history

    def forget_holder(self, server_lease: ServerLease, who: object) -> None:
        """See ``Engine``; its last user is done with it."""
        if who is not None and server_lease.owner.who is who:
            self._history.note(self, server_lease, "released")
        super().forget_holder(server_lease, who)

    def count_loss(self, server_lease: ServerLease) -> None:
        """See ``Engine``; and how it ended is noted."""
        super().count_loss(server_lease)
        self._history.note(self, server_lease, str(server_lease.reason))

    def after_fork(self) -> None:
        """See ``Engine``."""
        super().after_fork()
        self._history.forget(self)


def make_engine(runtime: Runtime, client: object, setup: Setup | None) -> Engine:
    """The engine of a client: one that keeps histories only if it was asked for."""
    if setup is not None and setup.history:
        engine: Engine = HistoryEngine(runtime, client, setup)
    else:
        engine = Engine(runtime, client, maintain, setup)
    register_engine(engine)
    return engine
