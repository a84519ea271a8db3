"""The fast path in where a call blocks its thread: no coroutine is made for it, and nothing else differs.

The steps are those of ``fast``, in the order of ``acquire.acquire``, which has them for tasks (and the simulator).
Whatever is no plain yes goes on in the general path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pawl.core.acquire.acquire import acquire, go_on
from pawl.core.acquire.fast import ask, begin, settle, void, waiter_of
from pawl.core.lease.record import HeldLease
from pawl.core.protocol.runtime import Fault, run
from pawl.core.state.records import Waiter

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.runtime import StopSignal
    from pawl.core.state.plan import Plan

__all__ = ["take"]


def take(
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
) -> HeldLease:
    """Take a lock; see ``acquire.acquire``."""
    plain = plan.plain and timeout != 0 and plan.queue_key not in engine.queues.local.by_key
    server_lease = begin(engine, plan) if plain else None
    if server_lease is None:
        return run(acquire(engine, plan, timeout, stop))
    engine.activity.in_progress[server_lease] = server_lease.owner.who
    lease: Any = None
    waiter: Waiter | None = None
    answer: Any = None
    sent_at = engine.runtime.now()
    until = None if timeout is None else sent_at + timeout
    try:
        try:
            answer = ask(engine, server_lease, sent_at, until)
            if answer is not None:
                lease = settle(engine, server_lease, answer, sent_at)
        except Fault as fault:
            answer = fault.with_traceback(None)  # it has this frame: the two would keep a dropped lease alive
        if lease is None:
            waiter = (
                Waiter(server_lease.token) if answer is None else waiter_of(server_lease, answer, sent_at)
            )
            waiter.stop = stop
            lease = run(go_on(engine, plan, server_lease, waiter, (sent_at, until)))
    except BaseException:
        if waiter is None or not waiter.spoken:
            void(engine, server_lease)
            engine.drop_waiter(
                plan.primitive, server_lease.local_queue, waiter_of(server_lease, None, sent_at)
            )
        raise
    finally:
        engine.activity.in_progress.pop(server_lease, None)
    return lease  # type: ignore[no-any-return]
