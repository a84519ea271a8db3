"""What a key holds that is no lock of pawlock's: the words of an error that names the library, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["describe"]

_HOLDER = re.compile(
    rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+(:write)?", re.IGNORECASE
)
"""The field that a lock of Redisson has for its holder: the id of its client, and of a thread."""

_OURS = re.compile(rb"[A-Za-z0-9]{22,64}@[\x21-\x7e]*:[\x21-\x7e]+")
"""The field that pawlock has there: the token of the holder."""

_KINDS = {"hash": "a hash", "zset": "a sorted set", "list": "a list", "other": "neither a string nor a lock"}


def describe(key: bytes, kind: str, fields: Sequence[bytes], *, redisson: bool = False) -> str:
    """What to say of a key; ``""`` if there is nothing to explain.

    Args:
        key: The key, as it is on the server.
        kind: What it has; see ``kind.lua``.
        fields: The fields of a hash, if they are few.
        redisson: Whether a lock of Redisson was wanted there.
    """
    shown = key.decode(errors="backslashreplace")
    if kind == "hash" and b"mode" in fields and all(_HOLDER.fullmatch(f) for f in fields if f != b"mode"):
        return f"{shown!r} holds a Redisson read-write lock (a hash with the field mode): it cannot be shared"
    if redisson and kind == "string":
        return f"{shown!r} holds a string, and a Redisson lock is a hash: use pawlock.Key({shown!r})"
    if redisson and kind == "hash":
        return "" if len(fields) == 1 else f"{shown!r} holds a hash that is not a Redisson lock (one field)"
    if kind == "hash" and fields and all(_HOLDER.fullmatch(field) for field in fields):
        return (
            f"{shown!r} holds a Redisson lock (a hash with the field <uuid>:<thread>): use "
            f"pawlock.Key.redisson({shown!r})"
        )
    if kind not in _KINDS:
        return ""
    ours = kind == "hash" and len(fields) == 1 and _OURS.fullmatch(fields[0])
    other_wire = (
        f"a lock of pawlock on the wire of Redisson: use pawlock.Key.redisson({shown!r})" if ours else ""
    )
    return f"{shown!r} holds {other_wire or _KINDS[kind] + ', which another program put there'}"
