"""Gives a running event loop of asyncio a virtual clock: when every task sleeps, time jumps to the next timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from pawlock.errors import ConfigurationError
from pawlock.testing.clock import VirtualClock

__all__ = ["bend"]

_THREADS_GET = 0.02


class _Selector:
    """The loop's selector, which passes virtual time instead of waiting for the machine's."""

    def __init__(self, real: Any, clock: VirtualClock) -> None:
        self._real = real
        self._clock = clock
        self.jobs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def select(self, timeout: float | None = None) -> Any:
        self._clock.creep()
        ready = self._real.select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        # Beside the loop's own pipe there is something outside that somebody may be waiting for.
        outside = len(self._real.get_map()) > 1
        if self.jobs or outside:
            ready = self._real.select(_THREADS_GET if self.jobs else self._clock.patience)
            if ready or self.jobs:
                # What runs in a thread may wait in virtual time itself, and then moves it.
                return ready
        limit = inf if timeout is None else self._clock.now() + timeout
        # What happens in a client's background thread on the way may be told to the loop.
        while self._clock.advance(limit):
            if ready := self._real.select(0):
                return ready
        # Without a timer only another thread, a socket or a signal can go on.
        return self._real.select(_THREADS_GET if timeout is None else 0)


def bend(loop: asyncio.AbstractEventLoop, clock: VirtualClock) -> Callable[[], None]:
    """Let a loop go by a virtual clock.

    Args:
        loop: The loop; running, of asyncio itself.
        clock: The clock.

    Returns:
        What gives the loop its own time back.

    Raises:
        ConfigurationError: It is not asyncio's own loop, such as uvloop's.
    """
    some: Any = loop
    if not hasattr(some, "_selector"):
        raise ConfigurationError(
            f"pawlock_sim moves the time of asyncio's own event loop, not of {loop!r:.60}"
        )
    real, run_in_executor, shut_down = some._selector, loop.run_in_executor, loop.shutdown_default_executor
    selector = _Selector(real, clock)
    ahead = loop.time() - clock.now()

    def counted(*args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = run_in_executor(*args)
        selector.jobs += 1
        future.add_done_callback(lambda _: setattr(selector, "jobs", selector.jobs - 1))
        return future

    async def shut_down_executor(*args: Any) -> None:
        # Python waits for its threads until a time of this loop, which would be over at once.
        selector.jobs += 1
        try:
            await shut_down(*args)
        finally:
            selector.jobs -= 1

    some.shutdown_default_executor = shut_down_executor
    some._selector = selector
    some.time = lambda: clock.now() + ahead
    some.run_in_executor = counted

    def unbend() -> None:
        if some._selector is selector:
            some._selector = real
        for name in ("time", "run_in_executor", "shutdown_default_executor"):
            with suppress(AttributeError):
                delattr(some, name)

    return unbend
