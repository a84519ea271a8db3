"""Several names at once: all or nothing, in one order for all clients, with one lease for the whole.

Rules:

1. The members are taken in the order of their keys, whatever order they were given in: two clients that want the same
   names never wait for each other in a cycle.
2. What was taken is given back, by token, before a failure is reported; a cancel or an interrupt gives it back in the
   background.
3. The whole is valid for as long as the one that is valid least. One lost is all lost: the owner is notified once. The
   other names stay closed until the owner lets go, so that its last steps are not run into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pawlock.core import acquire, extend
from pawlock.core.giving_up import timed_out
from pawlock.core.lease import abandon, raise_outcome, release, report_losses_at_exit
from pawlock.core.retry import check_stop
from pawlock.errors import AcquireTimeout, NotAcquired, NotHeld, PawlockError
from pawlock.model import Release
from pawlock.primitives.multi.lease import HeldMultiLease, MultiPlan

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.lease import HeldLease
    from pawlock.core.plan import Plan
    from pawlock.core.runtime import StopSignal

__all__ = ["acquire_all", "end_all", "extend_all", "release_all", "release_all_or_raise", "try_all"]


# Taking --------------------------------------------------------------------------------------------------------------


async def acquire_all(
    engine: Engine, plan: MultiPlan, timeout: float | None, stop: StopSignal | None
) -> HeldMultiLease:
    """Take all members, or none.

    Args:
        engine: The client's engine.
        plan: The multi-lock.
        timeout: Seconds to wait for all of them together; None: no limit; 0 tries once.
        stop: Ends the wait once it is set.

    Raises:
        NotAcquired: Somebody else holds one of them, and the time is up; or waiting could never end.
        BackendError: The server could not be reached.
    """
    began = engine.runtime.now()
    found = await _all_or_none(engine, plan, timeout, stop, began)
    if isinstance(found, HeldMultiLease):
        return found
    raise _timed_out(engine, plan, await timed_out(engine, found, began, None), began)


async def try_all(engine: Engine, plan: MultiPlan) -> HeldMultiLease | None:
    """Take all members if none is held by another."""
    found = await _all_or_none(engine, plan, 0, None, engine.runtime.now())
    return found if isinstance(found, HeldMultiLease) else None


async def _all_or_none(
    engine: Engine, plan: MultiPlan, timeout: float | None, stop: StopSignal | None, began: float
) -> HeldMultiLease | Plan:
    """All members, or that which another holds."""
    engine.check_open(plan.name)
    until = began + timeout if timeout else None
    taken: list[HeldLease] = []
    engine.calls[id(taken)] = engine.runtime.who()
    try:
        for member in plan.members:
            check_stop(stop, plan.name)
            left = timeout if until is None else max(1e-9, until - engine.runtime.now())
            lease = await acquire.acquire(engine, member, left, stop, or_none=timeout == 0, nested=True)
            if lease is None:
                await _give_back(engine, taken)
                return member
            taken += [lease]
        for lease in taken:
            if not lease.is_held():
                text = f"acquire {plan.name!r}: {lease.name!r} was lost while waiting for the others"
                raise NotAcquired(f"{text}; all were released", name=lease.name)
        return HeldMultiLease(engine, plan, taken)
    except PawlockError as error:
        await _give_back(engine, taken)
        if isinstance(error, AcquireTimeout):
            raise _timed_out(engine, plan, error, began) from None
        raise
    except BaseException:
        _leave_behind(taken)
        raise
    finally:
        engine.calls.pop(id(taken), None)


def _timed_out(engine: Engine, plan: MultiPlan, error: AcquireTimeout, began: float) -> AcquireTimeout:
    waited = engine.runtime.now() - began
    by = f" by {error.holder}" if error.holder else ""
    text = f"acquire {plan.name!r}: {error.name!r} was still held after {round(waited, 3):.3g} s{by}; the others are released"
    return AcquireTimeout(text, name=error.name, holder=error.holder, waited=waited, position=error.position)


# Giving back ---------------------------------------------------------------------------------------------------------


async def _end_last(engine: Engine, left: list[HeldLease]) -> Release:
    """Release the last one, which goes on in the background if that is interrupted, and take it off the list."""
    lease = left.pop()
    return Release.LOST if lease.released else await release(engine, lease)


async def _give_back(engine: Engine, taken: list[HeldLease]) -> None:
    try:
        while taken:
            await _end_last(engine, taken)
    except BaseException:
        _leave_behind(taken)
        raise


def _leave_behind(taken: Sequence[HeldLease]) -> None:
    """Give back in the background, after a cancel or an interrupt; safe to repeat."""
    for lease in taken:
        abandon(lease)


async def release_all(engine: Engine, multi: HeldMultiLease) -> list[tuple[HeldLease, Release]]:
    """Release each of them, the last taken first, also if one of them is lost.

    Returns:
        How each ended.

    Raises:
        NotHeld: The whole was released before, or belongs to the parent of this process.
    """
    left = list(multi.leases)
    outcomes: list[tuple[HeldLease, Release]] = []
    if not multi.take_end():
        raise NotHeld(f"release {multi.name!r}: the lease was already released", name=multi.name)
    engine.calls[id(left)] = engine.runtime.who()
    try:
        multi.wake()
        while left:
            lease = left[-1]
            outcome = await _end_last(engine, left)
            outcomes.append((lease, outcome))
            multi.lost |= outcome is Release.LOST
    except BaseException:
        _leave_behind(left)
        raise
    finally:
        engine.calls.pop(id(left), None)
    return outcomes


async def release_all_or_raise(multi: HeldMultiLease) -> None:
    """Release on user request.

    Raises:
        NotHeld: One was lost, or all were released before.
        BackendError: The server did not answer for one, or refused; its ttl frees the name at the latest.
    """
    outcomes = await release_all(multi.engine, multi)
    # One that was lost comes first.
    for lease, outcome in sorted(outcomes, key=lambda one: one[1] is not Release.LOST):
        raise_outcome(lease, outcome, multi.name)


async def end_all(multi: HeldMultiLease, error: BaseException | None) -> None:
    """Release at the end of a ``with`` block. Never hides the body's own exception.

    Raises:
        LeaseLost: One was lost while the body ran, and the body did not raise.
    """
    if multi.released or multi.inert():
        return
    outcomes = await release_all(multi.engine, multi)
    losses = [lease.loss() for lease, outcome in outcomes if outcome is Release.LOST]
    if losses:
        report_losses_at_exit(losses, multi.plan.options.on_exit, error)


async def extend_all(engine: Engine, multi: HeldMultiLease, ttl: float) -> None:
    """Set the remaining life of each to ``ttl`` seconds; all are tried.

    Raises:
        NotHeld: One is lost, or all were released.
    """
    errors: list[PawlockError] = []
    for lease in multi.leases:
        try:
            await extend.extend(engine, lease, ttl)
        except PawlockError as error:
            errors.append(error)
    if errors:
        raise errors[0]
