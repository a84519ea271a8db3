"""Five masters, many clients in many processes, and everything that breaks: nobody overlaps, and nothing stays closed.

Run as a program: `python -m tests.nightly.workloads.masters --minutes 10`; a test plays it for some seconds. Each process has
threads of one client and event loops of another. They note when they ask, are granted and are sure to hold in a
journal, which a checker of its own judges; nothing of pawlock's own checkers is used.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pawlock
from tests.support.proxy import Proxy
from tests.support.servers import Server

TTL = 30.0
NAMES = tuple("abcdefgh")
CLOSED_AT_MOST = 2.0
"""Seconds for which a name that nobody has may stay closed for who waits for it."""

_OPTIONS = pawlock.RedlockOptions(max_ttl=TTL, fresh=True)


def present() -> float:
    """A clock that all processes of a machine share, and that counts on while it is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# A process ------------------------------------------------------------------------------------------------------------


class Worker:
    """One process: threads of a client, and event loops of another.

    Args:
        urls: The masters.
        journal: Where each step is noted.
        seed: Decides what it asks for.
        threads: How many threads.
        loops: How many event loops, with two tasks each.
    """

    def __init__(self, urls: list[str], journal: Path, seed: int, threads: int, loops: int) -> None:
        self.urls = urls
        self.threads = threads
        self.loops = loops
        self.random = random.Random(seed)
        self.over = threading.Event()
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._numbers = iter(range(1, 1 << 60))

    def note(self, step: str, who: str, name: str, **more: Any) -> None:
        """Append one line, in one write."""
        line = {"at": present(), "step": step, "pid": os.getpid(), "who": who, "name": name, **more}
        os.write(self._journal, json.dumps(line).encode() + b"\n")

    def who(self) -> str:
        """The name of one acquisition."""
        return f"{os.getpid()}.{next(self._numbers)}"

    def thread(self, client: pawlock.Client) -> None:
        """What a thread does until all is over."""
        while not self.over.is_set():
            name, who = self.random.choice(NAMES), self.who()
            self.note("ask", who, name)
            try:
                lease = client.lock(name).acquire(timeout=5)
            except pawlock.PawlockError as error:
                self.note("none", who, name, error=type(error).__name__)
                time.sleep(0.01)
                continue
            self.note("in", who, name, fence=lease.fence)
            try:
                time.sleep(self.random.choice((0, 0.001, 0.001, 0.02)))
                lease.check()
                self.note("sure", who, name)
                lease.release()
            except pawlock.PawlockError as error:
                self.note("out", who, name, error=type(error).__name__)
            else:
                self.note("out", who, name)

    async def task(self, client: pawlock.AsyncClient) -> None:
        """The same for a task."""
        while not self.over.is_set():
            name, who = self.random.choice(NAMES), self.who()
            self.note("ask", who, name)
            try:
                lease = await client.lock(name).acquire(timeout=5)
            except pawlock.PawlockError as error:
                self.note("none", who, name, error=type(error).__name__)
                await asyncio.sleep(0.01)
                continue
            self.note("in", who, name, fence=lease.fence)
            try:
                await asyncio.sleep(self.random.choice((0, 0.001, 0.001, 0.02)))
                lease.check()
                self.note("sure", who, name)
                await lease.release()
            except pawlock.PawlockError as error:
                self.note("out", who, name, error=type(error).__name__)
            else:
                self.note("out", who, name)

    def loop(self, client: pawlock.AsyncClient) -> None:
        """An event loop of the second client."""

        async def run() -> None:
            await asyncio.gather(self.task(client), self.task(client))

        asyncio.run(run())

    def run(self) -> None:
        """Go on until SIGTERM, then close."""
        signal.signal(signal.SIGTERM, lambda *_: self.over.set())
        client = pawlock.connect(self.urls, redlock=_OPTIONS, ttl=TTL)
        aclient = pawlock.connect_async(self.urls, redlock=_OPTIONS, ttl=TTL)
        working = [threading.Thread(target=self.thread, args=(client,)) for _ in range(self.threads)]
        working += [threading.Thread(target=self.loop, args=(aclient,)) for _ in range(self.loops)]
        for thread in working:
            thread.start()
        while not self.over.wait(0.2):
            pass
        client.close()
        for thread in working:
            thread.join(20)


# What breaks ----------------------------------------------------------------------------------------------------------


class Trouble(NamedTuple):
    """A process was killed, or stopped for a while."""

    pid: int
    since: float
    until: float


class Masters:
    """Five masters behind proxies, and processes that use them.

    Args:
        folder: Where the journal is.
        processes: How many.
        threads: How many threads each has.
        loops: How many event loops each has.
        seed: Decides what breaks when.
    """

    def __init__(self, folder: Path, processes: int, threads: int, loops: int, seed: int) -> None:
        self.journal = folder / "journal"
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.troubles: list[Trouble] = []
        self._stack = ExitStack()
        self._shape = threads, loops
        self._seeds = iter(range(seed * 1000, seed * 1000 + 100_000))
        self.servers = [self._stack.enter_context(Server("valkey", unix=False)) for _ in range(5)]
        self.proxies = [self._stack.enter_context(Proxy(server)) for server in self.servers]
        self.processes = [self._spawn() for _ in range(processes)]
        self._emptied_at = present()

    def _spawn(self) -> subprocess.Popen[bytes]:
        threads, loops = self._shape
        what = [[proxy.url for proxy in self.proxies], str(self.journal), next(self._seeds), threads, loops]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.nightly.workloads.masters", "--worker", json.dumps(what)]
        )

    def play(self, seconds: float) -> None:
        """Break things for a while."""
        end = present() + seconds
        acts: list[Callable[[], object]] = [
            self.kill, self.stop_process, self.end_process, self.stop_master, self.kill_connections, self.jitter,
            self.jitter, self.reset,
        ]  # fmt: skip
        while present() < end:
            act = self.random.choice(acts)
            if present() > self._emptied_at + 1.2 * TTL or (seconds < TTL and not self.done["empty"]):
                act = self.empty
            self.done[act.__name__] += 1
            act()
            time.sleep(self.random.uniform(0.1, 1.0))
        for proxy in self.proxies:
            proxy.delay()

    def kill(self) -> None:
        """SIGKILL of a process; another one takes its place."""
        index = self.random.randrange(len(self.processes))
        process = self.processes[index]
        process.kill()
        process.wait()
        self.troubles.append(Trouble(process.pid, present(), present() + TTL + 1.0))
        self.processes[index] = self._spawn()

    def stop_process(self) -> None:
        """SIGSTOP of a process for a moment: all that it has under way stands still."""
        process, since = self.random.choice(self.processes), present()
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 1.0))
        process.send_signal(signal.SIGCONT)
        self.troubles.append(Trouble(process.pid, since, present() + 1.0))

    def end_process(self) -> None:
        """SIGTERM: it closes its clients and ends; another one takes its place."""
        index = self.random.randrange(len(self.processes))
        self.processes[index].terminate()
        self.processes[index].wait(30)
        self.processes[index] = self._spawn()

    def stop_master(self) -> None:
        """SIGSTOP of a master."""
        with self.random.choice(self.servers).paused():
            time.sleep(self.random.uniform(0.1, 1.5))

    def kill_connections(self) -> None:
        """All connections of a master end at once."""
        self.random.choice(self.servers).command("CLIENT", "KILL", "TYPE", "normal")

    def jitter(self) -> None:
        """A master answers later from now on, by up to 0.2 seconds."""
        self.random.choice(self.proxies).delay(replies=self.random.choice((0.0, 0.0, 0.02, 0.1, 0.2)))

    def reset(self) -> None:
        """The connections to a master break in the middle of what is under way."""
        self.random.choice(self.proxies).reset_all()

    def empty(self) -> None:
        """A master restarts without its data: never two within the time for which such a one is not asked."""
        self._emptied_at = present()
        self.random.choice(self.servers).restart(keep_data=False)

    def close(self) -> None:
        """End the processes and the masters."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
        self._stack.close()

    def lines(self) -> list[dict[str, Any]]:
        """What was noted, in order of time."""
        noted = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return sorted(noted, key=lambda line: line["at"])


# The checker ----------------------------------------------------------------------------------------------------------


class Hold(NamedTuple):
    """One grant: from when, until when it was sure, and when its release was over."""

    since: float
    sure: float
    out: float
    fence: int
    who: str


def holds(lines: Iterable[dict[str, Any]], name: str) -> list[Hold]:
    """The grants of a name; one without an end is over a ttl later at the latest."""
    found: dict[str, Hold] = {}
    for line in lines:
        if line["name"] != name:
            continue
        at, who = line["at"], line["who"]
        if line["step"] == "in":
            found[who] = Hold(at, at, at + TTL + 1.0, line["fence"], who)
        elif line["step"] == "sure" and who in found:
            found[who] = found[who]._replace(sure=at)
        elif line["step"] == "out" and who in found:
            # A release whose outcome is not known is over with the ttl.
            out = at if "error" not in line else found[who].out
            found[who] = found[who]._replace(out=out)
    return sorted(found.values())


def check(lines: list[dict[str, Any]], troubles: list[Trouble]) -> list[str]:
    """What was wrong."""
    wrong: list[str] = []
    for name in NAMES:
        grants = holds(lines, name)
        for one, other in itertools.pairwise(grants):
            if other.since < one.sure:
                wrong.append(f"overlap: {one} and {other} of {name}")
            if other.fence <= one.fence:
                wrong.append(f"fence: {other} after {one} of {name}")
        wrong += closed(lines, name, grants, troubles)
    return wrong


def closed(lines: list[dict[str, Any]], name: str, grants: list[Hold], troubles: list[Trouble]) -> list[str]:
    """Where people asked all the time for a name that nobody had, and did not get it."""
    asked: dict[str, tuple[float, int]] = {}
    ends: dict[str, float] = {}
    for line in lines:
        if line["name"] == name and line["step"] == "ask":
            asked[line["who"]] = line["at"], line["pid"]
        elif line["name"] == name and line["step"] in ("in", "none"):
            ends[line["who"]] = line["at"]
    shut = [(grant.since, grant.out) for grant in grants] + [(t.since, t.until) for t in troubles]
    waits: list[tuple[float, float]] = []
    for who, (since, pid) in asked.items():
        end = ends.get(who, since)
        waits.append((since, end))
        # Who is killed or stopped while it asks may have the votes of a majority.
        over = ends.get(who, float("inf"))
        shut += [(since, t.until) for t in troubles if t.pid == pid and since < t.until and over > t.since]
    return [
        f"closed: {name} from {since:.2f} to {end:.2f}, while it was asked for"
        for since, end in without(joined(waits), joined(shut))
        if end - since > CLOSED_AT_MOST
    ]


def joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same spans, those that touch as one."""
    found: list[tuple[float, float]] = []
    for since, end in sorted(spans):
        if found and since <= found[-1][1] + 0.05:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((since, end))
    return found


def without(spans: list[tuple[float, float]], others: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What is left of spans where none of the others is."""
    left: list[tuple[float, float]] = []
    for since, end in spans:
        at = since
        for begun, over in others:
            if over > at and begun < end:
                left.append((at, begun))
                at = max(at, over)
        left.append((at, end))
    return [span for span in left if span[1] > span[0]]


def main() -> int:
    """Play, judge and tell; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description="Redlock on five real masters, with everything that breaks.")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long; default 1")
    parser.add_argument("--processes", type=int, default=4, help="default 4")
    parser.add_argument("--threads", type=int, default=4, help="of each process; default 4")
    parser.add_argument("--loops", type=int, default=2, help="of each process; default 2")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        urls, journal, seed, threads, loops = json.loads(given.worker)
        Worker(urls, Path(journal), seed, threads, loops).run()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        masters = Masters(Path(folder), given.processes, given.threads, given.loops, given.seed)
        try:
            masters.play(given.minutes * 60)
        finally:
            masters.close()
        lines = masters.lines()
        wrong = check(lines, masters.troubles)
        steps = Counter(line["step"] for line in lines)
        errors = Counter(line["error"] for line in lines if "error" in line)
        sys.stdout.write(
            "\n".join(
                [*wrong, f"{dict(steps)} {dict(errors)} {dict(masters.done)}", f"{len(wrong)} wrong", ""]
            )
        )
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
