"""How ``Election.run`` goes on from one leadership to the next: what it logs and how long it pauses."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from pawlock.core.options import Seconds, check_ttl
from pawlock.errors import PawlockError

if TYPE_CHECKING:
    from pawlock.core.runtime import StopSignal

__all__ = ["POLL", "Candidacy"]

_log = logging.getLogger("pawlock.election")

POLL = 0.05
"""Seconds between two checks of an event that cannot be awaited: how late ``stop`` and ``close()`` are noticed."""

_GROWTH = 2.0


class Candidacy:
    """One call of ``run``: how often in a row the leader's function, or standing for election, failed.

    Args:
        name: The election.
        stop: What ends it, or None.
        backoff: Seconds of the first pause after a failure, and of the longest.

    Raises:
        ConfigurationError: The pauses can never work.
    """

    def __init__(self, name: str, stop: StopSignal | None, backoff: tuple[Seconds, Seconds]) -> None:
        self.name = name
        self._stop = stop
        first, longest = (check_ttl(value, "backoff") for value in backoff)
        self._first = first
        self._longest = max(first, longest)
        self._failures = 0

    @property
    def stoppable(self) -> bool:
        """Whether the caller gave an event that can end it."""
        return self._stop is not None

    def stopped(self) -> bool:
        """Whether the caller asked for the end."""
        return self._stop is not None and self._stop.is_set()

    def led(self, seconds: float) -> None:
        """Forget earlier failures after a leadership that was longer than the longest pause."""
        if seconds >= self._longest:
            self._failures = 0

    def lost(self, error: PawlockError) -> None:
        """Log a loss; the next candidacy follows at once."""
        _log.warning("election %r: lost leadership, standing again: %s", self.name, str(error))

    def failed(self, error: BaseException) -> float:
        """Log that the leader's function failed, and say how long to pause: twice as long each time, with jitter."""
        ceiling = min(self._longest, self._first * _GROWTH**self._failures)
        self._failures += 1
        return self._pause(ceiling, "the leader's function failed", error)

    def failed_at_end(self, error: BaseException) -> None:
        """Log what the leader's function raised when it was cancelled."""
        _log.warning("election %r: the leader's function failed during shutdown", self.name, exc_info=error)

    def unavailable(self, error: PawlockError) -> float:
        """Log that it could not stand, and say for how long to pause: always shortly, since waiting asks nobody."""
        return self._pause(self._first, "the candidate could not stand", error)

    def _pause(self, ceiling: float, what: str, error: BaseException) -> float:
        pause = ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads candidates, it protects nothing
        text = "election %r: %s, standing again in %.1f s: %s: %s"
        trace = None if isinstance(error, PawlockError) else error
        _log.warning(text, self.name, what, pause, type(error).__name__, error, exc_info=trace)
        return pause
