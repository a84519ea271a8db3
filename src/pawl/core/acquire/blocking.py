"""The straight way in where a call blocks its thread: no coroutine is made for it, and nothing else differs.

The steps are those of ``fast``, in the order of ``acquire.acquire``, which has them for tasks (and the simulator).
Whatever is no plain yes goes on in the general way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pawl.core.acquire.acquire import acquire, go_on
from pawl.core.acquire.fast import ask, begin, claim_of, settle, void
from pawl.core.lease.base import BaseLease
from pawl.core.lease.in_progress import refuse
from pawl.core.protocol.runtime import Fault, run
from pawl.core.state.records import Claim

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.runtime import StopSignal
    from pawl.core.state.plan import Plan

__all__ = ["take"]

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
