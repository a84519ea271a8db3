"""pawlock's own client on the simulator's runtime, made a thousand times a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pawlock._deadlocks import DeadlockWatch
from pawlock._factory import Settings
from pawlock._service import Book
from pawlock.aio.client import AsyncClient
from pawlock.aio.multi import shown_any
from pawlock.core import close
from pawlock.core.base_lease import BaseLease
from pawlock.core.engine import Engine
from pawlock.core.maintenance import maintain
from pawlock.core.options import LockOptions
from pawlock.primitives.multi.lease import BaseMultiLease, members_of
from pawlock.redlock.options import RedlockOptions
from tests.simulator.runtime import SimRuntime

__all__ = ["NAMESPACE", "SimClient"]

NAMESPACE = "sim"

OnLost = Callable[[BaseLease | BaseMultiLease], object]


class _Settings(Settings):
    """What clients were given; options that were found good once are not looked at again."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        super().__init__(defaults, NAMESPACE, may_be_async=True)
        self._found: dict[tuple[Any, ...], LockOptions] = {}

    def lock_options(self, given: Mapping[str, Any]) -> LockOptions:
        """See ``Settings``."""
        # True is 1 to a dict, and no ttl: the types are part of what was given.
        key = tuple([(name, value.__class__, value) for name, value in given.items()])
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = super().lock_options(given)
        return found


def _lost(lease: BaseLease | BaseMultiLease) -> None:
    """Tell the client whose lease it was: a function for all clients, so that all have the same options."""
    client = members_of(lease)[0].client
    if isinstance(client, SimClient):
        client.on_lost(lease)


@lru_cache(maxsize=64)
def _like(servers: tuple[str, ...], redlock: RedlockOptions | None) -> AsyncClient:
    """A client of these servers that was made as every client is, for others to be like it."""
    more: dict[str, Any] = {} if redlock is None else {"redlock": redlock, "ttl": redlock.max_ttl}
    target: Any = "redis://sim" if redlock is None else [f"redis://{name}" for name in servers]
    client = AsyncClient(target, namespace=NAMESPACE, on_lost=_lost, **more)
    settings = _Settings({"on_lost": _lost, **({} if redlock is None else {"ttl": redlock.max_ttl})})
    settings.redlock = client._settings.redlock
    settings.engine = client._settings.engine
    client._settings = settings
    return client


class SimClient(AsyncClient):
    """pawlock's own client, on the runtime of the simulator.

    What it was given is checked once for all clients that were given the same: a seed makes four of them, and the
    checks took longer than what they then did.

    Args:
        runtime: The runtime.
        background: What serves it in the background.
        redlock: How several independent masters are treated; None with one server.
        on_lost: OnLost of each loss.
        deadlock_after: Seconds after which a waiter looks for a cycle; 0: it does not.
    """

    def __init__(
        self,
        runtime: SimRuntime,
        background: SimRuntime,
        redlock: RedlockOptions | None,
        on_lost: OnLost,
        deadlock_after: float = 0.0,
    ) -> None:
        self.__dict__.update(_like(tuple(node.name for node in runtime.servers), redlock).__dict__)
        self._engines = {}
        self._observers = []
        self._book = Book()
        self.on_lost: OnLost = on_lost
        self.runtime: SimRuntime = runtime
        self.background: SimRuntime = background
        self.engine: Engine = Engine(runtime, background, self, maintain)
        names = self.engine.reports.namespace = self._settings.names()
        if names is not None and deadlock_after:
            self.engine.reports.watcher = DeadlockWatch(names, deadlock_after)
        self.engine.reports.show = shown_any
        if redlock is not None:
            self.engine.validity = redlock.valid_until

    def _engine(self) -> Engine:
        return self.engine

    async def end(self, timeout: float) -> None:
        """What ``close`` does."""
        await close.close(self.engine, self.runtime.interrupt_waiters, timeout)
        self.background.shut_down()
        self.runtime.shut_down()
