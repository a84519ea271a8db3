"""How a client of asyncio begins and ends: with an engine for each event loop in which it is used."""

from __future__ import annotations

import asyncio
from typing import Self, cast

from pawlock._client import BaseClient
from pawlock._quorum import for_loop, for_threads
from pawlock.aio.multi import shown_any
from pawlock.core.close import close, end_leases
from pawlock.core.engine import Engine
from pawlock.core.options import Seconds, check_timeout
from pawlock.model import ServerReport
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.runtimes.threads import ThreadRuntime

__all__ = ["AsyncClientLifecycle"]

_ENDED_WITHIN = 0.25
"""Seconds that a close gives what goes on when the loop ends, and the background thread with a question under way."""


class AsyncClientLifecycle(BaseClient):
    """A client without its methods: its engines, from the first use in an event loop to the end."""

    _may_be_async = True

    async def close(self, timeout: Seconds | None = 5.0) -> None:
        """Release all leases, wake waiting tasks with ``ClientClosed``, close all connections. Safe to repeat.

        Args:
            timeout: Seconds that the releases may take in all; None: 5. After that, their TTL frees the locks.
        """
        checked = check_timeout(timeout)
        patience = 5.0 if checked is None else checked
        self._closed = True
        self._forget_ended_loops()
        for engine in self._known_engines():
            engine.closed = True
            # Also of a loop that is blocked, and closes only once it is back: its leases are given back now.
            end_leases(engine)
        closing = [
            asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_close_engine(engine, patience), loop))
            for loop, engine in list(self._engines.items())
            if loop.is_running()
        ]
        if not closing:
            return
        try:
            await asyncio.wait(closing, timeout=patience + 1.0)
        except asyncio.CancelledError:
            # The caller may stand in a block whose lease ends here: it is reported when the work is done.
            await asyncio.wait(closing, timeout=patience + 1.0)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _engine(self) -> Engine:
        loop = asyncio.get_running_loop()
        engine = self._engines.get(loop)
        if engine is None:
            self._forget_ended_loops()
            target = self._destination.find(settled=bool(self._engines))
            runtime, background = for_loop(loop, target, self._settings), for_threads(target, self._settings)
            engine = self._make(loop, target, runtime, background, shown_any)
        return engine

    async def _examine(self) -> list[ServerReport]:
        return await asyncio.to_thread(self._reports)

    def _forget_ended_loops(self) -> None:
        # An engine refers to its loop, so nothing else would ever end the two.
        for loop in list(self._engines):
            if loop.is_closed():
                ended = self._engines.pop(loop)
                ended.closed = True
                ended.background.nudge()

    def _after_fork(self) -> None:
        for engine in self._known_engines():
            cast("AsyncioRuntime", engine.runtime).after_fork()
            cast("ThreadRuntime", engine.background).after_fork()
        super()._after_fork()
        self._engines = {}


async def _close_engine(engine: Engine, patience: float) -> None:
    runtime, background = cast("AsyncioRuntime", engine.runtime), cast("ThreadRuntime", engine.background)
    try:
        await close(engine, runtime.interrupt_waiters, patience)
    except asyncio.CancelledError:
        # The loop ends meanwhile: what was lost a moment ago is still to be free.
        await close(engine, runtime.interrupt_waiters, _ENDED_WITHIN)
        raise
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
