"""How a client of asyncio begins and ends: with an engine for each event loop in which it is used."""

from __future__ import annotations

import asyncio
import concurrent.futures
from types import TracebackType
from typing import Any, NoReturn, Self, cast

# The end of the process waits for what is still to be left.
import pawlock._ending  # noqa: F401  # pyright: ignore[reportUnusedImport]
from pawlock._factory import Settings, live_clients
from pawlock._quorum import Destination, explain_keys_for, for_loop, for_threads, probe_for
from pawlock._service import Book
from pawlock._target import shown_of
from pawlock.aio.multi import shown_any
from pawlock.core.client import make_engine, weak_suspect_all
from pawlock.core.close import close, end_leases
from pawlock.core.keep.engine import Engine
from pawlock.core.observe.timed_runtime import observe
from pawlock.core.protocol.options import Seconds, check_timeout
from pawlock.core.state.observers import Observer
from pawlock.core.state.plan import Plan
from pawlock.model import ServerReport
from pawlock.redlock.options import RedlockOptions
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.credentials import Credentials

__all__ = ["AsyncClientLifecycle"]


_BEGUN_WITHIN = 0.5
"""Seconds that a close gives the other loops of the client to begin theirs: one may be blocked."""

_ENDED_WITHIN = 0.25
"""Seconds that a close gives the background thread to end, before a question that is under way is broken off."""


class AsyncClientLifecycle:
    """A client without its methods: its engines, from the first use in an event loop to the end."""

    def __init__(
        self,
        target: object = None,
        *,
        namespace: str | None = None,
        credentials: Credentials | None = None,
        redlock: RedlockOptions | None = None,
        **defaults: Any,
    ) -> None:
        self._settings = Settings(defaults, namespace, may_be_async=True)
        made_with = {"namespace": namespace, "credentials": credentials, "redlock": redlock}
        self._origin = (target, {**made_with, **defaults})
        self._destination = Destination(self._origin, self._settings)
        self._engines: dict[asyncio.AbstractEventLoop, Engine] = {}
        self._observers: list[Observer] = []
        self._last: tuple[asyncio.AbstractEventLoop, Engine] | None = None
        self._closed = False
        self._book: Book = Book()
        live_clients.add(self)

    async def close(self, timeout: Seconds | None = 5.0) -> None:
        """Release all leases, wake waiting tasks with ``ClientClosed``, close all connections. Safe to repeat.

        Args:
            timeout: Seconds that the releases may take in all; None: 5. After that, their TTL frees the locks.
        """
        checked = check_timeout(timeout)
        patience = 5.0 if checked is None else checked
        closing = asyncio.get_running_loop().create_task(self._close(patience), name="pawlock-close")
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            # The caller may stand in a block whose lease ends here: it is reported when the work is done.
            await asyncio.wait({closing})
            raise

    async def _begun_elsewhere(self, here: asyncio.AbstractEventLoop) -> None:
        """Return once every other loop has begun to close: what this one releases must not go to a waiter there."""
        begun: set[asyncio.Future[None]] = set()
        for loop in list(self._engines):
            if loop is not here and loop.is_running():
                done: concurrent.futures.Future[None] = concurrent.futures.Future()
                # Behind the close that was scheduled before, and behind the first step of its task.
                loop.call_soon_threadsafe(loop.call_soon, done.set_result, None)
                begun.add(asyncio.wrap_future(done))
        if begun:
            await asyncio.wait(begun, timeout=_BEGUN_WITHIN)

    async def _close(self, patience: float) -> None:
        self._closed = True
        self._forget_ended_loops()
        here = asyncio.get_running_loop()
        for engine in self._known_engines():
            engine.activity.closed = True
            # Also of a loop that is blocked, and closes only once it is back: its leases are given back now.
            end_leases(engine)
        elsewhere = [
            asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_close_engine(engine, patience), loop))
            for loop, engine in list(self._engines.items())
            if loop is not here and loop.is_running()
        ]
        await self._begun_elsewhere(here)
        try:
            if here in self._engines:
                await _close_engine(self._engines[here], patience)
        finally:
            if elsewhere:
                await asyncio.wait(elsewhere, timeout=patience + 1.0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient namespace={self._settings.namespace!r}{' closed' if self._closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled: connect in the other process, or pass a lock")

    def _engine(self) -> Engine:
        loop = asyncio.get_running_loop()
        last = self._last
        if last is not None and last[0] is loop:
            return last[1]
        engine = self._engines.get(loop)
        if engine is None:
            self._forget_ended_loops()
            target = self._destination.find(settled=bool(self._engines))
            runtime, background = for_loop(loop, target, self._settings), for_threads(target, self._settings)
            engine = make_engine(runtime, background, self, self._settings.names(), self._settings.watcher())
            engine.reports.show = shown_any
            if self._settings.redlock is not None:
                engine.validity = self._settings.redlock.valid_until
            health = engine.health
            health.server, health.probe = shown_of(target), probe_for(self._settings)
            health.explain_keys = explain_keys_for(self._settings)
            runtime.on_move = background.on_move = weak_suspect_all(engine)
            engine.activity.closed = self._closed
            for observer in self._observers:
                observe(engine, observer)
            self._engines[loop] = engine
        self._last = (loop, engine)
        return engine

    def _prepare(self, plan: Plan, ttl: Seconds | None) -> Plan:
        """The plan of one call."""
        return plan if ttl is None else self._settings.with_ttl(plan, ttl)

    async def _examine(self) -> list[ServerReport]:
        from pawlock._doctor import examine

        target, settings = self._destination.find(settled=True), self._settings
        return await asyncio.to_thread(
            examine, target, ttl=settings.options.ttl, namespace=settings.namespace
        )

    def _observe(self, observer: Observer) -> None:
        if observer not in self._observers:
            self._observers.append(observer)
        for engine in self._known_engines():
            observe(engine, observer)

    def _known_engines(self) -> list[Engine]:
        return list(self._engines.values())

    def _forget_ended_loops(self) -> None:
        # An engine refers to its loop, so nothing else would ever end the two.
        for loop in list(self._engines):
            if loop.is_closed():
                ended = self._engines.pop(loop)
                ended.activity.closed = True
                ended.background.nudge()
        if self._last is not None and self._last[0].is_closed():
            self._last = None

    def _after_fork(self) -> None:
        self._book.after_fork()
        for engine in self._engines.values():
            cast("AsyncioRuntime", engine.runtime).after_fork()
            cast("ThreadRuntime", engine.background).after_fork()
            engine.after_fork()
        self._engines = {}
        self._last = None


async def _close_engine(engine: Engine, patience: float) -> None:
    runtime, background = cast("AsyncioRuntime", engine.runtime), cast("ThreadRuntime", engine.background)
    try:
        await close(engine, runtime.interrupt_waiters, patience)
    finally:
        # Also when the loop ends meanwhile and cancels this: no connection must stay behind.
        background.abandon()
        try:
            await runtime.shut_down()
            end = runtime.now() + _ENDED_WITHIN
            while background.served and runtime.now() < end:  # noqa: ASYNC110 - it is a thread that ends
                await asyncio.sleep(0.001)
        finally:
            background.shut_down(0.0)
