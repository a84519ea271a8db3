"""What a lock does while the server cannot be reached, where its user wants that: go on under less protection.

``local``: one holder at a time in this process, for all its threads, tasks and clients. ``open``: everybody goes on.
Both are told by ``lease.degraded``, logged once per name, and counted. A degraded lease has no fence: 0 is below every
fence, so whatever checks fences refuses it. Once the server answers, the next acquisition is an ordinary one again; it
comes after the degraded holder of this process.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import TYPE_CHECKING, Any, cast

from pawl.core.claim import STOP_POLL, StopSignal, check_stop
from pawl.core.handover import Turn
from pawl.core.tenure import Tenure
from pawl.errors import BackendUnavailable, QuorumNotReached

if TYPE_CHECKING:
    from pawl.core.claim import Claim
    from pawl.core.engine import Engine
    from pawl.core.handover import Place, Sleeper
    from pawl.core.lease import BaseLease
    from pawl.core.operations import NewLease, Plan
    from pawl.core.runtime import Parker, Runtime

__all__ = ["Shelter", "forget_shelters", "guard", "sheltered"]

log: logging.Logger = logging.getLogger("pawl.degraded")

_LOOK = 0.1
_lines: dict[str, deque[_Turn]] = {}
_told: set[tuple[str, str]] = set()
_MOST_TOLD = 10_000


class _Guard:
    """Whatever keeps the threads of this process apart; put here by those who know of threads."""

    __slots__ = ("mutex",)

    def __init__(self) -> None:
        self.mutex: AbstractContextManager[object] = nullcontext()


guard: _Guard = _Guard()


class _Turn:
    """One who stands in the line of a key."""

    __slots__ = ("parker", "runtime", "served")

    def __init__(self, runtime: Runtime) -> None:
        self.parker: Parker = runtime.parker()
        self.runtime: Runtime = runtime
        self.served: bool = False


def _join(key: str, runtime: Runtime) -> _Turn | None:
    """Stand in the line of a key; None: nobody was there, and it is taken now."""
    with guard.mutex:
        line = _lines.get(key)
        if line is None:
            _lines[key] = deque()
            return None
        turn = _Turn(runtime)
        line.append(turn)
        return turn


def _withdraw(key: str, turn: _Turn) -> bool:
    """Leave the line; False: the turn came first."""
    with guard.mutex:
        if turn.served:
            return False
        _lines[key].remove(turn)
        return True


def _free(key: str) -> None:
    """Give it to the next in line."""
    with guard.mutex:
        line = _lines.get(key)
        if not line:
            _lines.pop(key, None)
            return
        turn = line.popleft()
        turn.served = True
    turn.runtime.at_home(turn.parker.unpark)


class Shelter:
    """The place of a degraded tenure: its end is known to this process alone.

    Args:
        key: The key whose line it holds; None for ``open``.
    """

    __slots__ = ("_key", "keeper", "streak")

    sleepers: tuple[Sleeper, ...] = ()
    """Nobody waits here: who waits for it stands in the line of its key."""

    def __init__(self, key: str | None) -> None:
        self.keeper: Any = None
        self.streak: int = 0
        self._key: str | None = key

    def leave(self) -> None:
        """End it; safe to repeat."""
        key, self._key = self._key, None
        if key is not None:
            _free(key)

    def hand_over(self, tenure: Tenure, now: float, number: int | None = None) -> Turn:  # noqa: ARG002 - as a place of the server's names
        """The end of a release: the server has no part in it."""
        tenure.used += 1
        self.leave()
        return Turn.HANDED

    def pass_claim(self, claim: Claim, turn: int) -> bool:  # noqa: ARG002 - there is none to pass on
        """The end by loss."""
        self.leave()
        return True


async def sheltered(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    take: Callable[[float | None], Awaitable[BaseLease | None]],
    timeout: float | None,
    stop: StopSignal | None,
    who: object,
) -> BaseLease | None:
    """Take a lock from the server, or degrade.

    Args:
        engine: The client's engine.
        plan: The lock; its ``on_unavailable`` is ``"local"`` or ``"open"``.
        new_lease: Makes the lease of this colour.
        take: Takes it from the server within so many seconds.
        timeout: Seconds to wait; None for ever; 0 tries once.
        stop: Ends the wait once it is set.
        who: The present thread or task.

    Returns:
        The lease, or None if somebody else holds it and the time is up.
    """
    runtime, key = engine.runtime, plan.primitive.key
    began = runtime.now()
    end = None if timeout is None else began + timeout
    local = plan.options.on_unavailable == "local"
    # Somebody of this process may hold it without the server: nobody passes him by, whatever the server says.
    # But the holder himself is: he takes it again, or is told that he has it.
    mine = local and key in _lines and (who, key) not in engine.held
    if mine and not await _enter(engine, plan, end, stop):
        return None
    try:
        lease = await take(_left(runtime, end, timeout))
    except (BackendUnavailable, QuorumNotReached) as error:
        if local and not mine and not await _enter(engine, plan, end, stop):
            return None
        lease = _degrade(engine, plan, new_lease, who, error)
        if engine.observer is not None:
            engine.observer.acquired(lease._tenure, began, contended=False)
        return lease
    except BaseException:
        if mine:
            _free(key)
        raise
    if mine:
        _free(key)
    return lease


def _left(runtime: Runtime, end: float | None, timeout: float | None) -> float | None:
    if end is None or timeout == 0:
        return timeout
    return max(1e-9, end - runtime.now())


async def _enter(engine: Engine, plan: Plan, end: float | None, stop: StopSignal | None) -> bool:
    """Stand in the local line until the turn comes; False if the time is up first."""
    runtime, key = engine.runtime, plan.primitive.key
    turn = _join(key, runtime)
    if turn is None:
        return True
    try:
        while not turn.served:
            left = _LOOK if end is None else min(_LOOK, end - runtime.now())
            if left <= 0 and _withdraw(key, turn):
                return False
            await turn.parker.park(max(0.0, left if stop is None else min(left, STOP_POLL)))
            if not turn.served:
                engine.check_open(plan.primitive.name)
                check_stop(stop, plan.primitive.name)
    except BaseException:
        if not _withdraw(key, turn):
            _free(key)
        raise
    return True


def _degrade(engine: Engine, plan: Plan, new_lease: NewLease, who: object, error: Exception) -> BaseLease:
    runtime, name, policy = engine.runtime, plan.primitive.name, plan.options.on_unavailable
    now = runtime.now()
    tenure = Tenure(plan.primitive, plan.options, runtime.new_token(), 0, inf, now)
    tenure.place = cast("Place", Shelter(plan.primitive.key if policy == "local" else None))
    tenure.degraded = policy
    tenure.who = who
    tenure.epoch = engine.epoch
    engine.held[who, plan.primitive.key] = tenure
    lease = new_lease(engine, tenure, 0, who, 1)
    if tenure.hold_limit is not None and engine.schedule.add_once(tenure, tenure.hold_limit):
        engine.wake_upkeep()
    engine.count(f"degraded_{policy}")
    key = plan.primitive.key
    if (policy, key) not in _told:
        if len(_told) >= _MOST_TOLD:
            _told.clear()
        _told.add((policy, key))
        log.warning(
            "%r goes on without the server (%s): %s", name, policy, error,
            extra={"pawl_name": name, "pawl_degraded": policy},
        )  # fmt: skip
    return lease


def forget_shelters() -> None:
    """In the child of a fork: who held them are threads of the parent."""
    _lines.clear()
