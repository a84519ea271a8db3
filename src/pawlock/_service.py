"""The lock service in this process: what identifiers hold, and how often. Once for both APIs."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from pawlock._environment import check_known
from pawlock._factory import Settings, check_word, plan_of, queue_key_of, refuse_on_quorum
from pawlock._fallback import ACQUIRE
from pawlock._inside import settings_of
from pawlock.core.engine import Engine
from pawlock.core.extend import extend
from pawlock.core.lease import HeldLease, release_or_raise
from pawlock.core.options import Seconds, check_count, check_timeout, check_ttl, seconds
from pawlock.core.plan import ASKERS, Plan
from pawlock.core.runtime import StopSignal
from pawlock.errors import ConfigurationError, NotAcquired, NotHeld, NotSupported, PawlockError
from pawlock.model import LockInfo, ServiceMetrics, ServiceStats
from pawlock.runtimes.shared import secret

__all__ = ["Book", "ServiceOptions"]

_MOST_NAMES = 10_000
"""Names whose counters are kept; the one that was asked for longest ago goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How one acquisition of the lock service behaves. Durations in seconds.

    Args:
        ttl: Server-side life without renewal, 0.05 to 366 days; default 30, renewed at each third of it until release.
        wait: How long to wait in the queue; 0 tries once. Default None: ``retry_count`` × ``retry_delay``.
        retry_count: How many times a caller would retry; default 3. The retries become one wait in the queue, without
            polling.
        retry_delay: Seconds between two retries; default 0.2.
        max_hold: The hold is lost this long after its grant; None (default) never.
        renewal_interval: Seconds between two renewals, less than ttl / 2; None (default): each third of the ttl.

    Raises:
        ConfigurationError: A value that can never work.
    """

    ttl: Seconds = 30.0
    wait: Seconds | None = None
    retry_count: int = 3
    retry_delay: Seconds = 0.2
    max_hold: Seconds | None = None
    renewal_interval: Seconds | None = None

    def __post_init__(self) -> None:
        check_ttl(self.ttl)
        check_timeout(self.wait, "wait")
        check_count(self.retry_count, "retry_count", 0, 1_000_000)
        if self.renewal_interval is not None:
            # As renew= of a lock, True and False would mean something else.
            seconds(self.renewal_interval, "renewal_interval")
        if not 0 <= seconds(self.retry_delay, "retry_delay") <= 86400:
            raise ConfigurationError(f"retry_delay must be 0 to 86400 seconds, got {self.retry_delay!r}")

    @property
    def patience(self) -> float | None:
        """Seconds to wait in the queue; None: no limit."""
        if self.wait is None:
            return self.retry_count * seconds(self.retry_delay, "retry_delay")
        return check_timeout(self.wait, "wait")


def _options(given: object) -> ServiceOptions:
    if given is None:
        return ServiceOptions()
    if isinstance(given, ServiceOptions):
        return given
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"options must be ServiceOptions or a mapping, got {type(given).__name__}")
    options = cast("Mapping[str, Any]", given)
    check_known(map(str, options), ServiceOptions.__dataclass_fields__)
    return ServiceOptions(**options)


def _plan(settings: Settings, name: str, asked: ServiceOptions, identifier: str) -> Plan:
    """The plan of a lock that an identifier holds."""
    refuse_on_quorum(settings, "service")
    shown = _digest_of(check_word(identifier, "identifier"))
    renew = True if asked.renewal_interval is None else asked.renewal_interval
    plan = plan_of(settings, "lock", name, {"ttl": asked.ttl, "max_hold": asked.max_hold, "renew": renew})
    # A hold is the identifier's, and not the thread's or task's that asks for it.
    queue_key = queue_key_of(plan.primitive, plan.options, shown)
    return replace(plan, counted=True, capacity=ASKERS, queue_key=queue_key, identity=shown)


def _itself(lease: HeldLease) -> HeldLease:
    return lease


def _check_home(engine: Engine, lease: HeldLease, doing: str) -> None:
    """Refuse another event loop than the lease's; a lease without the server has an engine, and not reports, of its own."""
    if lease.engine.reports is not engine.reports:
        text = f"{doing} {lease.name!r}: it was acquired in another event loop: call it there"
        raise NotSupported(f"{text} (asyncio.run_coroutine_threadsafe)", name=lease.name)


def _digest_of(identifier: str) -> str:
    """What everybody may see of an identifier, in place of host, process and thread: it lets nobody in."""
    return f"service:{hashlib.sha256(f'pawlock service{chr(0)}{identifier}'.encode()).hexdigest()[:12]}"


class _Entered:
    """Set once an identifier holds a name here, or its caller's own event is."""

    __slots__ = ("_book", "_key", "_stop")

    def __init__(self, book: Book, key: tuple[str, str], stop: StopSignal | None) -> None:
        self._book = book
        self._key = key
        self._stop = stop

    def is_set(self) -> bool:
        """True once the wait is to end."""
        return (self._stop is not None and self._stop.is_set()) or self._book.held(*self._key)


class Book:
    """The holds of one client's service, and its counters by name."""

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._held: dict[tuple[str, str], tuple[HeldLease, ...]] = {}
        self._counts: OrderedDict[str, Counter[str]] = OrderedDict()
        self._totals: Counter[str] = Counter(released=0)
        # Never forgotten for another name: only names that are waited for are in it.
        self._waiting: dict[tuple[str, object], None] = {}

    def after_fork(self) -> None:
        """In the child: another thread may have had the guard, and the holds are the parent's."""
        self._guard = threading.RLock()
        self._held, self._waiting = {}, {}

    async def acquire(
        self, engine: Engine, name: str, options: object, identifier: str | None, stop: StopSignal | None
    ) -> str:
        """Acquire a lock, or re-enter it; see ``LockService.acquire``."""
        client, asked = engine.client(), _options(options)
        who = secret() if identifier is None else identifier
        plan = _plan(settings_of(client), name, asked, who)
        until = None if asked.patience is None else engine.runtime.now() + asked.patience
        # Nobody else knows of an identifier that was made here.
        stops = stop if identifier is None else _Entered(self, (name, who), stop)
        with self.watching(plan.primitive.name):
            while not self.again(name, who):
                left = None if until is None else max(0, until - engine.runtime.now())
                try:
                    lease = await ACQUIRE[plan.options.on_unavailable](
                        engine, plan, left, stops, give=_itself
                    )
                except NotAcquired as error:
                    if type(error) is not NotAcquired or (stop is not None and stop.is_set()):
                        raise
                else:
                    self.put(name, who, lease)
                    break
        return who

    async def renew(self, engine: Engine, name: str, identifier: str, ttl: Seconds | None) -> None:
        """Set the remaining life of an identifier's holds; see ``LockService.renew``."""
        for lease in self.holds(name, identifier):
            _check_home(engine, lease, "extend")
            await extend(lease.engine, lease, lease.ttl if ttl is None else check_ttl(ttl))

    async def release(self, engine: Engine, name: str, identifier: str) -> None:
        """Release one hold; see ``LockService.release``."""
        lease = self.take(name, identifier)
        if lease is None:
            return
        try:
            _check_home(engine, lease, "release")
            await release_or_raise(lease.engine, lease)
        except BaseException:
            if lease.is_held():
                # Interrupted, or refused in another event loop, before anything was touched.
                self._add(name, identifier, lease)
                self._totals["released"] -= 1
            raise

    def put(self, name: str, identifier: str, lease: HeldLease) -> None:
        """Note a hold."""
        self._add(name, identifier, lease)
        self.count(name, "acquired")

    def held(self, name: str, identifier: str) -> bool:
        """Whether an identifier holds a name here, as far as this client knows."""
        holds = self._held.get((name, identifier), ())
        return bool(holds) and holds[-1].is_held()

    def again(self, name: str, identifier: str) -> bool:
        """Count a hold more of an identifier that holds a name; False if it does not."""
        with self._guard:
            if not self.held(name, identifier):
                return False
            self._held[name, identifier] += self._held[name, identifier][-1:]
        self.count(name, "acquired")
        return True

    def _add(self, name: str, identifier: str, lease: HeldLease) -> None:
        key, fresh = (name, identifier), (lease,)
        with self._guard:
            self._held[key] = self._held[key] + fresh if key in self._held else fresh

    def take(self, name: str, identifier: str) -> HeldLease | None:
        """The newest hold, which is noted no more; None if others are left of its lease.

        Raises:
            NotHeld: There is none.
        """
        key = name, identifier
        # One step: of two threads, one gets it, and what a third puts meanwhile stays.
        with self._guard:
            holds = self._held.get(key, ())
            if len(holds) > 1:
                self._held[key] = holds[:-1]
            else:
                self._held.pop(key, None)
        more = len(holds) > 1 and holds[-2] is holds[-1]
        if not holds or (more and not holds[-1].is_held()):
            self.count(name, "failures")
            raise NotHeld(f"release {name!r}: {_digest_of(identifier)} does not hold it", name=name)
        self._totals["released"] += 1
        return None if more else holds[-1]

    def holds(self, name: str, identifier: str) -> tuple[HeldLease, ...]:
        """All leases of an identifier.

        Raises:
            NotHeld: There is none.
        """
        holds = self._held.get((name, identifier), ())
        if not holds:
            self.count(name, "failures")
            raise NotHeld(
                f"renew {name!r}: {_digest_of(identifier)} does not hold it",
                name=name,
                operation="extend",
            )
        return tuple(dict.fromkeys(holds))

    def count(self, name: str, what: str) -> None:
        """Count what happened to a name."""
        self._totals[what] += 1
        counts = self._counts.get(name)
        if counts is None:
            counts = self._counts[name] = Counter()
            if len(self._counts) > _MOST_NAMES:
                self._counts.popitem(last=False)
        counts[what] += 1

    @contextmanager
    def watching(self, name: str) -> Generator[None]:
        """Count one who waits, and what fails."""
        self.count(name, "waits")
        waiter = name, object()
        self._waiting[waiter] = None
        try:
            yield
        except PawlockError:
            self.count(name, "failures")
            raise
        finally:
            del self._waiting[waiter]

    def metrics(self, info: LockInfo) -> ServiceMetrics:
        """The record of a name: what the server says, and what was counted here."""
        counts: Mapping[str, Any] = self._counts.get(info.name, Counter())
        mine = [
            lease for (name, _), holds in self._held.copy().items() if name == info.name for lease in holds
        ]
        return ServiceMetrics(
            name=info.name,
            holder=info.holder,
            ttl_left=info.ttl_left,
            count=sum(lease.is_held() for lease in mine) or info.count,
            queue_length=info.queue_length,
            acquired=counts["acquired"],
            waits=counts["waits"],
            waiting=sum(name == info.name for name, _ in self._waiting.copy()),
            failures=counts["failures"],
        )

    def stats(self) -> ServiceStats:
        """What was counted over all names, and what is held."""
        # Copies, made in one step: other threads come and go meanwhile.
        held, totals = self._held.copy(), self._totals.copy()
        return ServiceStats(
            names=len({name for name, _ in held}),
            holds=sum(len(holds) for holds in held.values()),
            acquired=totals["acquired"],
            released=totals["released"],
            waits=totals["waits"],
            waiting=len(self._waiting),
            failures=totals["failures"],
        )
