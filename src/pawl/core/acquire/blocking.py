"""The straight way where a call blocks its thread: no coroutine is made for it, and nothing else differs.

The steps are those of ``fast``, in the order of ``acquire.acquire`` and ``release.release``, which have them for
tasks (and the simulator). Whatever is no plain yes goes on in the general way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pawl.core.acquire.acquire import acquire, go_on
from pawl.core.acquire.fast import ask, begin, claim_of, end, give_back, settle, void
from pawl.core.acquire.queue import Claim
from pawl.core.lease.base import BaseLease
from pawl.core.lease.in_progress import Ending, refuse
from pawl.core.protocol.runtime import Fault, run
from pawl.core.release.release import leave, tell_block
from pawl.core.release.release import release as release_anyhow
from pawl.errors import PawlError
from pawl.model import Release

if TYPE_CHECKING:
    from pawl.core.acquire.acquire import Plan
    from pawl.core.acquire.queue import StopSignal
    from pawl.core.keep.engine import Engine

__all__ = ["end_block", "release", "take"]

L = TypeVar("L", bound=BaseLease)


def take(
    engine: Engine,
    plan: Plan,
    new_lease: Callable[..., L],
    timeout: float | None,
    stop: StopSignal | None = None,
) -> L:
    """Take a lock; see ``acquire.acquire``."""
    plain = plan.plain and timeout != 0 and plan.spot not in engine.places._places and not engine.rows
    tenure = begin(engine, plan) if plain else None
    if tenure is None:
        return run(acquire(engine, plan, new_lease, timeout, stop))
    engine.underway[tenure] = tenure.who
    lease: Any = None
    claim: Claim | None = None
    answer: Any = None
    sent_at = engine.runtime.now()
    until = None if timeout is None else sent_at + timeout
    try:
        try:
            answer = ask(engine, tenure, sent_at, until)
            if answer is not None:
                lease = settle(engine, tenure, new_lease, answer, sent_at)
        except Fault as fault:
            answer = fault.with_traceback(None)  # it has this frame: the two would keep a dropped lease alive
        if lease is None:
            claim = Claim(tenure.token) if answer is None else claim_of(tenure, answer, sent_at)
            claim.stop = stop
            lease = run(go_on(engine, plan, new_lease, tenure, claim, (sent_at, until)))
    except BaseException:
        if claim is None or not claim.spoken:
            void(engine, tenure)
            engine.drop_claim(plan.primitive, tenure.place, claim_of(tenure, None, sent_at))
        raise
    finally:
        engine.underway.pop(tenure, None)
    if engine.closed:
        refuse(engine, lease)
    # No call from here to the caller: no signal handler comes between, and what was not given is taken back.
    lease._given = True
    return lease  # type: ignore[no-any-return]


def release(engine: Engine, lease: BaseLease) -> Release:
    """End a lease; see ``release.release``."""
    runtime, tenure = engine.runtime, lease._tenure
    line = runtime.line() if lease._levels == 1 else None
    if line is None:
        return run(release_anyhow(engine, lease))
    engine.underway[mark := Ending(lease)] = runtime.who()
    try:
        call = end(engine, lease)
        if call is None:
            return run(release_anyhow(engine, lease))
        answer: Any
        try:
            answer = give_back(engine, tenure, line, call)
            if answer[0] == b"R":
                return Release.RELEASED
        except Fault as fault:
            answer = fault
        outcome = run(leave(engine, tenure, answer))
        lease._lost = outcome is Release.LOST
        return outcome
    except PawlError:
        raise
    except BaseException:
        if lease._released:
            engine.finish_release(lease)
        raise
    finally:
        engine.underway.pop(mark, None)


def end_block(engine: Engine, lease: BaseLease, error: BaseException | None) -> None:
    """Release at the end of a ``with`` block; see ``release.end_block``."""
    if not lease._released and not lease._inert() and release(engine, lease) is Release.LOST:
        tell_block(lease, error)
