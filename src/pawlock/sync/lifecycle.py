"""How a client of threads begins and ends: with ``close``, the process, a fork, or when nobody refers to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Self, cast

from pawlock._client import BaseClient
from pawlock._ending import UNANSWERED, closers
from pawlock._factory import live_clients
from pawlock._inside import engines_of
from pawlock._quorum import for_threads
from pawlock._system import monotonic
from pawlock.core.close import close
from pawlock.core.engine import Engine
from pawlock.core.options import Seconds, check_timeout
from pawlock.errors import PawlockError
from pawlock.model import ServerReport
from pawlock.runtimes.threads import ThreadRuntime, run, run_aside
from pawlock.sync.multi import shown_any

__all__ = ["ClientLifecycle"]


class _AtFirstUse:
    """What a client has from its first use on: made when it is first asked for, then an attribute as any other."""

    def __init__(self, make: Callable[[Any], Engine]) -> None:
        self._make = make

    def __get__(self, client: object, _: type) -> Engine:
        return self._make(client)


class ClientLifecycle(BaseClient):
    """A client without its methods: its engine, from its first use to its end."""

    _may_be_async = False

    def close(self, timeout: Seconds | None = 5.0) -> None:
        """Release all leases, wake waiting threads with ``ClientClosed``, close all connections. Safe to repeat.

        Args:
            timeout: Seconds that the releases may take in all; None: 5. After that, their TTL frees the locks.
        """
        checked = check_timeout(timeout)
        patience = 5.0 if checked is None else checked
        self._closed = True
        for engine in self._known_engines():
            # Else the call below has still to give back what it has: the maintenance goes on for it.
            if run_aside(partial(_close, engine, patience, below=engine.runtime.who()), patience + 1.0):
                self._runtime.shut_down(1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @_AtFirstUse
    def _engine(self) -> Engine:
        target = self._destination.find()
        runtime = for_threads(target, self._settings)
        engine = self.__dict__["_engine"] = self._make(None, target, runtime, runtime, shown_any)
        return engine

    def _examine(self) -> list[ServerReport]:
        return self._reports()

    @property
    def _runtime(self) -> ThreadRuntime:
        return cast("ThreadRuntime", self._engine.runtime)

    def _after_fork(self) -> None:
        for engine in self._known_engines():
            cast("ThreadRuntime", engine.runtime).after_fork()
        super()._after_fork()


def _close_all(end: float) -> None:
    for client in list(live_clients):
        if isinstance(client, ClientLifecycle):
            for engine in engines_of(client):
                with contextlib.suppress(PawlockError):
                    _close(engine, max(UNANSWERED, end - monotonic()), UNANSWERED)
                    engine.runtime.shut_down(1.0)


def _close(engine: Engine, timeout: float, unanswered: float = inf, below: object = None) -> None:
    runtime = cast("ThreadRuntime", engine.runtime)
    run(close(engine, runtime.interrupt_waiters, timeout, unanswered, below))


closers.append(_close_all)
