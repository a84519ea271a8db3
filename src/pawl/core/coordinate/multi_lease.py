"""The lease of several names, for both APIs: what can be said of it without the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from weakref import ref

from pawl.core.protocol.runtime import Call
from pawl.errors import LeaseLost, NotSupported
from pawl.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.lease.base import BaseLease
    from pawl.core.protocol.options import LockOptions
    from pawl.core.protocol.runtime import Parker
    from pawl.core.state.plan import Plan

__all__ = ["BaseMultiLease", "MultiPlan", "Together"]


class Together(Protocol):
    """Takes all members in one script, where they lie on one node."""

    def acquire(self, tokens: Sequence[str], ttls_ms: Sequence[int]) -> Call:
        """Take them all if all are free; a resend answers the same."""
        ...


@dataclass(frozen=True, slots=True)
class MultiPlan:
    """A multi-lock as the operations see it.

    Attributes:
        members: What it takes, in the order of their keys.
        options: How the whole behaves: ``timeout``, ``on_lost``, ``on_exit``.
        together: Takes them in one script; None where one of them is no plain mutex.
    """

    members: tuple[Plan, ...]
    options: LockOptions
    together: Together | None

    @property
    def name(self) -> str:
        """All names, for errors and logs."""
        return ", ".join(member.primitive.name for member in self.members)

    def with_members(self, change: Callable[[Plan], Plan]) -> MultiPlan:
        """The same with each member changed."""
        return replace(self, members=tuple(change(member) for member in self.members))


class BaseMultiLease:
    """One lease of several names; made by ``acquire``, never by hand."""

    __slots__ = (
        "__weakref__",
        "_client",
        "_engine",
        "_leases",
        "_lost",
        "_parked",
        "_plan",
        "_released",
        "_told",
        "_watchers",
        "_who",
    )

    def __init__(self, engine: Engine, plan: MultiPlan, leases: Sequence[BaseLease]) -> None:
        self._engine = engine
        self._client = engine.client()
        self._plan = plan
        self._leases: tuple[BaseLease, ...] = tuple(leases)
        self._who: object = leases[0]._who
        self._released = False
        self._lost = False
        self._told = False
        self._parked: list[Parker] | None = []
        self._watchers: list[Callable[[], object]] = []
        # A server lease must not keep its lease alive, or nobody would notice one that was dropped.
        here = ref(self)
        for lease in self._leases:
            lease._watch(lambda: _tell(here()))

    def __bool__(self) -> bool:
        """True while all are held or suspect, by the local clock; False once one is lost or all are released."""
        return self._mine()

    @property
    def name(self) -> str:
        """All names, joined by commas."""
        return self._plan.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are locked, in the order in which they were taken."""
        return tuple(lease.name for lease in self._leases)

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name. Give that of a name to what the name protects."""
        return {lease.name: lease.fence for lease in self._leases}

    @property
    def fence(self) -> int:
        """The greatest of ``fences``: it orders what multi-locks of the same names do.

        What one name protects is guarded with the fence of that name, since others may hold it by itself.
        """
        return max(lease.fence for lease in self._leases)

    @property
    def token(self) -> str:
        """The secrets of all, joined by commas: never log it."""
        return ",".join(lease.token for lease in self._leases)

    @property
    def fence_strength(self) -> str:
        """How far the fences can be trusted: that of the weakest."""
        return min(lease.fence_strength for lease in self._leases)

    @property
    def ttl(self) -> float:
        """Server-side life in seconds, as last asked for: the least of all."""
        return min(lease.ttl for lease in self._leases)

    @property
    def valid_until(self) -> float:
        """Until when all of them may be relied on, in seconds of the client's clock."""
        return min(lease.valid_until for lease in self._leases)

    def remaining(self) -> float:
        """Seconds of validity left by the local clock, the least of all; 0 when lost or released. Sends nothing."""
        return min(lease.remaining() for lease in self._leases) if self._mine() else 0.0

    @property
    def state(self) -> LeaseState:
        """``lost`` if any of them is lost, ``suspect`` if any is; else ``held`` or ``released``."""
        if self._released:
            return LeaseState.LOST if self._lost else LeaseState.RELEASED
        states = [lease.state for lease in self._leases]
        for state in (LeaseState.LOST, LeaseState.RELEASED, LeaseState.SUSPECT):
            if state in states:
                return LeaseState.LOST if state is LeaseState.RELEASED else state
        return LeaseState.HELD

    def check(self) -> None:
        """Return if all are still good, by the local clock; call it before a step that must not run unprotected.

        Raises:
            LeaseLost: One is lost (``name`` says which, ``reason`` why) or the whole was released.
        """
        for lease in self._leases:
            lease.check()

    def beat(self) -> None:
        """Say that the work goes on: ``max_hold`` counts anew from here. Without ``max_hold``, the same as ``check``.

        Raises:
            LeaseLost: It is too late.
        """
        self.check()
        for lease in self._leases:
            lease.beat()

    # For the shells ---------------------------------------------------------------------------------------------

    def _inert(self) -> bool:
        return any(lease._inert() for lease in self._leases)

    def _mine(self) -> bool:
        return self.state in (LeaseState.HELD, LeaseState.SUSPECT)

    def _take_end(self) -> bool:
        with self._engine.guard:
            if self._released:
                return False
            self._released = True
            return True

    def _watch(self, watcher: Callable[[], object]) -> None:
        self._watchers.append(watcher)

    def _unwatch(self, watcher: Callable[[], object]) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def _wake(self) -> None:
        for parker in tuple(self._parked or ()):
            parker.unpark()

    def _loss(self) -> LeaseLost:
        lost = [lease for lease in self._leases if lease.state is LeaseState.LOST]
        text = f"the lease of {self.name!r} is lost"
        if lost:
            return LeaseLost(
                f"{text}: {lost[0]._loss().text}", name=lost[0].name, reason=lost[0]._loss().reason
            )
        return LeaseLost(text, name=self.name, reason=LossReason.CLOSED)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.state}>"

    def __reduce__(self) -> NoReturn:
        raise _NotPicklable("a lease cannot be pickled: it belongs to this process")

    def __copy__(self) -> NoReturn:
        raise _NotPicklable("a lease cannot be copied: it has one owner")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise _NotPicklable("a lease cannot be copied: it has one owner")


class _NotPicklable(NotSupported, TypeError):
    """A lease belongs to the process that holds it."""


def _tell(multi: BaseMultiLease | None) -> None:
    """One of them is lost: notify those that must know, once."""
    if multi is None or multi._told or multi._released:
        return
    multi._told = True
    for watcher in tuple(multi._watchers):
        watcher()
    multi._wake()
    callback = multi._plan.options.on_lost
    if callback is not None:
        multi._engine.runtime.report(partial(callback, multi))
