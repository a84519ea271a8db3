"""The election of asyncio. Thin shells: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, ParamSpec, Self, TypeVar, overload

from pawlock._candidacy import Candidacy
from pawlock._coordinate import guard_async
from pawlock._decorate import Guarding, Skipping
from pawlock._described import Described, Source
from pawlock._inside import engine_here, is_closed
from pawlock._unset import UNSET, Unset
from pawlock.aio.block import Acquiring, check_home
from pawlock.aio.leading import clock, lead, pause
from pawlock.aio.lock import AsyncLease, given
from pawlock.core.options import Seconds
from pawlock.core.plan import Plan
from pawlock.core.runtime import StopSignal
from pawlock.errors import BackendError, ClientClosed, DeadlockDetected, LeaseLost, NotAcquired
from pawlock.model import Leader
from pawlock.primitives.election import operation as election

__all__ = ["AsyncElection", "AsyncLeaders"]

P = ParamSpec("P")
R = TypeVar("R")


class AsyncLeaders:
    """Who leads, at first and after each change; made by ``AsyncElection.observe``.

    An async iterator, and an async context manager. A reader that is slower than the changes sees the latest. It ends
    when it or the client is closed.
    """

    __slots__ = ("_watch",)

    def __init__(self, watch: election.Watch) -> None:
        self._watch = watch

    def close(self) -> None:
        """End it, also for another task that waits for the next change. Safe to repeat."""
        self._watch.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Leader | None:
        found = await self._watch.next()
        if isinstance(found, election.Ended):
            raise StopAsyncIteration
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def _elected(
    client: object, plan: Plan, leadership: election.Leadership, wait: float | None, stop: StopSignal | None
) -> AsyncLease:
    return given(await election.campaign(engine_here(client), plan, leadership, wait, stop))


class AsyncElection(Described):
    """One of several candidates leads, and every client can see which one. Made by ``AsyncClient.election``.

    Shared by any number of tasks; ``resign``, ``leading`` and ``leader_only`` are about the leadership that was last
    won through this object.
    """

    __slots__ = ("_leadership",)

    def __init__(self, client: object, plan: Plan, source: Source) -> None:
        super().__init__(client, plan, source)
        self._leadership = election.Leadership(plan.primitive.name)

    def campaign(
        self, timeout: Seconds | Unset | None = UNSET, *, stop: StopSignal | None = None
    ) -> Acquiring[AsyncLease]:
        """Stand for election, and wait until elected. Candidates are elected in FIFO order.

        Await it, or enter it with ``async with``.

        Args:
            timeout: Seconds to wait; None waits indefinitely, 0 tries once; default: the election's own ``timeout``.
            stop: An event; once it is set, the wait ends with ``NotAcquired`` within 0.05 s.

        Returns:
            The lease to lead with; leave its ``async with`` block, release it or ``resign`` to give up leading.
            Keep it: a lease that is dropped is not renewed.

        Raises:
            AcquireTimeout: Somebody else still led at the end of ``timeout``.
            DeadlockDetected: A block around this call leads.
            QueueFull: More than ``max_waiters`` stand.
            BackendError: The server could not be reached, or refused.
            ClientClosed: The client was closed.
        """
        plan, wait = self._asked(self._plan, timeout)
        return Acquiring(_elected(self._client, plan, self._leadership, wait, stop))

    async def run(
        self,
        function: Callable[[AsyncLease], Awaitable[R]],
        *,
        stop: StopSignal | None = None,
        backoff: tuple[Seconds, Seconds] = (1.0, 60.0),
    ) -> R | None:
        """Run a function while leading, again and again: the whole loop of a candidate.

        It stands for election and calls the function once elected. When leadership is lost, it stands again. When the
        function raises, it resigns, logs the error (``pawlock.election``) and stands again after a pause, so that another
        candidate can lead meanwhile. While the server is away it keeps trying. It ends when the function returns, when
        ``stop`` is set or the client is closed; it then has resigned.

        Args:
            function: What the leader does with its lease. In asyncio it is a coroutine function, cancelled at its next
                await when the lead is lost, when ``stop`` is set or when this call is cancelled; this resigns after it
                has ended. A function of threads is not interrupted: it calls ``lease.check()`` before each step that
                must not happen late, or waits with ``lease.lost.wait(seconds)`` between steps.
            stop: An event. Once it is set, a wait for election ends within 0.05 s, and so does a coroutine function; a
                function of threads has to watch it too.
            backoff: Seconds of the pause after the first failure of the function, and of the longest: it doubles from
                failure to failure, with jitter, and starts anew after a leadership that was longer than the longest.
                Default 1 and 60; at least 0.05. While the server is away the pause is always the first.

        Returns:
            What the function returned; None if ``stop`` or ``close()`` ended it.

        Raises:
            DeadlockDetected: A block around this call leads.
            ConfigurationError: ``backoff`` can never work.
        """
        candidacy = Candidacy(self.name, stop, backoff)
        while not candidacy.stopped() and not is_closed(self._client):
            try:
                lease = await self.campaign(None, stop=stop)
            except ClientClosed:
                break
            except DeadlockDetected:
                raise
            except (BackendError, NotAcquired) as error:
                if not candidacy.stopped():
                    await pause(self._client, candidacy, candidacy.unavailable(error))
                continue
            began = clock()
            try:
                async with lease:
                    return await lead(candidacy, function, lease)
            except Exception as error:  # noqa: BLE001 - whatever the function raises, it stands again
                candidacy.led(clock() - began)
                if isinstance(error, LeaseLost) and lease.lost:
                    candidacy.lost(error)
                elif not candidacy.stopped():
                    await pause(self._client, candidacy, candidacy.failed(error))
        return None

    async def resign(self) -> None:
        """Resign; the next candidate leads immediately.

        Raises:
            NotHeld: This object does not lead (any more).
            BackendUnavailable: The server did not answer; the TTL ends the leadership at the latest.
            NotSupported: This is another event loop than that which acquired it; nothing was touched.
        """
        check_home(self._leadership.leading(), "resign")
        await election.resign(self._leadership)

    @property
    def leading(self) -> bool:
        """Whether this object leads now, by the local clock. Sends nothing."""
        return self._leadership.lease() is not None

    async def leader(self) -> Leader | None:
        """The current leader, or None. It may change at any time.

        Raises:
            BackendError: The server could not be reached, or refused.
        """
        return await election.leader(engine_here(self._client), self._plan)

    def observe(self) -> AsyncLeaders:
        """The current leader, then each change: an async iterator of ``Leader``, or None without one.

        Its next step raises ``BackendError`` if the server cannot be reached for ``unavailable_after``, and
        ``QueueFull`` if more than ``max_waiters`` observe; it may be asked again.
        """
        return AsyncLeaders(election.Watch(engine_here(self._client), self._plan))

    @overload
    def leader_only(self, function: Callable[P, R]) -> Callable[P, R]: ...
    @overload
    def leader_only(self, *, on_follower: Literal["raise"] = "raise") -> Guarding: ...
    @overload
    def leader_only(self, *, on_follower: Literal["skip"]) -> Skipping: ...

    def leader_only(self, function: Callable[..., Any] | None = None, *, on_follower: str = "raise") -> Any:
        """Decorate a function or coroutine function that only the leader may run.

        It asks the local clock before the call, and again after it: a call whose leadership was lost meanwhile raises
        ``LeaseLost`` in place of its result. A loss cancels a coroutine at its next await.

        Args:
            function: What to run.
            on_follower: What a call does where this object does not lead: ``"raise"`` (default) raises ``NotHeld``,
                ``"skip"`` returns None.

        Returns:
            The function with the same signature.

        Raises:
            ConfigurationError: It is no function, or ``on_follower`` is neither.
        """
        return guard_async(self._leadership, function, on_follower)
