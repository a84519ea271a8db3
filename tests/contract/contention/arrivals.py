"""A process that waits for a lock on command: each line of its input starts one waiter, each grant prints one line.

Arguments: the server's URL, the API, the lock's options as JSON (`kind`: another factory method than lock).
Lines: ``wait WHO``, ``hold``; a waiter that is granted prints ``WHO FENCE`` and gives the lock back at once, ``hold``
takes it, prints ``held`` and keeps it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

import pawlock


def by_threads(url: str, options: dict[str, Any]) -> None:
    """Serve the lines with threads."""
    client = pawlock.connect(url)
    lock: pawlock.Lock = getattr(client, options.pop("kind", "lock"))("x", **options)
    kept: list[pawlock.Lease] = []

    def wait(who: str) -> None:
        with lock as lease:
            print(who, lease.fence, flush=True)

    print("ready", flush=True)
    for line in sys.stdin:
        word, _, who = line.strip().partition(" ")
        if word == "hold":
            kept.append(lock.acquire())
            print("held", flush=True)
        else:
            threading.Thread(target=wait, args=(who,)).start()


async def by_tasks(url: str, options: dict[str, Any]) -> None:
    """Serve the lines with tasks."""
    async with pawlock.connect_async(url) as client:
        lock: pawlock.AsyncLock = getattr(client, options.pop("kind", "lock"))("x", **options)
        kept: list[pawlock.AsyncLease] = []

        async def wait(who: str) -> None:
            async with lock as lease:
                print(who, lease.fence, flush=True)

        print("ready", flush=True)
        async with asyncio.TaskGroup() as group:
            while line := await asyncio.to_thread(sys.stdin.readline):
                word, _, who = line.strip().partition(" ")
                if word == "hold":
                    kept.append(await lock.acquire())
                    print("held", flush=True)
                else:
                    group.create_task(wait(who))


if __name__ == "__main__":
    if sys.argv[2] == "threads":
        by_threads(sys.argv[1], json.loads(sys.argv[3]))
    else:
        asyncio.run(by_tasks(sys.argv[1], json.loads(sys.argv[3])))
