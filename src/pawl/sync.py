"""The client of threads. A thin shell: what happens is decided in ``pawl.core``."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import sys
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack, cast

from pawl._factory import LockKwargs, Settings, description, find_endpoint, live_clients, plan_of, revive
from pawl.core import endings, operations
from pawl.core.claim import StopSignal
from pawl.core.engine import Engine
from pawl.core.info import inspect
from pawl.core.lease import BaseLease, LossSignal
from pawl.core.options import Seconds, check_timeout, check_ttl
from pawl.errors import PawlError
from pawl.model import LockInfo
from pawl.runtimes.threads import ThreadRuntime, run

if TYPE_CHECKING:
    from pawl.core.operations import Plan

__all__ = ["Client", "Lease", "Lock", "Lost"]


class _Unset:
    """Marks "not given" where None means something."""


UNSET = _Unset()


class Lost(LossSignal):
    """Whether a lease is lost: true in a condition once it is, by the local clock."""

    __slots__ = ()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the lease is lost or released.

        Args:
            timeout: Seconds to sleep at most; None (default) as long as it takes.

        Returns:
            True if it is lost.
        """
        return run(self._wait(timeout))


class Lease(BaseLease):
    """A grant that its owner may rely on until ``valid_until``; a context manager that releases at its end."""

    __slots__ = ()

    @property
    def lost(self) -> Lost:
        """Whether it is lost; ``lost.wait(timeout)`` sleeps until then."""
        return Lost(self)

    def extend(self, ttl: Seconds) -> None:
        """Set the remaining life to ``ttl``; it never adds. The new ttl also serves later renewals.

        Args:
            ttl: Seconds, from 0.05 to 366 days. Less than what is left shortens the lease at once, for its owner
                only: the server keeps the name until the life it knows ends or the lease is released.

        Raises:
            NotHeld: It is lost or released.
            ConfigurationError: ttl can never work.
            BackendError: The server could not be asked.
        """
        run(endings.extend(self._engine, self, check_ttl(ttl)))

    def release(self) -> None:
        """Give the name back; its next waiter is served at once.

        Raises:
            NotHeld: It was lost or released before; nothing was touched.
            BackendUnavailable: The server did not answer; the ttl frees the name at the latest.
        """
        run(endings.release_or_raise(self._engine, self))

    def detach(self) -> str:
        """Stop caring for the lease without releasing it; another process may ``adopt`` the returned ticket.

        Returns:
            A ticket: text that holds the token, as secret as the lease. It serves once, as long as the ttl.

        Raises:
            NotHeld: It is lost or released.
            NotSupported: It is held for an explicit ``owner=``.
        """
        return endings.detach(self._engine, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(endings.end_block(self._engine, self, error))


class Lock:
    """The description of a lock: immutable, picklable, shared by any number of threads. It holds nothing itself.

    ``with lock as lease:`` acquires and releases; made by ``Client.lock`` and ``Client.rlock``.
    """

    __slots__ = ("__weakref__", "_client", "_entered", "_plan", "_source")

    def __init__(self, client: Client, plan: Plan, source: tuple[Any, ...]) -> None:
        self._client = client
        self._plan = plan
        self._source = source
        self._entered: list[tuple[object, Lease]] = []

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
    ) -> Lease:
        """Take the lock, waiting in its queue if somebody holds it.

        Args:
            timeout: Seconds to wait; None for ever, 0 tries once; default: the lock's own ``timeout``.
            ttl: The ttl of this lease in seconds; default: the lock's own.
            stop: An event; once it is set, a wait in the queue ends with ``NotAcquired`` within 0.05 s.

        Raises:
            AcquireTimeout: It was still held at the end of ``timeout``.
            DeadlockDetected: This thread holds it already.
            QueueFull: More than ``max_waiters`` wait.
            BackendError: The server could not be asked, or refused.
            ClientClosed: The client was closed.
        """
        plan = self._client._prepare(self._plan, ttl)
        wait = plan.options.timeout if isinstance(timeout, _Unset) else check_timeout(timeout)
        return run(operations.acquire(self._client._engine, plan, Lease, wait, stop))

    def try_acquire(self) -> Lease | None:
        """Take the lock if it is free now; None if somebody holds it, also this thread itself.

        Raises:
            BackendError: The server could not be asked, or refused: that is never answered with None.
        """
        plan = self._client._prepare(self._plan, None)
        return run(operations.try_acquire(self._client._engine, plan, Lease))

    def locked(self) -> bool:
        """Whether anybody holds the name now; old as soon as it is known, so never a reason to go ahead."""
        return run(inspect(self._client._engine, self._plan.primitive, self._plan.options, 0)).held

    def __enter__(self) -> Lease:
        lease = self.acquire()
        # Not append: after a call a signal handler may run, and nobody would leave the block that was not begun.
        self._entered += [(lease._who, lease)]
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = endings.take_entered(self._entered, self._client._engine.runtime.who())
        run(endings.end_block(self._client._engine, lease, error))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._plan.primitive.kind} {self.name!r} ttl={self._plan.options.ttl:g}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return revive, (Client, description(self._client._origin), *self._source)


class Client:
    """The door to the locks of one server, for threads; made by ``pawl.connect``. Shared by any number of threads.

    Nothing is sent before the first use. A context manager that closes at its end.
    """

    def __init__(self, target: object = None, *, namespace: str | None = None, **defaults: Any) -> None:
        self._settings = Settings(defaults, namespace, may_be_async=False)
        self._origin = (target, {"namespace": namespace, **defaults})
        self._runtime = ThreadRuntime(find_endpoint(target), self._settings.wake_prefix)
        self._engine = Engine(self._runtime, self)
        self._warned = False
        live_clients.add(self)

    def lock(self, name: str, **options: Unpack[LockKwargs]) -> Lock:
        """A lock that one owner holds at a time.

        Args:
            name: 1 to 200 bytes of text.
            options: See ``pawl.LockOptions``: ttl, timeout, renew, max_hold, handover, …

        Raises:
            ConfigurationError: A name or option that can never work.
        """
        return Lock(self, plan_of(self._settings, "lock", name, options), ("lock", name, options, None))

    def rlock(self, name: str, *, owner: str | None = None, **options: Unpack[LockKwargs]) -> Lock:
        """A lock that its holder may take again: the name is free after as many releases as acquisitions.

        Args:
            name: 1 to 200 bytes of text.
            owner: Who re-enters. None (default): the thread, counted here without the network. Text: whoever gives
                the same owner, in any process, counted on the server.
            options: As for ``lock``.

        Raises:
            ConfigurationError: A name, owner or option that can never work.
        """
        return Lock(
            self, plan_of(self._settings, "rlock", name, options, owner), ("rlock", name, options, owner)
        )

    def inspect(self, name: str, *, waiters: int = 100) -> LockInfo:
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
        return run(inspect(self._engine, plan.primitive, plan.options, waiters))

    def adopt(self, ticket: str, **options: Unpack[LockKwargs]) -> Lease:
        """Go on with a lease that ``Lease.detach`` gave away, here or in another process.

        Args:
            ticket: What ``detach`` returned.
            options: As for ``lock``; ttl is the ticket's unless given.

        Raises:
            NotHeld: It ran out, was adopted already, or somebody else took the name.
            ConfigurationError: It is no ticket, or of another namespace.
        """
        content, plan = self._settings.plan_of_ticket(ticket, options)
        return cast("Lease", run(endings.adopt(self._engine, plan, content, Lease)))

    def close(self, timeout: Seconds | None = 5.0) -> None:
        """Release all leases, wake waiting threads with ``ClientClosed``, close all connections. Safe to repeat.

        Args:
            timeout: Seconds that the releases may take in all; None: 5. Later their ttl frees the names.
        """
        patience = check_timeout(timeout)
        run(
            endings.close(
                self._engine, self._runtime.interrupt_waiters, 5.0 if patience is None else patience
            )
        )
        self._runtime.shut_down(1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client namespace={self._settings.namespace!r}{' closed' if self._engine.closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client cannot be pickled: it owns connections; connect in the other process, or pass a Lock"
        )

    def __del__(self) -> None:
        # Each lease keeps its client alive: there is none left to serve.
        runtime = getattr(self, "_runtime", None)
        if runtime is not None:
            runtime.abandon()

    @property
    def _closed(self) -> bool:
        return self._engine.closed

    def _prepare(self, plan: Plan, ttl: Seconds | None) -> Plan:
        if asyncio._get_running_loop() is not None and not self._warned:
            self._warned = True
            text = "a pawl client of threads blocks this event loop; use pawl.connect_async() in asyncio code"
            level = 2
            while sys._getframe(level - 1).f_globals.get("__name__") == __name__:
                level += 1
            warnings.warn(text, RuntimeWarning, stacklevel=level)
        return plan if ttl is None else self._settings.with_ttl(plan, ttl)

    def _after_fork(self) -> None:
        self._runtime.after_fork()
        self._engine.after_fork()


def _close_all() -> None:
    for client in list(live_clients):
        if isinstance(client, Client):
            with contextlib.suppress(PawlError):
                client.close(1.0)


atexit.register(_close_all)
