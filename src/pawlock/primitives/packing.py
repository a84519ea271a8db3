"""How the requests of a name are packed: its keys once, and what differs from call to call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from pawlock.core.names import WIRE_VERSION, helper_key, key_of
from pawlock.core.runtime import Call
from pawlock.core.scripts import Script, pack_words
from pawlock.model import LossReason

if TYPE_CHECKING:
    from pawlock.core.outcomes import Outcome
    from pawlock.core.primitive import Primitive
    from pawlock.errors import PawlockError

__all__ = ["Named", "apart", "helper", "pack", "packed"]


def pack(*words: str | int) -> bytes:
    """Words as they stand inside a request."""
    return pack_words(*[str(word).encode(errors="surrogateescape") for word in words])


packed: Callable[..., bytes] = lru_cache(maxsize=1024)(pack)
"""The same. The same few tuples come again and again: a lock's numbers, and the channel of the thread or loop."""


def helper(key: str, *suffixes: str) -> bytes:
    """Helper keys of a key, packed."""
    return pack(*[helper_key(key, f"{WIRE_VERSION}:{suffix}") for suffix in suffixes])


def apart(namespace: str, kind: str, name: str) -> str:
    """The key of a name that has nothing in common with a lock of that name.

    Args:
        namespace: What ``check_namespace`` returned.
        kind: Of what it is the name.
        name: 1 to 200 bytes of text.

    Raises:
        ConfigurationError: The name can never work.
    """
    # No name can be escaped to this: an escape is a % and two digits or capitals.
    return key_of(f"{namespace}:%{kind}", name) if namespace else f"%{kind}:{name}"


class Named:
    """What the requests of one name have in common. Immutable; shared by all threads and tasks.

    Attributes:
        kind: What the user calls it, as in ``"semaphore"``.
        name: The name as the user gave it.
        key: Its key.
        fence_ms: How long its fence is kept after the last use.
    """

    __slots__ = ()

    polls = False
    unheard = LossReason.UNREACHABLE
    transferable: bool = False
    renews_together: bool = False
    kind: str
    name: str
    key: str
    fence_ms: int
    _keys: bytes
    """Those that every script takes."""
    _dead: bytes
    """The key of a tombstone, but for the token."""
    _more: bytes
    """The key behind the tombstone's, packed."""

    def covers(self, other: Primitive) -> bool:
        """Whether who holds this may take ``other`` again: an ``rlock`` by an ``rlock``."""
        return self.kind == other.kind

    def lowered(self) -> Primitive | None:
        """None: there is nothing below holding it."""
        return None

    def refusal(self, outcome: Outcome) -> PawlockError | None:  # noqa: ARG002
        """None: it has no answers of its own."""
        return None

    def _renewal(self, script: Script, token: str, args: bytes) -> Call:
        return Call(script, b"".join((self._keys, self._more, pack_words(token.encode()), args)))

    def _marked(self, script: Script, token: bytes, args: bytes, mark: bytes = b"") -> Call:
        """A request with a tombstone among its keys: of the token, or of ``mark``."""
        dead = pack_words(self._dead + (mark or token))
        return Call(script, b"".join((self._keys, dead, self._more, pack_words(token), args)))
