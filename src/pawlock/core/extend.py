"""Extending or shortening a lease, and downgrading it to a reader's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.lease import HeldLease
from pawlock.core.local_queue import Retry
from pawlock.core.options import to_ms
from pawlock.core.outcomes import Granted
from pawlock.core.records import loss_reasons
from pawlock.core.replicas import renew_one
from pawlock.core.retry import pause_after, rest
from pawlock.core.runtime import Fault
from pawlock.errors import NotHeld

if TYPE_CHECKING:
    from pawlock.core.engine import Engine

__all__ = ["check_held_once", "downgrade", "extend"]


def check_held_once(lease: HeldLease, doing: str) -> None:
    """Refuse what is done to a lease as a whole, if it is not held or by an outer block too."""
    if not lease.is_held():
        raise lease.not_held(doing)
    if lease.levels > 1:
        text = f"{doing} {lease.name!r}: it is held {lease.levels} times: leave the inner blocks first"
        raise NotHeld(text, name=lease.name, operation=doing)


async def extend(engine: Engine, lease: HeldLease, ttl: float) -> None:
    """Set the remaining life of a lease to ``ttl`` seconds, and its ttl from here on.

    Raises:
        NotHeld: It is lost or released.
        ConfigurationError: It is longer than the servers may keep a lease.
    """
    hold = lease.hold
    if not lease.is_held():
        raise lease.not_held("extend")
    engine.detach_local_queue(hold)
    end = engine.validity(engine.runtime.now(), to_ms(ttl), to_ms(ttl))
    shorter = end <= hold.valid_until
    if not shorter:
        await _raise_life(engine, lease, ttl, "extend")
    every = min(hold.options.rhythm.every, ttl / 3)
    rhythm = hold.rhythm._replace(ttl=ttl, every=every)
    with engine.guard:
        mine = not lease.released
        # Released meanwhile, it may be another owner's by now.
        if mine:
            hold.rhythm = rhythm
            if shorter and end < hold.valid_until:
                hold.valid_until = end
    if not mine:
        raise lease.not_held("extend")
    engine.replan(hold)


async def downgrade(engine: Engine, lease: HeldLease) -> None:
    """Go on as a reader, from the moment that this is sent, whatever comes back; later renewals carry it too.

    Raises:
        NotHeld: It is lost or released, held more than once, or a reader already.
        BackendError: The server did not say that it did it; the lease is a reader's all the same.
    """
    check_held_once(lease, "downgrade")
    hold = lease.hold
    lowered = hold.primitive.lowered()
    if lowered is None:
        text = f"downgrade {lease.name!r}: it is not held for writing"
        raise NotHeld(text, name=lease.name, operation="downgrade")
    hold.primitive = lowered
    await _raise_life(engine, lease, hold.rhythm.ttl, "downgrade")


async def _raise_life(engine: Engine, lease: HeldLease, ttl: float, doing: str) -> None:
    hold, runtime, options = lease.hold, engine.runtime, lease.hold.options
    retry = Retry(holds=True)
    while True:
        call = hold.primitive.renew(hold.token, to_ms(ttl), to_ms(ttl), "")
        sent_at = runtime.now()
        try:
            outcome = await renew_one(engine, hold, call)
        except Fault as fault:
            pause = pause_after(engine, fault, retry, options, hold.valid_until, doing, lease.name, sent_at)
            await rest(engine, pause, lease.name, doing)
            continue
        if isinstance(outcome, Granted):
            if not engine.apply_renewals([(hold, outcome.left_ms, to_ms(ttl))], sent_at):
                return
        elif hold.live and not engine.expired(hold, runtime.now()):
            patience = engine.within(min(0.5, options.answer_within))
            engine.lose(hold, *await loss_reasons(runtime, [(hold, outcome)], patience))
        raise lease.not_held(doing)
