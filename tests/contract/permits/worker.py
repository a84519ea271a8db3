"""One process of a crowd that shares permits, or reads and writes; started by ``tests.contract.contention.rig.Crowd``."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from functools import partial
from typing import Any

import pawlock
from tests.contract.contention.worker import Order, Work

PERMITS = 4

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
"""The clock of ``lease.valid_until``."""


def acquirer(client: Any, order: Order) -> Any:
    """A function that takes a share at random: what it is, and the acquisition of it."""
    options = order.lock_options
    if order.name == "semaphore":
        pool = client.semaphore(order.name, permits=PERMITS, **options)

        def take() -> tuple[Any, Any]:
            n = random.choice([1, 1, 2, 4])
            return n, pool.acquire(n)

        return take
    book = client.rwlock(order.name, **options)

    def side() -> tuple[Any, Any]:
        if random.random() < 0.3:
            return "write", book.write.acquire()
        return "read", book.read.acquire()

    return side


def turn(work: Work, lease: pawlock.Lease, share: object) -> None:
    """One turn of a thread."""
    work.note("granted", lease, share=share)
    end = now() + random.random() * 2 * work.order.hold
    while now() < end:
        time.sleep(0.002)
        lease.check()
        work.note("alive", lease, share=share)
    work.done += 1


async def aturn(work: Work, lease: pawlock.AsyncLease, share: object) -> None:
    """One turn of a task."""
    work.note("granted", lease, share=share)
    end = now() + random.random() * 2 * work.order.hold
    while now() < end:
        await asyncio.sleep(0.002)
        lease.check()
        work.note("alive", lease, share=share)
    work.done += 1


def by_threads(work: Work) -> None:
    """The crowd as threads of one client."""
    client = pawlock.connect(work.order.url)
    take = acquirer(client, work.order)

    def serve() -> None:
        for _ in range(work.order.turns):
            share, lease = take()
            try:
                with lease:
                    turn(work, lease, share)
            except pawlock.LeaseLost as error:
                work.note("lost", lease, how=repr(error), share=share)

    threads = [threading.Thread(target=serve) for _ in range(work.order.crowd)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.close()


async def by_tasks(work: Work) -> None:
    """The crowd as tasks of one client."""
    async with pawlock.connect_async(work.order.url) as client:
        take = acquirer(client, work.order)

        async def serve() -> None:
            for _ in range(work.order.turns):
                share, acquiring = take()
                lease = await acquiring
                try:
                    async with lease:
                        await aturn(work, lease, share)
                except pawlock.LeaseLost as error:
                    work.note("lost", lease, how=repr(error), share=share)

        await asyncio.gather(*(serve() for _ in range(work.order.crowd)))


def main() -> None:
    """Do what the argument says, once the word comes."""
    order = Order(**json.loads(sys.argv[1]))
    work = Work(order)
    print("ready", flush=True)
    sys.stdin.readline()
    if order.api == "threads":
        by_threads(work)
    else:
        asyncio.run(by_tasks(work))
    print(json.dumps({"done": work.done}), flush=True)


if __name__ == "__main__":
    main()
