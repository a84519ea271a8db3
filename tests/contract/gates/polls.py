"""Candidates and observers for the tests of elections."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import pawlock
from tests.contract.gates.rig import Made, make, program, tell
from tests.faults.rig import Client, in_thread
from tests.support.pace import pace
from tests.support.servers import Server

TTL = 1.0
OBSERVERS = "{pawlock:%election:n}:1:observers"

LEADER = """
import asyncio, sys, time, pawlock
url, api, identity, ttl = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
if api == "threads":
    with pawlock.connect(url) as client:
        with client.election("n", identity=identity, ttl=ttl).campaign(30) as lease:
            print("leads", lease.fence, flush=True)
            sys.stdin.readline()
else:
    async def main():
        async with pawlock.connect_async(url) as client:
            async with client.election("n", identity=identity, ttl=ttl).campaign(30) as lease:
                print("leads", lease.fence, flush=True)
                await asyncio.to_thread(sys.stdin.readline)
    asyncio.run(main())
print("resigned", flush=True)
"""


class Heard:
    """What an observer hears, in a thread of its own."""

    def __init__(self, client: Client, **options: object) -> None:
        self.made = make(client, "election", "n", **options)
        self.leaders = self.made.do("observe")
        self.said: queue.Queue[tuple[pawlock.Leader | None, float]] = queue.Queue()
        self.ended = in_thread(self._listen)

    def _listen(self) -> None:
        if not self.made.api.is_async:
            for leader in self.leaders:
                self.said.put((leader, time.monotonic()))
            return

        async def listen() -> None:
            async for leader in self.leaders:
                self.said.put((leader, time.monotonic()))

        self.made.api.run(listen, timeout=60)

    def next(self, timeout: float = 5.0) -> pawlock.Leader | None:
        return self.said.get(timeout=pace() * timeout)[0]

    def next_at(self, timeout: float = 5.0) -> tuple[pawlock.Leader | None, float]:
        return self.said.get(timeout=pace() * timeout)

    def close(self) -> None:
        self.made.api.run(self.leaders.close)


class Stalls:
    """How much longer than asked for a thread sleeps while it is entered: what a busy machine adds to every delay.

    Attributes:
        total: Seconds so far.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def _measure(self) -> None:
        while not self._over.is_set():
            asleep = time.monotonic()
            time.sleep(0.02)
            self.total += max(0.0, time.monotonic() - asleep - 0.03)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def leads(election: Made, **kwargs: object) -> Any:
    return election.do("campaign", 10, **kwargs)


def leading(election: Made) -> bool:
    return bool(election.api.run(lambda: election.raw.leading))


@contextlib.contextmanager
def candidate(server: Server, api: str, identity: str, ttl: float = TTL) -> Iterator[subprocess.Popen[str]]:
    with program(LEADER, server.url, api, identity, str(ttl)) as process:
        tell(process)
        yield process
