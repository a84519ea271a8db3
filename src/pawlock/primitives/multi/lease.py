"""The lease of several names, for both APIs: its record, and what can be said of it without the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from pawlock.core.base_lease import BaseLease, Unique, record_of
from pawlock.errors import LeaseLost
from pawlock.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.lease import HeldLease
    from pawlock.core.options import LockOptions
    from pawlock.core.plan import Plan
    from pawlock.core.runtime import Parker

__all__ = ["BaseMultiLease", "HeldMultiLease", "MultiPlan", "members_of", "record_of_all"]


@dataclass(frozen=True, slots=True)
class MultiPlan:
    """A multi-lock as the operations see it.

    Attributes:
        members: What it takes, in the order of their keys.
        options: How the whole behaves: ``timeout``, ``on_lost``, ``on_exit``.
    """

    members: tuple[Plan, ...]
    options: LockOptions

    @property
    def name(self) -> str:
        """All names, for errors and logs."""
        return ", ".join(member.primitive.name for member in self.members)


class HeldMultiLease:
    """The record of a lease of several names, with the steps that change it; see ``HeldLease``.

    Args:
        engine: The engine of its client.
        plan: The multi-lock.
        leases: The records of its members, in the order in which they were taken.
    """

    def __init__(self, engine: Engine, plan: MultiPlan, leases: Sequence[HeldLease]) -> None:
        self.engine: Engine = engine
        self.plan: MultiPlan = plan
        self.leases: tuple[HeldLease, ...] = tuple(leases)
        self.who: object = leases[0].who
        self.released: bool = False
        self.lost: bool = False
        self.reported: bool = False
        self.shown_as: ref[Any] | None = None
        self.parked: list[Parker] | None = []
        self.scopes: list[Any] | None = None
        # A hold must not keep its lease alive, or nobody would notice one that was dropped.
        self.report: Callable[[], object] = partial(_report, ref(self))
        self.watch(self.report)

    @property
    def name(self) -> str:
        """All names, joined by commas."""
        return self.plan.name

    @property
    def valid_until(self) -> float:
        """Until when all of them may be relied on."""
        return min(lease.valid_until for lease in self.leases)

    @property
    def state(self) -> LeaseState:
        """``lost`` if any of them is lost, ``suspect`` if any is; else ``held`` or ``released``."""
        if self.released:
            return LeaseState.LOST if self.lost else LeaseState.RELEASED
        states = [lease.state for lease in self.leases]
        for state in (LeaseState.LOST, LeaseState.RELEASED, LeaseState.SUSPECT):
            if state in states:
                return LeaseState.LOST if state is LeaseState.RELEASED else state
        return LeaseState.HELD

    def inert(self) -> bool:
        """Whether it belongs to the parent of this process."""
        return any(lease.inert() for lease in self.leases)

    def is_held(self) -> bool:
        """Whether its owner still holds all of them, by the local clock."""
        return self.state in (LeaseState.HELD, LeaseState.SUSPECT)

    def bind(self, block: object | None) -> None:
        """Note that the present thread or task is in a block which ends all of them."""
        for lease in self.leases:
            lease.bind(block)

    def take_end(self) -> bool:
        """Mark it as ended by its owner; False if somebody else was first."""
        with self.engine.guard:
            if self.released:
                return False
            self.released = True
            return True

    def watch(self, watcher: Callable[[], object]) -> None:
        """Have a function called when one of them is lost, for each that is."""
        for lease in self.leases:
            lease.watch(watcher)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """Have it called no more."""
        for lease in self.leases:
            lease.unwatch(watcher)

    def wake(self) -> None:
        """It ended: wake those that sleep until then, and have it hear of no more losses."""
        # One that its thread holds elsewhere, too, may live much longer.
        self.unwatch(self.report)
        for parker in tuple(self.parked or ()):
            parker.unpark()

    def loss(self) -> LeaseLost:
        """The error of a lease that is lost."""
        lost = [lease for lease in self.leases if lease.state is LeaseState.LOST]
        text = f"the lease of {self.name!r} is lost"
        if lost:
            return lost[0].loss(f"{text}: ")
        return LeaseLost(text, name=self.name, reason=LossReason.CLOSED)


class BaseMultiLease(Unique):
    """One lease of several names; made by ``acquire``, never by hand."""

    __slots__ = ("__weakref__", "_record")

    def __init__(self, record: HeldMultiLease) -> None:
        self._record = record
        # Whoever hears of its loss gets the same object.
        record.shown_as = ref(self)

    def __bool__(self) -> bool:
        """True while all are held or suspect, by the local clock; False once one is lost or all are released."""
        return self._record.is_held()

    @property
    def name(self) -> str:
        """All names, joined by commas."""
        return self._record.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are locked, in the order in which they were taken."""
        return tuple(lease.name for lease in self._record.leases)

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name. Give that of a name to what the name protects."""
        return {lease.name: lease.fence for lease in self._record.leases}

    @property
    def fence(self) -> int:
        """The greatest of ``fences``: it orders what multi-locks of the same names do.

        What one name protects is guarded with the fence of that name, since others may hold it by itself.
        """
        return max(lease.fence for lease in self._record.leases)

    @property
    def token(self) -> str:
        """The secrets of all, joined by commas: never log it."""
        return ",".join(lease.token for lease in self._record.leases)

    @property
    def fence_strength(self) -> str:
        """How far the fences can be trusted: that of the weakest."""
        return min(lease.fence_strength for lease in self._record.leases)

    @property
    def ttl(self) -> float:
        """Server-side life in seconds, as last asked for: the least of all."""
        return min(lease.ttl for lease in self._record.leases)

    @property
    def valid_until(self) -> float:
        """Until when all of them may be relied on, in seconds of the client's clock."""
        return self._record.valid_until

    def remaining(self) -> float:
        """Seconds of validity left by the local clock, the least of all; 0 when lost or released. Sends nothing."""
        record = self._record
        return min(lease.remaining() for lease in record.leases) if record.is_held() else 0.0

    @property
    def state(self) -> LeaseState:
        """``lost`` if any of them is lost, ``suspect`` if any is; else ``held`` or ``released``."""
        return self._record.state

    def check(self) -> None:
        """Return if all are still good, by the local clock; call it before a step that must not run unprotected.

        Raises:
            LeaseLost: One is lost (``name`` says which, ``reason`` why) or the whole was released.
        """
        for lease in self._record.leases:
            lease.check()

    def beat(self) -> None:
        """Say that the work goes on: ``max_hold`` counts anew from here. Without ``max_hold``, the same as ``check``.

        Raises:
            LeaseLost: It is too late.
        """
        self.check()
        for lease in self._record.leases:
            lease.beat()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.state}>"


def members_of(lease: BaseLease | BaseMultiLease) -> tuple[HeldLease, ...]:
    """The records of the single names that a lease is made of, for those who are given what a user holds."""
    return record_of_all(lease).leases if isinstance(lease, BaseMultiLease) else (record_of(lease),)


def record_of_all(lease: BaseMultiLease) -> HeldMultiLease:
    """The record of a lease of several names; see ``lease.base.record_of``."""
    return lease._record  # noqa: SLF001 - so that users see nothing of it, and nobody else opens it


def _report(here: ref[HeldMultiLease]) -> None:
    """One of them is lost: notify those that must know, once."""
    multi = here()
    if multi is None or multi.reported or multi.released:
        return
    multi.reported = True
    multi.wake()
    callback = multi.plan.options.on_lost
    if callback is not None:
        multi.engine.report_loss(callback, multi)
