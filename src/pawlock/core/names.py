"""From a name to its keys: escaping, so that no name can reach into another's.

A key is ``namespace:name``. Braces would move it to another hash slot, control characters would break logs, ``%`` is
the escape itself, and a ``:`` in a namespace would let ``a:b`` + ``c`` meet ``a`` + ``b:c``: all of these are written
as ``%XX``. The helper keys wrap the key in braces, so that a cluster keeps them together, and carry the wire version.

Without a namespace the name is the key, and may have one pair of braces (``lock:{order}``), as names in a cluster often
do: its helper keys then carry the same pair. A key that programs of other libraries share may have anything in it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from pawlock.errors import ConfigurationError

__all__ = [
    "MAX_NAME_BYTES",
    "WIRE_VERSION",
    "check_namespace",
    "check_text",
    "helper_key",
    "key_of",
    "label_of",
    "part_of_holder",
    "wake_prefix",
]

MAX_NAME_BYTES = 200
WIRE_VERSION = "1"

_HOLDER_UNSAFE = re.compile(r"[^\w.\-#]")
_LONGEST_PART = 40
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NAME_UNSAFE = re.compile("[%{}\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TAGGED = re.compile("[^{}]*[{][^{}]+[}][^{}]*")
_TAG_BRACES = re.compile("[{}]")
_BEGINS_TAGGED = re.compile("[^{]*[{][^}]+[}]")
_RESERVED = re.compile(r"(?:^\{.*\}|:pawlock):(?:fence$|\d+:)")
_NAMESPACE_UNSAFE = re.compile("[%{}:\x00-\x20\x7f-\x9f\u2028\u2029*?\\[\\]]")


def _escape_char(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode())


def check_text(value: object, what: str, *, raw: bool = False) -> str:
    """Text of at most 200 bytes; if ``raw``, of any length, in which a surrogate may stand for a byte that is no text.

    Raises:
        ConfigurationError: It is none.
    """
    if not isinstance(value, str):
        kind = type(value).__name__
        hint = " (decode the bytes first)" if isinstance(value, bytes) else ""
        raise ConfigurationError(f"{what} must be a str, got {kind}{hint}")
    try:
        size = len(value.encode(errors="surrogateescape" if raw else "strict"))
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{what} is not valid text: lone surrogate at {error.start}") from None
    if size > MAX_NAME_BYTES and not raw:
        raise ConfigurationError(f"{what} must be at most {MAX_NAME_BYTES} bytes in UTF-8, got {size}")
    return value


def check_namespace(namespace: object, what: str = "namespace") -> str:
    """The namespace, escaped, ready to be put before names.

    A namespace is set once, mostly in a file: a character in it that nobody sees is a mistake, and would make a second
    space of locks beside the one that is meant.

    Args:
        namespace: Up to 200 bytes of text, without control characters, and without blanks at its ends. ``""`` means
            that a name is used as its key, unchanged.
        what: Where it was given, for the error.

    Raises:
        ConfigurationError: It is not such text, or too long.
    """
    text = check_text(namespace, what)
    if _UNSEEN.search(text) or text != text.strip():
        hint = "contains a control character, or begins or ends with a space: remove it"
        raise ConfigurationError(f"{what} {text[:60]!r} {hint}")
    return _NAMESPACE_UNSAFE.sub(_escape_char, text)


def key_of(namespace: str, name: object) -> str:
    """The key of a name.

    Args:
        namespace: What ``check_namespace`` returned.
        name: 1 to 200 bytes of text.

    Raises:
        ConfigurationError: The name is empty, too long or not text; or, without a namespace, would need escaping.
    """
    return _key_of(namespace, name if isinstance(name, str) else check_text(name, "name"))


@lru_cache(maxsize=4096)
def _key_of(namespace: str, name: str) -> str:
    check_text(name, "name")
    if not name:
        raise ConfigurationError("name must be 1 to 200 bytes, got an empty string")
    if namespace:
        return f"{namespace}:{_NAME_UNSAFE.sub(_escape_char, name)}"
    return _bare(name)


def _bare(name: str) -> str:
    """The name as its own key."""
    if _RESERVED.search(name):
        hint = "use a namespace or another name"
        raise ConfigurationError(f"name {name[:60]!r} looks like a helper key of another lock: {hint}")
    if found := _NAME_UNSAFE.search(_TAG_BRACES.sub("", name) if _TAGGED.fullmatch(name) else name):
        raise ConfigurationError(
            f"name contains {found.group()!r}, which needs escaping, and namespace='' uses the name itself as the key: "
            "use a namespace or another name (one pair of braces around something is fine)"
        )
    return name


def helper_key(key: str, suffix: str) -> str:
    """The key of a helper structure of ``key``, in the same hash slot."""
    if "{" in key and _BEGINS_TAGGED.match(key):
        # Only without a namespace; braces around braces would mean another slot.
        return f"{key}:pawlock:{suffix}"
    return "{" + key + "}:" + suffix


def part_of_holder(text: str) -> str:
    """The name of a thread or task as a token shows it, so that one holder is spelled alike everywhere."""
    return _HOLDER_UNSAFE.sub("_", text)[:_LONGEST_PART]


def label_of(who: object) -> str:
    """The name of a thread or task, spelled as in its tokens."""
    owner: Any = who() if callable(who) else None
    return part_of_holder(owner.get_name() if hasattr(owner, "get_name") else getattr(owner, "name", ""))


def wake_prefix(namespace: str) -> str:
    """What the wake-up channels of a namespace begin with."""
    return f"{namespace or 'pawlock'}:wake:"
