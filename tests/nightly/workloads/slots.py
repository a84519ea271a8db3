"""Every primitive while the slots of a cluster move: `python -m tests.nightly.workloads.slots --moves 300`.

Three nodes; two sync clients and an async one, whose workers take every primitive, mostly after a wait. Slots of the
names in use move from node to node: at once, with a pause before the first key, or with a pause half-way. What is
judged: nobody is inside beside somebody who excludes it, fences rise, everybody passes a gate together, no error but
an ordinary one reaches a worker, and no key is left without an end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import pawlock
from tests.support.groups import ClusterGroup
from tests.support.resp import texts

NAMES = ("lock", "fair", "rw", "sem", "ma", "mb", "lead")
PARTIES = 3
PERMITS = 3
TTL = 20.0
WAIT = 60.0


class Judge:
    """Who is inside of what, and what was wrong with it."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.wrong: list[str] = []
        self.grants: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.fences: dict[str, int] = {}
        self.weights: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def inside(self, name: str, mode: str, weight: int, lease: Any) -> Iterator[None]:
        """Be there as ``write`` (alone), ``read`` (beside readers) or ``permit`` (so many at once)."""
        with self.guard:
            self.grants[f"{name} {mode}"] += 1
            self.weights[name, mode] += weight
            self._look(name)
            if mode == "write":
                last = self.fences.get(name, 0)
                if lease.fence <= last:
                    self.wrong.append(f"{name}: fence {lease.fence} after {last}")
                self.fences[name] = lease.fence
        try:
            yield
        finally:
            with self.guard:
                self._look(name)
                self.weights[name, mode] -= weight

    def _look(self, name: str) -> None:
        writers, readers = self.weights[name, "write"], self.weights[name, "read"]
        if writers > 1 or (writers and readers):
            self.wrong.append(f"{name}: {writers} write beside {readers} who read")
        if self.weights[name, "permit"] > PERMITS:
            self.wrong.append(f"{name}: {self.weights[name, 'permit']} of {PERMITS} permits are out")

    def failed(self, what: str, error: BaseException) -> None:
        """An error reached a worker."""
        with self.guard:
            self.errors[f"{what}: {type(error).__name__}: {str(error)[:160]}"] += 1


class Side:
    """A client of either API, called from threads."""

    def __init__(self, url: str, *, tasks: bool) -> None:
        self.loop = asyncio.new_event_loop() if tasks else None
        if self.loop is not None:
            self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
            self.thread.start()
        connect = pawlock.connect_async if tasks else pawlock.connect
        self.client: Any = self.do(lambda: connect(url, ttl=TTL, timeout=WAIT))

    def do(self, call: Callable[[], Any]) -> Any:
        """Call it, and wait for what it gives."""
        if self.loop is None:
            return call()

        async def run() -> Any:
            found = call()
            return await found if hasattr(found, "__await__") else found

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(2 * WAIT)

    def close(self) -> None:
        """End it."""
        self.do(self.client.close)
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(10)
            self.loop.close()


class Slots:
    """The workload: its clients, its workers, and who moves the slots."""

    def __init__(self, moves: int, seed: int) -> None:
        self.moves, self.random = moves, random.Random(seed)
        self.judge = Judge()
        self.stop = threading.Event()
        self.arrived: Counter[int] = Counter()
        self.endless: list[str] = []
        self.moved: Counter[str] = Counter()
        self.hot = ""

    def __enter__(self) -> Self:
        self.group = ClusterGroup("valkey")
        self.group.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.group.__exit__(None, None, None)

    def run(self) -> None:
        """Move the slots under load, then look at what is left."""
        sides = [Side(self.group.url, tasks=tasks) for tasks in (False, True, False)]
        seeds = self.random.sample(range(10**6), 2 * len(sides))
        threads = [threading.Thread(target=self._works, args=(sides[n // 2], s)) for n, s in enumerate(seeds)]
        threads += [threading.Thread(target=self._passes, args=(side,)) for side in sides]
        for thread in threads:
            thread.start()
        try:
            for number in range(self.moves):
                self._move(number)
                time.sleep(self.random.choice((0.0, 0.05, 0.2)))
        finally:
            self.stop.set()
            for thread in threads:
                thread.join(3 * WAIT)
            if any(thread.is_alive() for thread in threads):
                self.judge.wrong.append("a worker does not end")
            for side in sides:
                side.close()
        self._sweep()

    def _works(self, side: Side, seed: int) -> None:
        draw = random.Random(seed)
        while not self.stop.is_set():
            kinds = (self._mutex, self._mutex, self._rwlock, self._semaphore, self._multi, self._leads)
            # Most of the load is on the name whose slot is on its way.
            what = self._user_of(self.hot) if self.hot and draw.random() < 0.8 else draw.choice(kinds)
            try:
                what(side, draw)
            except Exception as error:  # noqa: BLE001 - any error that a user would see is what this looks for
                self.judge.failed(what.__name__, error)

    def _user_of(self, name: str) -> Callable[[Side, random.Random], None]:
        others = {"rw": self._rwlock, "sem": self._semaphore, "lead": self._leads}
        return self._multi if name in ("ma", "mb") else others.get(name, self._mutex)

    def _within(
        self, side: Side, draw: random.Random, take: Callable[[], Any], spot: tuple[str, str, int]
    ) -> None:
        lease = side.do(take)
        try:
            with self.judge.inside(*spot, lease):
                time.sleep(draw.choice((0.0, 0.002, 0.02)))
                side.do(lease.check)
        finally:
            side.do(lease.release)

    def _mutex(self, side: Side, draw: random.Random) -> None:
        client, name = side.client, draw.choice(("lock", "fair"))
        make = {
            "lock": lambda: client.lock("lock").acquire(),
            "fair": lambda: client.fair_lock("fair").acquire(),
        }[name]
        self._within(side, draw, make, (name, "write", 1))

    def _rwlock(self, side: Side, draw: random.Random) -> None:
        client = side.client
        if draw.random() < 0.5:
            self._within(side, draw, client.rwlock("rw").read.acquire, ("rw", "read", 1))
            return
        lease = side.do(client.rwlock("rw").write.acquire)
        try:
            with self.judge.inside("rw", "write", 1, lease):
                time.sleep(draw.choice((0.0, 0.005)))
                side.do(lease.check)
            if draw.random() < 0.5:
                side.do(lease.downgrade)
                with self.judge.inside("rw", "read", 1, lease):
                    time.sleep(0.002)
        finally:
            # Else this thread would wait for itself, or go on inside of what it lost.
            side.do(lease.release)

    def _semaphore(self, side: Side, draw: random.Random) -> None:
        weight = draw.choice((1, 1, 2))
        semaphore = side.do(lambda: side.client.semaphore("sem", permits=PERMITS))
        self._within(side, draw, lambda: semaphore.acquire(weight), ("sem", "permit", weight))

    def _multi(self, side: Side, draw: random.Random) -> None:
        # Two names of two slots.
        lease = side.do(lambda: side.client.multi_lock(["ma", "mb"]).acquire())
        for name in ("ma", "mb"):
            with self.judge.guard:
                self.judge.weights[name, "write"] += 1
                self.judge._look(name)
        time.sleep(draw.choice((0.0, 0.005)))
        for name in ("ma", "mb"):
            with self.judge.guard:
                self.judge.weights[name, "write"] -= 1
        self.judge.grants["multi"] += 1
        side.do(lease.release)

    def _leads(self, side: Side, draw: random.Random) -> None:
        election = side.do(lambda: side.client.election("lead", identity=f"c{draw.random()}"))
        self._within(side, draw, lambda: election.campaign(WAIT), ("lead", "write", 1))

    def _passes(self, side: Side) -> None:
        """Pass a barrier and then a latch, together with the other sides, round after round."""
        number = 0
        over = False
        while not over:
            # The last round is the one in which somebody says so before all of them are there.
            if self.stop.is_set():
                self.arrived[-1] = 1
            with self.judge.guard:
                self.arrived[number] += 1
            for what in (self._barrier, self._latch):
                try:
                    what(side, number)
                except Exception as error:  # noqa: BLE001 - as above
                    self.judge.failed(what.__name__, error)
                    return
            with self.judge.guard:
                if self.arrived[number] != PARTIES:
                    self.judge.wrong.append(f"round {number} was passed by {self.arrived[number]}")
                self.judge.grants["barrier and latch"] += 1
            over = self._agree(side, number)
            number += 1

    def _agree(self, side: Side, number: int) -> bool:
        # Between two barriers nobody can begin another round: all see the same.
        over = self.arrived[-1] == 1
        try:
            side.do(lambda: side.client.barrier("gate", PARTIES).wait(WAIT))
        except Exception as error:  # noqa: BLE001 - as above
            self.judge.failed(f"barrier after {number}", error)
            return True
        return over

    def _barrier(self, side: Side, _: int) -> None:
        side.do(lambda: side.client.barrier("gate", PARTIES).wait(WAIT))

    def _latch(self, side: Side, number: int) -> None:
        latch = side.do(lambda: side.client.latch(f"open-{number}", PARTIES))
        side.do(latch.count_down)
        side.do(lambda: latch.wait(WAIT))

    # Moving ---------------------------------------------------------------------------------------------------------

    def _move(self, number: int) -> None:
        group, draw = self.group, self.random
        name = self.hot = draw.choice(("rw", "rw", "sem", *NAMES, "gate"))
        key = "{pawlock:%election:lead}" if name == "lead" else f"{{pawlock:{name}}}"
        slot = group.slot_of(key)
        source = group.owner(slot)
        target = draw.choice([node for node in group.nodes if node is not source])
        group.begin_move(slot, source, target)
        way = ("at once", "late", "half-way", "late and half-way")[number % 4]
        if "late" in way:
            time.sleep(draw.uniform(0.5, 1.5))
        if "half-way" in way:
            keys: Any = source.command("CLUSTER", "GETKEYSINSLOT", slot, 100)
            some = [key for key in texts(keys) if draw.random() < 0.5]
            if some:
                source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *some)
            time.sleep(draw.uniform(0.5, 1.5))
        group.move_keys(slot, source, target)
        time.sleep(draw.choice((0.0, 0.05)))
        group.end_move(slot, source, target)
        self.moved[way] += 1

    def _sweep(self) -> None:
        for node in self.group.nodes:
            for name in texts(node.command("KEYS", "*")):
                if node.command("PTTL", name) == -1:
                    self.endless.append(name)

    def bad(self) -> list[str]:
        """All that was wrong."""
        errors = [f"{count} × {text}" for text, count in self.judge.errors.items()]
        return [*self.judge.wrong[:20], *errors, *(f"{name} has no ttl" for name in self.endless)]


def main() -> int:
    """Run it, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    began = time.monotonic()
    with Slots(told.moves, told.seed) as slots:
        slots.run()
    print(f"{sum(slots.moved.values())} moves in {time.monotonic() - began:.0f} s: {dict(slots.moved)}")
    print(f"grants: {dict(slots.judge.grants)}")
    for line in slots.bad():
        print("wrong:", line)
    return 1 if slots.bad() else 0


if __name__ == "__main__":
    sys.exit(main())
