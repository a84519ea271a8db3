# pyright: basic
# Celery has no type marks, so what comes from it has no known type.
"""A scheduler for ``celery beat`` of which any number may run: the one that leads sends the tasks."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.utils.imports import symbol_by_name

import pawlock
from pawlock.fencing import RedisGuard
from pawlock.integrations.celery._settings import client, mapping
from pawlock.integrations.celery._store import FAILURES, checked, namespace_of, redis_of, text

__all__ = ["LeaderScheduler"]

_log = logging.getLogger("pawlock.integrations.celery")
_KEEP = timedelta(days=400)
"""How long it is remembered when each entry was last sent: longer than a schedule of once a year."""
_WAIT = 1.0
"""Seconds after which a beat that does not lead checks again, at the latest."""
_SKEW = timedelta(seconds=60)
"""How far the clocks of two machines may differ. A time further ahead was written before a clock was set back."""
_KNOWN = {"name", "scheduler", "ttl"}


class LeaderScheduler:
    """A scheduler for ``celery beat``: of all beats with the same settings, the one that leads sends the tasks.

    ``app.conf.beat_scheduler = "pawlock.integrations.celery:LeaderScheduler"``, or ``celery beat -S`` with that name. It
    wraps another scheduler; keys of the dictionary ``app.conf.pawlock_beat`` say which and how:

    - ``scheduler``: the class, or its path; default ``"celery.beat:Scheduler"``, which keeps no file. Any class that
      sends with ``celery.beat.Scheduler``'s methods works, as django-celery-beat's ``DatabaseScheduler``.
    - ``ttl``: seconds after which another beat leads when this one died; default 30.
    - ``name``: of the election; default ``beat:`` and the name of the application.

    When each entry was last sent is written to the server, under the fencing token of the leader and before the task
    is sent. So a task is sent at most once for each time at which it is due, also by a beat that was stopped and
    continues; a beat that dies between the two loses that one.

    Raises:
        ConfigurationError: A setting that can never work.
    """

    def __new__(cls, app: Any, **options: Any) -> Any:
        """Make the scheduler that is wrapped, as a leader; called by beat."""
        wrapped: Any = symbol_by_name(mapping(app, "pawlock_beat").get("scheduler", "celery.beat:Scheduler"))
        return type(f"Leader{wrapped.__name__}", (_Leader, wrapped), {})(app=app, **options)


class _Leader:
    """What is added to a scheduler's class, which comes behind it in the order of classes."""

    app: Any
    max_interval: float
    schedule: Any
    _heap: Any

    def __init__(self, **options: Any) -> None:
        app = options["app"]
        given = mapping(app, "pawlock_beat")
        if unknown := given.keys() - _KNOWN:
            raise pawlock.ConfigurationError(
                f"app.conf.pawlock_beat has unknown keys: {', '.join(sorted(unknown))}"
            )
        name = given.get("name") or f"beat:{app.main or 'celery'}"
        self._election = client(app).election(
            name.replace("{", "{{").replace("}", "}}"), ttl=given.get("ttl", 30)
        )
        self._records = _Records(app, name)
        self._stop = threading.Event()
        self._elected = threading.Event()
        self._lease: pawlock.Lease | None = None
        self._known: pawlock.Lease | None = None
        self._thread: threading.Thread | None = None
        self._offset = math.nan
        self._parent: Any = super()
        make: Any = self._parent.__init__  # type: ignore[misc] # that of the wrapped class
        make(**options)

    def tick(self, *args: Any, **options: Any) -> float:
        """Send what is due if this beat leads; else wait until it does."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._stand, name="pawlock-beat", daemon=True)
            self._thread.start()
            _log.info("beat: standing for election %r", self._election.name)
        lease = self._lease
        if lease is None or not self._ready(lease):
            self._elected.wait(min(self.max_interval, _WAIT))
            with contextlib.suppress(
                *FAILURES
            ):  # only in case the server forgets them before this beat leads
                self._records.mirror()
            return 0 if self._elected.is_set() else 0.01
        self._watch_clock()
        found: float = self._parent.tick(*args, **options)
        return found

    def is_due(self, entry: Any) -> Any:
        """As the wrapped scheduler says, counted from when a leader last sent the entry."""
        self._anchor(entry)
        return self._parent.is_due(entry)

    def apply_async(self, entry: Any, *args: Any, **options: Any) -> Any:
        """Send a task if this beat still leads, and no other one has led since."""
        lease = self._lease
        if lease is None or lease is not self._known:
            _log.warning("beat: %s is not sent: this beat does not lead any more", entry.name)
            return None
        try:
            lease.check()
            self._records.note(lease, {entry.name: _now(entry)})
        except (pawlock.LeaseLost, pawlock.StaleFence) as error:
            self._known = None
            _log.warning("beat: %s is not sent: %s", entry.name, str(error))
            return None
        except Exception:
            # It was advanced here, and perhaps not there: read anew what was sent.
            self._known = None
            raise
        return self._parent.apply_async(entry, *args, **options)

    def close(self) -> None:
        """Resign, so that the next beat leads at once, and close the wrapped scheduler."""
        self._stop.set()
        with contextlib.suppress(pawlock.PawlockError):  # it may not lead; else the TTL ends it
            self._election.resign()
        if self._thread is not None:
            self._thread.join(2 * _WAIT)
        self._parent.close()

    def _stand(self) -> None:
        with contextlib.suppress(pawlock.ClientClosed):
            self._election.run(self._lead, stop=self._stop)

    def _lead(self, lease: pawlock.Lease) -> None:
        self._lease = lease
        self._elected.set()
        try:
            if not self._stop.is_set():
                lease.lost.wait()
        finally:
            self._elected.clear()
            self._lease = None
        if lease.lost and not self._stop.is_set():
            lease.check()

    def _ready(self, lease: pawlock.Lease) -> bool:
        """Once after each election: read what the leaders before sent. False while the server cannot be reached."""
        if lease is self._known:
            return True
        try:
            self._records.take_over(lease, {one.name: one for one in self.schedule.values()})
        except FAILURES as error:
            _log.warning("beat: elected, and cannot read what was sent: %s", str(error))
            # Not a wait for `_stop`, which `close` sets in a handler of signals, in this thread.
            time.sleep(0.2)
            return False
        self._count_anew()
        self._known = lease
        _log.info("beat: this one leads, with fencing token %d", lease.fence)
        return True

    def _watch_clock(self) -> None:
        """After the wall clock was set, count all entries anew: what is ahead of it would wait until it comes."""
        offset = time.time() - time.monotonic()
        if abs(offset - self._offset) > _SKEW.total_seconds():
            self._records.limit()
            self._count_anew()
        self._offset = offset

    def _count_anew(self) -> None:
        for entry in self.schedule.values():
            self._anchor(entry)
        self._heap = None

    def _anchor(self, entry: Any) -> None:
        if sent := self._records.last(entry.name):
            entry.last_run_at = sent.astimezone(_zone(entry))


class _Records:
    """When each entry was last sent: a hash on the server, written under the fence of the leader, and its copy."""

    def __init__(self, app: Any, name: str) -> None:
        self._app = app
        self._name = name
        self._target = checked(app)
        self._sent: dict[str, datetime] = {}
        self._key = ""
        self._guard: Any = None
        self._redis: Any = None

    def last(self, entry: str) -> datetime | None:
        """When an entry was last sent, as far as is known."""
        return self._sent.get(entry)

    def mirror(self) -> set[str]:
        """Copy what leaders noted, and say for which entries they did."""
        self._connect()
        found = {text(name): text(at) for name, at in self._redis.hgetall(self._key).items()}
        self._sent.update({name: datetime.fromisoformat(at) for name, at in found.items()})
        return set(found)

    def take_over(self, lease: pawlock.Lease, entries: dict[str, Any]) -> None:
        """Refuse earlier leaders, read what they recorded, and record the rest: what the copy has, or the entry."""
        self._connect()
        self._guard.claim(lease, self._key)
        known = self.mirror()
        self.limit()
        own = {
            name: self._sent.get(name) or _utc(entry.last_run_at, entry) for name, entry in entries.items()
        }
        self.note(lease, {name: sent for name, sent in own.items() if sent and name not in known})

    def note(self, lease: pawlock.Lease, sent: dict[str, datetime]) -> None:
        """Write when entries are sent.

        Raises:
            StaleFence: Another beat has led since. Nothing was written.
        """
        if sent:
            self._connect()
            words = [word for name, at in sent.items() for word in (name, at.isoformat())]
            self._guard(lease, "HSET", self._key, *words)
            self._guard(lease, "PEXPIRE", self._key, int(_KEEP.total_seconds() * 1000))
            self._sent.update(sent)

    def limit(self) -> None:
        """Treat times further in the future than the allowed clock skew as sent now."""
        now = datetime.now(UTC)
        for name, at in self._sent.items():
            if at > now + _SKEW:
                self._sent[name] = now

    def _connect(self) -> None:
        if self._guard is None:
            self._redis = redis_of(self._target)
            tag = self._name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
            self._key = f"{namespace_of(self._app)}:{{celery-{tag}}}:sent"
            self._guard = RedisGuard(self._redis, keep=_KEEP)


def _zone(entry: Any) -> Any:
    return entry.default_now().tzinfo or UTC


def _now(entry: Any) -> datetime:
    found = _utc(entry.default_now(), entry)
    assert found is not None  # noqa: S101 - a scheduler's clock has a time
    return found


def _utc(moment: Any, entry: Any) -> datetime | None:
    """A time of Celery, which may lack its zone, in UTC, so daylight saving has no effect."""
    if moment is None:
        return None
    found: datetime = moment if moment.tzinfo else moment.replace(tzinfo=_zone(entry))
    return found.astimezone(UTC)
