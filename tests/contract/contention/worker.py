"""One process of a crowd: many threads or tasks that take one lock in turn and do something unprotected under it.

Run as a program with a JSON object as its argument; `rig.Crowd` starts it. Each grant is written to a journal by a
clock that is one for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from time import monotonic as now
from typing import Any

import pawlock


@dataclass(frozen=True)
class Order:
    """What this process is to do."""

    url: str
    folder: str
    api: str
    crowd: int
    turns: int
    number: int
    ttl: float = 30.0
    hold: float = 0.0
    journal: bool = True
    counter: bool = True
    gap: float = 0.0
    check: bool = True
    options: str = "{}"
    name: str = "crowd"
    seconds: float = 3600.0

    @property
    def lock_options(self) -> dict[str, Any]:
        """Options of the lock."""
        return {"ttl": self.ttl, **json.loads(self.options)}


class Work:
    """What is done under the lock: two steps that nothing but the lock keeps together, and a note of it."""

    def __init__(self, order: Order) -> None:
        self.order = order
        folder = Path(order.folder)
        self.file = os.open(folder / "counter", os.O_RDWR)
        self.journal = os.open(
            folder / f"journal-{order.number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        self.done = 0

    def add(self) -> None:
        """Add one to the counter, in two steps."""
        if self.order.counter:
            value = int(os.pread(self.file, 20, 0))
            if self.order.gap:
                time.sleep(self.order.gap)
            os.pwrite(self.file, b"%020d" % (value + 1), 0)

    def note(self, event: str, lease: pawlock.Lease | pawlock.AsyncLease, **more: object) -> None:
        """Write one line of the journal in one step."""
        if self.order.journal:
            at = now()
            line = {
                "event": event,
                "fence": lease.fence,
                "at": at,
                "valid_until": at + lease.remaining(),
                **more,
            }
            os.write(self.journal, json.dumps(line).encode() + b"\n")

    def write_with_fence(self, fence: int) -> int:
        """Write to the guarded row without asking the lease; how many rows took it."""
        with (
            contextlib.closing(sqlite3.connect(Path(self.order.folder) / "guarded.db", timeout=20.0)) as db,
            db,
        ):
            return db.execute("UPDATE guarded SET fence = :f WHERE fence <= :f", {"f": fence}).rowcount


def turn(work: Work, lease: pawlock.Lease) -> None:
    """One turn of a thread."""
    work.note("granted", lease)
    work.add()
    end = now() + random.random() * 2 * work.order.hold
    while work.order.hold and now() < end:
        time.sleep(0.002)
        lease.check()
        work.note("alive", lease)
    work.note("over", lease)
    work.done += 1


async def aturn(work: Work, lease: pawlock.AsyncLease) -> None:
    """One turn of a task."""
    work.note("granted", lease)
    work.add()
    end = now() + random.random() * 2 * work.order.hold
    while work.order.hold and now() < end:
        await asyncio.sleep(0.002)
        if work.order.check:
            lease.check()
        work.note("alive", lease)
    work.note("over", lease)
    work.done += 1


def after_loss(work: Work, lease: pawlock.Lease | pawlock.AsyncLease, how: BaseException) -> None:
    """Say how the loss was told, and try the write that the fence must stop."""
    work.note("lost", lease, how=repr(how), rows=work.write_with_fence(lease.fence))


def by_threads(work: Work) -> None:
    """The crowd as threads of one client."""
    order = work.order
    client = pawlock.connect(order.url)
    lock = client.lock(order.name, **order.lock_options)
    end = now() + order.seconds

    def serve() -> None:
        for _ in range(order.turns):
            if now() > end:
                return
            lease = lock.acquire()
            try:
                with lease:
                    turn(work, lease)
            except pawlock.LeaseLost as error:
                after_loss(work, lease, error)

    threads = [threading.Thread(target=serve) for _ in range(order.crowd)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.close()


async def by_tasks(work: Work) -> None:
    """The crowd as tasks of one client."""
    order = work.order
    async with pawlock.connect_async(order.url) as client:
        lock = client.lock(order.name, **order.lock_options)
        end = now() + order.seconds

        async def serve() -> None:
            for _ in range(order.turns):
                if now() > end:
                    return
                lease = await lock.acquire()
                try:
                    async with lease:
                        await aturn(work, lease)
                except pawlock.LeaseLost as error:
                    after_loss(work, lease, error)

        await asyncio.gather(*(serve() for _ in range(order.crowd)))


async def warm_up(url: str) -> None:
    """Connect once."""
    async with pawlock.connect_async(url) as client:
        await client.inspect("warm")


def main() -> None:
    """Do what the argument says, once the word comes."""
    order = Order(**json.loads(sys.argv[1]))
    work = Work(order)
    # What is imported when it is first used is there before the word comes: they begin together.
    if order.api == "threads":
        with pawlock.connect(order.url) as client:
            client.inspect("warm")
    else:
        asyncio.run(warm_up(order.url))
    print("ready", flush=True)
    sys.stdin.readline()
    if order.api == "threads":
        by_threads(work)
    else:
        asyncio.run(by_tasks(work))
    print(json.dumps({"done": work.done}), flush=True)


if __name__ == "__main__":
    main()
