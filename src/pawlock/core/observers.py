"""What an operator sees: grants, waits, ends, renewals, answers. Costs nothing until asked for.

An engine that is observed works through another runtime (``observe.timed_runtime``), which times each request: that
runtime offers no ``connection``, so every request goes through its ``call``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pawlock.core.runtime import Fault, FaultKind
from pawlock.errors import AcquireTimeout, BackendError, ClientClosed, PawlockError
from pawlock.model import LossReason

if TYPE_CHECKING:
    from pawlock.core.primitive import Primitive
    from pawlock.core.records import Hold

__all__ = ["Observer", "Observers"]

log: logging.Logger = logging.getLogger("pawlock.metrics")

_SILENT = frozenset({FaultKind.UNREACHABLE, FaultKind.UNANSWERED, FaultKind.NOT_READY})


class Observer(Protocol):
    """Who is notified. Called in the thread or task that it happens in, so it must be quick and must not block."""

    def acquired(self, kind: str, name: str, *, waited: float, contended: bool, degraded: str) -> object:
        """A lease was granted.

        Args:
            kind: ``"lock"``, ``"semaphore"``, …
            name: The name.
            waited: Seconds since it was asked for.
            contended: Whether it had to wait for somebody.
            degraded: ``"local"`` or ``"open"`` where the server had no part in it, else ``""``.

        Returns:
            Whatever ``lost`` is to get back.
        """
        ...

    def refused(self, kind: str, name: str, *, waited: float, outcome: str) -> None:
        """No lease was granted: ``busy``, ``timeout``, ``refused``, ``error``, ``closed`` or ``cancelled``."""
        ...

    def queued(self, kind: str, name: str, *, place: int) -> None:
        """Somebody came to the server's queue, in this place: 1 is next."""
        ...

    def released(self, kind: str, name: str, *, held: float, outcome: str) -> None:
        """An owner is done with its lease.

        Args:
            kind: As above.
            name: The name.
            held: Seconds since the grant.
            outcome: ``released``, ``lost`` (reported before), ``unknown``, ``background`` (the release was interrupted
                and goes on), ``detached`` or ``abandoned`` (dropped without release).
        """
        ...

    def lost(self, kind: str, name: str, *, held: float, reason: LossReason, acquired: object) -> None:
        """A lease ended before its owner released it; ``acquired`` is what the call of that name returned."""
        ...

    def counted(self, what: str) -> None:
        """Something else was counted: ``renewed``, ``renewal_failed``, ``handed_over``, ``outages``, others."""
        ...

    def called(self, operation: str, *, seconds: float, fault: str) -> None:
        """A request was answered, or given up with this fault (``""``: none)."""
        ...


class Observers:
    """All observers of one engine. A failure of one is logged, and harms no lock.

    Attributes:
        members: The observers.
        answering: False from a request without an answer until the next one with.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.members: list[Observer] = []
        self.answering: bool = True
        self._now: Callable[[], float] = now

    def acquired(self, hold: Hold, began: float, *, contended: bool) -> None:
        """A hold has a new owner, who asked for it at ``began``."""
        about, waited = self._about(hold.primitive), self._now() - began
        degraded = hold.degraded
        hold.seen = self._tell("acquired", *about, waited=waited, contended=contended, degraded=degraded)

    def refused(self, kind: str, name: str, began: float, error: BaseException | None) -> None:
        """Nobody got a lease, for that reason; None: somebody else holds it, and the caller did not wait."""
        self._tell("refused", kind, name, waited=self._now() - began, outcome=_outcome(error))

    def queued(self, primitive: Primitive, ahead: int) -> None:
        """The server put a waiter behind so many others."""
        self._tell("queued", *self._about(primitive), place=ahead + 1)

    def released(self, primitive: Primitive, granted_at: float, outcome: str) -> None:
        """An owner is done with what it got then."""
        self._tell("released", *self._about(primitive), held=self._now() - granted_at, outcome=outcome)

    def lost(self, hold: Hold, reason: LossReason) -> None:
        """A hold was lost."""
        about, held = self._about(hold.primitive), self._now() - hold.granted_at
        self._tell("lost", *about, seen=hold.seen, held=held, reason=reason)

    def counted(self, what: str) -> None:
        """Something was counted."""
        self._tell("counted", what)

    def called(self, operation: str, since: float, fault: Fault | None) -> None:
        """A request that was sent then has ended."""
        self.answering = fault is None or fault.kind not in _SILENT
        seconds, kind = self._now() - since, "" if fault is None else str(fault.kind)
        self._tell("called", operation, seconds=seconds, fault=kind)

    @staticmethod
    def _about(primitive: Primitive) -> tuple[str, str]:
        return primitive.kind, primitive.name

    def _tell(
        self, what: str, *about: str, seen: tuple[object, ...] | None = None, **more: object
    ) -> tuple[object, ...]:
        """Call a method of each; with ``seen``, each gets back what it returned itself, and who came later nothing."""
        results: list[object] = []
        for number, observer in enumerate(self.members):
            if seen is not None:
                more["acquired"] = seen[number] if number < len(seen) else None
            try:
                results.append(getattr(observer, what)(*about, **more))
            except Exception:
                log.exception("an observer raised an error; locks are not affected")
                results.append(None)
        return tuple(results)


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "busy"
    if isinstance(error, AcquireTimeout):
        return "timeout"
    if isinstance(error, ClientClosed):
        return "closed"
    if isinstance(error, BackendError):
        return "error"
    return "refused" if isinstance(error, PawlockError) else "cancelled"
