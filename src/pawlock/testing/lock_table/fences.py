"""The fencing tokens of one name: they rise with every grant, whatever the clock does."""

from __future__ import annotations

from dataclasses import dataclass

from pawlock.testing.lock_table.clock import Moment

__all__ = ["Fences"]


@dataclass(slots=True)
class Fences:
    """What was given out of one name.

    Attributes:
        last: The end of the last block that was reserved; 0: none yet.
        current: The first token of the present grant.
        until_ms: Until when this is remembered where nobody holds or waits; after it, only the clock makes them rise.
    """

    last: int = 0
    current: int = 0
    until_ms: int = 0

    def mint(self, block: int, now: Moment) -> int:
        """Reserve a block of tokens for one grant; the first of them."""
        self.current = max(self.last + 1, now.us)
        self.last = self.current + max(block, 1) - 1
        return self.current

    def keep(self, keep_ms: int, now: Moment) -> None:
        """Remember it for so long, from now or from the time that the last token stands for; never for less."""
        self.until_ms = max(self.until_ms, max(now.ms, self.last // 1000 + 1) + keep_ms)
