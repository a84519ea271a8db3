# Written by tools/make_sync.py from aio/once.py: change that, and run it.
"""What is done once, for threads. Thin shells: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pawlock._block import begun
from pawlock._decorate import decorated_once
from pawlock._described import Described
from pawlock._inside import engine_of
from pawlock._unset import UNSET, Unset
from pawlock.core.lease import HeldLease
from pawlock.core.options import Seconds, check_ttl
from pawlock.core.runtime import StopSignal
from pawlock.model import Done, Running
from pawlock.primitives.once import operation as once
from pawlock.runtimes.threads import run
from pawlock.sync.block import Entered, enter_block, leave_block
from pawlock.sync.lock import Lease, shown

__all__ = ["Once", "Started"]

P = ParamSpec("P")
R = TypeVar("R")


class Started:
    """The right to run it, and the duty to report the result; made by ``Once.begin``.

    It holds a lease, renewed until ``finish`` or ``abandon``. Keep it: one that is dropped is not renewed any more.

    Attributes:
        lease: The lease: its ``check()`` before a step that must not run unprotected, its ``lost``.
    """

    __slots__ = ("_start", "lease")

    def __init__(self, start: once.Start) -> None:
        self._start = start
        self.lease: Lease = shown(start.lease)

    @property
    def fence(self) -> int:
        """The fencing token of the lease; that of a later start is larger."""
        return self.lease.fence

    def finish(self, value: Any = None, *, keep: Seconds | None = None) -> None:
        """Record the result and free the name, in one step: everybody who waits or comes later gets the value.

        Args:
            value: None, bytes, text, or anything that JSON can express (a tuple comes back as a list); 64 KiB at most.
            keep: Seconds for which the result is kept, from 0.05 to 366 days; default: the object's own.

        Raises:
            LeaseLost: The lease was lost first. Nothing was recorded, and another client may have started it. Also
                where the reply was lost, this process stood still for over a minute, and the record is gone again.
            NotHeld: It was finished or abandoned before.
            ConfigurationError: The value is too large or cannot be expressed; the lease is kept.
            BackendError: The server refused, or did not answer. The request is repeated in the background for a
                minute; ``begin`` says later whether the result was recorded.
        """
        seconds = self._start.keep if keep is None else check_ttl(keep, "keep")
        run(once.finish(self._start, value, seconds))

    def abandon(self) -> None:
        """Free the name without a result; the next who waits starts.

        Raises:
            NotHeld: It was finished, abandoned or lost before.
            BackendError: The server did not answer; the TTL frees the name at the latest.
        """
        run(once.abandon(self._start))

    def __repr__(self) -> str:
        return f"<Started {self.lease.name!r} fence={self.fence}>"


class Once(Described, Entered["once.Start | None"]):
    """Something that is to be done once. Made by ``Client.once``; shared by any number of threads.

    ``begin`` says what to do; as a context manager it gives what ``begin`` gives, and finishes or abandons at the end;
    as a decorator it runs a function once, and returns its result to every other caller.
    """

    __slots__ = ()

    def begin(
        self,
        *,
        wait: bool | None = None,
        timeout: Seconds | Unset | None = UNSET,
        stop: StopSignal | None = None,
    ) -> Started | Running | Done:
        """Start it, or find out who runs it or what came of it.

        Args:
            wait: True to wait for the client that runs it: for its result or, if it gives up or dies, for the start.
                Default: the object's own.
            timeout: Seconds to wait; None waits indefinitely; default: the object's own ``timeout``.
            stop: An event; once it is set, the wait ends with ``NotAcquired`` within 0.05 s.

        Returns:
            ``Started``: it is the caller's to do. ``Running``: another client does it (never with ``wait``).
            ``Done``: it was done, with the value.

        Raises:
            AcquireTimeout: It still ran at the end of ``timeout``.
            DeadlockDetected: A block around this call runs it.
            QueueFull: More than ``max_waiters`` wait.
            BackendError: The server could not be reached, or refused.
            ClientClosed: The client was closed.
        """
        plan, limit = self._asked(self._plan, timeout)
        given = self._source[2]
        waits = given["wait"] if wait is None else wait
        found = run(once.begin(engine_of(self._client), plan, limit if waits else 0, stop))
        if isinstance(found, HeldLease):
            return Started(once.Start(plan, found, check_ttl(given["keep"])))
        return found

    def forget(self) -> bool:
        """Delete the recorded result, so that it can be done once more. A client that runs it now is not affected.

        Returns:
            False if there was none.

        Raises:
            BackendError: The server could not be reached, or refused.
        """
        return run(once.forget(engine_of(self._client), self._plan))

    def __enter__(self) -> Started | Running | Done:
        block = begun(self)
        found = self.begin()
        start = found._start if isinstance(found, Started) else None  # noqa: SLF001 - its block ends it
        self._begin(block, start)
        if start is not None:
            enter_block(start.lease, block)
        return found

    def _end(self, held: once.Start | None, error: BaseException | None) -> None:
        if held is not None:
            start = held
            leave_block(start.lease, error, lambda _, error: once.end_block(start, error))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function or method: it runs once, and each other call returns its result.

        A call that raises abandons: the next call runs the function again. While it runs elsewhere, a call waits with
        ``wait=True``, and raises ``AcquireTimeout`` without.

        Args:
            function: What to run. Fields of the name, as in ``"invoice:{number}"``, are filled from the arguments of
                each call; calls whose filled names are equal are one. What it returns must be None, bytes, text or
                JSON, of 64 KiB at most; other calls get what JSON makes of it, so of a tuple a list.

        Returns:
            The function with the same signature.

        Raises:
            ConfigurationError: The function belongs to the other API, or lacks an argument that a field needs.
        """
        return decorated_once(self, function)
