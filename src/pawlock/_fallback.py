"""What a lock does while the server is unreachable, if its user asked for that: go on with less protection.

``local``: excludes the threads, tasks and clients of this process, by leases that no server has; those that the server
granted here before count for as long as they are valid. ``open``: everybody goes on. Both are shown by
``lease.degraded``, logged once per name, and counted. A degraded lease has fence 0, below every fence, so whatever
checks fences refuses it. Each new caller, and each that waits here, asks the server again, and its answer counts; but
while a local lease is held, no other caller in this process is granted one.

Only an outage counts: where something other than the server answers, TLS fails, or this process has no more files or
threads, the error is raised.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload
from weakref import WeakSet

from pawlock.core import reentry
from pawlock.core.acquire import acquire as from_server
from pawlock.core.engine import Engine
from pawlock.core.faults import is_transient
from pawlock.core.giving_up import timed_out
from pawlock.core.lease import HeldLease
from pawlock.core.local_queue import Waiter
from pawlock.core.outcomes import Granted, Outcome, Released
from pawlock.core.records import Attempt, Hold
from pawlock.core.retry import check_stop
from pawlock.core.runtime import Fault
from pawlock.errors import BackendUnavailable, QuorumNotReached

if TYPE_CHECKING:
    from pawlock.core.plan import Plan
    from pawlock.core.primitive import Primitive
    from pawlock.core.runtime import Runtime, StopSignal

__all__ = ["ACQUIRE", "holds", "kept_by"]

T = TypeVar("T")

log: logging.Logger = logging.getLogger("pawlock.degraded")

_LOOK = 0.05
_MOST_LOGGED = 10_000

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
"""What this process or machine has no more of, while the server may be well."""

_guard = threading.RLock()
_degraded: WeakSet[HeldLease] = WeakSet()
_engines: WeakSet[Engine] = WeakSet()
"""The clients whose leases a local one respects: those that have asked for ``local``."""
_logged: set[tuple[str, str, str]] = set()


def holds(engine: Engine, plan: Plan) -> bool:
    """Whether the present thread or task holds it, by the server or without; see ``reentry.holds``."""
    if reentry.holds(engine, plan):
        return True
    mine = _mine(engine, _without_server(engine, plan.primitive.key))
    return mine is not None and mine.hold.primitive.covers(plan.primitive)


def kept_by(engine: Engine) -> list[Hold]:
    """What a client holds without the server."""
    with _guard:
        found = list(_degraded)
    return [lease.hold for lease in found if _is_of(engine, lease) and lease.is_held()]


async def _acquire(
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
    *,
    or_none: bool = False,
    give: Callable[[HeldLease], T],
) -> T | None:
    began = engine.runtime.now()
    try:
        lease = await _from_server_or_degraded(engine, plan, timeout, stop, began, give)
        if lease is None and not or_none:
            raise await timed_out(engine, plan, began, None)
    except BaseException as error:
        engine.refused(plan.primitive, began, error)
        raise
    if lease is None:
        engine.refused(plan.primitive, began, None)
    return lease


class Acquire(Protocol):
    """How a lock is acquired; see ``core.acquire``."""

    @overload
    def __call__(
        self,
        engine: Engine,
        plan: Plan,
        timeout: float | None,
        stop: StopSignal | None = None,
        *,
        give: Callable[[HeldLease], T],
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(
        self,
        engine: Engine,
        plan: Plan,
        timeout: float | None,
        stop: StopSignal | None = None,
        *,
        or_none: Literal[True],
        give: Callable[[HeldLease], T],
    ) -> Coroutine[Any, Any, T | None]: ...


ACQUIRE: Mapping[str, Acquire] = {
    "raise": cast("Acquire", from_server),
    "local": cast("Acquire", _acquire),
    "open": cast("Acquire", _acquire),
}
"""How, by what a lock's ``on_unavailable`` says."""


class _NotAlone(Exception):
    """Somebody here went on without the server meanwhile, and it was back for this one."""


def _give_alone(engine: Engine, plan: Plan, give: Callable[[HeldLease], T], lease: HeldLease) -> T:
    if not _fits(plan, [other.hold for other in _without_server(engine, plan.primitive.key)]):
        raise _NotAlone
    return give(lease)


async def _from_server_or_degraded(
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None,
    began: float,
    give: Callable[[HeldLease], T],
) -> T | None:
    runtime, primitive = engine.runtime, plan.primitive
    end = inf if timeout is None else began + timeout
    give_alone = partial(_give_alone, engine, plan, give)
    with _guard:
        _engines.add(engine)
    while True:
        engine.check_open(primitive.name)
        check_stop(stop, primitive.name)
        others = _without_server(engine, primitive.key)
        # One more permit is one more holder.
        mine = None if getattr(primitive, "permits", 0) else _mine(engine, others)
        if mine is not None:
            attempt = Attempt(runtime.who(), began, None, stop, wait=timeout != 0)
            again = reentry.taken_again(mine.engine, plan, mine.hold, attempt)
            if again is not None:
                return give(again)
        # A holder without the server comes first, also once that is back.
        if _fits(plan, [other.hold for other in others]):
            left = timeout if not timeout else max(1e-9, end - runtime.now())
            try:
                return await from_server(engine, plan, left, stop, or_none=True, nested=True, give=give_alone)
            except _NotAlone:
                continue
            except (BackendUnavailable, QuorumNotReached) as error:
                if _is_lasting(error) or not engine.maintenance_runs:
                    raise
                # The text alone: an error keeps the frames that it passed through.
                lease = _degrade(engine, plan, str(error), began)
                if lease is not None:
                    return give(lease)
        left = end - runtime.now()
        if left <= 0:
            return None
        await runtime.parker().park(min(_LOOK, left))


def _is_lasting(error: Exception) -> bool:
    """Whether it is no outage: something else answers there, TLS fails, or this machine can open no connection."""
    cause, text = error.__cause__, str(error)
    if any(f"[Errno {code}]" in text for code in _EXHAUSTED):
        return True
    return isinstance(cause, Fault) and (cause.final or not is_transient(cause.kind))


# Who holds it -------------------------------------------------------------------------------------------------------


def _without_server(engine: Engine, key: str) -> list[HeldLease]:
    """Who holds a key of this server without it."""
    with _guard:
        found = list(_degraded)
    return [
        lease
        for lease in found
        if lease.hold.primitive.key == key
        and lease.engine.health.server == engine.health.server
        and lease.is_held()
    ]


def _by_server(engine: Engine, key: str) -> Iterator[Hold]:
    """What the server granted to this process before it went."""
    with _guard:
        engines = list(_engines)
    for other in engines:
        if other.health.server == engine.health.server:
            now = other.runtime.now()
            for hold in {*list(other.held.values()), *other.schedule.all()}:
                if hold.primitive.key == key and hold.live and now < hold.valid_until:
                    yield hold


def _mine(engine: Engine, leases: Sequence[HeldLease]) -> HeldLease | None:
    who = engine.runtime.who()
    return next((lease for lease in leases if lease.who == who and _is_of(engine, lease)), None)


def _is_of(engine: Engine, lease: HeldLease) -> bool:
    # Each has an engine of its own, which reports for that of its client.
    return lease.engine.reports is engine.reports


def _fits(plan: Plan, others: Sequence[Hold]) -> bool:
    """Whether a lock may be held beside others of its key; where it is ``open``, beside all."""
    if plan.options.on_unavailable == "open":
        return True
    mode, limit = getattr(plan.primitive, "mode", "x"), getattr(plan.primitive, "permits", 0)
    modes = [getattr(other.primitive, "mode", "x") for other in others if other.degraded != "open"]
    if limit:
        return sum(map(int, modes)) + int(mode) <= limit
    return not modes or (mode != "x" and "x" not in modes)


# A lease without a server -------------------------------------------------------------------------------------------


class _Alone:
    """A primitive whose requests are their own answers."""

    transferable = False

    def __init__(self, primitive: Primitive) -> None:
        self._primitive = primitive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._primitive, name)

    def renew(self, *_: object) -> Granted:
        return Granted(0, 1, 0)

    def leave(self, *_: object) -> Released:
        return Released()

    def lowered(self) -> Primitive | None:
        lower = self._primitive.lowered()
        return None if lower is None else cast("Primitive", _Alone(lower))


class _Nowhere:
    """A runtime that answers such requests; all else is that of the client."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def call(self, call: Outcome, timeout: float) -> Outcome:
        del timeout
        return call


class _Lease(Hold):
    """What is held without the server: until it is released, or ``max_hold`` ends it by the local clock."""

    @property
    def valid_until(self) -> float:
        limit = self.rhythm.hold_limit
        return inf if limit is None else limit

    @valid_until.setter
    def valid_until(self, _: float) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whatever is asked for: nothing is renewed, and nothing ends it sooner."""


def _degrade(engine: Engine, plan: Plan, why: str, began: float) -> HeldLease | None:
    """Grant it without the server; None: somebody of this process holds it."""
    runtime, policy, key = engine.runtime, plan.options.on_unavailable, plan.primitive.key
    # An engine of its own, which nothing serves: whatever is done with the lease reaches no server.
    nowhere = cast("Runtime", _Nowhere(runtime))
    here = Engine(nowhere, engine.background, engine.client(), engine.maintenance)
    here.maintenance_runs, here.epoch = True, engine.epoch
    here.reports, here.health.server = engine.reports, engine.health.server
    primitive = cast("Primitive", _Alone(plan.primitive))
    hold = _Lease(primitive, plan.options, Waiter(runtime.new_token()), 0, inf, runtime.now())
    hold.degraded = policy
    who = hold.who = runtime.who()
    hold.epoch = here.epoch
    with _guard:
        others = [lease.hold for lease in _without_server(engine, key)]
        if not _fits(plan, [*others, *_by_server(engine, key)]):
            return None
        lease = HeldLease(here, hold, who)
        _degraded.add(lease)
    engine.count(f"degraded_{policy}")
    _log_once(engine, plan, why)
    if engine.reports.observer is not None:
        engine.reports.observer.acquired(hold, began, contended=False)
    return lease


def _log_once(engine: Engine, plan: Plan, why: str) -> None:
    name, policy = plan.primitive.name, plan.options.on_unavailable
    known = policy, engine.health.server, plan.primitive.key
    if known in _logged:
        return
    if len(_logged) >= _MOST_LOGGED:
        _logged.clear()
    _logged.add(known)
    log.warning(
        "%r granted in degraded mode, without the server (%s): %s", name, policy, why,
        extra={"pawlock_name": name, "pawlock_degraded": policy},
    )  # fmt: skip


def _after_fork() -> None:
    """In the child: the holders are threads of the parent."""
    global _guard  # noqa: PLW0603 - another thread may have had it
    _guard = threading.RLock()
    for lease in list(_degraded):
        lease.engine.epoch += 1
    _degraded.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
