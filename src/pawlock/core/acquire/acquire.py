"""How a lock is taken: once for both APIs, all primitives and all options. How it ends is in ``release``.

There is one way in. A name that no thread or task of this client holds or waits for is requested from the server at
once (``first_request``). Otherwise the caller blocks in the client's local queue (``local_wait``). Everything else
becomes a waiter in the server's queue, woken by pub/sub, with polling as a fallback (``queue``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload
from weakref import ref

from pawlock.core.acquire.first_request import ask, begin, own_if_granted, waiter_of
from pawlock.core.acquire.giving_up import abandon, give_up, pass_back, timed_out
from pawlock.core.acquire.grant import own
from pawlock.core.acquire.local_wait import await_turn, local_patience
from pawlock.core.acquire.queue import poll, read_answer, win
from pawlock.core.acquire.reentry import taken_again
from pawlock.core.lease.factory import own_grant
from pawlock.core.lease.record import HeldLease
from pawlock.core.protocol.outcomes import Granted
from pawlock.core.protocol.runtime import Fault, StopSignal
from pawlock.core.state.local_queue import LocalWaiter
from pawlock.core.state.plan import Attempt, Plan
from pawlock.core.state.records import ServerLease, Waiter, WaiterState
from pawlock.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pawlock.core.keep.engine import Engine
    from pawlock.model import Grant

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
async def acquire(  # noqa: C901, PLR0912, PLR0915 - in one piece: a free name passes through it, and pays for each call
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
    began, wait = engine.runtime.now(), timeout != 0
    # A single try waits for its answer as long as any request.
    until = None if timeout is None else began + (timeout or plan.options.request_timeout)
    lease: HeldLease | None = None
    server_lease: ServerLease | None = None
    attempt: Attempt | None = None
    epoch, calls = engine.epoch, engine.activity.calls
    try:
        if not engine.activity.maintenance_runs:
            engine.need_maintenance(plan.primitive.name)
        if wait and not plan.alone and plan.queue_key in engine.queues.local.by_key:
            attempt = Attempt(engine.runtime.who(), began, until, stop, wait=wait, or_none=or_none)
            calls[attempt] = attempt.who
            # A caller that already holds the lock does not wait: check that before allocating anything.
            if (attempt.who, plan.primitive.key) in engine.leases.held:
                lease = await _acquire_slow(engine, plan, attempt)
            else:
                lease = await _acquire_local(engine, plan, attempt)
        elif (server_lease := begin(engine, plan)) is None:
            attempt = Attempt(engine.runtime.who(), began, until, stop, wait=wait, or_none=or_none)
            calls[attempt] = attempt.who
            lease = await _acquire_slow(engine, plan, attempt)
        else:
            answer: Any = None
            calls[server_lease] = server_lease.owner.who
            try:
                # Checked after registering: a concurrent close either saw this call or has set ``closed``.
                if not engine.activity.closed:
                    answer = ask(engine, server_lease, began, until, wait=wait)
                    if answer is not None:
                        if type(answer) is not Granted and not isinstance(answer, tuple):
                            answer = await answer
                        if engine.health.down_since is not None:
                            engine.note_answer()
                        lease = own_if_granted(engine, plan, server_lease, answer, began)
            except Fault as fault:
                answer = fault.bare()
            if lease is None:
                waiter = (
                    Waiter(server_lease.token)
                    if answer is None
                    else waiter_of(engine, server_lease, answer, began)  # pyright: ignore[reportUnknownArgumentType]
                )
                # With all of it from the start: interrupted, the call gives back what the attempt has.
                attempt = Attempt(
                    server_lease.owner.who, began, until, stop,
                    wait=wait, or_none=or_none, waiter=waiter, local_queue=server_lease.local_queue,
                )  # fmt: skip
                calls[attempt] = attempt.who
                lease = await _wait_as_waiter(engine, plan, attempt)
        if lease is None:
            if not nested:
                engine.refused(plan.primitive, began, None)
        elif engine.activity.closed or engine.epoch != epoch:
            what = "process was forked" if engine.epoch != epoch else "client was closed"
            raise ClientClosed(f"the {what} during the call", name=plan.primitive.name)
        return lease if give is None or lease is None else give(lease)
    except BaseException as error:
        # In the child of a fork all of it is the parent's.
        if engine.epoch == epoch:
            abandon(engine, plan, server_lease, attempt, error)
        if not nested:
            engine.refused(plan.primitive, began, error)
        raise
    finally:
        if server_lease in calls:
            del calls[server_lease]
        if attempt in calls:
            del calls[attempt]


async def _acquire_slow(engine: Engine, plan: Plan, attempt: Attempt) -> HeldLease | None:
    """Acquire where one request is not enough: the caller or others of this client hold it, or the client is closed."""
    engine.check_open(plan.primitive.name)
    mine = None if plan.counted else engine.leases.held.get((attempt.who, plan.primitive.key))
    if mine is not None:
        again = taken_again(engine, plan, mine, attempt)
        if again is not None:
            return again
        if mine.live and not attempt.wait:
            await _refuse_late(engine, plan, attempt, None)
            return None
    if not plan.alone:
        return await _acquire_local(engine, plan, attempt)
    attempt.waiter = Waiter(plan.shown(engine.runtime.new_token()))
    return await _wait_as_waiter(engine, plan, attempt)


async def _acquire_local(  # noqa: C901 - in one piece: each wait here is one coroutine less deep
    engine: Engine, plan: Plan, attempt: Attempt
) -> HeldLease | None:
    """Join the local queue of a name; sleep until the lease is handed over, or it is this caller's turn to ask."""
    runtime, waits = engine.runtime, engine.queues.waits
    # Alive for as long as this call waits on the server for the local queue.
    local_waiter = attempt.local_waiter = LocalWaiter()
    # Allocated before sleeping: work done during a hand-over delays every other waiter.
    lease = HeldLease(engine, None, 0, attempt.who)
    local_waiter.lease = ref(lease)
    try:
        waits[local_waiter] = plan.primitive, attempt.who, attempt.began
        engine.queues.local.join(plan.queue_key, local_waiter)
        if not local_waiter.waits:
            local_waiter.waiter = Waiter(runtime.new_token())
            local_waiter.waiter.turn = local_waiter.turn
        elif not attempt.wait:
            pass_back(engine, plan, local_waiter, attempt.who)
            await _refuse_late(engine, plan, attempt, None)
            return None
        else:
            engine.watch()
            pause = runtime.recheck_after
            if attempt.stop is not None or attempt.until is not None:
                pause = local_patience(runtime, attempt)
            rest = local_waiter.parker.rest(pause)
            if rest is not True and rest is not False:
                await rest
            if own(engine, plan, local_waiter, lease, attempt.began):
                return lease
            if not local_waiter.served:
                await await_turn(engine, plan, local_waiter, attempt)
    finally:
        if local_waiter in waits:
            del waits[local_waiter]
    waiter = local_waiter.waiter
    if waiter is not None:
        # Wait on the server for the whole queue.
        waiter.met = local_waiter.waits
        attempt.waiter, attempt.local_queue = waiter, local_waiter.local_queue
        return await _wait_as_waiter(engine, plan, attempt)
    if own(engine, plan, local_waiter, lease, attempt.began):
        return lease
    # Lost between the hand-over and now: queue again, for the time that remains.
    if local_waiter.server_lease is not None:
        engine.expired(local_waiter.server_lease, runtime.now())
    return await _acquire_local(engine, plan, attempt)


async def _wait_as_waiter(engine: Engine, plan: Plan, attempt: Attempt) -> HeldLease | None:
    """Wait for a grant as the waiter of this client that the server knows, and own what it gets."""
    waiter = attempt.waiter or Waiter("")
    waiter.stop = attempt.stop
    if waiter.state is WaiterState.BUSY:
        waiter.become(WaiterState.ASKED)
    grant = await _wait_for_grant(engine, plan, waiter, attempt)
    if grant is not None:
        return own_grant(engine, plan, waiter, grant, attempt)
    await give_up(engine, plan, attempt.local_queue, waiter)
    attempt.waiter = attempt.local_waiter = None
    await _refuse_late(engine, plan, attempt, waiter)
    return None


async def _refuse_late(engine: Engine, plan: Plan, attempt: Attempt, waiter: Waiter | None) -> None:
    """End an acquisition whose time is up.

    Raises:
        AcquireTimeout: Unless ``or_none`` is set.
    """
    if not attempt.or_none:
        raise await timed_out(engine, plan, attempt.began, waiter)


async def _wait_for_grant(engine: Engine, plan: Plan, waiter: Waiter, attempt: Attempt) -> Grant | None:
    """Ask for a waiter until it is served or the time is up; meanwhile it is checked for deadlocks."""
    until = attempt.until
    engine.check_open(plan.primitive.name)
    grant = read_answer(engine, plan.primitive, plan.options, waiter)
    if grant is not None or (waiter.busy and not (attempt.wait and plan.primitive.polls)):
        return grant
    waiter.wait_error = None
    waiter.channel = engine.runtime.channel()
    try:
        engine.queues.waits[waiter] = plan.primitive, attempt.who, attempt.began
        engine.watch()
        if waiter.met and attempt.wait:
            # Another of this client had it just now: who asks at once would always be sooner than those who poll.
            await poll(engine, plan.primitive, waiter, until, share=engine.runtime.random())
        return await win(engine, plan.primitive, plan.options, waiter, until, wait=attempt.wait)
    finally:
        engine.queues.waits.pop(waiter, None)
