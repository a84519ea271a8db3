"""What a lock does while the server is unreachable, if its user asked for that: continue with less protection.

``local``: one holder at a time in this process, for all its threads, tasks and clients of the same address; also
beside a lease that the server granted here before, for as long as that is valid. ``open``:
everybody goes on. Both are shown by ``lease.degraded``, logged once per name, and counted. A degraded lease has no
fence: 0 is below every fence, so whatever checks fences refuses it. Once the server answers, the next acquisition is an
ordinary one again, also for a caller that waited behind a degraded holder; it comes after that holder.

Only an outage counts: where something other than the server answers, or TLS fails, the error is raised.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from pawlock.core.acquire.this_process import is_held_beside
from pawlock.core.lease.record import HeldLease
from pawlock.core.protocol.faults import is_transient
from pawlock.core.protocol.runtime import Fault, StopSignal
from pawlock.core.retry import STOP_POLL, check_stop
from pawlock.core.state.local_queue import LocalQueue
from pawlock.core.state.records import ServerLease, Turn
from pawlock.errors import BackendUnavailable, DeadlockDetected, QuorumNotReached

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.runtime import Parker, Runtime
    from pawlock.core.state.plan import Plan
    from pawlock.core.state.records import Waiter

__all__ = ["DegradedLease", "DegradedQueue", "forget_degraded", "guard", "take_or_degrade"]

log: logging.Logger = logging.getLogger("pawlock.degraded")

_LOOK = 0.1

_LineKey: TypeAlias = "tuple[str, str]"
"""Which server, and which of its keys."""

_lines: dict[_LineKey, deque[_Turn]] = {}
_logged: set[tuple[str, _LineKey]] = set()
_MOST_LOGGED = 10_000


class _Guard:
    """The lock between the threads of this process; set by the modules that know of threads."""

    __slots__ = ("mutex",)

    def __init__(self) -> None:
        self.mutex: AbstractContextManager[object] = nullcontext()


guard: _Guard = _Guard()


class _Turn:
    """A caller in the line for a key."""

    __slots__ = ("parker", "runtime", "served", "slot")

    def __init__(self, runtime: Runtime, slot: _Slot) -> None:
        self.parker: Parker = runtime.parker()
        self.runtime: Runtime = runtime
        self.slot: _Slot = slot
        self.served: bool = False


def _join(line_key: _LineKey, turn: _Turn) -> bool:
    """Join the line for a key; False: nobody was there, and its slot has it now."""
    new: deque[_Turn] = deque()
    with guard.mutex:
        if line_key not in _lines:
            # No call in between: Ctrl-C finds it taken by the slot, or by nobody.
            _lines[line_key] = new
            turn.slot.line_key = line_key
            return False
        _lines[line_key].append(turn)
        return True


def _withdraw(line_key: _LineKey, turn: _Turn) -> bool:
    """Leave the line; False: the turn came first. Safe to repeat."""
    with guard.mutex:
        if turn.served:
            return False
        if line_key in _lines and turn in _lines[line_key]:
            _lines[line_key].remove(turn)
        return True


class _Slot:
    """The turn of one holder, for as long as its call or any of its leases lasts.

    Args:
        line_key: The key whose line it holds; None for ``open``, and until the turn has come.
    """

    __slots__ = ("_over", "line_key", "server_leases")

    def __init__(self, line_key: _LineKey | None) -> None:
        self.line_key: _LineKey | None = line_key
        self.server_leases: list[ServerLease] = []
        self._over = False

    def end(self, server_lease: ServerLease | None = None) -> None:
        """One of its leases, or the call, has ended: the last of them frees the line. Safe to repeat."""
        next_turn: _Turn | None = None
        with guard.mutex:
            if server_lease in self.server_leases:
                self.server_leases.remove(server_lease)
            # No call from here on: an interrupted end has freed the line, or is repeated.
            if self._over or self.server_leases:
                return
            line_key = self.line_key
            if line_key is not None and line_key in _lines:
                if _lines[line_key]:
                    next_turn = _lines[line_key][0]
                    next_turn.served, next_turn.slot.line_key = True, line_key
                    del _lines[line_key][0]
                else:
                    del _lines[line_key]
            self._over = True
        if next_turn is not None:
            # Where Ctrl-C prevents that, it sees it at its next look.
            next_turn.runtime.run_in_owner(next_turn.parker.unpark)

    def may_hold_again(self, plan: Plan) -> bool:
        """Whether its holder may take the same name once more, as it might on the server."""
        limit = getattr(plan.primitive, "permits", 0)
        if limit:
            return (
                sum(map(_weight, (plan.primitive, *(one.primitive for one in self.server_leases)))) <= limit
            )
        return plan.counted


def _weight(primitive: Primitive) -> int:
    return int(getattr(primitive, "mode", "1"))


class DegradedQueue(LocalQueue):
    """The place of a degraded server lease, in which nobody waits: its end is known to this process alone.

    Args:
        slot: What it holds.
        server_lease: The server lease.
    """

    def __init__(self, slot: _Slot, server_lease: ServerLease) -> None:
        super().__init__(slot.line_key, guard.mutex, {}, server_lease)
        self.slot: _Slot = slot
        self._server_lease = server_lease
        slot.server_leases.append(server_lease)

    def close(self) -> None:
        """End it; safe to repeat."""
        self.slot.end(self._server_lease)

    def hand_over(self, server_lease: ServerLease, now: float, number: int | None = None) -> Turn:
        """The end of a release: the server has no part in it."""
        del now, number
        # In this order: a release that was interrupted in between is finished, as long as it did not pass it on.
        self.close()
        server_lease.used += 1
        return Turn.HANDED

    def promote(self, waiter: Waiter, turn: int, parting: ServerLease | None = None) -> bool:  # noqa: ARG002 - there is none to pass on
        """The end by loss."""
        self.close()
        return True


async def take_or_degrade(  # noqa: C901 - in one piece: whatever it ends with, its place in the line ends here
    engine: Engine,
    plan: Plan,
    take: Callable[[float | None], Awaitable[HeldLease | None]],
    timeout: float | None,
    stop: StopSignal | None,
    who: object,
) -> HeldLease | None:
    """Take a lock from the server, or degrade.

    Args:
        engine: The client's engine.
        plan: The lock; its ``on_unavailable`` is ``"local"`` or ``"open"``.
        take: Takes it from the server within so many seconds.
        timeout: Seconds to wait; None: no limit; 0 tries once.
        stop: Ends the wait once it is set.
        who: The present thread or task.

    Returns:
        The lease, or None if somebody else holds it and the time is up.
    """
    runtime, line_key = engine.runtime, _line_key(engine, plan)
    began = runtime.now()
    end = None if timeout is None else began + timeout
    local = plan.options.given.on_unavailable == "local"
    slot: _Slot | None = None if local else _Slot(None)
    try:
        # Somebody in this process may hold it without the server: only that holder itself does not wait behind it.
        if local and line_key in _lines and (who, plan.primitive.key) not in engine.leases.held:
            slot = _Slot(None)
            if await _enter(engine, line_key, plan, slot, end, stop) is None:
                return None
        while True:
            try:
                return await take(_left(runtime, end, timeout))
            except (BackendUnavailable, QuorumNotReached) as error:
                if _is_lasting(error):
                    raise
                # The text alone: an error keeps the frames that it passed through.
                failure = str(error)
            waited: bool | None = False
            slot = slot or _held_slot(engine, plan, who)
            if slot is None:
                slot = _Slot(None)
                waited = await _enter(engine, line_key, plan, slot, end, stop)
            waited = await _give_way(engine, plan, slot, who, end, stop) if waited is False else waited
            if waited is None:
                return None
            if waited:
                # That was the answer from before the wait: by now somebody may hold it on the server.
                continue
            return _degrade(engine, plan, who, failure, slot, began)
    finally:
        # Of what it held before, or of "open", this ends nothing: its leases go on, or it has no line.
        if slot is not None:
            try:
                slot.end()
            except BaseException:
                slot.end()
                raise


def _line_key(engine: Engine, plan: Plan) -> _LineKey:
    return engine.health.server, plan.primitive.key


def _is_lasting(error: Exception) -> bool:
    """Whether waiting cannot help: something else answers there, or TLS fails. That is a mistake, not an outage."""
    cause = error.__cause__
    return isinstance(cause, Fault) and (cause.final or not is_transient(cause.kind))


def _held_slot(engine: Engine, plan: Plan, who: object) -> _Slot | None:
    """What the caller holds itself, without the server, and would wait for; None: it does not.

    Raises:
        DeadlockDetected: It holds it, and may not take it once more.
    """
    name, held = plan.primitive.name, engine.leases.held.get((who, plan.primitive.key))
    local_queue = None if held is None else held.local_queue
    if held is None or not isinstance(local_queue, DegradedQueue) or not held.live:
        return None
    if not local_queue.slot.may_hold_again(plan):
        text = "this thread or task already holds it in degraded mode and would wait for itself"
        raise DeadlockDetected(
            f"acquire {name!r}: {text}", name=name, holder=held.token.partition("@")[2], cycle=(name, name)
        )
    return local_queue.slot


def _left(runtime: Runtime, end: float | None, timeout: float | None) -> float | None:
    if end is None or timeout == 0:
        return timeout
    return max(1e-9, end - runtime.now())


async def _enter(
    engine: Engine, line_key: _LineKey, plan: Plan, slot: _Slot, end: float | None, stop: StopSignal | None
) -> bool | None:
    """Wait in the local line for the turn: True if others were first, None if the time is up before."""
    runtime = engine.runtime
    turn = _Turn(runtime, slot)
    try:
        if not _join(line_key, turn):
            return False
        while not turn.served:
            left = _LOOK if end is None else min(_LOOK, end - runtime.now())
            if left <= 0 and _withdraw(line_key, turn):
                return None
            await turn.parker.park(max(0.0, left if stop is None else min(left, STOP_POLL)))
            if not turn.served:
                engine.check_open(plan.primitive.name)
                check_stop(stop, plan.primitive.name)
    except BaseException:
        # Where its turn came first, the slot has it, and its end frees it.
        _withdraw(line_key, turn)
        raise
    return True


async def _give_way(
    engine: Engine, plan: Plan, slot: _Slot, who: object, end: float | None, stop: StopSignal | None
) -> bool | None:
    """Leases that the server granted here before the outage come first: True after a pause, None if the time is up.

    False: nobody has it.
    """
    if slot.line_key is None or slot.server_leases or not is_held_beside(engine, plan.primitive.key, who):
        return False
    left = _LOOK if end is None else min(_LOOK, end - engine.runtime.now())
    if left <= 0:
        return None
    await engine.runtime.parker().park(left if stop is None else min(left, STOP_POLL))
    engine.check_open(plan.primitive.name)
    check_stop(stop, plan.primitive.name)
    return True


class DegradedLease(ServerLease):
    """What is held without the server."""

    @property
    def degraded(self) -> str:
        """What the lock's ``on_unavailable`` asked for."""
        return self.options.given.on_unavailable


def _degrade(
    engine: Engine,
    plan: Plan,
    who: object,
    why: str,
    slot: _Slot,
    began: float,
) -> HeldLease:
    runtime, policy = engine.runtime, plan.options.given.on_unavailable
    now = runtime.now()
    server_lease = DegradedLease(plan.primitive, plan.options, runtime.new_token(), 0, inf, now)
    if slot.server_leases:
        # Its own, which it goes on with after this one.
        server_lease.owner.outer = engine.leases.held.get((who, plan.primitive.key))
    server_lease.owner.who = who
    server_lease.owner.epoch = engine.epoch
    try:
        server_lease.local_queue = DegradedQueue(slot, server_lease)
        engine.leases.held[who, plan.primitive.key] = server_lease
        lease = HeldLease(engine, server_lease, 0, who)
    except BaseException:
        engine.forget_holder(server_lease, who)
        slot.end(server_lease)
        raise
    if server_lease.rhythm.hold_limit is not None and engine.leases.schedule.add_once(
        server_lease, server_lease.rhythm.hold_limit
    ):
        engine.wake_maintenance()
    engine.count(f"degraded_{policy}")
    _log_once(engine, plan, why)
    if engine.reports.observer is not None:
        engine.reports.observer.acquired(server_lease, began, contended=False)
    return lease


def _log_once(engine: Engine, plan: Plan, why: str) -> None:
    line_key, name, policy = _line_key(engine, plan), plan.primitive.name, plan.options.given.on_unavailable
    if (policy, line_key) in _logged:
        return
    if len(_logged) >= _MOST_LOGGED:
        _logged.clear()
    _logged.add((policy, line_key))
    log.warning(
        "%r granted in degraded mode, without the server (%s): %s", name, policy, why,
        extra={"pawlock_name": name, "pawlock_degraded": policy},
    )  # fmt: skip


def forget_degraded() -> None:
    """In the child of a fork: their holders are threads of the parent."""
    _lines.clear()
