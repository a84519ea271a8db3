"""Both drop-ins behind one spelling."""

from __future__ import annotations

import asyncio
import inspect
from types import TracebackType
from typing import Any, Self

import redis
import redis.asyncio

from pawlock.compat.redis import AsyncLock, Lock


class Api:
    """The drop-in of threads, or of asyncio: what a coroutine returns is awaited here.

    Args:
        url: The server.
        asynchronous: Which of them.
    """

    def __init__(self, url: str, *, asynchronous: bool) -> None:
        self.url = url
        self.loop = asyncio.Runner() if asynchronous else None
        self.client: Any = (redis.asyncio if asynchronous else redis).Redis.from_url(url)
        self.lock_class: Any = AsyncLock if asynchronous else Lock

    def lock(self, name: Any, **options: object) -> Any:
        """A lock of that name."""
        return self.client.lock(name, lock_class=self.lock_class, **options)

    def run(self, value: Any) -> Any:
        """The value, or what the coroutine returns."""
        return self.loop.run(value) if inspect.iscoroutine(value) and self.loop else value

    def server_listens(self) -> bool:
        """Whether somebody has subscribed to the channel of a lock."""
        with redis.Redis.from_url(self.url) as asking:
            channels = asking.pubsub_channels("pawlock:wake:*")
            return any(len(channel.removeprefix(b"pawlock:wake:")) == 64 for channel in channels)

    def close(self) -> None:
        """Close the client, and its event loop."""
        if self.loop:
            self.run(self.client.aclose())
            self.loop.close()
        else:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
