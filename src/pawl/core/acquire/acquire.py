"""How a lock is taken: once for both APIs. How it ends is in ``release``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import ref

from pawl.core.acquire.candidate import win as win_quorum
from pawl.core.acquire.degraded import sheltered
from pawl.core.acquire.fast import ask, begin, claim_of, settle, void
from pawl.core.acquire.giving_up import give_up, note_outage, timed_out
from pawl.core.acquire.grant import own_grant, take_over
from pawl.core.acquire.local_wait import await_turn, left, own, pass_back, sit_down
from pawl.core.acquire.queue import ask_once, read_answer, win
from pawl.core.acquire.reentry import taken_again
from pawl.core.acquire.unread import UNREAD_FOR, line_up, may_defer, read_unread
from pawl.core.keep.server_check import must_hold
from pawl.core.lease.base import BaseLease
from pawl.core.lease.in_progress import counted, refuse, told
from pawl.core.protocol.runtime import Fault, StopSignal
from pawl.core.state.local_queue import Sleeper
from pawl.core.state.plan import Plan
from pawl.core.state.records import Claim, Tenure
from pawl.core.state.strict_handover import resign
from pawl.model import Grant

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.lease.base import NewLease
    from pawl.core.protocol.quorum import QuorumPrimitive
    from pawl.core.protocol.runtime import Fetch, Reply, Runtime
    from pawl.core.state.records import LocalPlace

__all__ = ["acquire", "go_on", "try_acquire"]

Window = tuple[float, float | None]
L = TypeVar("L", bound=BaseLease)


def acquire(
    engine: Engine,
    plan: Plan,
    new_lease: Callable[..., L],
    timeout: float | None,
    stop: StopSignal | None = None,
) -> Coroutine[Any, Any, L]:
    """Take the lock.

    Args:
        engine: The client's engine.
        plan: The lock.
        new_lease: Makes the lease, of the class for this API.
        timeout: Seconds to wait; None: no limit; 0 tries once.
        stop: Ends the wait once it is set.

    Raises:
        NotAcquired: Somebody else holds it, and the time is up; or waiting could never end.
        BackendError: The server could not be asked.
    """
    if not plan.plain or timeout == 0:
        way = _acquire
    elif plan.spot in engine.places._places and stop is None and engine.observer is None:
        # Nothing is prepared for a wait that who holds it already will not have.
        mine = plan.reentrant and (engine.runtime.who(), plan.primitive.key) in engine.held
        way = _acquire if mine else _acquire_here
    elif engine.rows and may_defer(engine, plan) and stop is None and engine.observer is None:
        way = _acquire_behind
    else:
        way = _acquire_free
    acquiring: Any = way(engine, plan, new_lease, timeout, stop)
    return acquiring  # type: ignore[no-any-return]  # a cast is a call


async def _acquire_here(
    engine: Engine, plan: Plan, new_lease: NewLease, timeout: float | None, stop: StopSignal | None
) -> BaseLease:
    """The straight way to a name that somebody of this client has: wait until it is handed over."""
    runtime = engine.runtime
    who = runtime.who()
    spot = who, plan.primitive.key
    sleeper = Sleeper()
    # Made before the wait: what is done between two owners is what the others wait for.
    lease = new_lease(engine, None, 0, who, 1)
    sleeper.lease = ref(lease)
    try:
        if sit_down(engine, plan, sleeper, spot):
            since = engine.waits[sleeper][2]
            pause = runtime.look_after
            if timeout is not None and (pause is None or timeout < pause):
                pause = timeout
            rest = sleeper.parker.rest(pause)
            if rest is not True and rest is not False:
                await rest
            if own(engine, plan, sleeper, lease, spot):
                return lease
            window = since, None if timeout is None else since + timeout
            taking = _go_on(engine, plan, new_lease, sleeper, who, None, window, [], None)
            return await counted(engine, sleeper, who, told(engine, plan, since, taking))
    except BaseException:
        pass_back(engine, plan, sleeper, who)
        raise
    finally:
        if sleeper in engine.waits:
            del engine.waits[sleeper]
    return await _acquire(engine, plan, new_lease, timeout, stop)


async def _acquire_free(
    engine: Engine, plan: Plan, new_lease: NewLease, timeout: float | None, stop: StopSignal | None
) -> BaseLease:
    """The straight way to a name that is free: ask once."""
    tenure = begin(engine, plan)
    if tenure is None:
        return await _acquire(engine, plan, new_lease, timeout, stop)
    taken: BaseLease | None = None
    answer: Reply | Fault | None = None
    sent_at = engine.runtime.now()
    window = sent_at, None if timeout is None else sent_at + timeout
    engine.underway[tenure] = tenure.who
    try:
        try:
            asked = ask(engine, tenure, sent_at, window[1])
            answer = asked if asked is None or isinstance(asked, list) else await asked
            if answer is not None:
                taken = settle(engine, tenure, new_lease, answer, sent_at)
        except Fault as fault:
            answer = fault.with_traceback(None)  # it has this frame: the two would keep a dropped lease alive
        except BaseException:
            void(engine, tenure)
            engine.drop_claim(plan.primitive, tenure.place, claim_of(tenure, None, sent_at))
            raise
        if taken is None:
            claim = claim_of(tenure, answer, sent_at) if answer is not None else Claim(tenure.token)
            claim.stop = stop
            taken = await go_on(engine, plan, new_lease, tenure, claim, window)
    finally:
        engine.underway.pop(tenure, None)
    if engine.closed:
        refuse(engine, taken)
    # No call from here to the caller: no signal handler comes between, and what was not given is taken back.
    taken._given = True
    return taken


async def go_on(
    engine: Engine, plan: Plan, new_lease: NewLease, tenure: Tenure, claim: Claim, window: Window
) -> BaseLease:
    """Go on in the general way with a tenure for which the straight one brought no plain yes."""
    taking = _speak(engine, plan, new_lease, tenure.place, claim, window, wait=True, who=tenure.who)
    taken = await told(engine, plan, window[0], taking)
    if taken is None:
        raise AssertionError("a wait ends with a lease or an error")
    return taken


async def _acquire_behind(
    engine: Engine, plan: Plan, new_lease: NewLease, timeout: float | None, stop: StopSignal | None
) -> BaseLease:
    """The straight way in strict order, behind others of this client: sleep, its answer unread."""
    runtime, options = engine.runtime, plan.options
    who, token = runtime.comer()
    spot = who, plan.primitive.key
    if spot in engine.held:
        return await _acquire(engine, plan, new_lease, timeout, stop)
    lease = new_lease(engine, None, 0, who, 1)
    claim, parker, began = Claim(token), runtime.parker(), runtime.now()
    claim.lease = ref(lease)
    try:
        engine.waits[claim] = plan.primitive, who, began
        engine.watch()
        fetch = line_up(engine, plan, claim, parker)
        if fetch is not None:
            pause = min(UNREAD_FOR, options.request_timeout)
            rest = parker.rest(pause if timeout is None or pause < timeout else timeout)
            if rest is not True and rest is not False:
                await rest
        claim.asleep = ""
        if claim.tenure is None:
            resign(engine, claim)
        if own(engine, plan, claim, lease, spot):
            return lease
        window = began, None if timeout is None else began + timeout
        taking = _unserved(engine, plan, new_lease, claim, fetch, who, window)
        return await counted(engine, claim, who, told(engine, plan, began, taking))
    except BaseException as error:
        if not claim.spoken:
            resign(engine, claim)
            claim.doubt(error)
            engine.drop_claim(plan.primitive, None, claim)
        raise
    finally:
        if claim in engine.waits:
            del engine.waits[claim]


async def _unserved(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    claim: Claim,
    fetch: Fetch | None,
    who: object,
    window: tuple[float, float | None],
) -> BaseLease | None:
    """Read the answer of a claim that no run served, and go on in the general way."""
    if claim.tenure is not None:
        # Lost between the hand-over and now, with its ticket: stand in line again.
        engine.forget_holder(claim.tenure, who)
        claim.spoken = True
        claim = Claim(engine.runtime.new_token())
    elif fetch is not None:
        await read_unread(claim, fetch, window[0])
    return await _speak(engine, plan, new_lease, None, claim, window, wait=True, who=who)


async def _acquire(
    engine: Engine, plan: Plan, new_lease: NewLease, timeout: float | None, stop: StopSignal | None
) -> BaseLease:
    """The general way."""
    began = engine.runtime.now()
    note: list[Claim] = []
    who = engine.underway[id(note)] = engine.runtime.who()
    try:
        take = _take if plan.options.on_unavailable == "raise" else _sheltered
        lease = await take(engine, plan, new_lease, who, timeout, note, stop)
        if lease is None:
            raise await timed_out(engine, plan, began, note[0] if note else None)
    except BaseException as error:
        engine.refused(plan.primitive, began, error)
        raise
    finally:
        engine.underway.pop(id(note), None)
    if engine.closed:
        refuse(engine, lease)
    lease._given = True
    return lease


async def try_acquire(engine: Engine, plan: Plan, new_lease: Callable[..., L]) -> L | None:
    """Take the lock if it is free; None if anybody holds it, the caller itself included."""
    began = engine.runtime.now() if engine.observer is not None else 0.0
    note: list[Claim] = []
    who = engine.underway[id(note)] = engine.runtime.who()
    try:
        lease = cast("L | None", await _sheltered(engine, plan, new_lease, who, 0, note, None))
    except BaseException as error:
        engine.refused(plan.primitive, began, error)
        raise
    finally:
        engine.underway.pop(id(note), None)
    if lease is not None:
        if engine.closed:
            refuse(engine, lease)
        lease._given = True
    elif engine.observer is not None:
        engine.refused(plan.primitive, began, None)
    return lease


async def _take(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    who: object,
    timeout: float | None,
    note: list[Claim],
    stop: StopSignal | None = None,
) -> BaseLease | None:
    runtime = engine.runtime
    engine.check_open(plan.primitive.name)
    if engine.strict:
        await must_hold(engine, plan.primitive.name)
    mine = None if plan.counted else engine.held.get((who, plan.primitive.key))
    if mine is not None:
        again = taken_again(engine, plan, mine, wait=timeout != 0)
        if isinstance(again, Plan):
            plan = again
        elif again is not None or (mine.live and timeout == 0):
            return again
    began = runtime.now()
    window = began, None if timeout is None else began + (timeout or plan.options.request_timeout)
    if not plan.alone:
        return await _take_turn(engine, plan, new_lease, who, timeout, window, note, stop)
    claim = Claim(_new_token(runtime, plan))
    claim.stop = stop
    if timeout == 0:
        note.append(claim)
    return await _speak(engine, plan, new_lease, None, claim, window, wait=timeout != 0, who=who)


async def _take_turn(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    who: object,
    timeout: float | None,
    window: tuple[float, float | None],
    note: list[Claim],
    stop: StopSignal | None,
) -> BaseLease | None:
    """Come to the local queue, and go on with the turn, or wait for it."""
    # Alive for as long as this call is the speaker.
    sleeper = Sleeper()
    try:
        engine.places.join(plan.spot, sleeper)
        if not sleeper.waits:
            sleeper.claim = Claim(engine.runtime.new_token())
            sleeper.claim.turn = sleeper.turn
        elif timeout == 0:
            pass_back(engine, plan, sleeper, who)
            return None
        else:
            engine.waits[sleeper] = plan.primitive, who, window[0]
            engine.watch()
        return await _go_on(engine, plan, new_lease, sleeper, who, timeout, window, note, stop)
    except BaseException:
        pass_back(engine, plan, sleeper, who)
        raise
    finally:
        if sleeper in engine.waits:
            del engine.waits[sleeper]


async def _go_on(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    sleeper: Sleeper,
    who: object,
    timeout: float | None,
    window: tuple[float, float | None],
    note: list[Claim],
    stop: StopSignal | None,
) -> BaseLease | None:
    if not sleeper.served:
        await await_turn(engine, plan, sleeper, window, stop)
    if sleeper in engine.waits:
        del engine.waits[sleeper]
    claim = sleeper.claim
    if claim is not None:
        claim.met = sleeper.waits
        claim.stop = stop
        if timeout == 0:
            note.append(claim)
        return await _speak(engine, plan, new_lease, sleeper.place, claim, window, wait=timeout != 0, who=who)
    lease = take_over(engine, plan, new_lease, sleeper, who, window[0])
    if lease is not None:
        sleeper.tenure = None
        return lease
    # Lost between the hand-over and now: stand in line again, for what is left of the time.
    sleeper.place = sleeper.tenure = None
    return await _take(engine, plan, new_lease, who, left(engine.runtime, window[1]), note, stop)


async def _sheltered(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    who: object,
    timeout: float | None,
    note: list[Claim],
    stop: StopSignal | None,
) -> BaseLease | None:
    if plan.options.on_unavailable == "raise":
        return await _take(engine, plan, new_lease, who, timeout, note, stop)

    async def take(left: float | None) -> BaseLease | None:
        return await _take(engine, plan, new_lease, who, left, note, stop)

    return await sheltered(engine, plan, new_lease, take, timeout, stop, who)


def _new_token(runtime: Runtime, plan: Plan) -> str:
    token = runtime.new_token()
    return f"{token.partition('@')[0]}@{plan.identity}" if plan.identity else token


async def _speak(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    place: LocalPlace | None,
    claim: Claim,
    window: tuple[float, float | None],
    *,
    wait: bool,
    who: object,
) -> BaseLease | None:
    engine.asking[claim] = plan.primitive, who
    claim.busy, claim.spoken, claim.spot, claim.kin = False, True, plan.run, plan.kin
    try:
        try:
            grant = await _strive(engine, plan, claim, window, wait=wait, who=who)
            if claim.tenure is not None:
                lease = take_over(engine, plan, new_lease, claim, who, window[0])
                if lease is not None:
                    return lease
            elif grant is not None:
                return own_grant(engine, plan, new_lease, place, claim, grant, who, window[0])
        except BaseException as error:
            claim.doubt(error)
            engine.drop_claim(plan.primitive, place, claim)
            note_outage(engine, plan, claim, window, error)
            raise
        if claim.tenure is not None:
            # Lost between the hand-over and now, with its ticket: stand in line again.
            again = Claim(_new_token(engine.runtime, plan))
            again.stop = claim.stop
            return await _speak(engine, plan, new_lease, place, again, window, wait=wait, who=who)
        await give_up(engine, plan, place, claim)
    finally:
        if claim in engine.asking:
            del engine.asking[claim]
    if not wait:
        return None
    raise await timed_out(engine, plan, window[0], claim)


async def _strive(
    engine: Engine,
    plan: Plan,
    claim: Claim,
    window: tuple[float, float | None],
    *,
    wait: bool,
    who: object,
) -> Grant | None:
    """Ask for a claim until it is served or the time is up."""
    until = window[1]
    engine.check_open(plan.primitive.name)
    if engine.breaker is not None:
        now, patience = engine.runtime.now(), plan.options.unavailable_after
        patience = patience if until is None else min(patience, until - now)
        engine.breaker.check(plan.primitive.name, patience, now)
    grant = None
    if engine.quorum is not None:
        primitive = cast("QuorumPrimitive", plan.primitive)
        grant = await win_quorum(engine, primitive, plan.options, claim, until, wait=wait)
        claim.busy = grant is None
    elif claim.answer is not None:
        grant = read_answer(engine, plan.primitive, plan.options, claim)
    elif claim.old is None and not claim.sent:
        grant = await ask_once(engine, plan.primitive, plan.options, claim, until, wait=wait)
    if grant is None and not claim.busy:
        grant = await _win(engine, plan, claim, window, wait=wait, who=who)
    return grant


async def _win(
    engine: Engine,
    plan: Plan,
    claim: Claim,
    window: tuple[float, float | None],
    *,
    wait: bool,
    who: object,
) -> Grant | None:
    """Wait where others see it: a long wait is published with the client's session."""
    claim.alarm = None
    claim.channel = engine.runtime.channel()
    try:
        engine.waits[claim] = plan.primitive, who, window[0]
        engine.watch()
        return await win(engine, plan.primitive, plan.options, claim, window[1], wait=wait)
    finally:
        engine.waits.pop(claim, None)
