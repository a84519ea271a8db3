"""One text for both colours: a scenario awaits everything, and what is there already is simply given back."""

# ruff: noqa: ANN401 - one scenario serves both colours, whose objects have no type in common

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pawl

COLOURS = ("threads", "asyncio")


async def done(value: Any) -> Any:
    """The value itself, or what awaiting it gives."""
    return await value if inspect.isawaitable(value) else value


async def nap(colour: str, seconds: float) -> None:
    """Let time pass."""
    if colour == "asyncio":
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)  # noqa: ASYNC251 - this colour blocks


def connect(colour: str, target: Any, **options: Any) -> Any:
    """A client of a colour."""
    make: Any = pawl.connect_async if colour == "asyncio" else pawl.connect
    return make(target, **options)


def play(colour: str, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end."""
    if colour == "asyncio":
        asyncio.run(scenario())
        return
    running = scenario()
    try:
        running.send(None)
    except StopIteration:
        return
    running.close()
    raise AssertionError("a scenario of threads suspended")
