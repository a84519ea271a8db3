"""How a client of threads begins and ends: with ``close``, the process, a fork, or when nobody refers to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from pawlock._ending import UNANSWERED, closers
from pawlock._factory import Settings, live_clients
from pawlock._inside import engines_of
from pawlock._quorum import Destination, explain_keys_for, for_threads, probe_for
from pawlock._service import Book
from pawlock._target import shown_of
from pawlock._warn import warn
from pawlock.core.client import make_engine, weak_suspect_all
from pawlock.core.close import close
from pawlock.core.keep.engine import Engine
from pawlock.core.observe.timed_runtime import observe
from pawlock.core.protocol.options import Seconds, check_timeout
from pawlock.core.state.observers import Observer
from pawlock.errors import PawlockError
from pawlock.model import ServerReport
from pawlock.runtimes.threads import ThreadRuntime, run, run_aside
from pawlock.sync.multi import shown_any
from pawlock.topology.credentials import Credentials

if TYPE_CHECKING:
    from pawlock.core.state.plan import Plan
    from pawlock.redlock.options import RedlockOptions

__all__ = ["ClientLifecycle"]


class _AtFirstUse:
    """What a client has from its first use on: made when it is first asked for, then an attribute as any other."""

    def __init__(self, make: Callable[[Any], Engine]) -> None:
        self._make = make

    def __get__(self, client: object, _: type) -> Engine:
        return self._make(client)


class ClientLifecycle:
    """A client without its methods: its engine, from its first use to its end."""

    def __init__(
        self,
        target: object = None,
        *,
        namespace: str | None = None,
        credentials: Credentials | None = None,
        redlock: RedlockOptions | None = None,
        **defaults: Any,
    ) -> None:
        self._settings = Settings(defaults, namespace, may_be_async=False)
        made_with = {"namespace": namespace, "credentials": credentials, "redlock": redlock}
        self._origin = (target, {**made_with, **defaults})
        self._destination = Destination(self._origin, self._settings)
        self._observers: list[Observer] = []
        self._ended = False
        self._warned = False
        self._book: Book = Book()
        live_clients.add(self)

    def close(self, timeout: Seconds | None = 5.0) -> None:
        """Release all leases, wake waiting threads with ``ClientClosed``, close all connections. Safe to repeat.

        Args:
            timeout: Seconds that the releases may take in all; None: 5. After that, their TTL frees the locks.
        """
        patience = check_timeout(timeout)
        self._ended = True
        for engine in self._known_engines():
            runtime, who, seconds = self._runtime, self._runtime.who(), 5.0 if patience is None else patience
            # Else the call below has still to give back what it has: the maintenance goes on for it.
            if run_aside(partial(_close, engine, runtime, seconds, below=who), seconds + 1.0):
                runtime.shut_down(1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client namespace={self._settings.namespace!r}{' closed' if self._closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled: connect in the other process, or pass a Lock")

    @_AtFirstUse
    def _engine(self) -> Engine:
        # Two threads may be here at once: what the first has made is for all.
        engine: Engine = self.__dict__.setdefault("_engine", self._make_engine())
        for observer in self._observers:
            observe(engine, observer)
        if self._ended:
            engine.activity.closed = True
        return engine

    def _make_engine(self) -> Engine:
        target = self._destination.find()
        runtime = for_threads(target, self._settings)
        engine = make_engine(runtime, runtime, self, self._settings.names(), self._settings.watcher())
        engine.reports.show = shown_any
        if self._settings.redlock is not None:
            engine.validity = self._settings.redlock.valid_until
        health = engine.health
        health.server, health.probe = shown_of(target), probe_for(self._settings)
        health.explain_keys = explain_keys_for(self._settings)
        runtime.on_move = weak_suspect_all(engine)
        return engine

    def _examine(self) -> list[ServerReport]:
        from pawlock._doctor import examine

        target, settings = self._destination.find(settled=True), self._settings
        return examine(target, ttl=settings.options.ttl, namespace=settings.namespace)

    @property
    def _runtime(self) -> ThreadRuntime:
        return cast("ThreadRuntime", self._engine.runtime)

    @property
    def _closed(self) -> bool:
        return self._ended or any(engine.activity.closed for engine in self._known_engines())

    def _observe(self, observer: Observer) -> None:
        if observer not in self._observers:
            self._observers.append(observer)
        for engine in self._known_engines():
            observe(engine, observer)

    def _known_engines(self) -> list[Engine]:
        engine: Engine | None = self.__dict__.get("_engine")
        return [] if engine is None else [engine]

    def _prepare(self, plan: Plan, ttl: Seconds | None) -> Plan:
        if asyncio._get_running_loop() is not None:
            self._warn_of_loop()
        return plan if ttl is None else self._settings.with_ttl(plan, ttl)

    def _warn_of_loop(self) -> None:
        if not self._warned:
            self._warned = True
            text = "a sync pawlock client blocks this event loop: use pawlock.connect_async() in asyncio code"
            warn(text)

    def _after_fork(self) -> None:
        self._book.after_fork()
        for engine in self._known_engines():
            self._runtime.after_fork()
            engine.after_fork()


def _close_all(end: float) -> None:
    for client in list(live_clients):
        if isinstance(client, ClientLifecycle):
            for engine in engines_of(client):
                _end(engine, engine.runtime, end)


def _end(engine: Engine, runtime: ThreadRuntime, end: float) -> None:
    with contextlib.suppress(PawlockError):
        timeout = max(UNANSWERED, end - time.monotonic())
        _close(engine, runtime, timeout, UNANSWERED)
        runtime.shut_down(1.0)


def _close(
    engine: Engine, runtime: ThreadRuntime, timeout: float, unanswered: float = inf, below: object = None
) -> None:
    run(close(engine, runtime.interrupt_waiters, timeout, unanswered, below))


closers.append(_close_all)
