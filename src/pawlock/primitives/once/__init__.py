"""What is to be done once: a mutex whose holder leaves a result, which everybody who comes later gets."""

from __future__ import annotations

from pawlock.core.options import FENCE_MS, LockOptions
from pawlock.core.outcomes import Finished, Forgotten, LookAtResult, NotRecorded, Outcome, Released
from pawlock.core.primitive import TOMB_MS
from pawlock.core.runtime import Call
from pawlock.core.scripts import Replies, load, pack_words
from pawlock.errors import PawlockError
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.once.operation import AlreadyDone, Result
from pawlock.primitives.packing import apart, helper, pack, packed
from pawlock.primitives.replies import TAKE, absent, always, text

__all__ = ["Finishing", "OnceMutex", "once"]

_READ: Replies = {**TAKE, b"D": lambda fields: Finished(text(fields[0]), *fields[1:])}
_FINISHED: Replies = {b"R": always(Released()), b"L": lambda fields: NotRecorded(*absent(fields))}
_LOOKED: Replies = {
    b"I": lambda fields: LookAtResult(text(fields[0]), *fields[1:]),
    b"R": lambda fields: Forgotten(bool(fields[0])),
}

_FINISH = load(__name__, "finish", read=_FINISHED)
_FORGET = load(__name__, "forget", read=_LOOKED)
_LOOK = load(__name__, "look", read=_LOOKED)


class OnceMutex(Mutex):
    """The requests of one name that is to be done once: those of a mutex, and one that leaves the result.

    Args:
        name: The name as the user gave it.
        key: Its key, which no lock has.
        fence_ms: How long its fence is kept after the last use.
    """

    transferable = False
    renews_together: bool = False
    advice = "this client is running it already; finish or abandon it first"

    _ACQUIRE = load(__name__, "begin", read=_READ)
    _RENEW = load(__name__, "renew", read=_READ)

    __slots__ = ()

    def __init__(self, name: str, key: str, fence_ms: int = FENCE_MS) -> None:
        super().__init__("once", name, key, fence_ms, helper(key, "done"))
        # Who gives up, or is ended by an operator, has no result.
        self._parting = b"\r\n"

    def forget(self) -> Call:
        """Delete the record of the result; see ``forget.lua``."""
        return Call(_FORGET, pack(self.key) + self._more)

    def look(self) -> Call:
        """Read what is recorded of the result, without the value; see ``look.lua``."""
        return Call(_LOOK, pack(self.key) + self._more)

    def finishing(self, result: Result, keep_ms: int, fence: int) -> Finishing:
        """The same, whose release records a result."""
        return Finishing(self, result, keep_ms, fence)

    def refusal(self, outcome: Outcome) -> PawlockError | None:
        """What an answer says that shows the result."""
        if not isinstance(outcome, Finished):
            return None
        return AlreadyDone(self.name, Result(outcome.type, outcome.data), outcome.fence, outcome.at_ms)


class Finishing(OnceMutex):
    """A name whose holder has a result: each of its releases records it, also one in the background.

    Args:
        once: The name.
        result: The result.
        keep_ms: How long it is kept.
        fence: The fence of the holder's lease.
    """

    __slots__ = ("_rest",)

    def __init__(self, once: OnceMutex, result: Result, keep_ms: int, fence: int) -> None:
        super().__init__(once.name, once.key, once.fence_ms)
        words = pack_words(result.type.encode(), result.data)
        self._rest = packed(TOMB_MS) + words + packed(keep_ms, fence, self.fence_ms)

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:  # noqa: ARG002 - always a tombstone, never closed
        """Record the result, and free the name; see ``finish.lua``."""
        return self._marked(_FINISH, token.encode(), self._rest)


def once(namespace: str, name: str, options: LockOptions) -> OnceMutex:
    """What is to be done once by that name, which has nothing in common with a lock of that name."""
    return OnceMutex(name, apart(namespace, "once", name), options.fence_ms)
