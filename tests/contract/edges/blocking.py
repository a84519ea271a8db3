"""Bodies that block their event loop, and the threads that renew their leases."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pawlock

__all__ = ["block", "blocked", "gone_within", "leave_out_those_of_before", "relieved"]

_before: set[threading.Thread] = set()


def leave_out_those_of_before() -> None:
    """Count no thread that is there now: a client of an earlier test, which its caught error keeps until the next full
    collection, or one that stays as long as the process for what was unpickled."""
    _before.update(threading.enumerate())


def relieved() -> list[threading.Thread]:
    """The threads that serve clients in the background.

    Not those whose start a signal handler broke off, in a test before: they stand in their first step for good.
    """
    return [
        thread
        for thread in threading.enumerate()
        if thread.name == "pawlock-maintenance" and thread.is_alive() and thread not in _before
    ]


def gone_within(seconds: float) -> bool:
    """Whether none of them is left after so long."""
    end = time.monotonic() + seconds
    while relieved() and time.monotonic() < end:
        time.sleep(0.01)
    return not relieved()


def block(lease: pawlock.AsyncLease, seconds: float) -> None:
    """Block the loop, and look all the while whether the lease is good."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
        lease.check()


def blocked(url: str | list[str], seconds: float = 1.6, *, ttl: float = 1.0, **options: Any) -> None:
    """Run a body that blocks its loop from its first line on, for longer than its TTL; then one that does not."""

    async def main() -> None:
        async with pawlock.connect_async(url, **options) as client:
            async with client.lock("n", ttl=ttl) as lease:
                block(lease, seconds)
            # It serves leases as before.
            async with client.lock("n", ttl=ttl):
                await asyncio.sleep(ttl * 0.6)

    asyncio.run(main())
