"""The keys of one server, as seen from outside scripts.

The commands themselves are Lua, see ``server/``: what they change is reported here after each script.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from pawlock.testing.memory.zset import ZSet

__all__ = ["Refused", "Store", "Unsupported", "Value", "ZSet"]


class Refused(Exception):
    """An error reply; the text is the server's."""


class Unsupported(Exception):
    """A command or option that the node in memory does not have. The fault is the node's, so nothing may hide it."""


Value = bytes | dict[bytes, bytes] | ZSet | list[bytes]


class Store:
    """The keys of one server.

    Args:
        random: Decides what HRANDFIELD answers.
        published: Called with each message: channel and text; gives how many got it.
        info: Gives what INFO tells of a section.

    Attributes:
        data: Keys and what they hold.
        expires: Server time in ms after which a key is gone.
        now_ms: Server time at the start of the present command or script: what is past its expiry then is gone.
        now_us: The same in µs: what TIME tells.
        drift_us: How much time passes within a script, on servers that let it: PTTL looks so much earlier before TIME
            was asked, and so much later afterwards.
        changes: How many commands that may write were run.
        no_memory: True while the server is at its ``maxmemory``.
        replica: True while it refuses writes.
        moving: Whether the present script's keys are in a slot that leaves this node of a cluster (1), arrives (2), or
            neither (0). In a slot that leaves a command may only name keys that are there.
        home: The same keys as Lua has them, once a script ran.
        stale: Keys of which Lua does not know yet what happened to them.
        touched: Keys that were changed since somebody who takes note of changes looked at them, and took them out.
    """

    def __init__(
        self,
        random: Random,
        published: Callable[[bytes, bytes], int],
        info: Callable[[bytes], bytes] = lambda _: b"",
    ) -> None:
        self.data: dict[bytes, Value] = {}
        self.expires: dict[bytes, int] = {}
        self.random: Random = random
        self.published = published
        self.info = info
        self.now_ms: int = 0
        self.now_us: int = 0
        self.drift_us: int = 0
        self.changes: int = 0
        self.no_memory: bool = False
        self.replica: bool = False
        self.moving: int = 0
        self.home: Any = None
        self.stale: set[bytes] = set()
        self.touched: set[bytes] = set()

    def begin(self, now_us: int, drift_us: int = 0) -> None:
        """Start a script or command at a moment of server time."""
        self.now_us = now_us
        self.now_ms = now_us // 1000
        self.drift_us = drift_us

    def follow(self, noted: tuple[Any, ...]) -> None:
        """Do what a script did, as it noted it: four words for each change."""
        data: dict[bytes, Any] = self.data
        expires = self.expires
        self.touched.update(noted[1::4])
        words = iter(noted)
        for what, key, one, two in zip(words, words, words, words, strict=True):
            if what == b"h":
                found = data.get(key)
                if found is None:
                    data[key] = {one: two}
                else:
                    found[one] = two
            elif what == b"x":
                expires[key] = one
            elif what == b"z":
                found = data.get(key)
                if found is None:
                    found = data[key] = ZSet()
                found.put(one, two)
            else:
                _RARE[what](self, key, one)

    def drop(self, key: bytes) -> bool:
        """Delete a key; False if it was not there."""
        self.stale.add(key)
        self.touched.add(key)
        self.expires.pop(key, None)
        return self.data.pop(key, None) is not None

    def put(self, key: bytes, value: Value, expiry: int | None) -> None:
        """Have a key hold something, until a time in ms or indefinitely."""
        self.drop(key)
        self.data[key] = value
        if expiry is not None:
            self.expires[key] = expiry

    def flush(self) -> None:
        """Delete everything."""
        self.stale.update(self.data)
        self.touched.update(self.data)
        self.data.clear()
        self.expires.clear()

    def snapshot(self) -> tuple[dict[bytes, Value], dict[bytes, int]]:
        """A copy of all keys and expiries, for ``restore``."""
        copied = {
            key: value if isinstance(value, bytes) else value.copy() for key, value in self.data.items()
        }
        return copied, dict(self.expires)

    def restore(self, kept: tuple[dict[bytes, Value], dict[bytes, int]]) -> None:
        """Go back to a copy."""
        self.stale.update(self.data, kept[0])
        self.touched.update(self.data, kept[0])
        self.data, self.expires = kept


def _gone(store: Store, key: bytes, _: Any) -> None:
    del store.data[key]
    store.expires.pop(key, None)


def _text(store: Store, key: bytes, value: Any) -> None:
    store.data[key] = value
    store.expires.pop(key, None)


def _less(store: Store, key: bytes, field: Any) -> None:
    held: Any = store.data[key]
    held.pop(field)


def _list(store: Store, key: bytes, _: Any) -> None:
    store.data[key] = []


def _more(store: Store, key: bytes, item: Any) -> None:
    held: Any = store.data[key]
    held.append(item)


def _member(store: Store, key: bytes, member: Any) -> None:
    held: Any = store.data[key]
    held.remove(member)


_RARE: dict[bytes, Callable[[Store, bytes, Any], object]] = {
    b"d": _gone, b"s": _text, b"H": _less, b"Z": _member, b"l": _list, b"a": _more,
}  # fmt: skip
