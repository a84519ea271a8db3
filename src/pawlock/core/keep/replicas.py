"""Grants that count only once replicas have them.

Rules:

1. ``WAIT`` covers what its own connection wrote. A grant that another's script made (a hand-off), and a resend that
   finds its token holding, write nothing; so a small write that changes nothing goes before every ``WAIT``: it stands
   behind the grant in the stream of replication, wherever that came from.
2. A handed-off grant counts only after the waiter's own renewal and ``WAIT``.
3. A renewal counts only when it reached the replicas too: else a promoted one would free the name before its holder
   is notified.
4. Fewer acknowledgements than asked for: the grant is undone by its token, and that is reported.
5. ``WAIT`` of another connection than the one that wrote says nothing if it leads to another server: after a failover
   that one has replicas too, and may never have had the write. So where renewals and ``WAIT`` go apart, the small write
   says until when its key lives, on the server that is waited for: not before the end that the renewal
   was answered with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.errors import NotReplicated

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.runtime import Runtime
    from pawlock.core.protocol.terms import Durable, Terms
    from pawlock.core.state.records import ServerLease, Waiter

__all__ = ["DurableRuntime", "ask_durably", "check_renewals", "confirm", "renew_durably"]

_ROUNDED_MS = 1
_ELSEWHERE = "another server stands in, and its replicas say nothing of what the former one wrote"


class DurableRuntime(Protocol):
    """What a runtime adds for ``replicas=``."""

    async def call_durable(
        self, call: Request, durable: Durable, timeout: float
    ) -> tuple[Outcome | None, int]:
        """Send one request and wait for replicas, on a connection that nobody else uses meanwhile.

        Returns:
            The answer and how many replicas have it; or None and how many there are, if that is too few to begin with.
        """
        ...

    def touch(self, key: str) -> Request:
        """A write to a key that changes nothing: ``Expiry``."""
        ...

    def streams(self, calls: Sequence[Request]) -> list[list[int]]:
        """Which calls go to the same server: what is acknowledged for the last of them is so for all."""
        ...


async def ask_durably(
    engine: Engine, primitive: Primitive, options: Terms, waiter: Waiter, call: Request, budget: float
) -> Outcome:
    """Ask for a waiter; a grant among the answers has reached the replicas.

    Raises:
        NotReplicated: It has not, and was undone.
        Fault: As for ``Runtime.call``.
    """
    durable = options.durable
    if durable is None:
        raise AssertionError("asked for no replicas")
    runtime = cast("DurableRuntime", engine.runtime)
    outcome, count = await runtime.call_durable(call, durable, budget)
    if outcome is None:
        text = f"acquire {primitive.name!r}: replicas={durable.replicas}, but the master has {count}"
        raise NotReplicated(text, name=primitive.name, acknowledged=0, wanted=durable.replicas)
    if not isinstance(outcome, Granted) or count >= durable.replicas:
        return outcome
    await _undo(engine, primitive, options, waiter)
    engine.count("not_replicated")
    where = "have it on disk" if durable.disk else "acknowledged"
    text = (
        f"acquire {primitive.name!r}: {count} of {durable.replicas} replicas {where}; the grant was released"
    )
    raise NotReplicated(text, name=primitive.name, acknowledged=count, wanted=durable.replicas)


async def renew_durably(
    runtime: Runtime, server_lease: ServerLease, call: Request, timeout: float
) -> Outcome:
    """Renew one lease, and wait for its replicas where it has some. Raises ``Fault``, also for too few of them."""
    durable = server_lease.options.durable
    if durable is None:
        return await runtime.call(call, timeout)
    outcome, count = await cast("DurableRuntime", runtime).call_durable(call, durable, timeout)
    if outcome is None or (isinstance(outcome, Granted) and count < durable.replicas):
        raise _short(count, durable, applied=outcome is not None)
    return outcome


async def confirm(engine: Engine, primitive: Primitive, options: Terms, token: str) -> None:
    """Renew what a token adopted just now, and wait until the replicas have it: on whichever server that is by now.

    Raises:
        NotReplicated: Too few of them do.
        Fault: The server could not be asked, or does not know the token.
    """
    durable = options.durable
    if durable is None:
        return
    runtime = cast("DurableRuntime", engine.runtime)
    call = primitive.renew(token, options.life_ms, options.ticket_ms, "")
    outcome, count = await runtime.call_durable(call, durable, options.request_timeout)
    if outcome is not None and not isinstance(outcome, Granted):
        raise Fault(FaultKind.NOT_READY, _ELSEWHERE, maybe_applied=True)
    if outcome is None or count < durable.replicas:
        text = f"adopt {primitive.name!r}: {count} of {durable.replicas} replicas acknowledged"
        raise NotReplicated(text, name=primitive.name, acknowledged=count, wanted=durable.replicas)


def _short(count: int, durable: Durable, *, applied: bool) -> Fault:
    text = f"the renewal reached {count} of {durable.replicas} replicas"
    return Fault(FaultKind.NOT_READY, text, maybe_applied=applied)


async def _undo(engine: Engine, primitive: Primitive, options: Terms, waiter: Waiter) -> None:
    token, tomb_ms = waiter.token, TOMB_MS if waiter.unanswered else 0
    # From here on the token is dead: the waiter goes on with another.
    waiter.old = None
    waiter.restart(engine.runtime.new_token())
    try:
        await engine.runtime.call(primitive.leave(token, tomb_ms, 0), options.request_timeout)
    except BaseException as error:
        engine.post(primitive.leave(token, TOMB_MS, 0))
        if not isinstance(error, Fault):
            raise


async def check_renewals(
    engine: Engine,
    batch: Sequence[ServerLease],
    calls: Sequence[Request],
    outcomes: list[Outcome | Fault],
    patience: float,
) -> None:
    """Turn renewals that did not reach the replicas into faults; all of these leases have some."""
    runtime = cast("DurableRuntime", engine.runtime)
    wanted = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Granted)]
    for group in runtime.streams([calls[i] for i in wanted]) if wanted else ():
        # One question a server: what the most demanding lease needs, counted for each.
        asked = {wanted[place]: cast("Durable", batch[wanted[place]].options.durable) for place in group}
        # The last that was written: whoever has it has all before it.
        last = wanted[group[-1]]
        try:
            call = runtime.touch(batch[last].primitive.key)
            outcome, count = await runtime.call_durable(call, max(asked.values()), patience)
            # Until when the server keeps the lease that it renewed, by its own clock.
            kept = cast("Granted", outcomes[last])
            if outcome is not None and outcome.expires_ms + _ROUNDED_MS < kept.left_ms + kept.clock:
                raise Fault(FaultKind.NOT_READY, _ELSEWHERE, maybe_applied=True)
        except Fault as fault:
            for i in asked:
                outcomes[i] = fault
            continue
        for i, durable in asked.items():
            if count < durable.replicas:
                outcomes[i] = _short(count, durable, applied=True)
