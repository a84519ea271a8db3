"""The election: a mutex whose holder leads, and observers that are notified of each change."""

from __future__ import annotations

from pawlock.core import outcomes
from pawlock.core.names import helper_key
from pawlock.core.options import FENCE_MS, LockOptions
from pawlock.core.runtime import Call
from pawlock.core.scripts import Replies, load
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.packing import apart, helper, pack
from pawlock.primitives.replies import FORCE, LEAVE, TAKE, always, text

__all__ = ["Ballot", "ballot"]

_READ: Replies = {
    b"I": lambda fields: outcomes.Leading(text(fields[0]), fields[1], fields[2]),
    b"F": lambda fields: outcomes.Full(fields[0]),
    b"A": always(outcomes.Absent()),
}

_OBSERVE = load(__name__, "observe", read=_READ)
_UNOBSERVE = load(__name__, "hush", read=_READ)


class Ballot(Mutex):
    """The requests of one election: those of a mutex, in scripts that also notify the observers.

    Args:
        name: The name as the user gave it.
        key: Its key, which no lock has.
        max_observers: How many may observe at once.
        fence_ms: How long its fence is kept after the last use.
    """

    transferable = False
    renews_together: bool = False

    _ACQUIRE = load(__name__, "acquire", read=TAKE)
    _RENEW = load(__name__, "renew", read=TAKE)
    _LEAVE = load(__name__, "leave", read=LEAVE)
    _FORCE = load(__name__, "force", read=FORCE)

    __slots__ = ("_max_observers", "_observed")

    def __init__(self, name: str, key: str, max_observers: int, fence_ms: int = FENCE_MS) -> None:
        observers = helper(key, "observers")
        super().__init__("election", name, key, fence_ms, observers)
        self._observed = pack(key, helper_key(key, "fence")) + observers
        self._max_observers = max_observers

    def observe(self, token: str, ticket_ms: int, channel: str, former: str) -> Call:
        """Read who leads, and be woken when that changes; see ``observe.lua``."""
        return Call(_OBSERVE, self._observed + pack(token, ticket_ms, channel, former, self._max_observers))

    def unobserve(self, token: str, channel: str) -> Call:
        """End an observation; see ``hush.lua``."""
        return Call(_UNOBSERVE, self._more + pack(token, channel))


def ballot(namespace: str, name: str, options: LockOptions) -> Ballot:
    """The election of a name, which has nothing in common with a lock of that name."""
    return Ballot(name, apart(namespace, "election", name), options.max_waiters, options.fence_ms)
