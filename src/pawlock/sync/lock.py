# Written by tools/make_sync.py from aio/lock.py: change that, and run it.
"""The locks of threads and their leases. Thin shells: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Never, ParamSpec, TypeVar, overload
from weakref import ref

from pawlock._decorate import Guarding, OnContended, Skipping, decorated
from pawlock._described import Described
from pawlock._fallback import ACQUIRE, holds
from pawlock._hints import refuse_words
from pawlock._inside import engine_of, settings_of
from pawlock._unset import UNSET, Unset
from pawlock.core import extend, transfer
from pawlock.core.base_lease import LossSignal
from pawlock.core.inspect import inspect
from pawlock.core.lease import HeldLease, lease_of, raise_outcome, release
from pawlock.core.options import Seconds, check_timeout, check_ttl
from pawlock.core.plan import Plan
from pawlock.core.runtime import StopSignal
from pawlock.model import Release
from pawlock.runtimes.threads import at_once, run
from pawlock.sync.block import LeaseBlock, LockBlock

__all__ = [
    "BaseLock",
    "Lease",
    "Lock",
    "Lost",
    "WriteLease",
    "given",
    "given_to_write",
    "shown",
]

P = ParamSpec("P")
R = TypeVar("R")


class Lost(LossSignal):
    """Whether a lease is lost: true in a condition once it is, by the local clock."""

    __slots__ = ()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the lease is lost or released.

        Args:
            timeout: Seconds to sleep at most; None (default) as long as it takes, 0 only looks.

        Returns:
            True if it is lost.

        Raises:
            ConfigurationError: ``timeout`` is negative, NaN or no number.
        """
        return run(self._wait(timeout))


class Lease(LeaseBlock):
    """A grant that its owner may rely on until ``valid_until``; a context manager that releases at its end."""

    __slots__ = ()

    def __init__(self, record: HeldLease) -> None:
        self._record = record
        # Whoever takes it once more, or hears of its loss, gets the same object.
        record.shown_as = ref(self)

    def release(self) -> None:
        """Release the lock; the next waiter gets it immediately.

        Raises:
            NotHeld: It was already lost or released; nothing was changed.
            BackendError: The server did not answer, or refused; the TTL frees the lock at the latest.
        """
        record = self._record
        outcome = run(release(record.engine, record))
        if outcome is not Release.RELEASED:
            raise_outcome(record, outcome)

    @property
    def lost(self) -> Lost:
        """Whether the lease is lost; ``lost.wait(timeout)`` sleeps until then."""
        return Lost(self._record)

    def extend(self, ttl: Seconds) -> None:
        """Set the remaining life to ``ttl``; it never adds. The new ttl also serves later renewals.

        Args:
            ttl: Seconds, from 0.05 to 366 days. Less than what is left shortens the lease at once, for its owner
                only: the server keeps the name until the life it knows ends or the lease is released.

        Raises:
            NotHeld: It is lost or released.
            ConfigurationError: ttl can never work.
            BackendError: The server could not be reached.
        """
        run(extend.extend(self._record.engine, self._record, check_ttl(ttl)))

    def detach(self) -> str:
        """Stop renewing the lease without releasing it; another process may ``adopt`` the returned ticket.

        Returns:
            A ticket: text that holds the token, as secret as the lease. It can be used once, within the TTL.

        Raises:
            NotHeld: It is lost or released.
            NotSupported: Its kind cannot go on in another process.
        """
        return transfer.detach(self._record.engine, self._record)


class WriteLease(Lease):
    """The lease of a writer, which excludes all others; ``downgrade`` turns it into a reader's."""

    __slots__ = ()

    @property
    def writing(self) -> bool:
        """True until ``downgrade`` was called, even after a loss."""
        return self._record.hold.primitive.lowered() is not None

    def downgrade(self) -> None:
        """Downgrade to a read lease atomically: no writer comes in between, and waiting readers are granted.

        From the call on it is a read lease, whatever the answer: renewals repeat the downgrade if needed. The
        fencing token stays, and must not be used to write any more.

        Raises:
            NotHeld: It is lost, released, a reader's already, or held more than once (leave the inner blocks first).
            BackendError: The server did not answer; the lease is a reader's all the same.
        """
        run(extend.downgrade(self._record.engine, self._record))


def shown(record: HeldLease) -> Lease:
    """What the user sees of a lease: the same object each time."""
    return lease_of(Lease if record.hold.primitive.lowered() is None else WriteLease, record)


given: Callable[[HeldLease], Lease] = partial(lease_of, Lease)
"""The same, for the caller that acquired it."""

given_to_write: Callable[[HeldLease], WriteLease] = partial(lease_of, WriteLease)
"""The same for a writer."""


class BaseLock(Described, LockBlock[Lease]):
    """A lock of any kind: immutable, picklable, shared by any number of threads."""

    __slots__ = ()
    _plan: Plan

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, /, *, on_contended: Literal["skip"]) -> Skipping: ...
    @overload
    def __call__(self, /, *, on_contended: Literal["wait", "raise"]) -> Guarding: ...

    def __call__(
        self, function: Callable[..., Any] | Unset = UNSET, /, *, on_contended: OnContended | Unset = UNSET
    ) -> Any:
        """Decorate a function or method: each call runs under the lock, named by the call's arguments.

        Args:
            function: What to run. Fields of the lock's name, as in ``"inventory:{product_id}"``, are filled from the
                arguments of each call.
            on_contended: What a call does while another client holds the lock, as in
                ``@client.lock("report")(on_contended="skip")``. ``"wait"`` (default) waits as long as the lock's
                ``timeout``; ``"raise"`` raises ``NotAcquired`` at once; ``"skip"`` returns None without running it.

        Returns:
            The function with the same signature; without one, what decorates it.

        Raises:
            ConfigurationError: The function belongs to the other API, or lacks an argument that a field needs.
        """
        return decorated(self, function, on_contended)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._plan.primitive.kind} {self.name!r} ttl={self._plan.options.ttl:g}>"


class Lock(BaseLock):
    """The description of a lock: immutable, picklable, shared by any number of threads. It holds nothing itself.

    ``with lock as lease:`` acquires and releases; made by ``Client.lock``,
    ``Client.rlock`` and ``Client.fair_lock``. Also a decorator.
    """

    __slots__ = ()

    def acquire(
        self,
        timeout: Seconds | Unset | None = UNSET,
        *,
        ttl: Seconds | None = None,
        stop: StopSignal | None = None,
        **unknown: Never,
    ) -> Lease:
        """Acquire the lock; wait in its queue if another client holds it.

        Args:
            timeout: Seconds to wait; None waits indefinitely, 0 tries once; default: the lock's own ``timeout``.
            ttl: The TTL of this lease in seconds; default: the lock's own.
            stop: An event; once it is set, a wait in the queue ends with ``NotAcquired`` within 0.05 s.
            unknown: None. Words of other libraries, as ``blocking``, raise a ``TypeError`` that names pawlock's.

        Raises:
            AcquireTimeout: It was still held at the end of ``timeout``.
            DeadlockDetected: A block around this call holds it, or a cycle of waiters ends here.
            QueueFull: More than ``max_waiters`` wait.
            BackendError: The server could not be reached, or refused.
            ClientClosed: The client was closed.
        """
        if unknown:
            refuse_words("acquire", unknown)
        plan = self._plan if ttl is None else settings_of(self._client).with_ttl(self._plan, ttl)
        wait = plan.options.timeout if timeout is UNSET else check_timeout(timeout)
        return at_once(
            ACQUIRE[plan.options.on_unavailable](engine_of(self._client), plan, wait, stop, give=given)
        )

    def try_acquire(self) -> Lease | None:
        """Acquire the lock if it is free now; None if it is held, also by this thread, or others of its client are asking.

        Raises:
            BackendError: The server could not be reached, or refused; the result is never None then.
        """
        how = ACQUIRE[self._plan.options.on_unavailable]
        return at_once(how(engine_of(self._client), self._plan, 0, or_none=True, give=given))

    def held_by_me(self) -> bool:
        """Whether this thread holds the lock now by a lease of this client that has not ended. No server is asked.

        False in every other thread, also where it uses a lease of this one, and once the lease is released, lost or
        expired by the local clock. A writer may read: while it writes, this is true of the read lock as well.
        """
        return holds(engine_of(self._client), self._plan)

    def locked(self) -> bool:
        """Whether the lock is held now. It may change at any time: use it for display, never to decide."""
        return run(inspect(engine_of(self._client), self._plan.primitive, self._plan.options, 0)).held
