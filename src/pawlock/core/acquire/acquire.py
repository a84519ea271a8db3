"""How a lock is taken: once for both APIs, all primitives and all options. How it ends is in ``release``.

There is one way in. A name that no thread or task of this client holds or waits for is requested from the server at
once (``first_request``). Otherwise the caller blocks in the client's local queue (``local_wait``). Everything else
becomes a waiter in the server's queue, woken by pub/sub, with polling as a fallback (``queue``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, overload
from weakref import ref

from pawlock.core.acquire.candidate import win as win_quorum
from pawlock.core.acquire.first_request import GRANTING, ask, begin, own_if_granted, waiter_of
from pawlock.core.acquire.giving_up import give_up, timed_out
from pawlock.core.acquire.grant import own
from pawlock.core.acquire.local_wait import await_turn, local_patience, pass_back
from pawlock.core.acquire.queue import poll, read_answer, win
from pawlock.core.acquire.reentry import taken_again
from pawlock.core.lease.factory import own_grant, undo_lease
from pawlock.core.lease.in_progress import refuse
from pawlock.core.lease.record import HeldLease
from pawlock.core.protocol.runtime import Fault, StopSignal
from pawlock.core.state.local_queue import LocalWaiter
from pawlock.core.state.plan import Attempt, Plan
from pawlock.core.state.records import Waiter, WaiterState

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.quorum import QuorumPrimitive
    from pawlock.core.state.records import AnyLocalQueue
    from pawlock.model import Grant

__all__ = ["acquire"]


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
async def acquire(  # noqa: C901, PLR0912, PLR0915 - in one piece: a free name passes through it, and pays for each call
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
    *,
    or_none: bool = False,
    nested: bool = False,
) -> HeldLease | None:
    """Acquire the lock: with a single request if it is free, and nobody in this client holds or awaits it.

    Args:
        engine: The client's engine.
        plan: The lock.
        timeout: Seconds to wait; None: no limit; 0 tries once.
        stop: Ends the wait once it is set.
        or_none: Whether it ends with None, and not with an error, where the time is up and somebody else holds it.
        nested: Whether it is a step of another acquisition, which notifies observers by itself.

    Raises:
        NotAcquired: Somebody else holds it, and the time is up; or the wait would deadlock.
        BackendError: The server could not be asked.
    """
    began, wait = engine.runtime.now(), timeout != 0
    # A single try waits for its answer as long as any request.
    until = None if timeout is None else began + (timeout or plan.options.request_timeout)
    lease: HeldLease | None = None
    epoch = engine.epoch
    try:
        if wait and not plan.alone and plan.queue_key in engine.queues.local.by_key:
            attempt = Attempt(engine.runtime.who(), began, until, stop, wait=wait, or_none=or_none)
            # A caller that already holds the lock does not wait: check that before allocating anything.
            if (attempt.who, plan.primitive.key) in engine.leases.held:
                lease = await _acquire_slow(engine, plan, attempt)
            else:
                lease = await _acquire_local(engine, plan, attempt)
        elif (server_lease := begin(engine, plan)) is None:
            attempt = Attempt(engine.runtime.who(), began, until, stop, wait=wait, or_none=or_none)
            lease = await _acquire_slow(engine, plan, attempt)
        else:
            waiter: Waiter | None = None
            answer: Any = None
            engine.activity.in_progress[server_lease] = server_lease.owner.who
            try:
                try:
                    # Checked after registering: a concurrent close either saw this call or has set ``closed``.
                    if not engine.activity.closed:
                        answer = ask(engine, server_lease, began, until, wait=wait)
                        if answer is not None:
                            if type(answer) not in GRANTING and not isinstance(answer, tuple):
                                answer = await answer
                            if engine.health.down_since is not None and engine.quorum is None:
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
                    attempt = Attempt(server_lease.owner.who, began, until, stop, wait=wait, or_none=or_none)
                    lease = await _wait_as_waiter(engine, plan, server_lease.local_queue, waiter, attempt)
            except BaseException:
                if waiter is None or not waiter.in_call:
                    undo_lease(engine, server_lease)
                    engine.drop_waiter(
                        plan.primitive, server_lease.local_queue, waiter_of(engine, server_lease, None, began)
                    )
                raise
            finally:
                # No call, so that no signal handler loses what was acquired here.
                if server_lease in engine.activity.in_progress:
                    del engine.activity.in_progress[server_lease]
    except BaseException as error:
        if not nested:
            engine.refused(plan.primitive, began, error)
        raise
    if lease is None:
        if not nested:
            engine.refused(plan.primitive, began, None)
    elif engine.activity.closed or engine.epoch != epoch:
        refuse(engine, lease)
    return lease


async def _acquire_slow(engine: Engine, plan: Plan, attempt: Attempt) -> HeldLease | None:
    """Acquire where one request is not enough: the caller or others of this client hold it, or the client is closed."""
    mark = object()
    engine.activity.in_progress[mark] = attempt.who
    try:
        engine.check_open(plan.primitive.name)
        mine = None if plan.counted else engine.leases.held.get((attempt.who, plan.primitive.key))
        if mine is not None:
            again = taken_again(engine, plan, mine, wait=attempt.wait)
            if again is not None:
                return again
            if mine.live and not attempt.wait:
                await _refuse_late(engine, plan, attempt, None)
                return None
        if not plan.alone:
            return await _acquire_local(engine, plan, attempt)
        waiter = Waiter(plan.shown(engine.runtime.new_token()))
        return await _wait_as_waiter(engine, plan, None, waiter, attempt)
    finally:
        # No call, so that no signal handler loses what was acquired here.
        if mark in engine.activity.in_progress:
            del engine.activity.in_progress[mark]


async def _acquire_local(  # noqa: C901, PLR0912 - in one piece: each wait here is one coroutine less deep
    engine: Engine, plan: Plan, attempt: Attempt
) -> HeldLease | None:
    """Join the local queue of a name; sleep until the lease is handed over, or it is this caller's turn to ask."""
    runtime, waits = engine.runtime, engine.queues.waits
    # Alive for as long as this call waits on the server for the local queue.
    local_waiter = LocalWaiter()
    # Allocated before sleeping: work done during a hand-over delays every other waiter.
    lease = HeldLease(engine, None, 0, attempt.who)
    local_waiter.lease = ref(lease)
    try:
        # Registered before it joins the queue: it may be woken at once, and close() waits only for registered waiters.
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
        engine.activity.in_progress[local_waiter] = attempt.who
        if not local_waiter.served:
            await await_turn(engine, plan, local_waiter, attempt)
        if local_waiter in waits:
            del waits[local_waiter]
        waiter = local_waiter.waiter
        if waiter is not None:
            # Wait on the server for the whole queue.
            waiter.met = local_waiter.waits
            return await _wait_as_waiter(engine, plan, local_waiter.local_queue, waiter, attempt)
        if own(engine, plan, local_waiter, lease, attempt.began):
            return lease
        # Lost between the hand-over and now: queue again, for the time that remains.
        if local_waiter.server_lease is not None:
            engine.expired(local_waiter.server_lease, runtime.now())
        local_waiter.local_queue = local_waiter.server_lease = None
        return await _acquire_local(engine, plan, attempt)
    except BaseException:
        pass_back(engine, plan, local_waiter, attempt.who)
        raise
    finally:
        if local_waiter in waits:
            del waits[local_waiter]
        if local_waiter in engine.activity.in_progress:
            del engine.activity.in_progress[local_waiter]


async def _wait_as_waiter(
    engine: Engine, plan: Plan, local_queue: AnyLocalQueue | None, waiter: Waiter, attempt: Attempt
) -> HeldLease | None:
    """Wait for a grant as the waiter of this client that the server knows, and own what it gets."""
    try:
        engine.activity.asking[waiter] = plan.primitive, attempt.who
        waiter.stop = attempt.stop
        if waiter.state is WaiterState.BUSY:
            waiter.become(WaiterState.ASKED)
        # No call from here to the next line: until then its caller gives back what it has.
        waiter.in_call = True
        try:
            grant = await _wait_for_grant(engine, plan, waiter, attempt)
            if grant is not None:
                return own_grant(engine, plan, local_queue, waiter, grant, attempt.who, attempt.began)
            await give_up(engine, plan, local_queue, waiter)
        except BaseException as error:
            waiter.note_unconfirmed(error)
            engine.drop_waiter(plan.primitive, local_queue, waiter)
            raise
    finally:
        if waiter in engine.activity.asking:
            del engine.activity.asking[waiter]
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
    """Ask for a waiter until it is served or the time is up; meanwhile it is looked at for deadlocks."""
    until = attempt.until
    engine.check_open(plan.primitive.name)
    if engine.quorum is not None:
        primitive = cast("QuorumPrimitive", plan.primitive)
        grant = await win_quorum(engine, primitive, plan.options, waiter, until, wait=attempt.wait)
        if grant is None and waiter.sent:
            waiter.become(WaiterState.BUSY)
        return grant
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
