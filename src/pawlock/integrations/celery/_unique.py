# pyright: basic
# Celery has no type marks, so what comes from it has no known type.
"""A base for tasks of which one at a time is queued or runs, for the same arguments."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import string
import sys
import time
import weakref
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, cast

from celery import Task, states
from celery.exceptions import Ignore
from celery.result import EagerResult
from celery.signals import task_revoked
from celery.utils.time import maybe_iso8601
from kombu.utils.json import dumps
from kombu.utils.uuid import uuid

import pawlock
from pawlock.integrations.celery._settings import client
from pawlock.integrations.celery._store import FAILURES, checked, namespace_of, redis_of, text

__all__ = ["Unique"]

_log = logging.getLogger("pawlock.integrations.celery")
_TICKET, _NAME, _DUPLICATE = "pawlock_ticket", "pawlock_name", "pawlock_duplicate"
_HOLDER_KEPT = 7 * 86400
"""Seconds for which it is remembered which task holds a lock, unless that ends first."""
_SLACK = 2.0
"""Seconds beyond its TTL within which the lock of a dead run is free."""
_LOOKS = (0.0, 0.02, 0.05, 0.1)
"""Pauses between looks for the task that holds a lock: it is written down just after the lock was acquired."""
_PLAIN = {*string.ascii_letters, *string.digits, *'-_.:=,/@ "'}
_LONGEST = 120
_AWAITED = ("group_id", "chord", "chain", "reply_to")
"""Options of what others wait for; the last one is of all whose id was given out before, as of the body of a chord."""
_CHOICES = {"unique_while": ("queued", "running"), "on_duplicate": ("skip", "raise", "existing")}
_stores: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()


class Unique(Task):  # type: ignore[misc] # Celery has no type marks
    """A base for tasks: for the same arguments, one is queued or runs at a time.

    ``@app.task(base=Unique, unique_on=["user_id"])``. ``apply_async`` acquires a lock and sends it along in the
    message, as a ticket; the worker that runs the task adopts it, renews it and releases it at the end. It is one
    lease with one fencing token throughout, also across retries. Inside a task with ``bind=True``, ``self.lease`` is
    that lease.

    A call of the task as a function, ``task(…)``, runs it and nothing else.

    Attributes:
        unique_on: Names of the arguments that distinguish tasks; default None, all of them; ``[]``: none, so that there
            is one task in all. Their values must be what JSON can express, dates, UUIDs or decimals.
        unique_while: ``"queued"`` (default): from ``apply_async`` to the end of the run. ``"running"``: only while it
            runs; any number may be queued, and one that starts while another one runs is the duplicate.
        keep: Seconds for which tasks are still duplicates after a run that succeeded; default None, they are not.
        on_duplicate: What ``apply_async`` does with a duplicate. ``"skip"`` (default): it returns a result without a
            value, of state ``IGNORED``. ``"raise"``: ``pawlock.NotAcquired``. ``"existing"``: it returns the
            ``AsyncResult`` of the task that is queued or runs, with ``unique_while="queued"`` only.
        run_ttl: Seconds after which the lock is free when the process of a run died; default 30. A run itself may last
            as long as it likes.
        queue_ttl: Seconds for which a task may wait in its queue, beside its ``countdown``; default 3600. A message
            that is lost, or purged, keeps its lock for so long. One that waits longer acquires the lock anew.
            With ``expires``, the lock of a waiting task ends then.

    Raises:
        ConfigurationError: When the task is defined: an attribute that can never work.
        NotSupported: When it is defined: the worker runs under eventlet.
    """

    abstract: ClassVar[bool] = True
    unique_on: ClassVar[Iterable[str] | None] = None
    unique_while: ClassVar[str] = "queued"
    keep: ClassVar[float | None] = None
    on_duplicate: ClassVar[str] = "skip"
    run_ttl: ClassVar[float] = 30.0
    queue_ttl: ClassVar[float] = 3600.0

    def __init_subclass__(cls, **more: Any) -> None:
        """Refuse, where the task is defined, what can never work."""
        super().__init_subclass__(**more)
        # Each run would fail, and its lock stay until ``queue_ttl``. Asked without a client, before which gevent may patch.
        patched = getattr(sys.modules.get("eventlet.patcher"), "is_monkey_patched", None)
        if patched is not None and patched("socket"):
            raise pawlock.NotSupported(
                "a Unique task cannot run under eventlet: use prefork, threads or gevent"
            )
        for name, choices in _CHOICES.items():
            if getattr(cls, name) not in choices:
                raise pawlock.ConfigurationError(
                    f"{name} must be one of {', '.join(choices)}, got {getattr(cls, name)!r:.40}"
                )
        if cls.on_duplicate == "existing" and cls.unique_while != "queued":
            raise pawlock.ConfigurationError('on_duplicate="existing" needs unique_while="queued"')
        if isinstance(cls.unique_on, str):
            raise pawlock.ConfigurationError(
                "unique_on must be a list of argument names, or None for all of them"
            )
        for name in ("keep", "run_ttl", "queue_ttl"):
            if getattr(cls, name) is not None:
                pawlock.LockOptions(ttl=getattr(cls, name))

    @property
    def lease(self) -> pawlock.Lease:
        """The lease of the run: its ``fence``, its ``check()``.

        Raises:
            NotHeld: No task of this class runs in this thread.
        """
        found: pawlock.Lease | None = self.request.get("pawlock_lease")
        if found is None:
            raise pawlock.NotHeld(f"{self.name!r} does not run here", name=self.name, operation="lease")
        return found

    def unique_name(self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None) -> str:
        """The name of the lock for these arguments, for ``client.inspect`` and ``client.force_release``.

        Raises:
            ConfigurationError: An argument of ``unique_on`` is missing, or cannot be expressed.
        """
        bound = inspect.signature(self.run).bind(*(args or ()), **(kwargs or {}))
        bound.apply_defaults()
        try:
            wanted = (
                bound.arguments
                if self.unique_on is None
                else {one: bound.arguments[one] for one in self.unique_on}
            )
            values = str(dumps(wanted, sort_keys=True))  # type: ignore[no-untyped-call]
        except KeyError as error:
            raise pawlock.ConfigurationError(
                f"task {self.name!r} has no argument {error} for unique_on"
            ) from error
        except TypeError as error:
            raise pawlock.ConfigurationError(
                f"arguments of {self.name!r} that distinguish tasks are not JSON: choose with unique_on ({error})"
            ) from error
        task, shown = str(self.name), values[1:-1]
        if len(task) + len(shown) > _LONGEST or not {*shown} <= _PLAIN:
            shown = hashlib.sha256(values.encode()).hexdigest()[:40]
        return f"celery:{task[-_LONGEST:]}:{shown}"

    def apply_async(
        self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any
    ) -> Any:
        """Send the task, unless it is a duplicate; otherwise as ``celery.Task.apply_async``.

        Raises:
            NotAcquired: It is a duplicate, and ``on_duplicate`` says so.
            BackendError: The lock server could not be reached, so nothing was sent.
        """
        if self.unique_while == "running" or self._app_here().conf.task_always_eager:
            return super().apply_async(args, kwargs, task_id=task_id, **options)
        itself = not self.request.called_directly and task_id == self.request.id
        if task_id is not None and itself and self._is_as_now(args, kwargs):
            return self._send(args, kwargs, task_id, options, self._passed_on(options))
        name, task_id = self.unique_name(args, kwargs), task_id or uuid()
        lock = self._client().lock(name, ttl=self._seconds_queued(options), renew=False, handover=0)
        holder = None
        for _ in range(2):
            lease = lock.try_acquire()
            if lease is not None:
                try:
                    self._note_holder(lease, task_id)
                except BaseException:
                    lease.release()
                    raise
                return self._send(args, kwargs, task_id, options, {_TICKET: lease.detach(), _NAME: name})
            if self.on_duplicate == "skip" or (holder := self._holder(name)):
                break
        if itself or any(options.get(one) is not None for one in _AWAITED):
            # Somebody waits for its end: it is sent, and does nothing else.
            return self._send(args, kwargs, task_id, options, {_DUPLICATE: holder or "unknown"})
        if self.on_duplicate == "existing" and holder:
            return self.AsyncResult(holder)
        if self.on_duplicate == "skip":
            return EagerResult(task_id, None, states.IGNORED, name=self.name)
        raise self._refusal(holder)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task under its lease; called by the worker."""
        above: Any = super().__call__
        if self.request.called_directly:
            return above(*args, **kwargs)
        # What Celery itself does where a task has no `__call__` of its own.
        run = self.run if getattr(above, "__func__", None) is Task.__call__ else above
        request, name = self.request, self.request.get(_NAME)
        holder = request.get(_DUPLICATE)
        if holder is None:
            try:
                found = self._adopted() or self._acquired(name or self.unique_name(args, kwargs))
            except pawlock.BackendError as error:
                if request.is_eager:
                    raise
                raise self.retry(exc=error) from error
            if isinstance(found, pawlock.Lease):
                return self._run_under(found, run, args, kwargs)
            holder = found
        if holder == request.id:
            _log.warning(
                "task %s[%s] was delivered again and still runs: this delivery is dropped", self.name, holder
            )
            raise Ignore
        if self.on_duplicate == "skip":
            return None
        raise self._refusal(holder)

    def _run_under(self, lease: pawlock.Lease, run: Any, args: Any, kwargs: Any) -> Any:
        self.request.pawlock_lease = lease
        with lease:
            try:
                found = run(*args, **kwargs)
            except BaseException:
                self._forget_holder(lease)
                raise
            if self.keep is None:
                self._forget_holder(lease)
            elif lease.state != "released":
                # Not renewed any more, and released by nobody: it ends by itself.
                lease.extend(self.keep)
                lease.detach()
        return found

    def _adopted(self) -> pawlock.Lease | None:
        """The lease that came along; None if there is none, or none any more."""
        ticket = self.request.get(_TICKET)
        if ticket is None:
            return None
        try:
            return self._client().adopt(ticket, ttl=self.run_ttl)
        except pawlock.NotHeld:
            return None

    def _acquired(self, name: str) -> pawlock.Lease | str:
        """A lease of its own; else the task that has it, as far as is known."""
        lock = self._client().lock(name, ttl=self.run_ttl, handover=0)
        lease, holder = lock.try_acquire(), ""
        if lease is None:
            holder = self._holder(name)
            if holder in ("", self.request.id):
                # Delivered again: the run before may be dead, and the lock free as soon as its TTL ends.
                with contextlib.suppress(pawlock.NotAcquired):
                    lease = lock.acquire(timeout=self.run_ttl + _SLACK)
            if lease is None:
                return holder or self._holder(name) or "unknown"
        self._note_holder(lease, self.request.id)
        return lease

    def _is_as_now(self, args: Any, kwargs: Any) -> bool:
        """Whether these arguments have the lock of those with which the task runs here."""
        return self.unique_name(args, kwargs) == self.unique_name(self.request.args, self.request.kwargs)

    def _passed_on(self, options: dict[str, Any]) -> dict[str, Any]:
        """A retry takes the lease of this run along."""
        lease = self.request.get("pawlock_lease")
        if lease is not None:
            with contextlib.suppress(pawlock.NotHeld, pawlock.LeaseLost):
                lease.extend(self._seconds_queued(options))
                return {_TICKET: lease.detach(), _NAME: self.request.get(_NAME) or lease.name}
        return {}

    def _send(
        self, args: Any, kwargs: Any, task_id: str, options: dict[str, Any], marks: dict[str, Any]
    ) -> Any:
        options = {**options, "headers": {**(options.get("headers") or {}), **marks}}
        try:
            return super().apply_async(args, kwargs, task_id=task_id, **options)
        except BaseException:
            if _TICKET in marks:
                _give_back(self._client(), marks[_TICKET])
            raise

    def _seconds_queued(self, options: Mapping[str, Any]) -> float:
        """How long a lock lives that waits in a queue."""
        seconds = self.queue_ttl + max(
            0.0, _seconds_to(options.get("countdown") or options.get("eta")) or 0.0
        )
        expires = _seconds_to(options.get("expires", self.expires))
        return seconds if expires is None else min(seconds, max(0.0, expires) + 1)

    def _refusal(self, holder: str | None) -> pawlock.NotAcquired:
        return pawlock.NotAcquired(
            f"task {self.name!r} with these arguments is queued or runs: {holder or 'unknown'}"
        )

    def _app_here(self) -> Any:
        return self._get_app()

    def _client(self) -> pawlock.Client:
        return client(self._app_here())

    # Which task holds the lock, beside its fencing token: what is not of the present one does not count.

    def _note_holder(self, lease: pawlock.Lease, task_id: str) -> None:
        store, key = self._kept(lease.name)
        store.set(
            key, f"{lease.fence} {task_id}", ex=max(_HOLDER_KEPT, int(self.queue_ttl + (self.keep or 0)) + 1)
        )

    def _forget_holder(self, lease: pawlock.Lease) -> None:
        if lease.state == "held":
            store, key = self._kept(lease.name)
            with contextlib.suppress(*FAILURES):  # it would not be of the next lock's fencing token
                store.delete(key)

    def _holder(self, name: str) -> str:
        """The task that holds a lock now; "" if it is free or not known."""
        store, key = self._kept(name)
        for pause in _LOOKS:
            time.sleep(pause)
            fence = self._client().inspect(name).fence
            found = text(store.get(key) or "").split(" ", 1)
            if found[0] == str(fence):
                return found[1]
        return ""

    def _kept(self, name: str) -> tuple[Any, str]:
        app = self._app_here()
        target = checked(app)
        made = _stores.get(app)
        if made is None or made[0] != target:
            made = _stores[app] = target, redis_of(target)
        return made[1], f"{namespace_of(app)}:{{{name}}}:task"


def _seconds_to(moment: Any) -> float | None:
    """Seconds from now, of a number or a time as Celery takes them."""
    if moment is None or isinstance(moment, (int, float)):
        return moment
    found = cast("datetime", maybe_iso8601(moment))
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() - time.time()


def _give_back(found: pawlock.Client, ticket: str) -> None:
    """Release a lease that waits in a message which nobody will run."""
    with contextlib.suppress(
        pawlock.PawlockError
    ):  # it was adopted, or the server is away: then its TTL ends it
        found.adopt(ticket, ttl=5, unavailable_after=1).release()


@task_revoked.connect(weak=False)  # type: ignore[untyped-decorator] # Celery has no type marks
def _revoked(sender: Any = None, request: Any = None, **_more: Any) -> None:
    """In the worker's main process: a task was revoked, or expired, before it ran."""
    if isinstance(sender, Unique) and request is not None and (ticket := request.get(_TICKET)):
        _give_back(client(sender._get_app()), ticket)  # noqa: SLF001 - Celery has no other
