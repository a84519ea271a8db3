"""The client of asyncio. A thin shell: what happens is decided in ``pawl.core``."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, Unpack, cast, overload

from pawl._coordinate import BarrierKwargs, LatchKwargs, barrier_plan, election_plan, latch_plan
from pawl._factory import LockKwargs, Settings, SkipKwargs, live_clients, plan_of
from pawl._multi import multi_plan
from pawl._permits import PermitKwargs, plan_of_semaphore, plans_of_rwlock
from pawl._quorum import check_options, for_loop, probe_for
from pawl._target import find_target, shown_of
from pawl._warn import place_of_caller
from pawl.aio.barrier import AsyncBarrier
from pawl.aio.election import AsyncElection
from pawl.aio.latch import AsyncLatch
from pawl.aio.lease import AsyncLease
from pawl.aio.lock import AsyncLock, BaseAsyncLock, SkippingAsyncLock
from pawl.aio.multi import AsyncMultiLock
from pawl.aio.rwlock import AsyncRWLock
from pawl.aio.semaphore import AsyncSemaphore
from pawl.aio.service import AsyncLockService
from pawl.core import admin, endings
from pawl.core.closing import close
from pawl.core.engine import Engine, doubter
from pawl.core.history import history, make_engine
from pawl.core.names import Key
from pawl.core.observer import Observer, observe
from pawl.core.options import Seconds, check_timeout
from pawl.core.redlock import RedlockOptions
from pawl.core.service import Book
from pawl.model import AuditEntry, Forced, HistoryEntry, LockInfo
from pawl.runtimes.aio import AsyncioRuntime
from pawl.topology.credentials import Credentials

__all__ = ["AsyncClient"]


_BEGUN_WITHIN = 0.5
"""Seconds that a close gives the other loops of the client to begin theirs: one may be blocked."""


class AsyncClient:
    """The door to the locks of one server, for asyncio; made by ``pawl.connect_async``. Shared by any number of tasks.

    Nothing is sent before the first use. Used in several event loops, it keeps one connection for each. An async
    context manager that closes at its end.
    """

    def __init__(
        self,
        target: object = None,
        *,
        namespace: str | None = None,
        credentials: Credentials | None = None,
        redlock: RedlockOptions | None = None,
        **defaults: Any,
    ) -> None:
        self._settings = Settings(defaults, namespace, may_be_async=True)
        made_with = {"namespace": namespace, "credentials": credentials, "redlock": redlock}
        self._origin = (target, {**made_with, **defaults})
        self._made_at = place_of_caller()
        self._target = find_target(target, credentials)
        self._settings.redlock = check_options(redlock, self._target, self._settings)
        self._engines: dict[asyncio.AbstractEventLoop, Engine] = {}
        self._observers: list[Observer] = []
        self._last: tuple[asyncio.AbstractEventLoop, Engine] | None = None
        self._closed = False
        self._book: Book[AsyncLease] = Book()
        live_clients.add(self)

    @overload
    def lock(
        self, name: str, *, on_contended: Literal["skip"], **options: Unpack[SkipKwargs]
    ) -> SkippingAsyncLock: ...
    @overload
    def lock(self, name: str, **options: Unpack[LockKwargs]) -> AsyncLock: ...

    def lock(self, name: str, **options: Unpack[LockKwargs]) -> AsyncLock:
        """A lock that one owner holds at a time.

        Args:
            name: 1 to 200 bytes of text; ``{{`` stands for a brace, and a field as in ``"order:{id}"`` is for a
                decorator to fill.
            options: See ``pawl.LockOptions``: ttl, timeout, renew, max_hold, handover, …

        Raises:
            ConfigurationError: A name or option that can never work.
        """
        return AsyncLock(self, plan_of(self._settings, "lock", name, options), ("lock", name, options, None))

    @overload
    def rlock(
        self,
        name: str,
        *,
        owner: str | None = None,
        on_contended: Literal["skip"],
        **options: Unpack[SkipKwargs],
    ) -> SkippingAsyncLock: ...
    @overload
    def rlock(self, name: str, *, owner: str | None = None, **options: Unpack[LockKwargs]) -> AsyncLock: ...

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

    @overload
    def fair_lock(
        self, name: str, *, on_contended: Literal["skip"], **options: Unpack[SkipKwargs]
    ) -> SkippingAsyncLock: ...
    @overload
    def fair_lock(self, name: str, **options: Unpack[LockKwargs]) -> AsyncLock: ...

    def fair_lock(self, name: str, **options: Unpack[LockKwargs]) -> AsyncLock:
        """A lock that is granted strictly in the order of arrival, over all clients.

        The same name as a ``lock``, so the two keep each other out; it never passes locally from waiter to waiter.

        Args:
            name: As for ``lock``.
            options: As for ``lock``, but no handover. ticket_ttl is what dead waiters cost the others, in all.

        Raises:
            ConfigurationError: A name or option that can never work.
        """
        return AsyncLock(
            self, plan_of(self._settings, "fair_lock", name, options), ("fair_lock", name, options, None)
        )

    def semaphore(self, name: str, *, permits: int, **options: Unpack[PermitKwargs]) -> AsyncSemaphore:
        """So many permits, each held by whoever took it under a lease of its own.

        Args:
            name: As for ``lock``; a semaphore has nothing in common with a lock of the same name.
            permits: How many there are, at least 1. All programs that use the name declare the same number.
            options: As for ``lock``, but no handover and no lock_delay.

        Raises:
            ConfigurationError: A name, number or option that can never work.
        """
        plan = plan_of_semaphore(self._settings, name, permits, options)
        return AsyncSemaphore(self, plan, ("semaphore", name, {"permits": permits, **options}, None))

    def latch(self, name: str, count: int, **options: Unpack[LatchKwargs]) -> AsyncLatch:
        """A count that goes down to 0, and whoever waits for that.

        Args:
            name: 1 to 200 bytes of text; ``{{`` stands for a brace.
            count: From where it counts down, 1 to 1,000,000,000. The first to use the latch sets it; who gives
                another count gets an error.
            options: ttl: seconds after its last use in which the latch is forgotten, default one day; who waits keeps
                it alive. timeout: seconds to wait, default the client's. ticket_ttl: seconds that a dead waiter is
                remembered, default 3; a third of it is how late a lost message is made good. unavailable_after: seconds
                to bear an unreachable server, default 10. max_waiters: default 10,000.

        Raises:
            ConfigurationError: A name, count or option that can never work.
        """
        return AsyncLatch(
            self, latch_plan(self._settings, name, count, options), ("latch", (name, count), {**options})
        )

    def barrier(self, name: str, parties: int, **options: Unpack[BarrierKwargs]) -> AsyncBarrier:
        """Where several parties wait until all are there, again and again.

        Args:
            name: As for ``latch``.
            parties: How many pass at once, 1 to 1,000; the same for all who wait at the same time.
            options: timeout: seconds to wait, default the client's. ticket_ttl: seconds that a party counts after it
                died, default 3; a third of it is how late a lost message is made good. unavailable_after: seconds to
                bear an unreachable server, default 10.

        Raises:
            ConfigurationError: A name, number of parties or option that can never work.
        """
        plan = barrier_plan(self._settings, name, parties, options)
        return AsyncBarrier(self, plan, ("barrier", (name, parties), {**options}))

    def election(
        self, name: str, *, identity: str | None = None, **options: Unpack[LockKwargs]
    ) -> AsyncElection:
        """One of many candidates leads, and everybody can know who.

        Args:
            name: As for ``latch``. A lock of the same name is another thing.
            identity: What a leader calls itself, as 1 to 200 bytes of text without white space; default
                ``host:pid/task``.
            options: As for ``lock``, but no handover. ttl is how long nobody leads after a leader died, at most.

        Raises:
            ConfigurationError: A name, identity or option that can never work.
        """
        given = {"identity": identity, **options}
        return AsyncElection(
            self, election_plan(self._settings, name, identity, options), ("election", (name,), given)
        )

    def rwlock(self, name: str, *, upgradable: bool = False, **options: Unpack[PermitKwargs]) -> AsyncRWLock:
        """A lock that many may hold to read, or one to write: ``rwlock(name).read`` and ``rwlock(name).write``.

        Args:
            name: As for ``lock``; an rwlock has nothing in common with a lock of the same name.
            upgradable: Whether those who read through this object may go on to write without letting go. One at a
                time may read so, beside any number of plain readers. Default False: whoever reads and then wants to
                write gets ``DeadlockDetected``.
            options: As for ``lock``, but no handover and no lock_delay.

        Raises:
            ConfigurationError: A name or option that can never work.
        """
        plans = plans_of_rwlock(self._settings, name, options, upgradable=upgradable)
        return AsyncRWLock(self, plans, ("rwlock", name, {"upgradable": upgradable, **options}, None))

    def multi_lock(
        self, members: Iterable[str | BaseAsyncLock | Key], **options: Unpack[LockKwargs]
    ) -> AsyncMultiLock:
        """Several locks as one: all are taken or none, always in one order, and losing one is losing all.

        Args:
            members: 1 to 1,000 names, locks of this client, or keys of other programs (``pawl.Key``), in any order;
                each once.
            options: As for ``lock``: timeout is for all together, on_lost is called once with the lease of the whole,
                the rest is for those that are given by name.

        Raises:
            ConfigurationError: No names, a name twice, a lock of another client, a multi-lock, or an option that can
                never work.
        """
        return AsyncMultiLock(self, *multi_plan(self._settings, self, members, options))

    def service(self) -> AsyncLockService:
        """The lock service in this process: names and identifiers instead of leases, for callers that keep no objects.

        The same one at every call. Its holds are renewed until they are released or the client is closed.
        """
        return AsyncLockService(self, self._book)

    async def inspect(self, name: str, *, waiters: int = 100) -> LockInfo:
        """Who holds a name and who waits for it. Changes nothing; a free name gives a record that says free.

        It is the lock of that name; ``held_as`` says whether the name is held as a semaphore, rwlock or election.

        Args:
            name: The name.
            waiters: How many waiters to list at most, from 0 to 100,000; default 100.

        Raises:
            ConfigurationError: A name or number that can never work.
            BackendError: The server could not be asked.
            ClientClosed: The client was closed.
        """
        plan = plan_of(self._settings, "lock", name, {})
        return await admin.inspect(self._engine(), plan.primitive, plan.options, waiters)

    async def locks(self) -> list[LockInfo]:
        """Every name of the namespace that a client has held for a second or more, in order of the names.

        Read from what clients publish of themselves, so it costs no scan of the server; each name is then looked up.
        A client that may not publish is not seen; neither are leases that were detached.

        Raises:
            BackendError: The server could not be asked.
            NotSupported: Independent masters keep no common record.
            ClientClosed: The client was closed.
        """
        return await admin.locks(self._engine(), self._settings.options)

    async def force_release(self, name: str, *, reason: str) -> Forced:
        """Take a lock from whoever holds it, and give it to the next waiter.

        The fence rises, so what checks fences refuses the old holder from its next holder's first write. The old
        holder is told with ``LossReason.TAKEN``: within a second if it has held for a second, else at its next
        renewal. What it does until then is not undone.

        Of a name that is held as a semaphore, an rwlock or an election nothing is taken; ``held_as`` says what it is.

        Args:
            name: The name of a ``lock``, ``rlock`` or ``fair_lock``.
            reason: Why, in 1 to 500 characters; it stands in the audit trail with who did it and when.

        Raises:
            ConfigurationError: A name or reason that can never work.
            BackendError: The server could not be asked, or the audit trail not be written.
            NotSupported: Independent masters keep no common record.
            ClientClosed: The client was closed.
        """
        plan = plan_of(self._settings, "lock", name, {})
        return await admin.force_release(self._engine(), plan.primitive, plan.options, reason)

    async def audit(self, limit: int = 100) -> list[AuditEntry]:
        """What operators did in this namespace, the newest first.

        Args:
            limit: How many entries at most, from 1 to 1,000, which are all that is kept; default 100. An entry is
                kept for 90 days after the last one was written.

        Raises:
            ConfigurationError: A limit that can never work.
            BackendError: The server could not be asked.
            NotSupported: Independent masters keep no common record.
            ClientClosed: The client was closed.
        """
        return await admin.audit(self._engine(), self._settings.options, limit)

    async def history(self, name: str, limit: int = 100) -> list[HistoryEntry]:
        """The last grants of a name, as far as clients with ``history=`` had them; the newest first.

        What a client that was killed held is told as expired. An entry is written within half a second of a grant's
        end; shorter ones that their client did not live to write are missing.

        Args:
            name: The name of a ``lock``, ``rlock`` or ``fair_lock``.
            limit: How many entries at most, from 1 to 1,000; default 100.

        Raises:
            ConfigurationError: A name or limit that can never work.
            BackendError: The server could not be asked.
            NotSupported: Independent masters keep no common record.
            ClientClosed: The client was closed.
        """
        plan = plan_of(self._settings, "lock", name, {})
        return await history(self._engine(), plan.primitive, plan.options, limit)

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

    async def _begun_elsewhere(self, here: asyncio.AbstractEventLoop) -> None:
        """Return once every other loop has begun to close: what this one gives back must not go to a waiter there."""
        begun: set[asyncio.Future[None]] = set()
        for loop in list(self._engines):
            if loop is not here and loop.is_running():
                done: concurrent.futures.Future[None] = concurrent.futures.Future()
                # Behind the close that was scheduled before, and behind the first step of its task.
                loop.call_soon_threadsafe(loop.call_soon, done.set_result, None)
                begun.add(asyncio.wrap_future(done))
        if begun:
            await asyncio.wait(begun, timeout=_BEGUN_WITHIN)

    async def _close(self, patience: float) -> None:
        self._closed = True
        self._forget_ended_loops()
        here = asyncio.get_running_loop()
        elsewhere = [
            asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_close_engine(engine, patience), loop))
            for loop, engine in list(self._engines.items())
            if loop is not here and loop.is_running()
        ]
        await self._begun_elsewhere(here)
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
            runtime = for_loop(loop, self._target, self._settings)
            engine = make_engine(runtime, self, self._settings.setup)
            engine.quorum = self._settings.redlock
            engine.server = shown_of(self._target)
            engine.probe, engine.strict = probe_for(self._settings), self._settings.strict
            runtime.on_move = doubter(engine)
            engine.closed = self._closed
            for observer in self._observers:
                observe(engine, observer)
            self._engines[loop] = engine
        self._last = (loop, engine)
        return engine

    def _observe(self, observer: Observer) -> None:
        if observer not in self._observers:
            self._observers.append(observer)
        for engine in self._known_engines():
            observe(engine, observer)

    def _known_engines(self) -> list[Engine]:
        return list(self._engines.values())

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
        await close(engine, runtime.interrupt_waiters, patience)
    finally:
        # Also when the loop ends meanwhile and cancels this: its connection must not stay behind.
        await runtime.shut_down()
