"""What is to be done once: a mutex whose holder leaves a result, which everybody who comes later gets."""

from __future__ import annotations

from functools import lru_cache

from pawlock.core.protocol.names import WIRE_VERSION, helper_key, key_of
from pawlock.core.protocol.options import FENCE_MS
from pawlock.core.protocol.outcomes import Finished, Outcome
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import Script, load, pack_words
from pawlock.errors import PawlockError
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.once.operation import AlreadyDone, Result
from pawlock.primitives.replies import BEGIN, FINISH, LOOK_AT_RESULT

__all__ = ["Finishing", "OnceMutex", "once_key"]

_BEGIN = load(__name__, "begin", read=BEGIN)
_RENEW = load(__name__, "renew", read=BEGIN)
_FINISH = load(__name__, "finish", read=FINISH)
_FORGET = load(__name__, "forget", read=LOOK_AT_RESULT)
_LOOK = load(__name__, "look", read=LOOK_AT_RESULT)


@lru_cache(maxsize=1024)
def _args(*args: str | int) -> bytes:
    return pack_words(*[str(arg).encode() for arg in args])


def once_key(namespace: str, name: str) -> str:
    """The key of what is to be done once.

    Args:
        namespace: What ``check_namespace`` returned.
        name: 1 to 200 bytes of text.

    Raises:
        ConfigurationError: The name can never work.
    """
    # No name can be escaped to this: an escape is a % and two digits or capitals.
    return key_of(f"{namespace}:%once", name) if namespace else f"%once:{name}"


class OnceMutex(Mutex):
    """The calls of one name that is to be done once: those of a mutex, and one that leaves the result.

    Args:
        name: The name as the user gave it.
        key: Its key, which no lock has.
        fence_ms: How long its fence is kept after the last use.
    """

    transferable = False
    renews_together = False
    advice = "this client is running it already; finish or abandon it first"

    __slots__ = ("_done",)

    def __init__(self, name: str, key: str, fence_ms: int = FENCE_MS) -> None:
        super().__init__("once", name, key, fence_ms)
        self._done = pack_words(helper_key(key, f"{WIRE_VERSION}:done").encode())

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
    ) -> Call:
        """Start it, or wait for the client that runs it; see ``begin.lua``."""
        args = _args(ttl_ms, ticket_ms, 1 if wait else 0, block, channel, max_waiters, self.fence_ms)
        return self._with_done(_BEGIN, token, args)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of the client that runs it, or waits; see ``renew.lua``."""
        args = pack_words(token.encode()) + _args(ttl_ms, ticket_ms, channel, self.fence_ms)
        return Call(_RENEW, self._keys + self._done + args)

    def forget(self) -> Call:
        """Delete the record of the result; see ``forget.lua``."""
        return Call(_FORGET, pack_words(self.key.encode()) + self._done)

    def look(self) -> Call:
        """Read what is recorded of the result, without the value; see ``look.lua``."""
        return Call(_LOOK, pack_words(self.key.encode()) + self._done)

    def finishing(self, kind: str, data: bytes, keep_ms: int, fence: int) -> Finishing:
        """The same, whose release records a result."""
        return Finishing(self, Result(kind, data), keep_ms, fence)

    def refusal(self, outcome: Outcome) -> PawlockError | None:
        """What an answer says that shows the result."""
        if not isinstance(outcome, Finished):
            return None
        return AlreadyDone(self.name, Result(outcome.type, outcome.data), outcome.fence, outcome.at_ms)

    def _with_done(self, script: Script, token: str, args: bytes) -> Call:
        word = token.encode()
        dead = pack_words(self._dead + word)
        return Call(script, b"".join((self._keys, dead, self._done, pack_words(word), args)))


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
        self._rest = pack_words(result.type.encode(), result.data) + _args(keep_ms, fence, self.fence_ms)

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:  # noqa: ARG002 - always a tombstone, never closed
        """Record the result, and free the name; see ``finish.lua``."""
        return self._with_done(_FINISH, token, _args(TOMB_MS) + self._rest)
