"""What a candidate hears while it rests: masters that say that a name may be free. Only hints.

Nothing depends on them: one that is lost costs what is left of the pause, and one that is false a try that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pawlock.core.protocol.outcomes import Outcome, Present
from pawlock.core.protocol.quorum import majority
from pawlock.core.protocol.runtime import Fault

__all__ = ["Hints"]


class Hints:
    """Which masters said during one pause that a name is free: enough of them, and another try may win.

    One that had no vote in the last try, as after a restart, has none in the next: the name is free there all the time,
    and every waiter would try again and again.

    Args:
        outcomes: What each master answered in the last try.
    """

    __slots__ = ("_callback", "_free", "_needed", "_votes")

    def __init__(self, outcomes: Sequence[Outcome | Fault | None]) -> None:
        self._needed = majority(len(outcomes))
        self._votes = [not isinstance(outcome, Fault) or outcome.maybe_applied for outcome in outcomes]
        self._free: set[int] = set()
        self._callback: Callable[[], object] | None = None

    def on_due(self, callback: Callable[[], object]) -> None:
        """Call this once a majority said so."""
        self._callback = callback

    @property
    def due(self) -> bool:
        """Whether a majority said so: with fewer, nobody can win."""
        return len(self._free) >= self._needed

    def hint(self, index: int) -> None:
        """A master notified of a change."""
        if self._votes[index]:
            self._free.add(index)
        if self.due and self._callback is not None:
            self._callback()

    def add(self, index: int, outcome: Outcome | Fault) -> bool:
        """Count what a master had at the beginning; never decided, since the others may follow later."""
        if isinstance(outcome, Present) and not outcome.keys:
            self.hint(index)
        return False

    def late(self, index: int, outcome: Outcome | Fault) -> None:
        """The same."""
        self.add(index, outcome)

    def patience(self) -> float:
        """The pause goes on without it."""
        return 0.0

    def outcome(self) -> None:
        """Nothing is made of the answers."""
