"""Acquisitions that are under way: the end of a client waits for them, and observers are notified of how they end."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pawl.errors import ClientClosed
from pawl.model import LossReason

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.lease.record import HeldLease
    from pawl.core.state.plan import Plan

__all__ = ["Ending", "counted", "noting_refusal", "refuse"]

R = TypeVar("R")


class Ending:
    """One release that is under way: another one of the same lease, which is refused, has a mark of its own.

    Attributes:
        lease: What is released; set by who makes the mark, a call less for each release.
        ended: True once this release has ended the lease, and nobody else will leave it.
    """

    __slots__ = ("ended", "lease")
    ended: bool
    lease: HeldLease


async def counted(
    engine: Engine, mark: object, who: object, taking: Awaitable[HeldLease | None]
) -> HeldLease:
    """Go on in the general path with what the first step began, as an acquisition that is under way."""
    running = id(mark)
    engine.activity.in_progress[running] = who
    try:
        lease = await taking
    finally:
        engine.activity.in_progress.pop(running, None)
    if lease is None:
        raise AssertionError("a wait ends with a lease or an error")
    if engine.activity.closed:
        refuse(engine, lease)
    return lease


async def noting_refusal(engine: Engine, plan: Plan, began: float, taking: Coroutine[object, object, R]) -> R:
    """What ``taking`` brings; an observer is notified if it raises."""
    try:
        return await taking
    except BaseException as error:
        # A signal handler may have raised here instead of in there: then that is to end now, not with the traceback.
        taking.close()
        engine.refused(plan.primitive, began, error)
        raise


def refuse(engine: Engine, lease: HeldLease) -> NoReturn:
    """End a lease that was granted while the client was closed: nobody gets it.

    Raises:
        ClientClosed: Always.
    """
    if not lease.take_level():
        lease.released = True
        engine.lose(lease.server_lease, LossReason.CLOSED)
        engine.forget_holder(lease.server_lease, lease.who)
    raise ClientClosed("the client was closed during the call", name=lease.name)
