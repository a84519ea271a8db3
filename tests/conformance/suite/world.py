"""What a check has at hand: clients of one API, a proxy that breaks things, a look at the server.

A check is one coroutine for both APIs. For threads nothing in it ever suspends: ``settle`` hands on what a call
returned, and waiting blocks; for asyncio it is awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, TypeVar

from pawlock import connect, connect_async
from pawlock.errors import PawlockError
from pawlock.primitives.registry import REGISTRY, Entry
from tests.conformance.suite.backend import Backend, Faulty, RedisBackend
from tests.support._rules import Request

__all__ = ["APIS", "Api", "Started", "World", "drive", "settle"]

T = TypeVar("T")

Api: TypeAlias = Literal["threads", "asyncio"]
APIS: tuple[Api, ...] = ("threads", "asyncio")

PATIENCE = 10.0
"""Seconds that a check waits for what is sure to come."""


async def settle(value: Any) -> Any:
    """What a call of either API brings: its result, or what is awaited for it."""
    return await value if inspect.isawaitable(value) else value


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the sync API, which never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("the work awaited something in the sync API")


class Started:
    """Work that goes on beside a check, in a thread or task of its own."""

    def __init__(self, world: World, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._world = world
        self._value: Any = None
        self._error: BaseException | None = None
        self.done: bool = False
        if world.is_async:
            self.task: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(self._run(work))
        else:
            self.task = None
            threading.Thread(target=lambda: drive(self._run(work)), daemon=True).start()

    async def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            self._value = await work()
        except BaseException as error:  # noqa: BLE001 - it is the asker's, who gets it from `result`
            self._error = error
        self.done = True

    async def result(self, timeout: float = PATIENCE, what: str = "a call ended") -> Any:
        """What the work brought, or its exception."""
        await self._world.until(lambda: self.done, what, timeout)
        if self._error is not None:
            raise self._error
        return self._value

    async def error(self, timeout: float = PATIENCE) -> BaseException | None:
        """The exception that the work ended with; None if it ended well."""
        await self._world.until(lambda: self.done, "a call ended", timeout)
        return self._error


class World:
    """One check's clients, names and server.

    Args:
        url: The server, as ``redis://`` or ``unix://``. It should hold nothing of value.
        entry: The primitive.
        api: ``"threads"`` or ``"asyncio"``.
        nodes: The servers behind the address, where it names several; None: it is one.
        options: What every client of the world is connected with.
        keys: What stands for a name, made of a text that no other world has; None: the name itself.
        backend: What does to the server what a client cannot; None: what does so to Redis.
    """

    def __init__(
        self,
        url: str,
        entry: Entry,
        api: Api,
        nodes: Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
        keys: Callable[[str], Any] | None = None,
        backend: Backend | None = None,
    ) -> None:
        self.url = url
        self._keys = keys
        self._options = dict(options or {})
        self.entry = entry
        self.api: Api = api
        # A name space of its own: checks may run beside each other on one server.
        self.namespace: str = f"conformance-{secrets.token_hex(6)}"
        self._backend: Backend = backend or RedisBackend(url, nodes)
        self.slack: float = self._backend.slack
        self._clients: list[Any] = []
        self._proxies: list[Faulty] = []
        self._before: frozenset[object] | None = None
        self.kept: list[Any] = []

    @property
    def is_async(self) -> bool:
        """Whether it is the async API."""
        return self.api == "asyncio"

    # Clients and locks ------------------------------------------------------------------------------------------

    def client(self, url: str = "", **options: Any) -> Any:
        """A new client, closed with the world."""
        door = connect_async if self.is_async else connect
        client = door(url or self.url, namespace=self.namespace, **{**self._options, **options})
        self._clients.append(client)
        return client

    async def behind(self, proxy: Faulty) -> Any:
        """A new client behind a proxy, connected."""
        client = self.client(proxy.url)
        await settle(client.inspect("connected"))
        return client

    def lock(self, client: Any = None, name: str = "n", kind: str = "", **options: Any) -> Any:
        """The primitive on a client, by default a new one."""
        entry = REGISTRY[kind] if kind else self.entry
        return entry.make(self.client() if client is None else client, name, named=self.named, **options)

    def named(self, name: str) -> Any:
        """What stands for a name in this world."""
        return name if self._keys is None else self._keys(f"{self.namespace}:{name}")

    def proxy(self) -> Faulty:
        """A way to the server on which things go wrong, ended with the world.

        Raises:
            CannotShowError: There is none.
        """
        proxy = self._backend.faulty()
        self._proxies.append(proxy)
        return proxy

    def script(self, request: Request) -> bool:
        """Whether a request at a proxy asks for something about this world's names."""
        return self._backend.is_about(request, self.namespace)

    def life(self, seconds: float) -> float:
        """A short life of a lease or a ticket: what is asked for, or the shortest that there is."""
        return max(seconds, self._backend.shortest)

    # Calls ------------------------------------------------------------------------------------------------------

    async def acquire(self, lock: Any, timeout: float | None = PATIENCE) -> Any:
        """A lease of the lock."""
        lease = await settle(lock.acquire(timeout=timeout))
        # Kept: a lease that is collected while it is held would warn; closing its client releases it.
        self.kept.append(lease)
        return lease

    async def attempt(self, lock: Any) -> Any:
        """A lease of the lock if it is free, else None."""
        lease = await settle(lock.try_acquire())
        self.kept.append(lease)
        return lease

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Started:
        """Begin some work in a thread or task of its own."""
        self._before = self._state()
        return Started(self, work)

    def waiting(self, lock: Any, timeout: float | None = PATIENCE) -> Started:
        """Begin to acquire in a thread or task of its own."""
        return self.start(lambda: self.acquire(lock, timeout))

    @asynccontextmanager
    async def inside(self, lock: Any) -> AsyncGenerator[Any]:
        """The ``with`` block of a lock, of either API."""
        if self.is_async:
            async with lock as lease:
                yield lease
        else:
            with lock as lease:
                yield lease

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        if self.is_async:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 - the sync API blocks

    async def until(self, condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> float:
        """Wait until something holds; the seconds that it took.

        Raises:
            AssertionError: It did not come about.
        """
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > timeout:
                raise AssertionError(f"within {timeout:g} s this did not happen: {what}")
            await self.pause(0.004)
        return time.monotonic() - began

    async def quiet(self) -> None:
        """Give what was just started the time to reach the server, as its queue shows, or a change of the keys."""
        before, self._before = self._before, None
        end = time.monotonic() + (PATIENCE if self.entry.fifo else 0.5)
        while before is not None and not self._state() - before and time.monotonic() < end:
            await self.pause(0.004)
        await self.pause(0.05)

    def _state(self) -> frozenset[object]:
        # One that leaves the queue meanwhile must not pass for the one who is awaited there.
        if self.entry.fifo:
            return self._backend.queued(self.namespace)
        return frozenset(self.picture().items())

    # The server -------------------------------------------------------------------------------------------------

    def stored(self) -> list[str]:
        """What the server keeps of this world, except for tombstones."""
        return self._backend.stored(self.namespace)

    def picture(self) -> Mapping[str, Any]:
        """The same with what is in it."""
        return self._backend.picture(self.namespace)

    def without_ttl(self) -> list[str]:
        """What of this world would stay indefinitely."""
        return self._backend.without_ttl(self.namespace)

    def wipe(self) -> None:
        """Delete all of this world, as an administrator would."""
        self._backend.wipe(self.namespace)

    def forget_scripts(self) -> None:
        """Have every server forget every script."""
        self._backend.forget_scripts()

    async def settled(self) -> None:
        """Wait until the server has run so long that it cannot have restarted since the check began."""
        await self.until(lambda: self._backend.uptime() >= 3, "a server of some seconds")

    # The end ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all clients and proxies, and delete all keys."""
        for proxy in self._proxies:
            proxy.blackhole(on=False)
            proxy.clear()
        for client in self._clients:
            try:
                await settle(client.close(0.5))
            except PawlockError:
                # The check's own result counts; what it left behind is deleted below.
                continue
        for proxy in self._proxies:
            proxy.stop()
        self.wipe()
        self._backend.close()
