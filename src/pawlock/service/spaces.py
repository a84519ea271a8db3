"""The clients behind the service: one for each namespace, made when it is first asked for."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from pawlock._inside import engine_here, plan_behind, settings_of
from pawlock._key_text import read_key
from pawlock._system import now
from pawlock._template import escape
from pawlock.aio.client import AsyncClient
from pawlock.core.engine import Engine
from pawlock.core.names import check_namespace
from pawlock.core.plan import Plan
from pawlock.core.primitive import Primitive
from pawlock.core.runtime import Call
from pawlock.errors import ConfigurationError, NotSupported
from pawlock.primitives.permits import Permits
from pawlock.primitives.registry import REGISTRY, Entry
from pawlock.service.problems import Problem
from pawlock.service.store import StoreKeys
from pawlock.service.terms import RETRY_FOR

if TYPE_CHECKING:
    from pawlock.model import LockInfo
    from pawlock.service.access import Principal

__all__ = ["KEY", "MUTEXES", "Ending", "Space", "Spaces", "kinds", "known_kinds"]

log: logging.Logger = logging.getLogger("pawlock.service")

KEY = "key"
"""The kind of a lock whose name is a ``pawlock.Key`` as text."""
MUTEXES = frozenset({KEY, "lock", "rlock", "fair_lock"})
"""The kinds that one holder has at a time."""

_MOST_SPACES = 256
_IDLE = 60.0
"""Seconds after which the connection of a namespace may be given to another: what does not wait never takes so long."""


def kinds() -> dict[str, Entry]:
    """What can be held through the service: every primitive with leases of one name, and who leads by an election."""
    return {
        kind: one for kind, one in REGISTRY.items() if one.names == 1 and (one.leases or kind == "election")
    }


def known_kinds() -> list[str]:
    """The kinds of leases, ``KEY`` among them."""
    return sorted({KEY, *kinds()})


class Ending(Protocol):
    """What would keep connections open."""

    def end(self) -> None:
        """Close them."""
        ...


class Space:
    """One namespace.

    Attributes:
        namespace: Its name.
        client: The client.
        store: What the service keeps there.
        waiting: How many requests wait for a lock here.
        used_at: When it was asked for last, on the clock of this instance.
        watch: What polls it for those who watch it; None before anybody did.
    """

    def __init__(self, namespace: str, client: AsyncClient) -> None:
        self.namespace = namespace
        self.client = client
        self.store: StoreKeys = StoreKeys(check_namespace(namespace))
        self.waiting: int = 0
        self.used_at: float = now()
        self.watch: Ending | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listing = asyncio.Lock()
        self._listed: tuple[float, list[LockInfo]] = (-math.inf, [])
        self.primitive: Callable[..., Primitive] = lru_cache(maxsize=4096)(self._primitive)

    @property
    def engine(self) -> Engine:
        """The engine of the present loop."""
        return cast("Engine", engine_here(self.client))

    async def locks(self) -> list[LockInfo]:
        """All held names. One scan at a time: those who ask meanwhile share the next one."""
        asked = now()
        async with self._listing:
            if self._listed[0] < asked:
                self._listed = now(), await self.client.locks()
            return self._listed[1]

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for; what goes wrong is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("cleanup after a request failed: %s", task.exception())

    async def settle(self) -> None:
        """Wait for what goes on in the background, a second at most."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)

    def removal(self, client: str, session: str, token: str) -> Call:
        """The call that removes the record of a lease from its session."""
        return self.store.update(client, session, json.dumps([token]))

    def remove_record(self, client: str, session: str, token: str) -> None:
        """Remove the record in the background; not for a token that may be recorded again."""
        if session:
            self.engine.post(self.removal(client, session, token))

    def _primitive(self, kind: str, name: str, permits: int | None = None, n: int = 1) -> Primitive:
        """What to send for one name.

        Args:
            kind: A key of ``kinds()``, or ``KEY``.
            name: The name, as it is; of ``KEY``, the key as text.
            permits: How many there are, of a ``semaphore``.
            n: How many are taken at once.

        Raises:
            ConfigurationError: No such kind, or a name or value that can never work.
        """
        if kind == KEY:
            return self._make_of_key(name, permits, n)
        return self._make(kind, name, permits, n)

    def _make_of_key(self, text: str, permits: int | None, n: int) -> Primitive:
        if permits is not None or n != 1:
            raise ConfigurationError("permits and n are not supported for a key")
        return cast("Plan", plan_behind(self.client.lock(read_key(text)))).primitive

    def _make(self, kind: str, name: str, permits: int | None, n: int) -> Primitive:
        entry = kinds().get(kind)
        if entry is None:
            raise ConfigurationError(f"unknown kind {kind!r:.40}; known: {', '.join(known_kinds())}")
        takes = "permits" in entry.kwargs
        if takes is (permits is None):
            raise ConfigurationError(f"permits is {'required' if takes else 'not supported'} for a {kind}")
        given: dict[str, Any] = {"permits": permits} if takes else {}
        plan = cast("Plan", plan_behind(entry.make(self.client, escape(name), **given)))
        if n == 1:
            return plan.primitive
        if not isinstance(plan.primitive, Permits) or permits is None or not 1 <= n <= permits:
            raise ConfigurationError(f"n must be 1 to the number of permits of a semaphore, got {n}")
        return plan.primitive.of(plan.primitive.kind, str(n))


class Spaces:
    """All namespaces.

    Args:
        target: What ``connect_async`` takes.
    """

    def __init__(self, target: object) -> None:
        self.target = target
        self._spaces: dict[str, Space] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def of(self, namespace: str) -> Space:
        """One of them; whether the caller may use it was asked before.

        Args:
            namespace: Its name.

        Raises:
            ConfigurationError: It can be no namespace.
            Problem: Too many are in use.
            NotSupported: The service was pointed at independent masters.
        """
        space = self._spaces.get(namespace)
        if space is None:
            if not namespace:
                raise ConfigurationError("the namespace must not be empty for the service")
            self._make_room()
            client = AsyncClient(self.target, namespace=namespace, unavailable_after=RETRY_FOR)
            if settings_of(client).redlock is not None:
                raise NotSupported(
                    "the service needs a single server, Sentinel or Cluster, not independent masters"
                )
            space = self._spaces[namespace] = Space(namespace, client)
        space.used_at = now()
        return space

    def peek(self, namespace: str) -> Space:
        """One of them, for who only looks: that does not count as a use."""
        return self._spaces.get(namespace) or self.of(namespace)

    def shown_to(self, who: Principal) -> list[str]:
        """The namespaces that a client's token names, and those in use here that it may read."""
        named = [pattern for pattern in who.namespaces if "*" not in pattern]
        return sorted({one for one in (*named, *self._spaces) if who.may("read", one)})

    def _make_room(self) -> None:
        """Close what was not asked for the longest; a later request creates it again."""
        if len(self._spaces) < _MOST_SPACES:
            return
        idle = (one for one in self._spaces.values() if not one.waiting)
        oldest = min(idle, key=lambda one: one.used_at, default=None)
        if oldest is None or now() - oldest.used_at < _IDLE:
            text = f"{_MOST_SPACES} namespaces are in use on this instance: retry in a minute"
            raise Problem(503, "NAMESPACE_LIMIT", text, retry_after=int(_IDLE))
        del self._spaces[oldest.namespace]
        task = asyncio.get_running_loop().create_task(oldest.client.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def interrupt(self) -> None:
        """Wake all who wait, with ``ClientClosed``, and disconnect those who watch."""
        for space in self._spaces.values():
            cast("Any", space.engine.runtime).interrupt_waiters()
            if space.watch is not None:
                space.watch.end()

    async def close(self) -> None:
        """Close all clients. Leases stay: they belong to the service's clients."""
        await asyncio.gather(*(space.settle() for space in self._spaces.values()))
        await asyncio.gather(*(space.client.close() for space in self._spaces.values()))
        self._spaces.clear()
