"""The lease that a user holds, for both APIs: what can be said of it without the network."""

from __future__ import annotations

from math import inf
from typing import NoReturn

from pawlock._hints import Hinting
from pawlock.core.lease import HeldLease, Losable
from pawlock.core.options import check_timeout
from pawlock.errors import NotSupported
from pawlock.model import LeaseState, QuorumInfo

__all__ = ["BaseLease", "LossSignal", "Unique", "record_of"]


class _NotPicklable(NotSupported, TypeError):
    """A lease belongs to the process that holds it."""


class LossSignal:
    """Whether a lease is lost: true in a condition once it is.

    ``if lease.lost: ...`` asks the local clock; nothing is sent. ``wait`` (in the class of each API) sleeps until
    the loss.
    """

    __slots__ = ("_record",)

    def __init__(self, record: Losable) -> None:
        self._record = record

    def __bool__(self) -> bool:
        return self._record.state is LeaseState.LOST

    def is_set(self) -> bool:
        """True once the lease is lost."""
        return bool(self)

    def __repr__(self) -> str:
        return f"<lost: {bool(self)}>"

    async def _wait(self, timeout: float | None) -> bool:
        record = self._record
        runtime = record.engine.runtime
        parker = runtime.parker()
        limit = check_timeout(timeout)
        end = None if limit is None else runtime.now() + limit
        sleeping = [parker]
        with record.engine.guard:
            if record.parked is None:
                record.parked = sleeping
            else:
                record.parked += sleeping
                sleeping = record.parked
        try:
            while record.state not in (LeaseState.LOST, LeaseState.RELEASED):
                now = runtime.now()
                if end is not None and now >= end:
                    return False
                # A degraded lease has no end.
                until = record.valid_until if end is None else min(record.valid_until, end)
                await parker.park(None if until == inf else max(0.0, until - now))
        finally:
            sleeping.remove(parker)
        return bool(self)


class Unique(Hinting):
    """A lease of one name or of several: it has one owner."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise _NotPicklable("a lease cannot be pickled or copied: detach() it, and adopt() it elsewhere")


class BaseLease(Unique):
    """A grant that its owner may rely on until ``valid_until``; made by ``acquire``, never by hand."""

    __slots__ = ("__weakref__", "_record")
    _record: HeldLease

    def __bool__(self) -> bool:
        """True while it is held or suspect, by the local clock; False once it is lost or released. Sends nothing."""
        return self._record.is_held()

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._record.name

    @property
    def token(self) -> str:
        """The lease's secret: who knows it can end the lease, with ``client.release(name, token)``.

        Never log it; ``repr`` shows the part after ``@``. Once it was read, the lease is not handed on in its client,
        without the server, which is faster; so the token stands for this lease alone. A token that is first read once
        the lease was handed on is good for nothing.
        """
        return self._record.token

    @property
    def fence(self) -> int:
        """The fencing token: an integer that increases with every grant of this lock. Pass it to the resource."""
        return self._record.fence

    @property
    def fence_strength(self) -> str:
        """How far the fence can be trusted.

        ``"server"``: issued by the single server that stores it. ``"quorum"``: known to a majority of independent
        masters; it increases as long as they keep their data, which pawlock checks by their run ids. ``"best_effort"``:
        the same, on masters that hide their run id, so that a restart goes unnoticed. ``"none"``: the lease is
        ``degraded``, and its fence is 0.
        """
        return self._record.fence_strength

    @property
    def degraded(self) -> str | None:
        """``"local"`` or ``"open"`` if it was granted without the server, as ``on_unavailable`` allows; else None."""
        return self._record.hold.degraded or None

    @property
    def quorum(self) -> QuorumInfo | None:
        """How several independent masters voted for it, with validity and drift; None with one server."""
        kept = self._record.hold.quorum
        return None if kept is None else kept()

    @property
    def ttl(self) -> float:
        """The TTL in seconds, as last requested."""
        return self._record.ttl

    @property
    def count(self) -> int:
        """How many times it is held: 1, or more under re-entry."""
        record = self._record
        return 0 if record.released else record.levels

    @property
    def valid_until(self) -> float:
        """The end of its validity, in seconds of the client's clock (boot time where the system has it)."""
        return self._record.valid_until

    def remaining(self) -> float:
        """Seconds of validity left by the local clock; 0 when lost or released. Sends nothing."""
        return self._record.remaining()

    @property
    def state(self) -> LeaseState:
        """``held``, ``suspect`` (renewals fail, still valid), ``lost`` or ``released``, by the local clock."""
        return self._record.state

    def check(self) -> None:
        """Return if the lease is still good, by the local clock; call it before a step that must not run unprotected.

        Raises:
            LeaseLost: It is lost (``reason`` says why) or was released.
        """
        self._record.check()

    def beat(self) -> None:
        """Say that the work goes on: ``max_hold`` counts anew from here. Without ``max_hold``, the same as ``check``.

        Raises:
            LeaseLost: It is too late.
        """
        self._record.beat()

    def __repr__(self) -> str:
        who = self._record.hold.token.partition("@")[2]
        return f"<{type(self).__name__} {self.name!r} {self.state} fence={self.fence} @{who}>"


def record_of(lease: BaseLease) -> HeldLease:
    """The record of a lease, for code that is given what a user holds: the only way from there into the core."""
    return lease._record  # noqa: SLF001 - so that users see nothing of it, and nobody else opens it
