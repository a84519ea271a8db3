"""What is done once, for asyncio. Thin shells: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from pawlock._block import begun
from pawlock._decorate import decorated_once_async
from pawlock._described import Described
from pawlock._inside import engine_here
from pawlock._unset import UNSET, Unset
from pawlock.aio.block import Entered, check_home, enter_block, leave_block
from pawlock.aio.lock import AsyncLease, shown
from pawlock.core.lease import HeldLease
from pawlock.core.options import Seconds, check_ttl
from pawlock.core.runtime import StopSignal
from pawlock.model import Done, Running
from pawlock.primitives.once import operation as once

__all__ = ["AsyncOnce", "AsyncStarted"]

P = ParamSpec("P")
R = TypeVar("R")


class AsyncStarted:
    """The right to run it, and the duty to report the result; made by ``AsyncOnce.begin``.

    It holds a lease, renewed until ``finish`` or ``abandon``. Keep it: one that is dropped is not renewed any more.

    Attributes:
        lease: The lease: its ``check()`` before a step that must not run unprotected, its ``lost``.
    """

    __slots__ = ("_start", "lease")

    def __init__(self, start: once.Start) -> None:
        self._start = start
        self.lease: AsyncLease = shown(start.lease)

    @property
    def fence(self) -> int:
        """The fencing token of the lease; that of a later start is larger."""
        return self.lease.fence

    async def finish(self, value: Any = None, *, keep: Seconds | None = None) -> None:
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
            NotSupported: This is another event loop than that which acquired it; nothing was touched.
        """
        check_home(self._start.lease, "finish")
        seconds = self._start.keep if keep is None else check_ttl(keep, "keep")
        await once.finish(self._start, value, seconds)

    async def abandon(self) -> None:
        """Free the name without a result; the next who waits starts.

        Raises:
            NotHeld: It was finished, abandoned or lost before.
            BackendError: The server did not answer; the TTL frees the name at the latest.
            NotSupported: This is another event loop than that which acquired it; nothing was touched.
        """
        check_home(self._start.lease, "abandon")
        await once.abandon(self._start)

    def __repr__(self) -> str:
        return f"<AsyncStarted {self.lease.name!r} fence={self.fence}>"


class AsyncOnce(Described, Entered["once.Start | None"]):
    """Something that is to be done once. Made by ``AsyncClient.once``; shared by any number of tasks.

    ``begin`` says what to do; as a context manager it gives what ``begin`` gives, and finishes or abandons at the end;
    as a decorator it runs a function once, and returns its result to every other caller.
    """

    __slots__ = ()

    async def begin(
        self,
        *,
        wait: bool | None = None,
        timeout: Seconds | Unset | None = UNSET,
        stop: StopSignal | None = None,
    ) -> AsyncStarted | Running | Done:
        """Start it, or find out who runs it or what came of it.

        Args:
            wait: True to wait for the client that runs it: for its result or, if it gives up or dies, for the start.
                Default: the object's own.
            timeout: Seconds to wait; None waits indefinitely; default: the object's own ``timeout``.
            stop: An event; once it is set, the wait ends with ``NotAcquired`` within 0.05 s.

        Returns:
            ``AsyncStarted``: it is the caller's to do. ``Running``: another client does it (never with ``wait``).
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
        found = await once.begin(engine_here(self._client), plan, limit if waits else 0, stop)
        if isinstance(found, HeldLease):
            return AsyncStarted(once.Start(plan, found, check_ttl(given["keep"])))
        return found

    async def forget(self) -> bool:
        """Delete the recorded result, so that it can be done once more. A client that runs it now is not affected.

        Returns:
            False if there was none.

        Raises:
            BackendError: The server could not be reached, or refused.
        """
        return await once.forget(engine_here(self._client), self._plan)

    async def __aenter__(self) -> AsyncStarted | Running | Done:
        block = begun(self)
        found = await self.begin()
        start = found._start if isinstance(found, AsyncStarted) else None  # noqa: SLF001 - its block ends it
        self._begin(block, start)
        if start is not None:
            enter_block(start.lease, block)
        return found

    async def _end(self, held: once.Start | None, error: BaseException | None) -> None:
        if held is not None:
            start = held
            await leave_block(start.lease, error, lambda _, error: once.end_block(start, error))

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a coroutine function or method: it runs once, and each other call returns its result.

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
        return decorated_once_async(self, function)
