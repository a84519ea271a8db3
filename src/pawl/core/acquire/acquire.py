"""How a lock is taken: once for both APIs. How it ends is in ``release``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from pawl.core.acquire.candidate import win as win_quorum
from pawl.core.acquire.degraded import take_or_degrade
from pawl.core.acquire.first_request import PLAIN_YES, ask, begin, settle, void, waiter_of
from pawl.core.acquire.giving_up import give_up, note_outage, timed_out
from pawl.core.acquire.grant import own_grant, take_over
from pawl.core.acquire.local_wait import await_turn, left, own, pass_back, sit_down
from pawl.core.acquire.queue import ask_once, read_answer, win
from pawl.core.acquire.reentry import taken_again
from pawl.core.keep.server_check import must_hold
from pawl.core.lease.in_progress import counted, noting_refusal, refuse
from pawl.core.lease.record import HeldLease
from pawl.core.protocol.runtime import Fault, StopSignal
from pawl.core.state.local_queue import LocalWaiter
from pawl.core.state.plan import Plan
from pawl.core.state.records import ServerLease, Waiter, WaiterState
from pawl.model import Grant

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.quorum import QuorumPrimitive
    from pawl.core.protocol.runtime import Runtime
    from pawl.core.state.records import AnyLocalQueue

__all__ = ["acquire", "take_or_none", "try_acquire"]

Window = tuple[float, float | None]


async def acquire(  # noqa: C901 - in one piece: a free name passes through it, and pays for each call
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
) -> HeldLease:
    """Acquire the lock: with a single request if it is free, and nobody in this client holds or awaits it.

    Args:
        engine: The client's engine.
        plan: The lock.
        timeout: Seconds to wait; None: no limit; 0 tries once.
        stop: Ends the wait once it is set.

    Raises:
        NotAcquired: Somebody else holds it, and the time is up; or waiting could never end.
        BackendError: The server could not be asked.
    """
    if not plan.plain or timeout == 0:
        return await _acquire(engine, plan, timeout, stop)
    if plan.queue_key in engine.queues.local.by_key:
        # Nothing is prepared for a wait that who holds it already will not have.
        mine = plan.reentrant and (engine.runtime.who(), plan.primitive.key) in engine.leases.held
        if mine or stop is not None or engine.reports.observer is not None:
            return await _acquire(engine, plan, timeout, stop)
        return await _acquire_here(engine, plan, timeout, stop)
    server_lease = begin(engine, plan)
    if server_lease is None:
        return await _acquire(engine, plan, timeout, stop)
    lease: HeldLease | None = None
    waiter: Waiter | None = None
    answer: Any = None
    sent_at = engine.runtime.now()
    until = None if timeout is None else sent_at + timeout
    engine.activity.in_progress[server_lease] = server_lease.owner.who
    try:
        try:
            line = engine.runtime.line()
            # Looked at now: a close that did not see this call under way has closed the client by then.
            if line is not None and not engine.activity.closed:
                answer = ask(engine, server_lease, line, sent_at, until)
                if type(answer) not in PLAIN_YES and not isinstance(answer, tuple):
                    answer = await answer
                lease = settle(engine, server_lease, answer, sent_at)
        except Fault as fault:
            answer = fault.with_traceback(None)  # it has this frame: the two would keep a dropped lease alive
        if lease is None:
            waiter = (
                Waiter(server_lease.token) if answer is None else waiter_of(server_lease, answer, sent_at)  # pyright: ignore[reportUnknownArgumentType]
            )
            waiter.stop = stop
            lease = await _go_on_asking(engine, plan, server_lease, waiter, (sent_at, until))
    except BaseException:
        if waiter is None or not waiter.in_call:
            void(engine, server_lease)
            engine.drop_waiter(
                plan.primitive, server_lease.local_queue, waiter_of(server_lease, None, sent_at)
            )
        raise
    finally:
        engine.activity.in_progress.pop(server_lease, None)
    if engine.activity.closed:
        refuse(engine, lease)
    return lease


async def _acquire_here(
    engine: Engine, plan: Plan, timeout: float | None, stop: StopSignal | None
) -> HeldLease:
    """Somebody of this client has the name: wait until it is handed over."""
    runtime = engine.runtime
    who = runtime.who()
    held_key = who, plan.primitive.key
    local_waiter = LocalWaiter()
    # Made before the wait: what is done between two owners is what the others wait for.
    lease = HeldLease(engine, None, 0, who, 1)
    local_waiter.lease = ref(lease)
    try:
        if sit_down(engine, plan, local_waiter, held_key):
            since = engine.queues.waits[local_waiter][2]
            pause = runtime.look_after
            if timeout is not None and (pause is None or timeout < pause):
                pause = timeout
            rest = local_waiter.parker.rest(pause)
            if rest is not True and rest is not False:
                await rest
            if own(engine, plan, local_waiter, lease, held_key):
                return lease
            window = since, None if timeout is None else since + timeout
            taking = _go_on(engine, plan, local_waiter, who, window, None, None)
            return await counted(engine, local_waiter, who, noting_refusal(engine, plan, since, taking))
    except BaseException:
        pass_back(engine, plan, local_waiter, who)
        raise
    finally:
        if local_waiter in engine.queues.waits:
            del engine.queues.waits[local_waiter]
    return await _acquire(engine, plan, timeout, stop)


async def _go_on_asking(
    engine: Engine, plan: Plan, server_lease: ServerLease, waiter: Waiter, window: Window
) -> HeldLease:
    """Go on in the general path with a server lease that the first request was not granted."""
    taking = _speak(
        engine, plan, server_lease.local_queue, waiter, window, wait=True, who=server_lease.owner.who
    )
    taken = await noting_refusal(engine, plan, window[0], taking)
    if taken is None:
        raise AssertionError("a wait ends with a lease or an error")
    return taken


async def _acquire(engine: Engine, plan: Plan, timeout: float | None, stop: StopSignal | None) -> HeldLease:
    """The general path."""
    began = engine.runtime.now()
    note: list[Waiter] = []
    who = engine.activity.in_progress[id(note)] = engine.runtime.who()
    try:
        take = take_or_none if plan.options.given.on_unavailable == "raise" else _or_degraded
        lease = await take(engine, plan, who, timeout, note, stop)
        if lease is None:
            raise await timed_out(engine, plan, began, note[0] if note else None)
    except BaseException as error:
        engine.refused(plan.primitive, began, error)
        raise
    finally:
        engine.activity.in_progress.pop(id(note), None)
    if engine.activity.closed:
        refuse(engine, lease)
    return lease


async def try_acquire(engine: Engine, plan: Plan) -> HeldLease | None:
    """Take the lock if it is free; None if anybody holds it, the caller itself included."""
    began = engine.runtime.now() if engine.reports.observer is not None else 0.0
    note: list[Waiter] = []
    who = engine.activity.in_progress[id(note)] = engine.runtime.who()
    try:
        lease = await _or_degraded(engine, plan, who, 0, note, None)
    except BaseException as error:
        engine.refused(plan.primitive, began, error)
        raise
    finally:
        engine.activity.in_progress.pop(id(note), None)
    if lease is not None:
        if engine.activity.closed:
            refuse(engine, lease)
    elif engine.reports.observer is not None:
        engine.refused(plan.primitive, began, None)
    return lease


async def take_or_none(
    engine: Engine,
    plan: Plan,
    who: object,
    timeout: float | None,
    note: list[Waiter],
    stop: StopSignal | None = None,
) -> HeldLease | None:
    """Take it in the general path; None if somebody else holds it and the time is up."""
    runtime = engine.runtime
    engine.check_open(plan.primitive.name)
    if engine.health.strict:
        await must_hold(engine, plan.primitive.name)
    mine = None if plan.counted else engine.leases.held.get((who, plan.primitive.key))
    if mine is not None:
        again = taken_again(engine, plan, mine, wait=timeout != 0)
        if isinstance(again, Plan):
            plan = again
        elif again is not None or (mine.live and timeout == 0):
            return again
    began = runtime.now()
    window = began, None if timeout is None else began + (timeout or plan.options.request_timeout)
    if not plan.alone:
        return await _take_turn(engine, plan, who, timeout, window, note, stop)
    waiter = Waiter(_new_token(runtime, plan))
    waiter.stop = stop
    if timeout == 0:
        note.append(waiter)
    return await _speak(engine, plan, None, waiter, window, wait=timeout != 0, who=who)


async def _take_turn(
    engine: Engine,
    plan: Plan,
    who: object,
    timeout: float | None,
    window: tuple[float, float | None],
    note: list[Waiter],
    stop: StopSignal | None,
) -> HeldLease | None:
    """Come to the local queue, and go on with the turn, or wait for it."""
    # Alive for as long as this call is the speaker.
    local_waiter = LocalWaiter()
    try:
        engine.queues.local.join(plan.queue_key, local_waiter)
        if not local_waiter.waits:
            local_waiter.waiter = Waiter(engine.runtime.new_token())
            local_waiter.waiter.turn = local_waiter.turn
        elif timeout == 0:
            pass_back(engine, plan, local_waiter, who)
            return None
        else:
            engine.queues.waits[local_waiter] = plan.primitive, who, window[0]
            engine.watch()
        return await _go_on(engine, plan, local_waiter, who, window, note if timeout == 0 else None, stop)
    except BaseException:
        pass_back(engine, plan, local_waiter, who)
        raise
    finally:
        if local_waiter in engine.queues.waits:
            del engine.queues.waits[local_waiter]


async def _go_on(
    engine: Engine,
    plan: Plan,
    local_waiter: LocalWaiter,
    who: object,
    window: Window,
    tried: list[Waiter] | None,
    stop: StopSignal | None,
) -> HeldLease | None:
    """Go on from the local queue: speak for the name, or own what was handed over.

    Args:
        engine: The client's engine.
        plan: The lock.
        local_waiter: The caller.
        who: Its thread or task.
        window: When it began, and until when it waits.
        tried: Of a single try, where its waiter is noted; None: it waits.
        stop: Ends the wait once it is set.
    """
    if not local_waiter.served:
        await await_turn(engine, plan, local_waiter, window, stop)
    if local_waiter in engine.queues.waits:
        del engine.queues.waits[local_waiter]
    waiter = local_waiter.waiter
    if waiter is not None:
        waiter.met = local_waiter.waits
        waiter.stop = stop
        if tried is not None:
            tried.append(waiter)
        return await _speak(
            engine, plan, local_waiter.local_queue, waiter, window, wait=tried is None, who=who
        )
    lease = take_over(engine, plan, local_waiter, who, window[0])
    if lease is not None:
        local_waiter.server_lease = None
        return lease
    # Lost between the hand-over and now: stand in line again, for what is left of the time.
    local_waiter.local_queue = local_waiter.server_lease = None
    return await take_or_none(engine, plan, who, left(engine.runtime, window[1]), tried or [], stop)


async def _or_degraded(
    engine: Engine,
    plan: Plan,
    who: object,
    timeout: float | None,
    note: list[Waiter],
    stop: StopSignal | None,
) -> HeldLease | None:
    if plan.options.given.on_unavailable == "raise":
        return await take_or_none(engine, plan, who, timeout, note, stop)

    async def take(left: float | None) -> HeldLease | None:
        return await take_or_none(engine, plan, who, left, note, stop)

    return await take_or_degrade(engine, plan, take, timeout, stop, who)


def _new_token(runtime: Runtime, plan: Plan) -> str:
    token = runtime.new_token()
    return f"{token.partition('@')[0]}@{plan.identity}" if plan.identity else token


async def _speak(
    engine: Engine,
    plan: Plan,
    local_queue: AnyLocalQueue | None,
    waiter: Waiter,
    window: tuple[float, float | None],
    *,
    wait: bool,
    who: object,
) -> HeldLease | None:
    engine.activity.asking[waiter] = plan.primitive, who
    if waiter.state is WaiterState.BUSY:
        waiter.become(WaiterState.ASKED)
    waiter.in_call = True
    if plan.run:
        waiter.sit(plan.run, plan.batch_key)
    try:
        try:
            grant = await _strive(engine, plan, waiter, window, wait=wait, who=who)
            if waiter.strict.server_lease is not None:
                lease = take_over(engine, plan, waiter.strict, who, window[0])
                if lease is not None:
                    return lease
            elif grant is not None:
                return own_grant(engine, plan, local_queue, waiter, grant, who, window[0])
        except BaseException as error:
            waiter.doubt(error)
            engine.drop_waiter(plan.primitive, local_queue, waiter)
            note_outage(engine, plan, waiter, window, error)
            raise
        if waiter.strict.server_lease is not None:
            # Lost between the hand-over and now, with its ticket: stand in line again.
            again = Waiter(_new_token(engine.runtime, plan))
            again.stop = waiter.stop
            return await _speak(engine, plan, local_queue, again, window, wait=wait, who=who)
        await give_up(engine, plan, local_queue, waiter)
    finally:
        if waiter in engine.activity.asking:
            del engine.activity.asking[waiter]
    if not wait:
        return None
    raise await timed_out(engine, plan, window[0], waiter)


async def _strive(
    engine: Engine,
    plan: Plan,
    waiter: Waiter,
    window: tuple[float, float | None],
    *,
    wait: bool,
    who: object,
) -> Grant | None:
    """Ask for a waiter until it is served or the time is up."""
    until = window[1]
    engine.check_open(plan.primitive.name)
    if engine.health.circuit_breaker is not None:
        now, patience = engine.runtime.now(), plan.options.given.unavailable_after
        patience = patience if until is None else min(patience, until - now)
        engine.health.circuit_breaker.check(plan.primitive.name, patience, now)
    grant = None
    if engine.quorum is not None:
        primitive = cast("QuorumPrimitive", plan.primitive)
        grant = await win_quorum(engine, primitive, plan.options, waiter, until, wait=wait)
        if grant is None and waiter.sent:
            waiter.become(WaiterState.BUSY)
        return grant
    if waiter.answer is not None:
        grant = read_answer(engine, plan.primitive, plan.options, waiter)
    elif waiter.old is None and waiter.state is WaiterState.NEW:
        grant = await ask_once(engine, plan.primitive, plan.options, waiter, until, wait=wait)
    if grant is None and not waiter.busy:
        grant = await _win(engine, plan, waiter, window, wait=wait, who=who)
    return grant


async def _win(
    engine: Engine,
    plan: Plan,
    waiter: Waiter,
    window: tuple[float, float | None],
    *,
    wait: bool,
    who: object,
) -> Grant | None:
    """Wait where others see it: a long wait is published with the client's session."""
    waiter.alarm = None
    waiter.sit(plan.run, plan.batch_key)
    waiter.batch.channel = engine.runtime.channel()
    try:
        engine.queues.waits[waiter] = plan.primitive, who, window[0]
        engine.watch()
        return await win(engine, plan.primitive, plan.options, waiter, window[1], wait=wait)
    finally:
        engine.queues.waits.pop(waiter, None)
