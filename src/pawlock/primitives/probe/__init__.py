"""A look at the server itself, and at what stands at its keys, through the same door as everything else."""

from __future__ import annotations

from collections.abc import Sequence

from pawlock.core.outcomes import KindOfKey, ServerFacts
from pawlock.core.runtime import Call
from pawlock.core.scripts import Replies, load, pack_words
from pawlock.primitives.probe.foreign_values import describe
from pawlock.primitives.replies import text

__all__ = ["keys_to_look_at", "kind_of", "probe", "words_for"]

_READ: Replies = {
    b"P": lambda fields: ServerFacts(text(fields[0]), fields[1]),
    b"K": lambda fields: KindOfKey(text(fields[0]), fields[1]),
}

_PROBE = load(__name__, "probe", read=_READ)
_KIND = load(__name__, "kind", read=_READ)


def probe(namespace: str, key: str = "") -> Call:
    """What a server says of itself; see ``probe.lua``.

    Args:
        namespace: The client's; the key that is named lies in it, so that an ACL for the namespace allows the call.
        key: The key whose server is meant, of a cluster; ``""``: any.
    """
    return Call(_PROBE, pack_words((key or f"{namespace or 'pawlock'}:probe").encode()))


def kind_of(key: bytes) -> Call:
    """What kind of value a key has; see ``kind.lua``."""
    return Call(_KIND, pack_words(key))


def keys_to_look_at(refused: Call) -> Sequence[tuple[bytes, bool]]:
    """The keys of a refused request that may hold what is not pawlock's, and whether a lock of Redisson was wanted."""
    keys = refused.words()[: refused.script.numkeys]
    redisson = refused.script.variant == "redisson"
    # Those of pawlock alone begin with a brace.
    asked = keys[:1] if redisson else [key for key in keys if not key.startswith(b"{")]
    return [(key, redisson) for key in dict.fromkeys(asked)]


def words_for(key: bytes, redisson: bool, found: KindOfKey) -> str:  # noqa: FBT001 - bound before it is called
    """What to say of a key; ``""`` if there is nothing to explain."""
    return describe(key, found.kind, found.fields, redisson=redisson)
