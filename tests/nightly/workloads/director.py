"""A workload over real processes, some of which are killed or stopped at the worst time, and its history."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.nightly.workloads.actor import Order
from tests.support.clock import now
from tests.support.history import History, Journal
from tests.support.servers import Server

ACTOR = Path(__file__).with_name("actor.py")
WORKERS = 2


@dataclass
class Actor:
    """One process and its journal."""

    number: int
    process: subprocess.Popen[str]
    journal: Path

    @property
    def workers(self) -> list[str]:
        """What its threads or tasks are called in the history."""
        return [f"p{self.number}.{worker}" for worker in range(WORKERS)]

    def doing(self) -> set[str]:
        """What its workers do by their last notes: hold, wait, neither."""
        last: dict[str, str] = {}
        with self.journal.open("rb") as file:
            file.seek(max(0, self.journal.stat().st_size - 4000))
            rows = file.read().decode(errors="replace").splitlines()[1:]
        for line in rows:
            with contextlib.suppress(ValueError):
                row = json.loads(line)
                last[row["id"].partition("#")[0]] = _state(row)
        return set(last.values())


def _state(row: dict[str, Any]) -> str:
    if row["what"] == "invoke":
        return "waits" if row["action"] == "acquire" else "leaves"
    if row["what"] == "queued":
        return "queued"
    return "holds" if row["what"] == "renewed" or (row["what"] == "ok" and "deadline" in row) else "rests"


QUIET_START = 1.5
"""Seconds in which all processes have begun on a machine that does nothing else."""


class Play:
    """Actors on one name, and what is done to them.

    Args:
        server: Where.
        folder: Where the journals are.
        kind: What they take.
        seconds: For how long, on a machine that is not busy otherwise; longer on one that is.
        seed: Of every choice.
        ttl: Of every lease.
        actors: How many processes at one time.
        naive: Whether the lock lets anybody in.

    Attributes:
        slow: How many times as long as on a quiet machine the processes took to begin; 1 at least, 8 at most.
        lag: By how many seconds the director itself was woken late, at worst.
    """

    def __init__(
        self,
        server: Server,
        folder: Path,
        kind: str,
        seconds: float,
        *,
        seed: int,
        ttl: float,
        actors: int = 4,
        naive: bool = False,
    ) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.seconds = seconds
        self.until = 0.0
        self.slow = 1.0
        self.lag = 0.0
        self.ttl = ttl
        self.done: Counter[str] = Counter()
        self._order = Order(server.url, "", kind, "", 0, WORKERS, ttl, seed, naive=naive)
        self._file = os.open(folder / "director", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._journal = Journal(lambda line: os.write(self._file, line.encode()))
        self._born = 0
        self._made = time.monotonic()
        self.actors = [self._start() for _ in range(actors)]
        self._gone: list[Actor] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in [*self.actors, *self._gone]:
            actor.process.kill()
            actor.process.communicate()
        os.close(self._file)

    def _start(self) -> Actor:
        number = self._born
        self._born += 1
        journal = self.folder / f"journal-{number}"
        journal.touch()
        api = ("threads", "asyncio")[number % 2]
        order = Order(**{**asdict(self._order), "journal": str(journal), "number": number, "api": api})
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(ACTOR), json.dumps(asdict(order))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        return Actor(number, process, journal)

    def run(self) -> None:
        """Kill and stop, again and again, until the time is up; then wait for the actors' ends."""
        for actor in self.actors:
            assert actor.process.stdout is not None
            if not actor.process.stdout.readline():
                raise AssertionError(actor.process.communicate()[1])
        # How long the processes took to begin tells how busy the machine is with other things.
        self.slow = min(8.0, max(1.0, (time.monotonic() - self._made) / QUIET_START))
        self.until = now() + self.seconds * self.slow
        for actor in self.actors:
            self._begin(actor)
        wanted = ["holds", "queued"]
        while now() < self.until - self.ttl / 2:
            pause, began = self.dice.uniform(0.1, 0.4), now()
            time.sleep(pause)
            self.lag = max(self.lag, now() - began - pause)
            self.harm(wanted[len(self._gone) % 2] if self.dice.random() < 0.8 else "")
        for actor in self.actors:
            out, err = actor.process.communicate(timeout=60)
            assert actor.process.returncode == 0, f"{out}\n{err}"

    def _begin(self, actor: Actor) -> None:
        """Tell an actor until when to go on; one that is not up yet reads it once it is."""
        assert actor.process.stdin is not None
        actor.process.stdin.write(f"{self.until}\n")
        actor.process.stdin.flush()

    def harm(self, wanted: str) -> None:
        """Kill or stop a process, by choice one that holds or stands in the queue at this moment."""
        victim = self._find(wanted)
        if victim is None:
            return
        if self.dice.random() < 0.5:
            doing = victim.doing()
            victim.process.send_signal(signal.SIGKILL)
            victim.process.wait()
            self._note("crash", victim)
            self._count("killed", doing)
            self._gone.append(victim)
            self.actors[self.actors.index(victim)] = successor = self._start()
            self._begin(successor)
        else:
            self._note("pause", victim)
            victim.process.send_signal(signal.SIGSTOP)
            self._count("stopped", victim.doing())
            time.sleep(self.dice.choice([0.1, 0.3, 1.3]) * self.ttl)
            victim.process.send_signal(signal.SIGCONT)

    def _find(self, wanted: str) -> Actor | None:
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            actor = self.dice.choice(self.actors)
            if not actor.journal.stat().st_size:
                continue
            doing = actor.doing()
            # Where the queue is the client's own, nobody hears of a place in it.
            if not wanted or wanted in doing or (wanted == "queued" and "waits" in doing):
                return actor
        return None

    def _note(self, what: str, actor: Actor) -> None:
        for worker in actor.workers:
            (self._journal.crash if what == "crash" else self._journal.pause)(now(), worker)

    def _count(self, what: str, doing: set[str]) -> None:
        for state in doing & {"holds", "queued", "waits"}:
            self.done[f"{what} while it {'held' if state == 'holds' else 'waited'}"] += 1

    def history(self) -> History:
        """What everybody noted."""
        lines: list[str] = []
        for path in (self.folder / "director", *sorted(self.folder.glob("journal-*"))):
            lines += path.read_text().splitlines(keepends=True)
        return History.read(lines)
