"""One process of a workload: threads or tasks that take one name in turn, each noting what it does in a journal.

Run as a program with a JSON object as its argument; `director.Play` starts it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pawlock
from pawlock.metrics import observe
from tests.support.clock import now
from tests.support.history import Journal, Mode


@dataclass(frozen=True)
class Order:
    """What this process is to do."""

    url: str
    journal: str
    kind: str
    api: str
    number: int
    workers: int
    ttl: float
    seed: int
    permits: int = 3
    naive: bool = False


queued: ContextVar[Callable[[], None] | None] = ContextVar("queued", default=None)


class Listener:
    """Notes when the caller's wait in the server's queue begins."""

    def queued(self, kind: str, name: str, *, place: int) -> None:
        """See ``pawlock.metrics.Observer``."""
        told = queued.get()
        if told is not None:
            queued.set(None)
            told()

    def __getattr__(self, event: str) -> Any:
        return lambda *args, **more: None


async def settle(value: Any) -> Any:
    """What a call of either API brings."""
    return await value if inspect.isawaitable(value) else value


class Worker:
    """One thread or task."""

    def __init__(
        self,
        order: Order,
        until: float,
        journal: Journal,
        client: Any,
        number: int,
    ) -> None:
        self.order = order
        self.until = until
        self.journal = journal
        self.client = client
        self.name = f"p{order.number}.{number}"
        self.dice = random.Random(f"{order.seed} {self.name}")

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        if self.order.api == "asyncio":
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 - this API blocks

    async def serve(self) -> None:
        """Take turns until the time is up."""
        while now() < self.until:
            await self.turn()
            await self.sleep(self.dice.random() * 0.004)

    async def turn(self) -> None:
        """One turn."""
        lock, asked, options = self.choose()
        journal, operations = self.journal, {}
        for name, what in asked.items():
            operations[name] = journal.invoke(now(), self.name, "acquire", name, **what)
        (first, *_) = operations.values()
        queued.set(lambda: journal.queued(now(), first) if len(operations) == 1 else None)
        patience = self.dice.choice([0.3, 5.0, 5.0, 5.0])
        try:
            lease = await settle(lock.acquire(timeout=patience, **options))
            # What is queued from here on, in a release that hands over, is somebody else's.
            queued.set(None)
        except pawlock.AcquireTimeout:
            for operation in operations.values():
                journal.fail(now(), operation)
            return
        except pawlock.PawlockError:
            for operation in operations.values():
                journal.info(now(), operation)
            return
        for name, operation in operations.items():
            fence = lease.fences[name] if self.order.kind == "multi_lock" else lease.fence
            journal.ok(now(), operation, fence=fence, deadline=lease.valid_until)
        await self.hold(lease, operations)

    def choose(self) -> tuple[Any, dict[str, dict[str, Any]], dict[str, Any]]:
        """What to take: the lock, what is noted of it by name, what its acquire is given."""
        order, options = self.order, {"ttl": self.order.ttl}
        if order.naive:
            from tests.unit.conformance.naive import ANYBODY
            from tests.unit.conformance.toy import Variant

            return Variant(edits=ANYBODY).make(self.client, "n", **options), {"n": {}}, {}
        if order.kind == "rwlock":
            both = self.client.rwlock("n", **options)
            if self.dice.random() < 0.7:
                return both.read, {"n": {"mode": Mode.SHARED}}, {}
            return both.write, {"n": {}}, {}
        if order.kind == "semaphore":
            n = self.dice.choice([1, 1, 2])
            what = {"mode": Mode.PERMITS, "permits": n, "limit": order.permits}
            return self.client.semaphore("n", permits=order.permits, **options), {"n": what}, {"n": n}
        if order.kind == "multi_lock":
            names = sorted(self.dice.sample(["a", "b", "c"], 2))
            return self.client.multi_lock(names, **options), {name: {} for name in names}, {}
        return getattr(self.client, order.kind)("n", **options), {"n": {}}, {}

    async def hold(self, lease: Any, operations: dict[str, str]) -> None:
        """Hold for a while, say how long it lasts, and release."""
        journal, known = self.journal, lease.valid_until
        end = now() + self.dice.choice([0.0, 0.003, 0.02, 0.02, 0.1])
        held = True
        while held and now() < end:
            await self.sleep(0.004)
            held = lease.state in (pawlock.LeaseState.HELD, pawlock.LeaseState.SUSPECT)
            if held and lease.valid_until != known:
                known = lease.valid_until
                for operation in operations.values():
                    journal.renewed(now(), operation, known)
        if held and self.order.kind == "rwlock" and self.dice.random() < 0.3:
            ((name, operation),) = operations.items()
            await self.downgrade(lease, name, operation)
        began = now()
        left = {
            name: journal.invoke(began, self.name, "release", name, lease=operation)
            for name, operation in operations.items()
        }
        try:
            await settle(lease.release())
        except pawlock.NotHeld:
            ended = journal.fail
            for operation in operations.values():
                journal.lost(began, operation)
        except pawlock.PawlockError:
            ended = journal.info
        else:
            ended = journal.ok
        for operation in left.values():
            ended(now(), operation)

    async def downgrade(self, lease: Any, name: str, operation: str) -> None:
        """Go on as a reader, where it is a writer."""
        if not hasattr(lease, "downgrade"):
            return
        # Noted before it is asked for, as a release is: from then on it counts as a reader, also if it is killed.
        down = self.journal.invoke(now(), self.name, "downgrade", name, lease=operation)
        try:
            await settle(lease.downgrade())
        except pawlock.PawlockError:
            # A reader, or one that was lost, or nobody knows.
            self.journal.info(now(), down)
            return
        self.journal.ok(now(), down)
        await self.sleep(self.dice.random() * 0.03)


def drive(work: Coroutine[Any, Any, None]) -> None:
    """Run a worker that never suspends."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("a worker of threads suspended")


def by_threads(order: Order, until: float, journal: Journal) -> None:
    """The workers as threads of one client."""
    with pawlock.connect(order.url) as client:
        observe(client, Listener())
        workers = [Worker(order, until, journal, client, number) for number in range(order.workers)]
        threads = [threading.Thread(target=lambda w=worker: drive(w.serve())) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def by_tasks(order: Order, until: float, journal: Journal) -> None:
    """The workers as tasks of one client."""
    async with pawlock.connect_async(order.url) as client:
        observe(client, Listener())
        await asyncio.gather(
            *(Worker(order, until, journal, client, number).serve() for number in range(order.workers))
        )


async def warm_up(url: str) -> None:
    """Connect once."""
    async with pawlock.connect_async(url) as client:
        await client.inspect("n")


def main() -> None:
    """Do what the argument says."""
    order = Order(**json.loads(sys.argv[1]))
    # One line is one write: a process that is killed leaves whole lines, but for the last.
    file = os.open(order.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    journal = Journal(lambda line: os.write(file, line.encode()))
    # All that is imported when it is first used: how long that takes tells how busy the machine is.
    if order.api == "asyncio":
        asyncio.run(warm_up(order.url))
    else:
        with pawlock.connect(order.url) as client:
            client.inspect("n")
    print("ready", flush=True)
    until = float(sys.stdin.readline())
    if order.api == "asyncio":
        asyncio.run(by_tasks(order, until, journal))
    else:
        by_threads(order, until, journal)


if __name__ == "__main__":
    main()
