"""The client of asyncio. A thin shell: what happens is decided in ``pawl.core``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack, cast

from pawl._cancel import CancelScope
from pawl._factory import LockKwargs, Settings, description, find_endpoint, live_clients, plan_of, revive
from pawl.core import endings, operations
from pawl.core.claim import StopSignal
from pawl.core.engine import Engine
from pawl.core.info import inspect
from pawl.core.lease import BaseLease, LossSignal
from pawl.core.options import Seconds, check_timeout, check_ttl
from pawl.model import LockInfo
from pawl.runtimes.aio import AsyncioRuntime

if TYPE_CHECKING:
    from pawl.core.operations import Plan

__all__ = ["Acquiring", "AsyncClient", "AsyncLease", "AsyncLock", "AsyncLost"]


class _Unset:
    """Marks "not given" where None means something."""


UNSET = _Unset()


class AsyncLost(LossSignal):
    """Whether a lease is lost: true in a condition once it is, by the local clock."""

    __slots__ = ()

    async def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the lease is lost or released.

        Args:
            timeout: Seconds to sleep at most; None (default) as long as it takes.

        Returns:
            True if it is lost.
        """
        return await self._wait(timeout)


class AsyncLease(BaseLease):
    """A grant that its owner may rely on until ``valid_until``; an async context manager that releases at its end.

    While a task is inside ``async with``, a loss cancels it at its next await, and the block raises ``LeaseLost``.
    """

    __slots__ = ("_scopes",)

    @property
    def lost(self) -> AsyncLost:
        """Whether it is lost; ``await lost.wait(timeout)`` sleeps until then."""
        return AsyncLost(self)

    async def extend(self, ttl: Seconds) -> None:
        """Set the remaining life to ``ttl``; it never adds. The new ttl also serves later renewals.

        Args:
            ttl: Seconds, from 0.05 to 366 days. Less than what is left shortens the lease at once, for its owner
                only: the server keeps the name until the life it knows ends or the lease is released.

        Raises:
            NotHeld: It is lost or released.
            ConfigurationError: ttl can never work.
            BackendError: The server could not be asked.
        """
        await endings.extend(self._engine, self, check_ttl(ttl))

    async def release(self) -> None:
        """Give the name back; its next waiter is served at once.

        Raises:
            NotHeld: It was lost or released before; nothing was touched.
            BackendUnavailable: The server did not answer; the ttl frees the name at the latest.
        """
        await endings.release_or_raise(self._engine, self)

    def detach(self) -> str:
        """Stop caring for the lease without releasing it; another process may ``adopt`` the returned ticket.

        Returns:
            A ticket: text that holds the token, as secret as the lease. It serves once, as long as the ttl.

        Raises:
            NotHeld: It is lost or released.
            NotSupported: It is held for an explicit ``owner=``.
        """
        return endings.detach(self._engine, self)

    async def __aenter__(self) -> Self:
        CancelScope.enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await CancelScope.leave(self, error)


class Acquiring(Coroutine[Any, Any, AsyncLease]):
    """An acquisition that is awaited for its lease, entered with ``async with``, or made a task of."""

    __slots__ = ("_lease", "_operation")

    def __init__(self, operation: Any) -> None:
        self._operation = operation
        self._lease: AsyncLease | None = None

    def __await__(self) -> Generator[Any, None, AsyncLease]:
        return cast("Generator[Any, None, AsyncLease]", self._operation.__await__())

    def send(self, value: Any, /) -> Any:
        """Go on; for the event loop."""
        return self._operation.send(value)

    def throw(self, *args: Any) -> Any:
        """Go on with an error; for the event loop."""
        return self._operation.throw(*args)

    def close(self) -> None:
        """End without a result; for the event loop."""
        self._operation.close()

    async def __aenter__(self) -> AsyncLease:
        self._lease = cast("AsyncLease", await self._operation)
        return await self._lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            await self._lease.__aexit__(kind, error, trace)


class AsyncLock:
    """The description of a lock: immutable, picklable, shared by any number of tasks. It holds nothing itself.

    ``async with lock as lease:`` acquires and releases; made by ``AsyncClient.lock`` and ``AsyncClient.rlock``.
    """

    __slots__ = ("__weakref__", "_client", "_entered", "_plan", "_source")

    def __init__(self, client: AsyncClient, plan: Plan, source: tuple[Any, ...]) -> None:
        self._client = client
        self._plan = plan
        self._source = source
        self._entered: list[tuple[object, AsyncLease]] = []

    @property
    def name(self) -> str:
        """The name that it locks."""
        return self._plan.primitive.name

    def acquire(
        self,
        timeout: Seconds | _Unset | None = UNSET,
        *,
        ttl: Seconds | None = None,
        stop: StopSignal | None = None,
    ) -> Acquiring:
        """Take the lock, waiting in its queue if somebody holds it. Await it, or enter it with ``async with``.

        Args:
            timeout: Seconds to wait; None for ever, 0 tries once; default: the lock's own ``timeout``.
            ttl: The ttl of this lease in seconds; default: the lock's own.
            stop: An event; once it is set, a wait in the queue ends with ``NotAcquired`` within 0.05 s.

        Raises:
            AcquireTimeout: It was still held at the end of ``timeout``.
            DeadlockDetected: This task holds it already.
            QueueFull: More than ``max_waiters`` wait.
            BackendError: The server could not be asked, or refused.
            ClientClosed: The client was closed.
        """
        plan = self._plan if ttl is None else self._client._settings.with_ttl(self._plan, ttl)
        wait = plan.options.timeout if isinstance(timeout, _Unset) else check_timeout(timeout)
        return Acquiring(operations.acquire(self._client._engine(), plan, AsyncLease, wait, stop))

    async def try_acquire(self) -> AsyncLease | None:
        """Take the lock if it is free now; None if somebody holds it, also this task itself.

        Raises:
            BackendError: The server could not be asked, or refused: that is never answered with None.
        """
        return await operations.try_acquire(self._client._engine(), self._plan, AsyncLease)

    async def locked(self) -> bool:
        """Whether anybody holds the name now; old as soon as it is known, so never a reason to go ahead."""
        return (await inspect(self._client._engine(), self._plan.primitive, self._plan.options, 0)).held

    async def __aenter__(self) -> AsyncLease:
        lease = await self.acquire()
        self._entered.append((lease._who, lease))
        return await lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = endings.take_entered(self._entered, asyncio.current_task())
        await lease.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._plan.primitive.kind} {self.name!r} ttl={self._plan.options.ttl:g}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return revive, (AsyncClient, description(self._client._origin), *self._source)


class AsyncClient:
    """The door to the locks of one server, for asyncio; made by ``pawl.connect_async``. Shared by any number of tasks.

    Nothing is sent before the first use. Used in several event loops, it keeps one connection for each. An async
    context manager that closes at its end.
    """

    def __init__(self, target: object = None, *, namespace: str | None = None, **defaults: Any) -> None:
        self._settings = Settings(defaults, namespace, may_be_async=True)
        self._origin = (target, {"namespace": namespace, **defaults})
        self._endpoint = find_endpoint(target)
        self._engines: dict[asyncio.AbstractEventLoop, Engine] = {}
        self._last: tuple[asyncio.AbstractEventLoop, Engine] | None = None
        self._closed = False
        live_clients.add(self)

    def lock(self, name: str, **options: Unpack[LockKwargs]) -> AsyncLock:
        """A lock that one owner holds at a time.

        Args:
            name: 1 to 200 bytes of text.
            options: See ``pawl.LockOptions``: ttl, timeout, renew, max_hold, handover, …

        Raises:
            ConfigurationError: A name or option that can never work.
        """
        return AsyncLock(self, plan_of(self._settings, "lock", name, options), ("lock", name, options, None))

    def rlock(self, name: str, *, owner: str | None = None, **options: Unpack[LockKwargs]) -> AsyncLock:
        """A lock that its holder may take again: the name is free after as many releases as acquisitions.

        Args:
            name: 1 to 200 bytes of text.
            owner: Who re-enters. None (default): the task, counted here without the network. Text: whoever gives
                the same owner, in any process, counted on the server.
            options: As for ``lock``.

        Raises:
            ConfigurationError: A name, owner or option that can never work.
        """
        return AsyncLock(
            self, plan_of(self._settings, "rlock", name, options, owner), ("rlock", name, options, owner)
        )

    async def inspect(self, name: str, *, waiters: int = 100) -> LockInfo:
        """Who holds a name and who waits for it. Changes nothing; a free name gives a record that says free.

        Args:
            name: The name.
            waiters: How many waiters to list at most, from 0 to 100,000; default 100.

        Raises:
            ConfigurationError: A name or number that can never work.
            BackendError: The server could not be asked.
            ClientClosed: The client was closed.
        """
        plan = plan_of(self._settings, "lock", name, {})
        return await inspect(self._engine(), plan.primitive, plan.options, waiters)

    async def adopt(self, ticket: str, **options: Unpack[LockKwargs]) -> AsyncLease:
        """Go on with a lease that ``AsyncLease.detach`` gave away, here or in another process.

        Args:
            ticket: What ``detach`` returned.
            options: As for ``lock``; ttl is the ticket's unless given.

        Raises:
            NotHeld: It ran out, was adopted already, or somebody else took the name.
            ConfigurationError: It is no ticket, or of another namespace.
        """
        content, plan = self._settings.plan_of_ticket(ticket, options)
        return cast("AsyncLease", await endings.adopt(self._engine(), plan, content, AsyncLease))

    async def close(self, timeout: Seconds | None = 5.0) -> None:
        """Release all leases, wake waiting tasks with ``ClientClosed``, close all connections. Safe to repeat.

        Args:
            timeout: Seconds that the releases may take in all; None: 5. Later their ttl frees the names.
        """
        checked = check_timeout(timeout)
        patience = 5.0 if checked is None else checked
        closing = asyncio.get_running_loop().create_task(self._close(patience), name="pawl-close")
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            # The caller may stand in a block whose lease ends here: it is told when the work is done.
            await asyncio.wait({closing})
            raise

    async def _close(self, patience: float) -> None:
        self._closed = True
        self._forget_ended_loops()
        here = asyncio.get_running_loop()
        elsewhere = [
            asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_close_engine(engine, patience), loop))
            for loop, engine in list(self._engines.items())
            if loop is not here and loop.is_running()
        ]
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
        raise TypeError(
            "a client cannot be pickled: it owns connections; connect in the other process, or pass a lock"
        )

    def _engine(self) -> Engine:
        loop = asyncio.get_running_loop()
        last = self._last
        if last is not None and last[0] is loop:
            return last[1]
        engine = self._engines.get(loop)
        if engine is None:
            self._forget_ended_loops()
            engine = Engine(AsyncioRuntime(loop, self._endpoint, self._settings.wake_prefix), self)
            engine.closed = self._closed
            self._engines[loop] = engine
        self._last = (loop, engine)
        return engine

    def _forget_ended_loops(self) -> None:
        # An engine refers to its loop, so nothing else would ever end the two.
        for loop in list(self._engines):
            if loop.is_closed():
                self._engines.pop(loop).closed = True
        if self._last is not None and self._last[0].is_closed():
            self._last = None

    def _after_fork(self) -> None:
        for engine in self._engines.values():
            cast("AsyncioRuntime", engine.runtime).after_fork()
            engine.after_fork()
        self._engines = {}
        self._last = None


async def _close_engine(engine: Engine, patience: float) -> None:
    runtime = cast("AsyncioRuntime", engine.runtime)
    try:
        await endings.close(engine, runtime.interrupt_waiters, patience)
    finally:
        # Also when the loop ends meanwhile and cancels this: its connection must not stay behind.
        await runtime.shut_down()
