"""Releases that are under way, and acquisitions that end in a client that was closed or forked meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pawlock.errors import ClientClosed
from pawlock.model import LossReason

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.lease.record import HeldLease

__all__ = ["OngoingRelease", "check_fork", "end_level", "refuse"]


class OngoingRelease:
    """One release that is under way; another one of the same lease, which is refused, has an object of its own.

    Attributes:
        lease: What is released; set by its maker, which saves each release a call.
        ended: True once this release has ended the lease, and nobody else will leave it.
    """

    __slots__ = ("ended", "lease")
    ended: bool
    lease: HeldLease


def refuse(engine: Engine, lease: HeldLease) -> NoReturn:
    """End a lease that was granted while the client was closed, or the process forked: nobody gets it.

    Raises:
        ClientClosed: Always.
    """
    if not lease.take_level():
        lease.released = True
        engine.lose(lease.server_lease, LossReason.CLOSED)
        engine.forget_holder(lease.server_lease, lease.who)
    what = "client was closed" if engine.activity.closed else "process was forked"
    raise ClientClosed(f"the {what} during the call", name=lease.name)


def check_fork(engine: Engine, epoch: int, name: str) -> None:
    """In the child of a fork, end an acquisition that began before: a reply to its token is the parent's.

    Raises:
        ClientClosed: The engine is of another epoch than at its beginning.
    """
    if engine.epoch != epoch:
        raise ClientClosed("the process was forked during the call", name=name)


def end_level(lease: HeldLease) -> None:
    """End what a caller who was interrupted did not get: one level of a re-entered lease.

    What is granted anew ends when its record is dropped.
    """
    if lease.given:
        lease.take_level()
