"""One waiter in another process: two processes take turns at one name, one holding while the other waits.

A turn acquires, says so, holds as long as it was told, and releases. It stays quiet for a moment after
releasing: on a small machine a line written to a pipe would wake a third process just when the waiter's own
wake-up is being measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.model import Sample
from benchmarks.peers import Session

monotonic = time.monotonic
QUIET = 0.01  # s


class Turns:
    """This process's half of the game."""

    def __init__(self, session: Session, name: str) -> None:
        self._handle = session.handle(name)

    def turn(self, hold: float, say: Callable[[Sample], None]) -> Sample:
        """Acquire, hold for `hold` seconds and release.

        Args:
            hold: Seconds between the grant and the release.
            say: Called once with `acquired` (monotonic seconds, one clock for all processes) and `fence` (not
                where the library has none).

        Returns:
            `releasing`: the moment just before release was called.
        """
        handle = self._handle
        grant = handle.acquire()
        acquired = monotonic()
        said = {"acquired": acquired}
        if handle.fence is not None:
            said["fence"] = float(handle.fence(grant))
        say(said)
        time.sleep(max(0.0, acquired + hold - monotonic()))
        releasing = monotonic()
        handle.release(grant)
        time.sleep(QUIET)
        return {"releasing": releasing}
