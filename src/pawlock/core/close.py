"""The end of a client.

A signal handler may close the client on top of an acquisition or release of its own thread. That call cannot go on
before the handler is done, and the process may end in the handler. So the end of the client gives back by itself
whatever the calls below it may have on the server. A call that goes on afterwards finds every connection closed; what
it holds by then is over, and it raises ``ClientClosed``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pawlock.core.lease.in_progress import OngoingRelease
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Fault
from pawlock.core.quorum.votes import Delivery
from pawlock.core.state.local_queue import LocalWaiter
from pawlock.core.state.records import ServerLease, Waiter
from pawlock.core.state.schedule import Schedule
from pawlock.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.carrier import Request

__all__ = ["PendingOperation", "close"]

_CLOSING_STEP = 0.002
_END_PATIENCE = 1.0
_TRIES_BEFORE_CLOSE = 2
"""How often a server is tried that does not answer, before the client closes: an unreachable node of several masters in
any case, a single server once the time for one that does not answer is over."""


@runtime_checkable
class PendingOperation(Protocol):
    """A call under way that is neither an acquisition nor a release."""

    def final_request(self) -> Request | None:
        """What to send so that nothing of it stays undone; None: nothing."""
        ...


async def close(
    engine: Engine,
    interrupt: Callable[[], object],
    timeout: float,
    unanswered: float = inf,
    below: object = None,
) -> None:
    """Wake all waiters, release all leases, and leave every token that is still to be left.

    Args:
        engine: The client's engine.
        interrupt: Wakes what sleeps in the runtime.
        timeout: Seconds for all of it.
        unanswered: Seconds after which a single server that has twice not answered for a token is not waited for;
            inf: it is, until ``timeout``. Counted in steps of this loop, which take longer where the machine is busy:
            the answers do so, too.
        below: The thread on top of whose call a signal handler closes the client: that call cannot end before.
    """
    # One that was closed already, or is being closed by another thread or task, still waits for what is left.
    engine.activity.closed = True
    runtime = engine.runtime
    here = runtime.who() if below is None else below
    end, steps = runtime.now() + timeout, 0
    ended = set(_being_lost(engine))
    for waiter in tuple(engine.queues.waits):
        # One that was served by a call below this one, and not woken by it yet, comes to its end as well.
        if isinstance(waiter, LocalWaiter) and waiter.waits:
            waiter.parker.unpark()
    await _end_below(engine, here)
    if engine.reports.watcher is not None and engine.activity.maintenance_runs:
        engine.reports.watcher.leave(engine)
    while True:
        # Asked before the leases are listed: what an acquisition gets until then is among them.
        # A signal handler may close on top of an acquisition of its own thread, which cannot end before.
        busy = any(who is not here for who in engine.callers())
        engine.queues.local.dismiss()
        interrupt()
        _end_leases(engine, ended)
        entries = tuple(engine.outbox.entries)
        silent = any(
            entry.attempt >= _TRIES_BEFORE_CLOSE for entry in entries if not isinstance(entry, Delivery)
        )
        if silent and steps * _CLOSING_STEP >= unanswered:
            break
        waits = [not isinstance(entry, Delivery) or entry.attempt < _TRIES_BEFORE_CLOSE for entry in entries]
        left_over = bool(engine.outbox.undelivered) or any(waits)
        if left_over and not engine.activity.maintenance_runs:
            # An event loop that was shut down has cancelled the maintenance, and these tokens came up only after that.
            engine.start_maintenance()
        leaving = engine.activity.maintenance_runs and left_over
        if not (busy or leaving) or runtime.now() >= end:
            break
        runtime.nudge()
        await runtime.pause(_CLOSING_STEP)
        steps += 1
    engine.outbox.entries.clear()
    engine.leases.schedule = Schedule(engine.guard)


def _end_leases(engine: Engine, ended: set[ServerLease]) -> None:
    """Lose all leases; what another thread is losing is left as well, and noted in ``ended``."""
    # Of a call below, one may be between two places of the schedule.
    for server_lease in (*engine.leases.schedule.all(), *tuple(engine.leases.held.values())):
        engine.lose(server_lease, LossReason.CLOSED)
    for server_lease in _being_lost(engine):
        # That thread may be paused before it posts what leaves the token, and need not be in a call.
        if server_lease not in ended:
            ended.add(server_lease)
            engine.post(server_lease.primitive.leave(server_lease.token, TOMB_MS, 0))


async def _end_below(engine: Engine, here: object) -> None:
    """Give back what the calls have on the server on top of which a signal handler closes the client.

    At once, and not by the maintenance: such a call may be in the middle of whatever the maintenance waits for.
    """
    ends = _ends_of(engine, here)
    if not ends:
        return
    outcomes = await engine.runtime.call_many([call for _, call in ends], _END_PATIENCE)
    for (server_lease, call), outcome in zip(ends, outcomes, strict=True):
        if isinstance(outcome, Fault):
            engine.post(call)
        elif server_lease is not None:
            engine.activity.left_at_close.add(server_lease)


def _ends_of(  # noqa: C901 - one case for each kind of call
    engine: Engine, who: object
) -> list[tuple[ServerLease | None, Request]]:
    """What is to be sent so that nothing stays of the calls of a thread, on top of which its client is closed.

    Args:
        engine: The client's engine, closed.
        who: The thread.

    Returns:
        The calls; with each, what a release was giving back.
    """
    ends: list[tuple[ServerLease | None, Request]] = []
    waiters = [
        (waiter, primitive) for waiter, (primitive, by) in tuple(engine.activity.asking.items()) if by is who
    ]
    for target, (primitive, by, _) in tuple(engine.queues.waits.items()):
        waiting = target if isinstance(target, Waiter) else target.waiter
        if by is who and waiting is not None:
            waiters.append((waiting, primitive))
    for waiter, primitive in waiters:
        tokens = [waiter.token] if waiter.old is None else [waiter.token, waiter.old.token]
        ends += [(None, primitive.leave(token, TOMB_MS, 0)) for token in tokens]
    for server_lease in _being_lost(engine):
        ends.append((None, server_lease.primitive.leave(server_lease.token, TOMB_MS, 0)))
    for mark, by in tuple(engine.activity.in_progress.items()):
        if by is not who:
            continue
        if isinstance(mark, ServerLease):
            ends.append((None, mark.primitive.leave(mark.token, TOMB_MS, 0)))
        elif isinstance(mark, OngoingRelease):
            server_lease = mark.lease.server_lease
            if server_lease.state is LeaseState.RELEASED and server_lease.owner.epoch == engine.epoch:
                close_ms = server_lease.close_ms(engine.runtime.now())
                ends.append(
                    (server_lease, server_lease.primitive.leave(server_lease.token, TOMB_MS, close_ms))
                )
        elif isinstance(mark, PendingOperation) and (call := mark.final_request()) is not None:
            ends.append((None, call))
    return ends


def _being_lost(engine: Engine) -> list[ServerLease]:
    """Server leases whose loss is noted, while nothing may have been sent yet that leaves their tokens."""
    return [
        server_lease
        for server_lease, reason in tuple(engine.leases.losing.items())
        if reason is not LossReason.MAX_HOLD
    ]
