"""How a lock is acquired; written once for both APIs.

A caller that holds the name already gets its lease once more, or waits for itself no longer than it asked for. Else it
comes to the local queue of the name: with a turn it asks the server, and waits there; without one it sleeps until it is
given what another caller of this client held, that one's ticket, or a turn of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pawlock.core.acquire.giving_up import end_wait, give_back, timed_out
from pawlock.core.acquire.reentry import taken_again
from pawlock.core.acquire.wait import sleep, win
from pawlock.core.lease.factory import own_given, own_grant
from pawlock.core.lease.record import HeldLease
from pawlock.core.state.local_queue import LocalQueue
from pawlock.core.state.records import Attempt, ServerLease, Waiter
from pawlock.errors import ClientClosed

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.runtime import StopSignal
    from pawlock.core.state.plan import Plan

__all__ = ["acquire"]

T = TypeVar("T")


@overload
async def acquire(
    engine: Engine, plan: Plan, timeout: float | None, stop: StopSignal | None = None, *, nested: bool = False
) -> HeldLease: ...
@overload
async def acquire(
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
    *,
    or_none: bool,
    nested: bool = False,
) -> HeldLease | None: ...
@overload
async def acquire(
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
    *,
    or_none: bool,
    nested: bool = False,
    give: Callable[[HeldLease], T],
) -> T | None: ...
async def acquire(
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
    *,
    or_none: bool = False,
    nested: bool = False,
    give: Callable[[HeldLease], Any] | None = None,
) -> Any:
    """Acquire the lock: with a single request if it is free, and nobody in this client holds or awaits it.

    Args:
        engine: The client's engine.
        plan: The lock.
        timeout: Seconds to wait; None: no limit; 0 tries once.
        stop: Ends the wait once it is set.
        or_none: Whether it ends with None, and not with an error, where the time is up and somebody else holds it.
        nested: Whether it is a step of another acquisition, which notifies observers by itself.
        give: Makes of the lease what its user gets.

    Raises:
        NotAcquired: Somebody else holds it, and the time is up; or the wait would deadlock.
        BackendError: The server could not be asked.
    """
    runtime, epoch = engine.runtime, engine.epoch
    began = runtime.now()
    # A single try waits for its answer as long as any request.
    until = None if timeout is None else began + (timeout or plan.options.request_timeout)
    attempt = Attempt(runtime.who(), began, until, stop, wait=timeout != 0)
    calls, waits = engine.calls, engine.waits
    try:
        if not engine.maintenance_runs:
            engine.need_maintenance(plan.primitive.name)
        calls[attempt] = attempt.who
        # Checked after registering: a concurrent close either saw this call or has set ``closed``.
        if engine.closed:
            engine.check_open(plan.primitive.name)
        lease = await _take(engine, plan, attempt)
        if lease is None:
            await _refuse(engine, plan, attempt, or_none=or_none, nested=nested)
            return None
        if engine.closed or engine.epoch != epoch:
            what = "process was forked" if engine.epoch != epoch else "client was closed"
            raise ClientClosed(f"the {what} during the call", name=plan.primitive.name)
        return lease if give is None else give(lease)
    except BaseException as error:
        # If it is this one, its frames have the attempt.
        attempt.wait_error = None
        # In the child of a fork all of it is the parent's.
        if engine.epoch == epoch:
            give_back(engine, plan, attempt, error)
        if not nested:
            engine.refused(plan.primitive, began, error)
        raise
    finally:
        # Without a call, after which a signal handler may run: what its exception keeps would have the lease.
        if attempt in calls:
            del calls[attempt]
        if attempt in waits:
            del waits[attempt]


async def _refuse(engine: Engine, plan: Plan, attempt: Attempt, *, or_none: bool, nested: bool) -> None:
    """Report an acquisition whose time is up.

    Raises:
        AcquireTimeout: Unless ``or_none`` is set.
    """
    if not or_none:
        raise await timed_out(engine, plan, attempt.began, attempt.last)
    if not nested:
        engine.refused(plan.primitive, attempt.began, None)


async def _take(engine: Engine, plan: Plan, attempt: Attempt) -> HeldLease | None:
    """Get it once more, from another caller of this client, or from the server; None: the time is up."""
    mine = None if plan.counted else engine.held.get((attempt.who, plan.primitive.key))
    if mine is not None:
        again = taken_again(engine, plan, mine, attempt)
        if again is not None or not (attempt.wait or not mine.live):
            return again
    while _begin(engine, plan, attempt) or await sleep(engine, plan, attempt):
        given = attempt.given
        if isinstance(given, ServerLease):
            lease = own_given(engine, plan, given, attempt)
            if lease is not None:
                return lease
            # Lost between the hand-over and now: it queues again, for the time that remains.
            attempt.given, attempt.number = None, 0
            continue
        if isinstance(given, Waiter):
            attempt.waiter = given
        else:
            token = engine.runtime.new_token()
            attempt.waiter = Waiter(plan.shown(token) if plan.identity else token)
        hold = await win(engine, plan, attempt)
        if hold is not None:
            return own_grant(engine, plan, hold, attempt)
        await end_wait(engine, plan, attempt)
        return None
    return None


def _begin(engine: Engine, plan: Plan, attempt: Attempt) -> bool:
    """Come to the local queue; False: the caller must sleep, or, if it does not wait, leave."""
    with engine.guard:
        queue = engine.local_queues.get(plan.queue_key)
        if queue is None:
            queue = LocalQueue(plan.queue_key, engine.local_queues, plan.capacity)
        attempt.queue = queue
        if queue.begin(attempt):
            return True
        if attempt.wait:
            attempt.parker = engine.runtime.parker()
            attempt.lease = HeldLease(engine, None, attempt.who)
            queue.sleepers.append(attempt)
        return False
