"""The health of the server, and who is notified of what happens: two parts of a client's state."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pawlock.core.observers import Observers
    from pawlock.core.outcomes import Outcome
    from pawlock.core.primitive import Namespace
    from pawlock.core.runtime import Request

__all__ = ["Health", "KeyExplainer", "Reports", "Watcher"]

KeyExplainer: TypeAlias = "Callable[[Request], Sequence[tuple[Request, Callable[[Outcome], str]]]]"
"""See ``RedisEngine.explain_keys``."""


_FORGOTTEN = 60.0
"""Seconds without a request after which nothing is known of a server that was down."""


class Health:
    """The health of the server. Changed by ``retry``, ``server_check`` and the maintenance.

    Attributes:
        server: Its address, without credentials.
        down_since: When a request first got no answer, with no answer to any since then; None: it answers.
        failed_at: When the last request got none.
        reported: Whether somebody gave up on it since then.
        probe: Makes what asks it what it is (``RedisEngine.probe``); None: nobody wants to know.
        explain_keys: What a refused request found at its keys, for errors (``RedisEngine.explain_keys``); or None.
        look_at: When the maintenance is to ask.
        looked: Whether it did.
    """

    def __init__(self) -> None:
        self.server: str = ""
        self.down_since: float | None = None
        self.failed_at: float = -inf
        self.reported: bool = False
        self.probe: Callable[..., Request] | None = None
        self.explain_keys: KeyExplainer | None = None
        self.look_at: float = inf
        self.looked: bool = False

    def failed(self, sent_at: float, now: float) -> float:
        """A request of ``sent_at`` got no answer: since when that is so."""
        if self.down_since is None or sent_at - self.failed_at > _FORGOTTEN:
            self.down_since, self.reported = sent_at, False
        self.failed_at = now
        return self.down_since


def _as_it_is(record: object) -> object:
    return record


class Watcher(Protocol):
    """What the maintenance has look at waits.

    Attributes:
        armed: Whether it looks in by itself; a wait that begins while it is False wakes the maintenance.
    """

    armed: bool

    async def ask(self, engine: Any, now: float) -> None:
        """Look, and send what is due in requests of its own, each within ``Schedule.spare``."""
        ...

    def sleep_until(self, engine: Any, now: float) -> float:
        """When to look in again; infinity: nothing is to come, or somebody wakes the maintenance for it."""
        ...

    def forget(self) -> None:
        """Begin anew, in the child of a fork."""
        ...

    def leave(self, engine: Any) -> None:
        """Take away what it has on the server, because the client closes."""
        ...


class Reports:
    """Who is notified of what happens, and how. Set when the client is made, or an observer is added.

    Attributes:
        counters: What happened how often.
        observer: Who is notified of what happens; None, and then no cost, until somebody asks for it.
        namespace: What the namespace as a whole is asked with; None: no server has all of it.
        watcher: Who looks for deadlocks; None: nobody.
        show: Makes of the record of a lease what its user sees of it; the record itself without an API.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.observer: Observers | None = None
        self.namespace: Namespace | None = None
        self.watcher: Watcher | None = None
        self.show: Callable[[Any], object] = _as_it_is
