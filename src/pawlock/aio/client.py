"""The client of asyncio. A thin shell: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Unpack

from pawlock import _seen
from pawlock._coordinate import barrier_plan, election_plan, latch_plan, lock_plan, once_plan
from pawlock._environment import this_user
from pawlock._factory import TRIAL, TRIED, plan_of
from pawlock._inside import engine_here
from pawlock._multi import multi_plan
from pawlock._permits import plan_of_semaphore, plans_of_rwlock
from pawlock._trial import ping, with_trial
from pawlock.aio.election import AsyncElection
from pawlock.aio.gates import AsyncBarrier, AsyncLatch
from pawlock.aio.lifecycle import AsyncClientLifecycle
from pawlock.aio.lock import AsyncLease, AsyncLock, BaseAsyncLock, given
from pawlock.aio.multi import AsyncMultiLock
from pawlock.aio.once import AsyncOnce
from pawlock.aio.permits import AsyncRWLock, AsyncSemaphore
from pawlock.aio.service import AsyncLockService
from pawlock.core import operator, stateless, transfer
from pawlock.core.key import Key
from pawlock.core.options import BarrierKwargs, LatchKwargs, LockKwargs, OnceKwargs, PermitKwargs, Seconds
from pawlock.model import AuditEntry, Forced, LockInfo, ServerReport

__all__ = ["AsyncClient"]


class AsyncClient(AsyncClientLifecycle):
    """A client for the locks of one server, for asyncio; made by ``pawlock.connect_async``. Shared by any number of tasks.

    It sends nothing before its first use. Used in several event loops, it keeps one connection for each. An async
    context manager that closes at its end.
    """

    def lock(self, name: str | Key, *more: *tuple[()], **options: Unpack[LockKwargs]) -> AsyncLock:
        """A lock that one owner holds at a time.

        Args:
            name: 1 to 200 bytes of text; ``{{`` stands for a brace, and a field as in ``"order:{id}"`` is for a
                decorator to fill. Or a ``pawlock.Key`` that programs of other libraries lock too.
            more: None. Options are given by name: anything more by position is a ``TypeError`` that says so.
            options: See ``pawlock.LockOptions``: ttl, timeout, renew, max_hold, handover, …

        Raises:
            ConfigurationError: A name or option that can never work.
        """
        return AsyncLock(self, *lock_plan(self._settings, "lock", name, options, more))

    def rlock(self, name: str | Key, *more: *tuple[()], **options: Unpack[LockKwargs]) -> AsyncLock:
        """A lock that its task may acquire again: it is free after as many releases as acquisitions.

        Re-entry is counted here, without the network.

        Args:
            name: 1 to 200 bytes of text, or a ``pawlock.Key``.
            more: None. Options are given by name: anything more by position is a ``TypeError`` that says so.
            options: As for ``lock``.

        Raises:
            ConfigurationError: A name or option that can never work.
        """
        return AsyncLock(self, *lock_plan(self._settings, "rlock", name, options, more))

    def fair_lock(self, name: str, *more: *tuple[()], **options: Unpack[LockKwargs]) -> AsyncLock:
        """A lock that is granted in strict FIFO order across all clients.

        A ``lock`` of the same name is the same lock, so the two exclude each other; a fair lock has no local hand-off.

        Args:
            name: As for ``lock``.
            more: None. Options are given by name: anything more by position is a ``TypeError`` that says so.
            options: As for ``lock``, but no handover. ticket_ttl is how long dead waiters delay others in all.

        Raises:
            ConfigurationError: A name or option that can never work.
        """
        return AsyncLock(self, *lock_plan(self._settings, "fair_lock", name, options, more))

    def semaphore(
        self, name: str, *more: *tuple[()], permits: int, **options: Unpack[PermitKwargs]
    ) -> AsyncSemaphore:
        """A limited number of permits; each holder has its own lease.

        Args:
            name: As for ``lock``; a semaphore is independent of a lock with the same name.
            permits: The number of permits, at least 1; the same in all programs that use the name.
            more: None. Options are given by name: anything more by position is a ``TypeError`` that says so.
            options: As for ``lock``, but no handover.

        Raises:
            ConfigurationError: A name, number or option that can never work.
        """
        return AsyncSemaphore(self, *plan_of_semaphore(self._settings, name, permits, options, more))

    def rwlock(self, name: str, **options: Unpack[PermitKwargs]) -> AsyncRWLock:
        """A read-write lock, many readers or one writer: ``rwlock(name).read`` and ``rwlock(name).write``.

        Args:
            name: As for ``lock``; an rwlock is independent of a lock with the same name.
            options: As for ``lock``, but no handover.

        Raises:
            ConfigurationError: A name or option that can never work.
        """
        return AsyncRWLock(self, *plans_of_rwlock(self._settings, name, options))

    def multi_lock(
        self, members: Iterable[str | BaseAsyncLock | Key], *more: *tuple[()], **options: Unpack[LockKwargs]
    ) -> AsyncMultiLock:
        """Several locks as one: all are acquired or none, always in the same order; losing one loses all.

        Args:
            members: 1 to 1,000 names, locks of this client, or keys of other programs (``pawlock.Key``), in any order;
                each once.
            more: None. Options are given by name: anything more by position is a ``TypeError`` that says so.
            options: As for ``lock``: timeout is for all together, on_lost is called once with the combined lease, and
                the other options apply to the members that are given by name.

        Raises:
            ConfigurationError: No names, a name twice, a lock of another client, a multi-lock, or an option that can
                never work.
        """
        return AsyncMultiLock(self, *multi_plan(self._settings, self, members, options, more))

    def latch(self, name: str, count: int, **options: Unpack[LatchKwargs]) -> AsyncLatch:
        """A count that goes down to 0, and clients that wait for that.

        Args:
            name: 1 to 200 bytes of text; ``{{`` stands for a brace.
            count: The initial count, 1 to 1,000,000,000. The first use of the latch sets it; another count is an
                error.
            options: ttl: seconds after its last use until the latch expires, default one day; waiters keep it alive.
                timeout: seconds to wait, default the client's. ticket_ttl: seconds that a dead waiter is remembered,
                default 3; a lost wake-up costs a third of it. unavailable_after: seconds to keep retrying an
                unreachable server, default 10. max_waiters: default 10,000.

        Raises:
            ConfigurationError: A name, count or option that can never work.
        """
        return AsyncLatch(self, *latch_plan(self._settings, name, count, options))

    def barrier(self, name: str, parties: int, **options: Unpack[BarrierKwargs]) -> AsyncBarrier:
        """Several parties wait until all have arrived; reusable.

        Args:
            name: As for ``latch``.
            parties: How many pass together, 1 to 1,000; the same for all that wait at the same time.
            options: timeout: seconds to wait, default the client's. ticket_ttl: seconds that a party counts after it
                died, default 3; a lost wake-up costs a third of it. unavailable_after: seconds to keep retrying an
                unreachable server, default 10.

        Raises:
            ConfigurationError: A name, number of parties or option that can never work.
        """
        return AsyncBarrier(self, *barrier_plan(self._settings, name, parties, options))

    def election(
        self, name: str, *, identity: str | None = None, **options: Unpack[LockKwargs]
    ) -> AsyncElection:
        """One of several candidates leads, and every client can see which one.

        Args:
            name: As for ``latch``. An election is independent of a lock with the same name.
            identity: The name of this candidate, as 1 to 200 bytes of text without white space; default
                ``host:pid/task``.
            options: As for ``lock``, but no handover. ttl is the longest time without a leader after a leader died.

        Raises:
            ConfigurationError: A name, identity or option that can never work.
        """
        return AsyncElection(self, *election_plan(self._settings, name, identity, options))

    def once(
        self, name: str, *, keep: Seconds = 86400, wait: bool = False, **options: Unpack[OnceKwargs]
    ) -> AsyncOnce:
        """Something that is to be done once: the first caller does it, everybody else gets its result.

        Args:
            name: As for ``lock``. It is independent of a lock with the same name.
            keep: Seconds for which a result is kept, from 0.05 to 366 days; default a day. Once it is over, it can be
                done again.
            wait: Whether ``begin`` waits while another client runs it; default False.
            options: ttl, renew, max_hold, timeout, ticket_ttl, max_waiters, unavailable_after
                and on_lost, as for ``lock``. When the client that runs it dies, the next may start after at most ttl.
                ``replicas`` of the client does not apply.

        Raises:
            ConfigurationError: A name or option that can never work.
            NotSupported: The client has independent masters (Redlock).
        """
        return AsyncOnce(self, *once_plan(self._settings, name, keep, wait, options))

    def service(self) -> AsyncLockService:
        """The lock service in this process: names and identifiers instead of leases, for callers that keep no objects.

        Every call returns the same object. Its holds are renewed until they are released or the client is closed.
        """
        return AsyncLockService(self, self._book)

    async def inspect(self, name: str | Key, *, waiters: int = 100) -> LockInfo:
        """Return the holder and the queue of a lock. Changes nothing; for a free lock, ``held`` is False.

        ``held_as`` says whether the name is held as a semaphore, rwlock or election.

        Args:
            name: The name.
            waiters: Maximum number of waiters to list, from 0 to 100,000; default 100.

        Raises:
            ConfigurationError: A name or number that can never work.
            BackendError: The server could not be reached.
            ClientClosed: The client was closed.
        """
        plan = plan_of(self._settings, "lock", name, {})
        return await _seen.inspect(engine_here(self), plan, waiters)

    async def locks(self, *, progress: Callable[[int, int], object] | None = None) -> list[LockInfo]:
        """List the held names of the namespace, of all clients, sorted by name.

        Scans the keys of the server, a thousand at a time with a pause after each step, so that other clients are never
        blocked for long; a million keys take a few seconds. A name that is held throughout the scan is always listed;
        one that is acquired or released meanwhile may be missing.

        Args:
            progress: Called after each step with the number of keys scanned so far, and the approximate total.

        Raises:
            BackendError: The server could not be reached.
            NotSupported: Independent masters (Redlock) keep no common record.
            ClientClosed: The client was closed.
        """
        return await _seen.locks(engine_here(self), self._settings.options, progress)

    async def force_release(
        self,
        name: str | Key,
        kind: Literal["lock", "semaphore", "rwlock", "election", "once"] = "lock",
        *,
        reason: str,
        holder: str = "",
        by: str = "",
    ) -> Forced:
        """End the lease of a holder, and grant what it held to the next waiter.

        The fencing token increases, so guarded writes refuse the old holder once the next one has written. The old
        holder sees the loss with ``LossReason.TAKEN`` at its next renewal, after a third of its ttl at most. What it
        does until then is not undone.

        Args:
            name: The name.
            kind: As what it is held: ``"lock"`` (also an ``rlock`` or ``fair_lock``), ``"semaphore"``, ``"rwlock"``,
                ``"election"`` or ``"once"``.
            reason: Why, in 1 to 500 characters; recorded in the audit log with who did it and when.
            holder: Only what this one holds, as ``inspect`` shows it; default: all who hold the name at that moment.
            by: Who does it, for the audit log, in at most 500 characters; default ``user@host``, of the user that
                called ``sudo`` (``SUDO_USER``), else of ``USER``.

        Raises:
            NotHeld: Nothing was released: nobody holds it as that, or it changed hands each time that it was to be taken.
            ConfigurationError: A name, kind or reason that can never work.
            BackendError: The server could not be reached, or the audit log could not be written.
            NotSupported: Independent masters (Redlock) keep no common record.
            ClientClosed: The client was closed.
        """
        plan = plan_of(self._settings, "lock", name, {})
        return await operator.force_release(engine_here(self), plan, kind, reason, holder, by or this_user())

    async def audit(self, limit: int = 100) -> list[AuditEntry]:
        """Return the audit log of this namespace, newest first.

        Args:
            limit: Maximum number of entries, from 1 to 1,000, which is all that is kept; default 100. The log is kept
                for 90 days after its last entry.

        Raises:
            ConfigurationError: A limit that can never work.
            BackendError: The server could not be reached.
            NotSupported: Independent masters (Redlock) keep no common record.
            ClientClosed: The client was closed.
        """
        return await operator.audit(engine_here(self), self._settings.options, limit)

    async def check(self) -> list[ServerReport]:
        """Check the servers for settings that would break a guarantee, as ``pawlock doctor`` does, and try a lock.

        It takes about a second, to measure the clock. Beside the trial lock, ``pawlock-check``, it changes nothing. What
        the server does not disclose is a finding of ``Severity.UNKNOWN``, never a fault.

        Returns:
            For each server, and for independent masters together, what was found; each finding with the guarantee that it
            affects and the fix.

        Raises:
            ClientClosed: The client was closed.
        """
        plan = plan_of(self._settings, "lock", TRIAL, TRIED)
        engine_here(self).check_open(TRIAL)
        return await with_trial(engine_here(self), plan, await self._examine())

    async def ping(self) -> float:
        """Ask the server one question, and return how many seconds the answer took; of several masters, a majority's.

        The first one includes the time to connect.

        Raises:
            BackendError: The server could not be reached, or refused.
            ClientClosed: The client was closed.
        """
        plan = plan_of(self._settings, "lock", TRIAL, TRIED)
        return await ping(engine_here(self), plan)

    async def adopt(self, ticket: str, **options: Unpack[LockKwargs]) -> AsyncLease:
        """Continue a lease that ``AsyncLease.detach`` detached, here or in another process.

        Args:
            ticket: The text that ``detach`` returned.
            options: As for ``lock``. The remaining life is set to ttl, which is the ticket's unless given.

        Raises:
            NotHeld: It expired, was already adopted, or another client has acquired the lock.
            ConfigurationError: The ticket is invalid, or of another namespace.
        """
        content, plan = self._settings.plan_of_ticket(ticket, options)
        return given(await transfer.adopt(engine_here(self), plan, content))

    async def release(self, name: str | Key, token: str) -> None:
        """End a lease by its token, from any process: what another one acquired, or what was detached.

        Args:
            name: The name of a ``lock``, ``rlock`` or ``fair_lock``.
            token: ``lease.token``, or the ticket of ``lease.detach()``.

        Who acquired it learns of its end with its next renewal. All levels of a re-entered lease end.

        Raises:
            NotHeld: No lease with that token holds the name: it was released, has expired, or was taken away.
            ConfigurationError: It is no token, or the ticket is of another name.
            BackendError: The server did not answer, or refused; the TTL frees the lock at the latest.
            NotSupported: Independent masters (Redlock) count their votes where the lease was acquired.
        """
        plan = plan_of(self._settings, "lock", name, {})
        await stateless.release_by_token(engine_here(self), plan, token)

    async def extend(self, name: str | Key, token: str, ttl: Seconds) -> float:
        """Extend a lease by its token, from any process; its own client goes on renewing it.

        Args:
            name: The name of a ``lock``, ``rlock`` or ``fair_lock``.
            token: ``lease.token``, or the ticket of ``lease.detach()``.
            ttl: Seconds from now, from 0.05 to 366 days. Less than what is left shortens nothing on the server.

        Returns:
            Seconds for which the name is held at least.

        Raises:
            NotHeld: No lease with that token holds the name: it was released, has expired, or was taken away.
            ConfigurationError: It is no token, the ticket is of another name, or ttl can never work.
            BackendError: The server could not be reached.
            NotSupported: Independent masters (Redlock) count their votes where the lease was acquired.
        """
        plan = plan_of(self._settings, "lock", name, {"ttl": ttl})
        return await stateless.extend_by_token(engine_here(self), plan, token)
