"""Releases that are under way, and acquisitions that end in a client that was closed or forked meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pawl.errors import ClientClosed
from pawl.model import LossReason

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.lease.record import HeldLease

__all__ = ["OngoingRelease", "refuse"]


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

    In the child of a fork, a reply to the token that it began with is the parent's.

    Raises:
        ClientClosed: Always.
    """
    if not lease.take_level():
        lease.released = True
        engine.lose(lease.server_lease, LossReason.CLOSED)
        engine.forget_holder(lease.server_lease, lease.who)
    what = "the client was closed" if engine.activity.closed else "the process was forked"
    raise ClientClosed(f"{what} during the call", name=lease.name)
