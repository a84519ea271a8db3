"""The locks that are put under the fault rows, each in its own way behind one face."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import redis
import redis.asyncio

import pawlock

# The libraries have no types, or none of their own.
Thing = Any


class Contender:
    """One lock of one library, used by one thread.

    Attributes:
        label: As the table names it.
        renews: Whether it can keep a lease alive by itself.
        fences: Whether it gives fencing numbers.
        asyncio: Whether there is an asyncio class, which ``acquire_async`` uses.
        lock: The library's own object.
    """

    label: ClassVar[str] = ""
    renews: ClassVar[bool] = False
    fences: ClassVar[bool] = False
    asyncio: ClassVar[bool] = False
    lock: Thing

    def __init__(self, port: int, name: str, ttl: float | None, *, renew: bool = False) -> None:
        self.port, self.name, self.ttl, self.renew = port, name, ttl, renew
        self.url = f"redis://127.0.0.1:{port}/0"
        self.open()

    @property
    def key(self) -> str:
        """The key that holds the lock."""
        return self.name

    def open(self) -> None:
        """Make the lock."""
        raise NotImplementedError

    def acquire(self, timeout: float) -> bool:
        """Take it, waiting so long; False: somebody else holds it. Whatever else it says is an exception."""
        raise NotImplementedError

    def release(self) -> None:
        """Give it back; an exception says that it was not held, or that nobody knows."""
        raise NotImplementedError

    def held(self) -> bool:
        """What it says to a holder who asks whether the lock is still its own."""
        raise NotImplementedError

    def told(self) -> bool:
        """Whether a holder who does not ask has been told of a loss."""
        return False

    def fence(self) -> int:
        """The fencing number of the grant."""
        raise NotImplementedError

    def acquire_async(self) -> Callable[[], Awaitable[object]]:
        """What a task awaits to acquire; made in the running loop."""
        raise NotImplementedError


class Pawlock(Contender):
    """pawlock, in both APIs."""

    label = "pawlock"
    renews = fences = asyncio = True

    @property
    def key(self) -> str:
        return f"pawlock:{self.name}"

    def _options(self) -> dict[str, Thing]:
        options: dict[str, Thing] = {"renew": self.renew, "unavailable_after": 3.0}
        return options if self.ttl is None else {**options, "ttl": self.ttl}

    def open(self) -> None:
        self.client = pawlock.connect(self.url)
        self.lock = self.client.lock(self.name, **self._options())

    def acquire(self, timeout: float) -> bool:
        try:
            self.lease = self.lock.acquire(timeout=timeout)
        except pawlock.AcquireTimeout:
            return False
        return True

    def release(self) -> None:
        self.lease.release()

    def held(self) -> bool:
        return not self.lease.lost

    def told(self) -> bool:
        return bool(self.lease.lost)

    def fence(self) -> int:
        return int(self.lease.fence)

    def acquire_async(self) -> Callable[[], Awaitable[object]]:
        self.other = pawlock.connect_async(self.url)
        return self.other.lock(self.name, **self._options()).acquire


class RedisPy(Contender):
    """``redis.lock.Lock`` and ``redis.asyncio.lock.Lock``, with the clients' own defaults but a shorter timeout."""

    label = "redis-py"
    asyncio = True

    def open(self) -> None:
        self.lock = redis.Redis(port=self.port, socket_timeout=1.0).lock(self.name, timeout=self.ttl)

    def acquire(self, timeout: float) -> bool:
        return bool(self.lock.acquire(blocking_timeout=timeout))

    def release(self) -> None:
        self.lock.release()

    def held(self) -> bool:
        return bool(self.lock.owned())

    def acquire_async(self) -> Callable[[], Awaitable[object]]:
        return redis.asyncio.Redis(port=self.port).lock(self.name, timeout=self.ttl).acquire


class PythonRedisLock(Contender):
    """``redis_lock.Lock``; its expiry is whole seconds."""

    label = "python-redis-lock"
    renews = True

    @property
    def key(self) -> str:
        return f"lock:{self.name}"

    def open(self) -> None:
        import redis_lock  # type: ignore[import-untyped]  # it has no type marks

        client = redis.StrictRedis(port=self.port, socket_timeout=10.0)
        expire = None if self.ttl is None else max(1, round(self.ttl))
        self.lock = redis_lock.Lock(client, self.name, expire=expire, auto_renewal=self.renew)

    def acquire(self, timeout: float) -> bool:
        # Its own limit: a timeout may not be longer than the expiry.
        if self.ttl is not None and timeout > max(1, round(self.ttl)):
            return bool(self.lock.acquire(blocking=True))
        return bool(self.lock.acquire(blocking=True, timeout=timeout))

    def release(self) -> None:
        self.lock.release()

    def held(self) -> bool:
        return bool(self.lock._held)


class Pottery(Contender):
    """``pottery.Redlock`` on one master."""

    label = "pottery"
    asyncio = True

    @property
    def key(self) -> str:
        return f"redlock:{self.name}"

    def open(self) -> None:
        from pottery import Redlock  # type: ignore[import-untyped,import-not-found,unused-ignore]

        masters = {redis.Redis(port=self.port, socket_timeout=1.0)}
        given = {} if self.ttl is None else {"auto_release_time": self.ttl}
        kind: Thing = Redlock
        self.lock = kind(key=self.name, masters=masters, **given)

    def acquire(self, timeout: float) -> bool:
        return bool(self.lock.acquire(blocking=True, timeout=timeout))

    def release(self) -> None:
        self.lock.release()

    def held(self) -> bool:
        return bool(self.lock.locked() > 0)

    def acquire_async(self) -> Callable[[], Awaitable[object]]:
        from pottery import AIORedlock  # type: ignore[import-untyped,import-not-found,unused-ignore]

        kind: Thing = AIORedlock
        masters = {redis.asyncio.Redis(port=self.port)}
        lock: Thing = kind(key=self.name, masters=masters, auto_release_time=self.ttl)

        async def acquire() -> object:
            return await lock.acquire()

        return acquire


CONTENDERS: dict[str, type[Contender]] = {
    one.label: one for one in (Pawlock, RedisPy, PythonRedisLock, Pottery)
}


def version(label: str) -> str:
    """The version of a library that is installed."""
    from importlib.metadata import version as of

    return pawlock.__version__ if label == "pawlock" else of("redis" if label == "redis-py" else label)
