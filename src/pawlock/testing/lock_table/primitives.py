"""What a client asks a lock table for: one object for each name, whose methods make the requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pawlock.core.protocol.outcomes import LimitRefused
from pawlock.errors import LimitMismatch, NotSupported
from pawlock.testing.lock_table.requests import (
    Adopt,
    Drop,
    Find,
    Force,
    Leave,
    Look,
    NoteLine,
    NoteTaken,
    Observe,
    Peek,
    Publish,
    Read,
    ReadLines,
    ReadTaken,
    Recall,
    Remember,
    Renew,
    SetLimit,
    Swap,
    Take,
    Tell,
    Unobserve,
)

if TYPE_CHECKING:
    from pawlock.core.protocol.primitive import Leaving, Primitive
    from pawlock.errors import PawlockError

__all__ = ["Ballot", "Mutex", "Semaphore", "SessionRequests"]


def _apart(key: str, family: str) -> str:
    """A key that no name of another family has: in the key of a name, two digits follow each ``%``."""
    mark = f"%{family}"
    return key if key.endswith(mark) else key + mark


class Mutex:
    """One exclusive name. Immutable; shared by all threads and tasks.

    Args:
        kind: The factory method that made it.
        name: The name as the user gave it.
        key: The name in its namespace.
        keep_ms: How long its fencing tokens are remembered after their last use.
    """

    transferable = True
    renews_together = False
    advice = "use rlock for re-entry"
    family = "exclusive"

    __slots__ = ("keep_ms", "key", "kind", "name")

    def __init__(self, kind: str, name: str, key: str, keep_ms: int) -> None:
        self.kind: str = kind
        self.name: str = name
        self.key: str = key
        self.keep_ms: int = keep_ms

    @property
    def _of(self) -> dict[str, Any]:
        return {"key": self.key, "family": self.family, "keep_ms": self.keep_ms}

    def acquire(
        self,
        token: str,
        ttl_ms: int,
        ticket_ms: int,
        *,
        wait: bool,
        block: int,
        channel: str,
        max_waiters: int,
    ) -> Take:
        """See ``Primitive``."""
        return Take(
            token=token, life_ms=ttl_ms, ticket_ms=ticket_ms, wait=wait, channel=channel,
            max_waiters=max_waiters, block=block, **self._of,
        )  # fmt: skip

    def swap(
        self,
        old: Leaving,
        token: str,
        ttl_ms: int,
        ticket_ms: int,
        *,
        block: int,
        channel: str,
        max_waiters: int,
    ) -> Swap:
        """See ``Primitive``."""
        return Swap(
            old=old.token, tomb_ms=old.tomb_ms, token=token, life_ms=ttl_ms, ticket_ms=ticket_ms, wait=True,
            channel=channel, max_waiters=max_waiters, block=block, **self._of,
        )  # fmt: skip

    def adopt(self, old: str, token: str, ttl_ms: int) -> Adopt:
        """See ``Primitive``."""
        return Adopt(old=old, token=token, life_ms=ttl_ms, **self._of)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Renew:
        """See ``Primitive``."""
        return Renew(token=token, life_ms=ttl_ms, ticket_ms=ticket_ms, channel=channel, **self._of)

    def beat(self, token: str, ttl_ms: int, ticket_ms: int, channel: str, others: Sequence[str]) -> Renew:
        """See ``BeatingPrimitive``."""
        return Renew(
            token=token,
            life_ms=ttl_ms,
            ticket_ms=ticket_ms,
            channel=channel,
            others=tuple(others),
            **self._of,
        )

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Leave:
        """See ``Primitive``."""
        return Leave(token=token, tomb_ms=tomb_ms, close_ms=close_ms, **self._of)

    def leave_run(self, token: str, tomb_ms: int, close_ms: int, look: int, spent: Sequence[str]) -> Leave:
        """See ``OrderedPrimitive``."""
        return Leave(
            token=token, tomb_ms=tomb_ms, close_ms=close_ms, look=look, spent=tuple(spent), **self._of
        )

    def inspect(self, limit: int) -> Look:
        """See ``Primitive``."""
        return Look(most=limit, **self._of)

    def peek(self) -> Peek:
        """See ``Forceable``."""
        return Peek(**self._of)

    def force(self, value: str, tomb_ms: int, channel: str) -> Force:
        """See ``Forceable``."""
        return Force(token=value, tomb_ms=tomb_ms, channel=channel, **self._of)

    def covers(self, other: Primitive) -> bool:
        """See ``Primitive``: an ``rlock`` may be taken again by an ``rlock``."""
        return self.kind == other.kind

    def raised_by(self, held: Primitive, token: str) -> Primitive | None:  # noqa: ARG002
        """See ``Primitive``: there is nothing above holding it."""
        return None

    def lowered(self) -> Primitive | None:
        """See ``Primitive``: there is nothing below holding it."""
        return None

    def refusal(self, outcome: Any) -> PawlockError | None:  # noqa: ARG002
        """See ``Primitive``: it has no answers of its own."""
        return None


class Ballot(Mutex):
    """One election: a name that one candidate holds, and its observers.

    Args:
        name: The name as the user gave it.
        key: The name in its namespace.
        keep_ms: How long its fencing tokens are remembered after their last use.
        most: How many may observe it.
    """

    transferable = False
    family = "election"

    __slots__ = ("_most",)

    def __init__(self, name: str, key: str, keep_ms: int, most: int) -> None:
        super().__init__("election", name, _apart(key, "election"), keep_ms)
        self._most = most

    def observe(self, token: str, ticket_ms: int, channel: str, former: str) -> Observe:
        """See ``BallotCalls``."""
        return Observe(
            token=token, ticket_ms=ticket_ms, channel=channel, former=former, most=self._most, **self._of
        )

    def unobserve(self, token: str, channel: str) -> Unobserve:
        """See ``BallotCalls``."""
        return Unobserve(token=token, channel=channel, **self._of)


class Semaphore(Mutex):
    """Permits of one name.

    Args:
        name: The name as the user gave it.
        key: The name in its namespace.
        keep_ms: How long its fencing tokens and its limit are remembered after their last use.
        permits: How many there are.
        weight: How many one acquisition takes.
    """

    transferable = False
    advice = "release a permit first"
    family = "permits"

    __slots__ = ("permits", "weight")

    def __init__(self, name: str, key: str, keep_ms: int, permits: int, weight: int = 1) -> None:
        super().__init__("semaphore", name, _apart(key, "permits"), keep_ms)
        self.permits: int = permits
        self.weight: int = weight

    @property
    def mode(self) -> str:
        """See ``PermitCalls``: it is a weight."""
        return str(self.weight)

    def of(self, kind: str, mode: str, beside: str = "") -> Semaphore:  # noqa: ARG002
        """See ``PermitCalls``."""
        return Semaphore(self.name, self.key, self.keep_ms, self.permits, int(mode))

    def acquire(
        self,
        token: str,
        ttl_ms: int,
        ticket_ms: int,
        *,
        wait: bool,
        block: int,  # noqa: ARG002 - each permit has one fence
        channel: str,
        max_waiters: int,
    ) -> Take:
        """See ``Primitive``."""
        return Take(
            token=token, life_ms=ttl_ms, ticket_ms=ticket_ms, wait=wait, channel=channel,
            max_waiters=max_waiters, weight=self.weight, permits=self.permits, **self._of,
        )  # fmt: skip

    def swap(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002
        """Never asked for: each acquisition stands in the queue by itself."""
        raise AssertionError("permits have no local hand-off")

    def adopt(self, old: str, token: str, ttl_ms: int) -> NoReturn:  # noqa: ARG002
        """Not offered: see ``transferable``."""
        raise NotSupported(f"adopt {self.name!r}: a {self.kind} lease stays in its process", name=self.name)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Renew:
        """See ``Primitive``."""
        return self.beat(token, ttl_ms, ticket_ms, channel, ())

    def beat(self, token: str, ttl_ms: int, ticket_ms: int, channel: str, others: Sequence[str]) -> Renew:
        """See ``BeatingPrimitive``."""
        return Renew(
            token=token, life_ms=ttl_ms, ticket_ms=ticket_ms, channel=channel, permits=self.permits,
            others=tuple(others), **self._of,
        )  # fmt: skip

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Leave:
        """See ``Primitive``."""
        return Leave(token=token, tomb_ms=tomb_ms, close_ms=close_ms, permits=self.permits, **self._of)

    def inspect(self, limit: int) -> Look:
        """See ``Primitive``."""
        return Look(most=limit, permits=self.permits, **self._of)

    def refusal(self, outcome: Any) -> PawlockError | None:
        """See ``Primitive``."""
        if not isinstance(outcome, LimitRefused):
            return None
        if outcome.why == "weight":
            text = f"{self.weight} permits were requested, and the limit is {outcome.limit}"
        else:
            text = (
                f"this client has permits={self.permits}, and the lock table has a limit of {outcome.limit}; "
                "use one number everywhere, or change it with set_limit()"
            )
        return LimitMismatch(
            f"acquire {self.name!r}: {text}", name=self.name, limit=outcome.limit, permits=self.permits
        )

    def limit(self, permits: int) -> SetLimit:
        """See ``PermitCalls``."""
        return SetLimit(limit=permits, declared=self.permits, **self._of)


class SessionRequests:
    """What clients publish about themselves in one namespace. See ``SessionCalls``.

    Args:
        namespace: The namespace.
    """

    __slots__ = ("_of",)

    def __init__(self, namespace: str) -> None:
        self._of: dict[str, Any] = {"key": namespace, "family": "sessions"}

    def publish(self, session: str, number: int, ttl_ms: int, data: str) -> Publish:
        """See ``SessionCalls``."""
        return Publish(session=session, number=number, life_ms=ttl_ms, data=data, **self._of)

    def drop(self, session: str) -> Drop:
        """See ``SessionCalls``."""
        return Drop(session=session, **self._of)

    def find(self, prefix: str, after: str, limit: int) -> Find:
        """See ``SessionCalls``."""
        return Find(prefix=prefix, after=after, limit=limit, **self._of)

    def read(self, sessions: Sequence[str]) -> Read:
        """See ``SessionCalls``."""
        return Read(sessions=tuple(sessions), **self._of)

    def tell(self, channel: str, token: str) -> Tell:
        """See ``SessionCalls``."""
        return Tell(channel=channel, token=token, over=True, **self._of)

    def wake(self, channel: str, token: str) -> Tell:
        """See ``SessionCalls``."""
        return Tell(channel=channel, token=token, over=False, **self._of)

    def take(self, tag: str, life_ms: int) -> NoteTaken:
        """See ``SessionCalls``."""
        return NoteTaken(tag=tag, life_ms=life_ms, **self._of)

    def taken(self) -> ReadTaken:
        """See ``SessionCalls``."""
        return ReadTaken(**self._of)

    def note(self, line: str, data: str, limit: int, life_ms: int) -> NoteLine:
        """See ``SessionCalls``."""
        return NoteLine(line=line, data=data, limit=limit, life_ms=life_ms, **self._of)

    def audit_log(self, limit: int) -> ReadLines:
        """See ``SessionCalls``."""
        return ReadLines(limit=limit, **self._of)

    def remember(self, key: str, limit: int, life_ms: int, lines: str) -> Remember:
        """See ``SessionCalls``."""
        return Remember(key=key, family="history", limit=limit, life_ms=life_ms, lines=lines)

    def recall(self, key: str, limit: int) -> Recall:
        """See ``SessionCalls``."""
        return Recall(key=key, family="history", limit=limit)
