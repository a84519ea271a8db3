"""A look at the server itself, through the same door as everything else."""

from __future__ import annotations

from pawl.core.protocol.runtime import Call
from pawl.core.protocol.scripts import load, pack_words

__all__ = ["KIND", "probe"]

_PROBE = load(__name__, "probe")

KIND: Call = Call(load(__name__, "kind"), b"")
"""What kind of value a key has, once the key is given as its body; see ``kind.lua``."""


def probe(namespace: str) -> Call:
    """What the server says of itself; see ``probe.lua``.

    Args:
        namespace: The client's; the key that is named lies in it, so that an ACL for the namespace allows the call.
    """
    return Call(_PROBE, pack_words(f"{namespace or 'pawl'}:probe".encode()))
