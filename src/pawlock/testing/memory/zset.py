"""A sorted set in memory."""

from __future__ import annotations

__all__ = ["ZSet"]


class ZSet:
    """A sorted set: scores by member, and the order while nothing changes."""

    __slots__ = ("_order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self._order: list[bytes] | None = None

    def order(self) -> list[bytes]:
        """Members by score, then by their bytes."""
        if self._order is None:
            scores = self.scores
            self._order = sorted(scores, key=lambda member: (scores[member], member))
        return self._order

    def put(self, member: bytes, score: float) -> bool:
        """Set a member's score; True if it is new."""
        new = member not in self.scores
        self.scores[member] = score
        self._order = None
        return new

    def remove(self, member: bytes) -> bool:
        """Take a member out; False if it was not there."""
        if self.scores.pop(member, None) is None:
            return False
        self._order = None
        return True

    def copy(self) -> ZSet:
        """Another set of the same members."""
        twin = ZSet()
        twin.scores = dict(self.scores)
        return twin
