"""pawlock for APScheduler 3: of N processes with the same scheduler, one runs the jobs.

APScheduler 4 has leases of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, overload

import pawlock

__all__ = ["AsyncLeading", "Leading", "lead"]

_SLACK = 1.0
"""Seconds beyond its TTL within which the successor of a dead leader leads."""


@overload
def lead(scheduler: Any, election: pawlock.Election) -> Leading: ...
@overload
def lead(scheduler: Any, election: pawlock.AsyncElection) -> AsyncLeading: ...
def lead(scheduler: Any, election: pawlock.Election | pawlock.AsyncElection) -> Leading | AsyncLeading:
    """Run the jobs of a scheduler only while this process leads an election.

    The scheduler is started here, paused; a ``BlockingScheduler`` by the caller, after this. It resumes when this process
    is elected and pauses when the lead is lost; a job that runs then is not interrupted. ``scheduler.shutdown()`` resigns,
    after the jobs that it waits for.

    A job with a fire time in the seconds between two leaders runs, or is reported as missed, by its own
    ``misfire_grace_time``. What came due earlier, while another process led, is not run again.

    Args:
        scheduler: A ``BackgroundScheduler``, ``AsyncIOScheduler`` or other scheduler of APScheduler 3, started or not.
        election: ``client.election("cron")`` of ``pawlock.connect()``, for any scheduler; of ``pawlock.connect_async()``, for
            one in this event loop. Its ``ttl`` is how long a process that died keeps the lead.

    Returns:
        What ends it: ``close()``, or a ``with`` block (``async with``). Its ``lease`` has the fencing token.

    Raises:
        ConfigurationError: The first argument is no scheduler of APScheduler 3, has a leader already, or is a
            ``BlockingScheduler`` with an election of asyncio.
    """
    from apscheduler.schedulers.base import BaseScheduler

    if not isinstance(scheduler, BaseScheduler):
        raise pawlock.ConfigurationError(
            f"scheduler must be a scheduler of APScheduler 3, got {type(scheduler).__name__}"
        )
    if isinstance(election, pawlock.Election):
        return Leading(scheduler, election)
    if _blocks(scheduler):
        raise pawlock.ConfigurationError(
            "a BlockingScheduler keeps its thread: give it an election of pawlock.connect()"
        )
    return AsyncLeading(scheduler, election)


def _blocks(scheduler: Any) -> bool:
    """Whether ``start()`` of a scheduler returns only at its end."""
    from apscheduler.schedulers.blocking import BlockingScheduler

    # Of APScheduler's own classes: those of the background and of gevent are below this one, with another `start`.
    owners = [one for one in type(scheduler).__mro__ if one.__module__.startswith("apscheduler.")]
    return next(one for one in owners if "start" in vars(one)) is BlockingScheduler


class _Led(ABC):
    """A scheduler that fires only while its election is led."""

    def __init__(self, scheduler: Any, election: Any) -> None:
        from apscheduler.events import EVENT_SCHEDULER_SHUTDOWN, EVENT_SCHEDULER_STARTED

        if hasattr(scheduler, "_pawlock"):
            raise pawlock.ConfigurationError("the scheduler has a leader already: call lead() once")
        scheduler._pawlock = self  # noqa: SLF001 - APScheduler has no other
        self._scheduler = scheduler
        self._election = election
        self._lease: Any = None
        # The state "paused" is set by another thread or a later turn of the loop. A process that was stopped and
        # continues may reach a fire time before that: here the clock of the lease decides, at each firing.
        self._fire: Callable[[], Any] = scheduler._process_jobs  # noqa: SLF001 - APScheduler has no other
        scheduler._process_jobs = self._process  # noqa: SLF001 - APScheduler has no other
        scheduler.add_listener(self._ended, EVENT_SCHEDULER_SHUTDOWN)
        scheduler.add_listener(self._started, EVENT_SCHEDULER_STARTED)
        if scheduler.running:
            scheduler.pause()
        elif not _blocks(scheduler):
            scheduler.start(paused=True)

    @property
    def leading(self) -> bool:
        """Whether this process runs the jobs now, by the local clock. Sends nothing."""
        return bool(self._election.leading)

    def _process(self) -> Any:
        return self._fire() if self._election.leading else None

    def _started(self, _event: object) -> None:
        """One that blocks was started by the caller: paused, unless this process was elected before or meanwhile."""
        self._scheduler.pause()
        if self._lease is not None:
            self._scheduler.resume()

    def _elected(self, lease: Any) -> None:
        self._lease = lease
        if self._scheduler.running:  # else `_started` follows
            self._skip_missed(timedelta(seconds=lease.ttl + _SLACK))
            self._scheduler.resume()

    def _stop_leading(self) -> None:
        from apscheduler.schedulers import SchedulerNotRunningError

        self._lease = None
        with contextlib.suppress(SchedulerNotRunningError):
            self._scheduler.pause()

    def _skip_missed(self, takeover: timedelta) -> None:
        """Skip missed runs of jobs that only this process stores: an earlier leader ran what came due long ago."""
        from apscheduler.jobstores.memory import MemoryJobStore

        since = datetime.now(self._scheduler.timezone) - takeover
        stores = [
            alias
            for alias, store in self._scheduler._jobstores.items()  # noqa: SLF001 - APScheduler has no other
            if isinstance(store, MemoryJobStore)
        ]
        for job in [job for alias in stores for job in self._scheduler.get_jobs(alias)]:
            if job.next_run_time is None or job.next_run_time >= since:
                continue
            # Without a previous time, triggers skip to the moment; a date trigger answers its one date.
            following = job.trigger.get_next_fire_time(None, since)
            while following is not None and following < since:
                following = job.trigger.get_next_fire_time(following, since)
            if following is None:
                job.remove()
            else:
                job.modify(next_run_time=following)

    def _held(self) -> Any:
        name = self._election.name
        if self._lease is None:
            raise pawlock.NotHeld(f"{name!r}: this process does not lead", name=name, operation="lead")
        return self._lease

    @abstractmethod
    def _ended(self, _event: object) -> None:
        """The scheduler was shut down: resign."""


class Leading(_Led):
    """A scheduler that runs its jobs while this process leads; made by ``lead``. A context manager that resigns."""

    def __init__(self, scheduler: Any, election: pawlock.Election) -> None:
        self._stop = threading.Event()
        super().__init__(scheduler, election)
        self._thread = threading.Thread(target=self._run, name="pawlock-apscheduler", daemon=True)
        self._thread.start()

    @property
    def lease(self) -> pawlock.Lease:
        """The lease of this leadership, for a job: its ``fence`` and ``check()``.

        Raises:
            NotHeld: This process does not lead.
        """
        found: pawlock.Lease = self._held()
        return found

    def close(self) -> None:
        """Pause the scheduler and resign; the next process leads immediately. Safe to repeat."""
        self._stop.set()
        self._stop_leading()
        with contextlib.suppress(pawlock.PawlockError):  # it may lead no more; else the TTL ends it
            self._election.resign()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(pawlock.ClientClosed):
            self._election.run(self._lead, stop=self._stop)

    def _lead(self, lease: pawlock.Lease) -> None:
        if self._stop.is_set():
            return
        try:
            self._elected(lease)
            if not self._stop.is_set():
                lease.lost.wait()  # until it is lost, or released by close()
        finally:
            self._stop_leading()
        lease.check() if lease.lost else None

    def _ended(self, _event: object) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncLeading(_Led):
    """The same for an election of asyncio; an async context manager."""

    def __init__(self, scheduler: Any, election: pawlock.AsyncElection) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(scheduler, election)
        self._task = loop.create_task(self._election.run(self._lead), name="pawlock-apscheduler")

    @property
    def lease(self) -> pawlock.AsyncLease:
        """The lease of this leadership, for a job: its ``fence`` and ``check()``.

        Raises:
            NotHeld: This process does not lead.
        """
        found: pawlock.AsyncLease = self._held()
        return found

    async def close(self) -> None:
        """Pause the scheduler and resign; the next process leads immediately. Safe to repeat."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _lead(self, lease: pawlock.AsyncLease) -> None:
        try:
            self._elected(lease)
            await asyncio.Event().wait()  # until it is lost or closed, which cancels it
        finally:
            self._stop_leading()

    def _ended(self, _event: object) -> None:
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
