"""One text for both APIs: a scenario awaits everything, and what is there already is simply given back."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pawlock
from tests.support.pace import pace

APIS = ("threads", "asyncio")


async def done(value: Any) -> Any:
    """The value itself, or what awaiting it gives."""
    return await value if inspect.isawaitable(value) else value


async def nap(api: str, seconds: float) -> None:
    """Let time pass."""
    if api == "asyncio":
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)  # noqa: ASYNC251 - this API blocks


async def meanwhile(api: str, condition: Callable[[], object], what: str) -> None:
    """Wait until something holds, and let the loop go on: it may have masters to ask still."""
    end = time.monotonic() + pace() * 10.0
    while not condition():
        assert time.monotonic() < end, f"did not happen within 10 s: {what}"
        await nap(api, 0.005)


def connect(api: str, target: Any, **options: Any) -> Any:
    """A client of an API."""
    make: Any = pawlock.connect_async if api == "asyncio" else pawlock.connect
    return make(target, **options)


def play(api: str, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end."""
    if api == "asyncio":
        asyncio.run(scenario())
        return
    running = scenario()
    try:
        running.send(None)
    except StopIteration:
        return
    running.close()
    raise AssertionError("a scenario of threads suspended")
