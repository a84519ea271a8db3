"""A Celery application for the tests: schedules and tasks that say what they did to the server."""

from __future__ import annotations

import math
import os
import time
from datetime import datetime, timedelta
from typing import Any

from celery import Celery
from celery.beat import BeatLazyFunc
from celery.schedules import schedule

EVERY = 0.1


def slot(moment: float | None = None) -> int:
    """The number of a tenth of a second."""
    return math.floor((time.time() if moment is None else moment) / EVERY)


class Slots(schedule):  # type: ignore[misc] # Celery has no type marks
    """Due once in each tenth of a second, of the clock and not since the last time: so that each has a number.

    Attributes:
        due: The number of the last one that was found due.
        sent: That of the last one that this process sent; 0: none. The time that Celery notes for it is read later, and
            on a busy machine may be of the next tenth.
    """

    due: int = 0
    sent: int = 0

    def __init__(self) -> None:
        super().__init__(timedelta(seconds=EVERY))

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        now = time.time()
        number = slot(now)
        is_due = (Slots.sent or slot(last_run_at.timestamp())) < number
        if is_due:
            Slots.due = number
        return is_due, (number + 1) * EVERY - now

    @staticmethod
    def number() -> int:
        """The number to send, asked for as it is sent."""
        Slots.sent = Slots.due
        return Slots.sent


app = Celery("rig", broker=os.environ.get("BROKER", "memory://"), backend=os.environ.get("BROKER"))
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_hijack_root_logger = False
app.conf.pawlock_beat = {"ttl": float(os.environ.get("BEAT_TTL", "2"))}
entry: dict[str, Any] = {
    "task": "tick",
    "schedule": Slots(),
    "args": [BeatLazyFunc(Slots.number), os.getpid()],
}
app.conf.beat_schedule = {"tick": entry}
