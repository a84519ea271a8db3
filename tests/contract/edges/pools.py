"""What workers of a process pool do: functions of a module, so that every way of starting a worker finds them."""

from __future__ import annotations

import os
import time

import pawlock

client = pawlock.connect(os.environ["ENDS_URL"], ttl=60.0, ticket_ttl=30.0)
kept: list[pawlock.Lease] = []


def keep() -> None:
    """An initializer that takes a lock for as long as its worker lives."""
    kept.append(client.lock(f"worker {os.getpid()}").acquire())


def hold(name: str, seconds: float) -> None:
    """Take a lock, after others where they hold it."""
    with client.lock(name):
        time.sleep(seconds)
