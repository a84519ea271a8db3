"""The engine of a lock table: which object makes the requests of which primitive, and what it does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from pawlock.core.protocol.names import key_of
from pawlock.errors import NotSupported
from pawlock.testing.lock_table.primitives import Ballot, Mutex, Semaphore, SessionRequests

if TYPE_CHECKING:
    from pawlock.core.protocol.carrier import Request
    from pawlock.core.protocol.key import Key
    from pawlock.core.protocol.outcomes import Outcome
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.terms import Terms

__all__ = ["LOCK_TABLE", "LockTableEngine"]


class LockTableEngine:
    """See ``ServerEngine``."""

    __slots__ = ()

    def mutex(self, kind: str, name: str, key: str, options: Terms) -> Mutex:
        """See ``ServerEngine``."""
        return Mutex(kind, name, key, options.given.fence_ms)

    def semaphore(self, name: str, key: str, permits: int, options: Terms) -> Semaphore:
        """See ``ServerEngine``."""
        return Semaphore(name, key, options.given.fence_ms, permits)

    def election(self, name: str, namespace: str, options: Terms) -> Ballot:
        """See ``ServerEngine``."""
        return Ballot(name, key_of(namespace, name), options.given.fence_ms, options.max_waiters)

    def together(self, members: Sequence[Primitive]) -> None:
        """See ``ServerEngine``: the members of a multi-lock are taken one after the other."""
        del members

    def sessions(self, namespace: str) -> SessionRequests:
        """See ``ServerEngine``."""
        return SessionRequests(namespace)

    def probe(self, namespace: str, key: str = "") -> None:
        """See ``ServerEngine``: there are no settings that could be wrong."""
        del namespace, key

    def explain_keys(self, refused: Request) -> Sequence[tuple[Request, Callable[[Outcome], str]]]:
        """See ``ServerEngine``: nobody else writes to it."""
        del refused
        return []

    # What it does not have --------------------------------------------------------------------------------------

    def mutex_of(self, kind: str, name: str, key: str, options: Terms, owner: str, shown: str) -> NoReturn:
        """See ``ServerEngine``."""
        del key, options, owner, shown
        _refuse(f"{kind}(owner=)", name)

    def mutex_at(self, kind: str, key: Key, options: Terms, owner: str | None, *, sharded: bool) -> NoReturn:
        """See ``ServerEngine``."""
        del options, owner, sharded
        _refuse(f"{kind}(pawlock.Key)", key.name)

    def rwlock(self, name: str, key: str, options: Terms, *, upgradable: bool) -> NoReturn:
        """See ``ServerEngine``."""
        del key, options, upgradable
        _refuse("rwlock", name)

    def once(self, name: str, namespace: str, options: Terms) -> NoReturn:
        """See ``ServerEngine``."""
        del namespace, options
        _refuse("once", name)

    def latch(self, name: str, key: str, count: int, options: Terms, remember_ms: int) -> NoReturn:
        """See ``ServerEngine``."""
        del key, count, options, remember_ms
        _refuse("latch", name)

    def barrier(self, name: str, key: str, parties: int, options: Terms) -> NoReturn:
        """See ``ServerEngine``."""
        del key, parties, options
        _refuse("barrier", name)


def _refuse(what: str, name: str) -> NoReturn:
    raise NotSupported(
        f"{what} {name!r}: a lock table has lock, rlock, fair_lock, semaphore and election: "
        "use pawlock.testing.Memory or Server for the others",
        name=name,
    )


LOCK_TABLE = LockTableEngine()
"""It keeps nothing, so one is enough."""
