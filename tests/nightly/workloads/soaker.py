"""One process of a soak: threads or tasks that use every primitive in turn, and say how much memory that takes.

Run as a program with a JSON object as its argument; `soak.Soak` starts it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pawlock
from pawlock.metrics import observe
from tests.nightly.workloads.actor import Listener, Order, Worker, drive, settle
from tests.support.clock import now
from tests.support.history import Journal, Mode

TURNS = (
    "lock",
    "lock",
    "rlock",
    "fair_lock",
    "rwlock",
    "rwlock",
    "semaphore",
    "multi_lock",
    "election",
)
UNJUDGED = ("latch", "barrier", "service", "try_lock", "once")
ROUND = 3
"""Names come again after so many chapters: by then nobody holds what was taken under them."""


@dataclass(frozen=True)
class Duty(Order):
    """What a process of a soak is to do.

    Attributes:
        chapter: Seconds of a chapter: what begins in it is noted in a journal of its own.
        began: When the first began.
        folder: Where journals and vitals go.
    """

    chapter: float = 20.0
    began: float = 0.0
    folder: str = ""


class Soaker(Worker):
    """One thread or task."""

    def __init__(self, duty: Duty, open_journal: Callable[[int], Journal], client: Any, number: int) -> None:
        super().__init__(duty, float("inf"), open_journal(0), client, number)
        self.duty = duty
        self.open_journal = open_journal
        self.chapter = 0

    async def serve(self) -> None:
        """Take turns until the director says that it is over."""
        while not self.over():
            # An operation is noted where it began, whenever it ends.
            self.chapter = int((now() - self.duty.began) / self.duty.chapter)
            self.journal = self.open_journal(self.chapter)
            if self.dice.random() < 0.2:
                await self.unjudged(self.dice.choice(UNJUDGED))
            else:
                self.order = replace(self.duty, kind=self.dice.choice(TURNS))
                await self.turn()
            await self.sleep(self.dice.random() * 0.01)

    def over(self) -> bool:
        """Whether the director says so."""
        return Path(self.duty.folder, "over").exists()

    def choose(self) -> tuple[Any, dict[str, dict[str, Any]], dict[str, Any]]:
        """See ``Worker``."""
        kind, options = self.order.kind, {"ttl": self.order.ttl, "unavailable_after": 3.0}
        part = self.chapter % ROUND
        name = f"{kind}-{part}"
        if kind == "rwlock":
            both, reads = self.client.rwlock(name, **options), self.dice.random() < 0.7
            return (both.read, {name: {"mode": Mode.SHARED}}, {}) if reads else (both.write, {name: {}}, {})
        if kind == "semaphore":
            n = self.dice.choice([1, 1, 2])
            what = {"mode": Mode.PERMITS, "permits": n, "limit": self.order.permits}
            return self.client.semaphore(name, permits=self.order.permits, **options), {name: what}, {"n": n}
        if kind == "multi_lock":
            names = sorted(self.dice.sample([f"{one}-{part}" for one in "abc"], 2))
            return self.client.multi_lock(names, **options), {one: {} for one in names}, {}
        if kind == "election":
            return _Campaign(self.client.election(name, **options)), {name: {}}, {}
        return self.mutex(kind, part, options)

    def mutex(
        self, kind: str, part: int, options: dict[str, Any]
    ) -> tuple[Any, dict[str, dict[str, Any]], dict[str, Any]]:
        """One of the locks that exclude each other under one name."""
        if self.order.naive:
            from tests.unit.conformance.naive import ANYBODY
            from tests.unit.conformance.toy import Variant

            name = f"naive-{part}"
            return Variant(edits=ANYBODY).make(self.client, name, ttl=self.order.ttl), {name: {}}, {}
        return getattr(self.client, kind)(f"mutex-{part}", **options), {f"mutex-{part}": {}}, {}

    async def hold(self, lease: Any, operations: dict[str, str]) -> None:
        """See ``Worker``; a re-entrant lock is entered once more."""
        if self.order.kind == "rlock" and self.dice.random() < 0.3:
            (name,) = (f"mutex-{self.chapter % ROUND}",)
            try:
                again = await settle(self.client.rlock(name, ttl=self.order.ttl).acquire(timeout=1))
                await settle(again.release())
            except pawlock.PawlockError:
                self.journal.lost(now(), operations[name])
        await super().hold(lease, operations)

    async def unjudged(self, what: str) -> None:
        """Use what leaves no lease to judge: it must neither break nor pile up."""
        part = self.chapter % ROUND
        try:
            if what == "latch":
                latch = self.client.latch(f"latch-{part}-{self.dice.randrange(50)}", 1, ttl=5)
                await settle(latch.count_down())
                await settle(latch.wait(timeout=0.5))
            elif what == "barrier":
                await settle(self.client.barrier(f"barrier-{part}", 2, timeout=0.3).wait())
            elif what == "once":
                once = self.client.once(f"once-{part}-{self.dice.randrange(50)}", keep=5, ttl=self.order.ttl)
                state = await settle(once.begin(wait=True, timeout=0.5))
                if isinstance(state, pawlock.Done):
                    assert state.value == f"by {state.fence}", "a result of somebody else"
                else:
                    await settle(state.finish(f"by {state.fence}"))
            elif what == "service":
                service = self.client.service()
                held = await settle(service.acquire(f"service-{part}", {"ttl": 1.0, "timeout": 0.5}))
                await settle(service.release(f"service-{part}", held))
            else:
                lease = await settle(self.client.lock(f"try-{part}", ttl=self.order.ttl).try_acquire())
                if lease is not None:
                    await settle(lease.release())
        except pawlock.PawlockError:
            # Faults make many of these fail; that they do so with an error of pawlock's own is what is asked here.
            return


class _Campaign:
    """An election, spelled as a lock is."""

    def __init__(self, election: Any) -> None:
        self._election = election

    def acquire(self, timeout: float) -> Any:
        return self._election.campaign(timeout=timeout)


def journals(duty: Duty) -> Callable[[int], Journal]:
    """Give the journal of a chapter; only the present one and the one before are kept open."""
    made: dict[int, tuple[int, Journal]] = {}
    guard = threading.Lock()

    def open_journal(chapter: int) -> Journal:
        with guard:
            if chapter not in made:
                for old in [one for one in made if one < chapter - 2]:
                    os.close(made.pop(old)[0])
                path = f"{duty.folder}/journal-{chapter}-{duty.number}"
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                journal = Journal(lambda line: os.write(file, line.encode()))
                # Ids must stay unique where two chapters are read together.
                journal._count = chapter * 10_000_000
                made[chapter] = (file, journal)
            return made[chapter][1]

    return open_journal


def vital() -> str:
    """Memory in kB, open files, threads, of this process now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    row = {
        "at": now(),
        "rss": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "threads": threading.active_count(),
    }
    return json.dumps({**row, "files": sum(1 for _ in Path("/proc/self/fd").iterdir())}) + "\n"


def watch(duty: Duty, over: threading.Event) -> None:
    """Note the vitals every second."""
    with Path(duty.folder, f"vitals-{duty.number}").open("a", encoding="utf-8") as file:
        while not over.wait(1.0):
            file.write(vital())
            file.flush()


def by_threads(duty: Duty) -> None:
    """The workers as threads of one client."""
    open_journal = journals(duty)
    with pawlock.connect(duty.url, deadlock_after=None) as client:
        observe(client, Listener())
        workers = [Soaker(duty, open_journal, client, number) for number in range(duty.workers)]
        failed: list[BaseException] = []

        def work(worker: Soaker) -> None:
            try:
                drive(worker.serve())
            except BaseException as error:  # noqa: BLE001 - the process must end with it
                failed.append(error)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]


async def by_tasks(duty: Duty) -> None:
    """The workers as tasks of one client."""
    open_journal = journals(duty)
    async with pawlock.connect_async(duty.url, deadlock_after=None) as client:
        observe(client, Listener())
        await asyncio.gather(
            *(Soaker(duty, open_journal, client, number).serve() for number in range(duty.workers))
        )


def end_with_the_director() -> None:
    """End when the other end of the standard input closes, however the director ended."""
    os.read(0, 1)
    os._exit(3)


def main() -> None:
    """Do what the argument says."""
    duty = Duty(**json.loads(sys.argv[1]))
    threading.Thread(target=end_with_the_director, daemon=True).start()
    over = threading.Event()
    watching = threading.Thread(target=watch, args=(duty, over), daemon=True)
    watching.start()
    try:
        if duty.api == "asyncio":
            asyncio.run(by_tasks(duty))
        else:
            by_threads(duty)
    finally:
        over.set()
        watching.join()


if __name__ == "__main__":
    main()
