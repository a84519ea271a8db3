"""Tombstones: tokens that were left while a copy of one of their requests may still be on its way."""

from __future__ import annotations

from pawlock.testing.lock_table.clock import Moment

__all__ = ["Tombs"]


class Tombs:
    """The tokens of one name that are never granted again, each for a while."""

    __slots__ = ("_forced", "_until_ms")

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}
        self._forced: set[str] = set()

    def __len__(self) -> int:
        return len(self._until_ms)

    def bury(self, token: str, life_ms: int, now: Moment, *, forced: bool = False) -> None:
        """Bar a token for so long; ``forced``: an operator took the name from it. A life of 0 does nothing."""
        if life_ms > 0:
            self._until_ms[token] = now.ms + life_ms
            if forced:
                self._forced.add(token)

    def bars(self, token: str) -> bool:
        """Whether a token is barred."""
        return token in self._until_ms

    def is_forced(self, token: str) -> bool:
        """Whether it is barred because an operator took the name from it."""
        return token in self._forced

    def forget(self, now: Moment) -> None:
        """Forget those whose time is over."""
        for token in [token for token, until_ms in self._until_ms.items() if until_ms < now.ms]:
            del self._until_ms[token]
            self._forced.discard(token)
