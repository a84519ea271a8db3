"""Jobs of APScheduler 3 that several schedulers fire, each firing run by one of them."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from string import Formatter
from typing import Any, ParamSpec, TypeVar, cast, overload

import pawlock
from pawlock.integrations._names import filled

__all__ = ["Firing", "firing", "once"]

log: logging.Logger = logging.getLogger("pawlock.integrations.apscheduler")

P = ParamSpec("P")
R = TypeVar("R")

_STOPPED = 0
"""The state of a scheduler that was shut down, or never started."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One fire time of a job, as the job sees it.

    Attributes:
        scheduled: The fire time, in UTC. It is the same in every process that fires the job.
        job: The job's id.
        lease: The lease under which it runs: its ``fence``, its ``check()``.
    """

    scheduled: datetime
    job: str
    lease: pawlock.Lease | pawlock.AsyncLease


_current: ContextVar[Firing] = ContextVar("pawlock_firing")


def firing() -> Firing:
    """The firing that runs here: its fire time, and the lease under which it runs.

    Raises:
        NotHeld: No job with ``@once`` runs in this thread or task.
    """
    found = _current.get(None)
    if found is None:
        raise pawlock.NotHeld(
            "firing: no job with @once is running in this thread or task", operation="look up"
        )
    return found


@overload
def once(
    client: pawlock.Client,
    name: str,
    *,
    keep: float = 86400,
    wait: bool = True,
    retry: bool = False,
    **options: Any,
) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...
@overload
def once(
    client: pawlock.AsyncClient,
    name: str,
    *,
    keep: float = 86400,
    wait: bool = True,
    retry: bool = False,
    **options: Any,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R | None]]]: ...
def once(
    client: pawlock.Client | pawlock.AsyncClient,
    name: str,
    *,
    keep: float = 86400,
    wait: bool = True,
    retry: bool = False,
    **options: Any,
) -> Any:
    """Run each firing of a job once, however many schedulers fire it: the first runs it, the others skip it.

    Put it below ``@scheduler.scheduled_job(…)``, or around the function that ``add_job`` gets. All processes need the
    same fire times: a cron trigger, a date, or an interval with the same ``start_date``. What the clocks of the hosts
    say makes no difference, as the name has the time for which the job was scheduled. Called by anything but a
    scheduler of APScheduler 3, the function raises ``ConfigurationError``; its ``__wrapped__`` is the plain function.

    Args:
        client: Of ``pawlock.connect()`` for functions, of ``pawlock.connect_async()`` for coroutine functions.
        name: The name of a firing. Fields are ``{scheduled}``, the fire time in UTC, with a format where wanted
            (``{scheduled:%F}``: once a day), ``{job}``, the job's id, and the arguments of the job; ``{{`` for a brace.
        keep: Seconds for which it is known that a firing was run; default a day. It has to be longer than the job's
            ``misfire_grace_time``, and than the clocks of the hosts differ.
        wait: Whether the other processes wait until the firing was run, and run it if the process that does it dies.
            Default True. With False they skip it at once, and a firing whose process dies is lost.
        retry: Whether a firing that raised is run by the next process that waits. Default False: it counts as run.
        options: Options of ``client.once``, as ``ttl`` or ``max_hold``: when the process that runs a firing dies, the
            next one starts after at most ``ttl``. With ``timeout``, a process that waits longer skips the firing.

    Returns:
        The decorator. A call that is skipped returns None.

    Raises:
        ConfigurationError: An option that can never work, or a name without ``{scheduled}``.
        NotSupported: The client has independent masters (Redlock), or is a client of ``pawlock serve``.
    """
    if "scheduled" not in {field for _, field, _, _ in Formatter().parse(name) if field is not None}:
        raise pawlock.ConfigurationError(
            f"name {name!r} needs the field {{scheduled}}: otherwise one firing is run, and none for {keep} s after it"
        )
    # An option that can never work is an error here, not at the first fire time.
    client.once("check", keep=keep, wait=wait, **options)
    make = _Names(name, {"keep": keep, "wait": wait, **options})

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        if inspect.iscoroutinefunction(function) is not isinstance(client, pawlock.AsyncClient):
            raise pawlock.ConfigurationError(
                f"{function.__qualname__}: a client of pawlock.connect() runs functions, one of pawlock.connect_async() "
                "coroutine functions"
            )
        if isinstance(client, pawlock.AsyncClient):
            return _of_tasks(client, make, function, signature, retry)
        return _of_threads(client, make, function, signature, retry)

    return decorate


class _Names:
    """What a firing is called, and the options of its ``client.once``."""

    def __init__(self, template: str, options: Mapping[str, Any]) -> None:
        self._template = template
        self.options = options

    def of(self, job: Any, scheduled: datetime, arguments: inspect.BoundArguments) -> str:
        arguments.apply_defaults()
        values = {**arguments.arguments, "job": job.id, "scheduled": scheduled}
        return filled(self._template, values, "what a name of a firing may have")


class _Stopped:
    """Ends a wait once the scheduler is shut down: ``shutdown()`` waits for the jobs that run."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def is_set(self) -> bool:
        return self._scheduler is not None and self._scheduler.state == _STOPPED


def _of_threads(
    client: pawlock.Client,
    names: _Names,
    function: Callable[..., Any],
    signature: inspect.Signature,
    retry: bool,  # noqa: FBT001 - as it was given
) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        job, scheduled = _fired(function)
        name = names.of(job, scheduled, signature.bind(*args, **kwargs))
        try:
            state = client.once(name, **names.options).begin(stop=_Stopped(job._scheduler))  # noqa: SLF001 - APScheduler has no other
        except pawlock.NotAcquired as error:
            return _skipped(name, error)
        if not isinstance(state, pawlock.Started):
            return _skipped(name, state)
        with state.lease, _Current(Firing(scheduled, job.id, state.lease)):
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                try:
                    state.abandon() if retry else state.finish()
                except pawlock.PawlockError as failed:
                    error.add_note(f"pawlock: {failed}")
                raise
            state.finish()
            return result

    return run


def _of_tasks(
    client: pawlock.AsyncClient,
    names: _Names,
    function: Callable[..., Any],
    signature: inspect.Signature,
    retry: bool,  # noqa: FBT001 - as it was given
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        job, scheduled = _fired(function)
        name = names.of(job, scheduled, signature.bind(*args, **kwargs))
        try:
            state = await client.once(name, **names.options).begin()  # shutdown() cancels it
        except pawlock.NotAcquired as error:
            return _skipped(name, error)
        if not isinstance(state, pawlock.AsyncStarted):
            return _skipped(name, state)
        async with state.lease:
            with _Current(Firing(scheduled, job.id, state.lease)):
                try:
                    result = await function(*args, **kwargs)
                except Exception as error:
                    try:
                        await (state.abandon() if retry else state.finish())
                    except pawlock.PawlockError as failed:
                        error.add_note(f"pawlock: {failed}")
                    raise
                await state.finish()
                return result

    return run


class _Current:
    """Makes a firing the one that ``firing()`` answers with."""

    def __init__(self, now: Firing) -> None:
        self._now = now

    def __enter__(self) -> None:
        self._before = _current.set(self._now)

    def __exit__(self, *_error: object) -> None:
        _current.reset(self._before)


def _skipped(name: str, why: object) -> None:
    if isinstance(why, pawlock.DeadlockDetected):  # the job calls itself
        raise why
    said = why if isinstance(why, pawlock.PawlockError) else type(why).__name__.lower()
    log.info("%r: this process does not run it: %s", name, said, extra={"pawlock_name": name})


class _FireTime(datetime):
    """A time in UTC whose text has neither a blank nor an offset."""

    def __str__(self) -> str:
        return self.replace(tzinfo=None).isoformat() + "Z"


def _fired(function: Callable[..., Any]) -> tuple[Any, datetime]:
    """The job and the fire time for which an executor of APScheduler calls.

    It tells the function neither; they are what the function that runs it works with.
    """
    frame = inspect.currentframe()
    while frame is not None and not (
        frame.f_code.co_name in ("run_job", "run_coroutine_job")
        and str(frame.f_globals.get("__name__")).startswith("apscheduler.executors.")
    ):
        frame = frame.f_back
    if frame is None:
        raise pawlock.ConfigurationError(
            f"{function.__qualname__} has no fire time: it was not called by a scheduler of APScheduler 3. "
            "Its __wrapped__ is the plain function"
        )
    job, at = frame.f_locals["job"], cast("datetime", frame.f_locals["run_time"]).astimezone(UTC)
    _check_common(job, at)
    scheduled = _FireTime.combine(at.date(), at.timetz())
    return job, scheduled


def _check_common(job: Any, at: datetime) -> None:
    """Refuse fire times that other processes do not have: each of them would run all of its own.

    Raises:
        ConfigurationError: The trigger counts from when this process was started, or has jitter.
    """
    from apscheduler.jobstores.memory import MemoryJobStore

    origin = getattr(job.trigger, "start_date", None) or getattr(job.trigger, "run_date", None)
    scheduler = job._scheduler  # noqa: SLF001 - APScheduler has no other
    own = scheduler is not None and isinstance(scheduler._jobstores.get(job._jobstore_alias), MemoryJobStore)  # noqa: SLF001 - APScheduler has no other
    if getattr(job.trigger, "jitter", None) and own:
        raise pawlock.ConfigurationError(
            f"job {job.id!r}: with jitter, each process has fire times of its own"
        )
    # Nobody writes a start_date with microseconds; the moment at which a process was started has them.
    if own and at.microsecond and origin is not None and origin.microsecond:
        raise pawlock.ConfigurationError(
            f"job {job.id!r}: its fire times count from when this process was started, so each process has its own. "
            "Give the trigger a start_date that all share, or use a cron trigger"
        )
