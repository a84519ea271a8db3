"""How a lock is taken: once for every colour. How it ends is in ``endings``."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import ref

from pawl.core.claim import (
    STOP_POLL,
    TOMB_MS,
    Claim,
    StopSignal,
    ask_once,
    check_stop,
    read_answer,
    win,
)
from pawl.core.handover import Mark, Sleeper
from pawl.core.lease import BaseLease
from pawl.core.preflight import must_hold
from pawl.core.quick import ask, begin, claim_of, settle
from pawl.core.redlock import win as win_quorum
from pawl.core.reentry import taken_again
from pawl.core.refusal import timed_out
from pawl.core.runs import begin as begin_run
from pawl.core.runtime import Fault
from pawl.core.shelter import sheltered
from pawl.core.tenure import Tenure
from pawl.errors import BackendUnavailable, ClientClosed
from pawl.model import Grant

if TYPE_CHECKING:
    from pawl.core.engine import Engine
    from pawl.core.handover import Place
    from pawl.core.options import LockOptions
    from pawl.core.primitive import Primitive
    from pawl.core.quorum import QuorumPrimitive
    from pawl.core.runtime import Reply, Runtime

__all__ = ["NewLease", "Plan", "acquire", "try_acquire"]

log: logging.Logger = logging.getLogger("pawl.acquire")

NewLease = Callable[["Engine", Tenure, int, object, int], BaseLease]
L = TypeVar("L", bound=BaseLease)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Plan:
    """One lock as the operations see it.

    Attributes:
        primitive: What to send.
        options: How it behaves.
        reentrant: Whether its thread or task may take it again, counted in the client.
        counted: Whether holds are counted on the server, for an explicit ``owner=``.
        alone: Whether each acquisition stands in the server's queue by itself (``owner=`` and strict order).
        spot: The key of the local queue: locks that may hand over to each other share it.
        plain: Whether an acquisition may go the straight way of ``quick``.
        identity: What is shown of its tokens instead of host, process and thread; ``""``: those.
    """

    primitive: Primitive
    options: LockOptions
    reentrant: bool
    counted: bool
    alone: bool
    spot: str
    plain: bool = False
    identity: str = ""

    @property
    def run(self) -> str:
        """Which waiters in strict order may follow each other inside the client (see ``runs``); ``""``: none."""
        return self.spot if self.alone and self.options.runs else ""


async def acquire(
    engine: Engine,
    plan: Plan,
    new_lease: Callable[..., L],
    timeout: float | None,
    stop: StopSignal | None = None,
) -> L:
    """Take the lock.

    Args:
        engine: The client's engine.
        plan: The lock.
        new_lease: Makes the lease of this colour.
        timeout: Seconds to wait; None for ever; 0 tries once.
        stop: Ends the wait once it is set.

    Raises:
        NotAcquired: Somebody else holds it, and the time is up; or waiting could never end.
        BackendError: The server could not be asked.
    """
    tenure = begin(engine, plan) if plan.plain and timeout != 0 else None
    if tenure is None:
        lease = cast("L", await _acquire(engine, plan, new_lease, timeout, stop))
        lease._given = True
        return lease
    running = id(tenure)
    engine.underway[running] = tenure.who
    taken: BaseLease | None = None
    answer: Reply | Fault | None = None
    sent_at = engine.runtime.now()
    window = sent_at, None if timeout is None else sent_at + timeout
    try:
        try:
            asked = ask(engine, tenure, sent_at, window[1])
            answer = asked if asked is None or isinstance(asked, list) else await asked
            if answer is not None:
                taken = settle(engine, tenure, new_lease, answer, sent_at)
        except Fault as fault:
            answer = fault.with_traceback(None)  # it has this frame: the two would keep a dropped lease alive
        except BaseException:
            engine.drop_claim(plan.primitive, tenure.place, claim_of(tenure, None, sent_at))
            raise
        if taken is None:
            claim = Claim(tenure.token) if answer is None else claim_of(tenure, answer, sent_at)
            claim.stop = stop
            taking = _speak(engine, plan, new_lease, tenure.place, claim, window, wait=True, who=tenure.who)
            taken = await _told(engine, plan, sent_at, taking)
    finally:
        engine.underway.pop(running, None)
    lease = cast("L", taken)
    # No call from here to the caller: no signal handler comes between, and what was not given is taken back.
    lease._given = True
    return lease


async def _told(engine: Engine, plan: Plan, began: float, taking: Awaitable[R]) -> R:
    """What ``taking`` brings; an observer is told if it raises."""
    try:
        return await taking
    except BaseException as error:
        engine.refused(plan.primitive, began, error)
        raise


async def _acquire(
    engine: Engine, plan: Plan, new_lease: NewLease, timeout: float | None, stop: StopSignal | None
) -> BaseLease:
    began = engine.runtime.now()
    note: list[Claim] = []
    who = engine.underway[id(note)] = engine.runtime.who()
    try:
        take = _take if plan.options.on_unavailable == "raise" else _sheltered
        lease = await take(engine, plan, new_lease, who, timeout, note, stop)
        if lease is None:
            raise await timed_out(engine, plan, began, note[0] if note else None)
        return lease
    except BaseException as error:
        engine.refused(plan.primitive, began, error)
        raise
    finally:
        engine.underway.pop(id(note), None)


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
    # Alive for as long as this call is the speaker.
    mark = Mark()
    place = claim = None
    if not plan.alone:
        place, turn = await _join(engine, plan, mark, window, stop, wait=timeout != 0, who=who)
        if turn is None:
            return None
        if isinstance(turn, Sleeper):
            lease = _take_over(engine, plan, new_lease, turn, who, began)
            # Lost between the hand-over and now: stand in line again, for what is left of the time.
            return lease or await _take(engine, plan, new_lease, who, _left(runtime, window[1]), note, stop)
        claim = turn
    claim = claim or Claim(_new_token(runtime, plan))
    claim.stop = stop
    if timeout == 0:
        note.append(claim)
    return await _speak(engine, plan, new_lease, place, claim, window, wait=timeout != 0, who=who)


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


async def _join(
    engine: Engine,
    plan: Plan,
    mark: Mark,
    window: tuple[float, float | None],
    stop: StopSignal | None,
    *,
    wait: bool,
    who: object,
) -> tuple[Place, Claim | Sleeper | None]:
    """Come to the local queue; a claim to speak for, a sleeper that was handed a tenure, or None: busy."""
    place, sleeper = engine.places.join(plan.spot, mark)
    if sleeper is None:
        return place, Claim(engine.runtime.new_token())
    if not wait:
        if not place.withdraw(sleeper):
            _pass_on(engine, plan, place, sleeper)
        return place, None
    engine.waits[sleeper] = plan.primitive, who, window[0]
    engine.watch()
    try:
        turn = await _await_turn(engine, plan, place, sleeper, window, stop)
    finally:
        engine.waits.pop(sleeper, None)
    if not isinstance(turn, Claim):
        return place, sleeper
    # The sleeper goes with this call; what shows from here on that the turn is not orphaned is the mark.
    with place.guard:
        place.keeper = ref(mark)
    turn.met = True
    return place, turn


async def _await_turn(
    engine: Engine,
    plan: Plan,
    place: Place,
    sleeper: Sleeper,
    window: tuple[float, float | None],
    stop: StopSignal | None,
) -> Tenure | Claim:
    runtime = engine.runtime
    began, until = window
    try:
        while True:
            woken = await sleeper.parker.park(_patience(runtime, until, stop))
            if not woken:
                place.take_orphan(sleeper, runtime.new_token())
            turn = sleeper.tenure or sleeper.claim
            if turn is not None:
                return turn
            if sleeper.closed or engine.closed:
                raise ClientClosed("the client was closed while waiting", name=plan.primitive.name)
            check_stop(stop, plan.primitive.name)
            if sleeper.alarm is not None:
                raise sleeper.alarm
            if until is not None and not woken and runtime.now() >= until and place.withdraw(sleeper):
                raise await timed_out(engine, plan, began, None)
    except BaseException:
        if not place.withdraw(sleeper):
            _pass_on(engine, plan, place, sleeper)
        raise


def _patience(runtime: Runtime, until: float | None, stop: StopSignal | None) -> float | None:
    """How long a local waiter sleeps before it looks around."""
    if until is None and stop is None:
        return runtime.look_after
    pauses = [runtime.look_after, STOP_POLL if stop is not None else None, _left(runtime, until)]
    return min((pause for pause in pauses if pause is not None), default=None)


def _pass_on(engine: Engine, plan: Plan, place: Place, sleeper: Sleeper) -> None:
    """Give back a turn that came in the instant of giving up."""
    if sleeper.claim is not None:
        engine.drop_claim(plan.primitive, place, sleeper.claim)
    elif sleeper.tenure is not None and not engine.end_turn(sleeper.tenure, engine.runtime.now()):
        engine.depart_from(sleeper.tenure)


async def _speak(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    place: Place | None,
    claim: Claim,
    window: tuple[float, float | None],
    *,
    wait: bool,
    who: object,
) -> BaseLease | None:
    claim.busy = False
    claim.spot = plan.run
    try:
        grant = await _strive(engine, plan, claim, window, wait=wait, who=who)
        if claim.tenure is not None:
            lease = _take_over(engine, plan, new_lease, claim, who, window[0])
            if lease is not None:
                return lease
        elif grant is not None:
            return _own(engine, plan, new_lease, place, claim, grant, who, window[0])
    except BaseException as error:
        claim.doubt(error)
        engine.drop_claim(plan.primitive, place, claim)
        if claim.failing_since is not None and isinstance(error, BackendUnavailable):
            engine.gave_up(plan.primitive, claim.failing_since, error)
        raise
    if claim.tenure is not None:
        # Lost between the hand-over and now, with its ticket: stand in line again.
        again = Claim(_new_token(engine.runtime, plan))
        return await _speak(engine, plan, new_lease, place, again, window, wait=wait, who=who)
    await _give_up(engine, plan, place, claim)
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
        engine.breaker.check(plan.primitive.name, plan.options.unavailable_after, engine.runtime.now())
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
    """Wait where others see it: what is waited for long is told with the client's session."""
    claim.alarm = None
    claim.channel = engine.runtime.channel()
    engine.waits[claim] = plan.primitive, who, window[0]
    engine.watch()
    try:
        return await win(engine, plan.primitive, plan.options, claim, window[1], wait=wait)
    finally:
        engine.waits.pop(claim, None)


async def _give_up(engine: Engine, plan: Plan, place: Place | None, claim: Claim) -> None:
    """End a claim whose time is up: nothing of it may be left on the server when the caller goes on."""
    if claim.busy and not claim.unanswered:
        claim.sent = False
    if place is not None and place.pass_claim(claim):
        return
    if not claim.sent:
        return
    tomb_ms = TOMB_MS if claim.unanswered else 0
    try:
        await engine.runtime.call(plan.primitive.leave(claim.token, tomb_ms, 0), plan.options.request_timeout)
    except Fault:
        engine.depart(plan.primitive, claim.token, TOMB_MS)
    except BaseException:
        engine.depart(plan.primitive, claim.token, TOMB_MS)
        raise


def _own(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    place: Place | None,
    claim: Claim,
    grant: Grant,
    who: object,
    began: float,
) -> BaseLease:
    tenure = Tenure(
        plan.primitive, plan.options, claim.token, grant.fence, grant.valid_until, engine.runtime.now()
    )
    tenure.place = place
    tenure.unanswered = claim.unanswered
    tenure.quorum = grant.quorum
    if place is not None:
        place.keeper = ref(tenure)
        place.streak = 0
    elif claim.spot:
        begin_run(tenure, claim)
    tenure.who = who
    if not plan.counted:
        spot = who, plan.primitive.key
        outer = engine.held.get(spot)
        tenure.outer = outer if outer is not None and outer.live else None
        engine.held[spot] = tenure
    lease = new_lease(engine, tenure, grant.fence, who, grant.holds)
    engine.keep(tenure, confirmed=grant.confirmed)
    if engine.observer is not None:
        engine.observer.acquired(tenure, began, contended=claim.contended)
    return lease


def _left(runtime: Runtime, until: float | None) -> float | None:
    return None if until is None else max(1e-9, until - runtime.now())


def _take_over(
    engine: Engine, plan: Plan, new_lease: NewLease, sleeper: Sleeper | Claim, who: object, began: float
) -> BaseLease | None:
    """Own a tenure that was handed over; None if it was lost on the way."""
    tenure, fence = sleeper.tenure, sleeper.fence
    if tenure is None:
        raise AssertionError("a sleeper without a tenure owns nothing")
    now = engine.runtime.now()
    # Who re-enters, and who is told of a loss, is from here on for this plan to say.
    tenure.who, tenure.primitive, tenure.options = who, plan.primitive, plan.options
    lease = new_lease(engine, tenure, fence, who, 1)
    if not tenure.live or engine.expired(tenure, now):
        lease._released = True
        return None
    if plan.options.max_hold is not None:
        engine.limit_hold(tenure, now + plan.options.max_hold)
    if tenure.place is not None:
        tenure.place.keeper = ref(tenure)
    engine.held[who, plan.primitive.key] = tenure
    engine.counters["handed_over"] += 1
    if engine.observer is not None:
        engine.observer.acquired(tenure, began, contended=True)
        engine.observer.counted("handed_over")
    return lease
