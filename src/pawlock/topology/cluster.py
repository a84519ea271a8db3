"""Which node of a cluster serves a key: slots, the map of them, and redirections. Pure.

Facts: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

__all__ = ["SLOTS", "Address", "Range", "SlotMap", "first_key", "read_ranges", "read_redirect", "slot_of"]

SLOTS = 16384

Address: TypeAlias = tuple[str, int]
"""Host and port of a node."""


def slot_of(key: bytes) -> int:
    """The slot of a key: of what stands in its first pair of braces, or of all of it."""
    begin = key.find(b"{")
    if begin >= 0:
        end = key.find(b"}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1 : end]
    # The checksum of the specification, CRC-16/XMODEM, is in Python's library under the name of its polynomial.
    return crc_hqx(key, 0) % SLOTS


def first_key(body: bytes) -> bytes:
    """The first key of a packed call: all of its keys are in one slot."""
    at = body.index(b"\r\n")
    return body[at + 2 : at + 2 + int(body[1:at])]


class Range(NamedTuple):
    """Slots that follow each other and their master."""

    first: int
    last: int
    master: Address


class SlotMap:
    """Who serves which slot, as last heard. Assignments are single steps, so any thread may read meanwhile.

    Attributes:
        stale: True once something contradicted the map: it is to be loaded again.
        loaded_at: When it was loaded, on the runtime's clock.
        masters: The nodes that serve slots, in order; none: it was never loaded.
    """

    def __init__(self) -> None:
        self.stale: bool = True
        self.loaded_at: float = float("-inf")
        self.masters: tuple[Address, ...] = ()
        self._owners: list[Address | None] = [None] * SLOTS

    def owner(self, slot: int) -> Address | None:
        """The master of a slot, or None where nobody serves it."""
        return self._owners[slot]

    def assign(self, slot: int, master: Address) -> None:
        """Take one redirection into account; more than one slot may have moved, so the map is stale."""
        self._owners[slot] = master
        self.stale = True

    def load(self, ranges: Iterable[Range], now: float) -> bool:
        """Replace the whole map.

        Returns:
            True if a master of before serves nothing any more: another stands in for it, or it gave all away.
        """
        owners: list[Address | None] = [None] * SLOTS
        masters: set[Address] = set()
        for first, last, master in ranges:
            owners[first : last + 1] = [master] * (last + 1 - first)
            masters.add(master)
        gone = bool(set(self.masters) - masters)
        self._owners, self.masters = owners, tuple(sorted(masters))
        self.loaded_at, self.stale = now, False
        return gone


def read_ranges(reply: Any, asked: str) -> list[Range]:
    """The answer to ``CLUSTER SLOTS``.

    Args:
        reply: As it came.
        asked: The host that gave it: a node that does not know its own address leaves it out.

    Raises:
        ValueError: It is no such answer.
    """
    try:
        ranges: list[Range] = []
        for row in reply:
            host = (row[2][0] or b"").decode()
            # "?" stands for a node that is meant to have a host name and has none yet.
            if host != "?":
                ranges.append(Range(int(row[0]), int(row[1]), (host or asked, int(row[2][1]))))
        return ranges
    except (AttributeError, TypeError, IndexError, ValueError) as error:
        raise ValueError(f"not an answer to CLUSTER SLOTS: {error}") from None


def read_redirect(text: str, asked: str) -> tuple[bool, int, Address]:
    """Where a ``MOVED`` or ``ASK`` reply sends us.

    Args:
        text: The error's text.
        asked: The host that gave it, for a reply that leaves the host out.

    Returns:
        True for this one request alone (the slot is on its way) or False (it has moved), the slot, and the other node.

    Raises:
        ValueError: It is neither.
    """
    kind, slot, address = text.split(" ")[:3]
    host, _, port = address.rpartition(":")
    if kind not in ("MOVED", "ASK"):
        raise ValueError(f"not a redirection: {kind}")
    return kind == "ASK", int(slot), (host or asked, int(port))
