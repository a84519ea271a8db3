"""What the tests of contention share: crowds of processes, the judge of their journals, waiting for a condition."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tests.contract.contention.worker import Order
from tests.support.pace import pace
from tests.support.servers import Server

WORKER = Path(__file__).with_name("worker.py")


def eventually(condition: Callable[[], object], what: str, timeout: float = 10.0) -> None:
    """Wait until a condition is true; fail saying what did not happen."""
    end = time.monotonic() + pace() * timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {timeout:g} s: {what}")
        time.sleep(0.002)


def at_rest(engine: Any) -> bool:
    """Whether a client has nothing left to remember or to do."""
    return not (
        len(engine.local_queues) or engine.held or engine.calls or engine.outbox or engine.schedule.all()
    )


def all_at_rest(server: Server, engines: list[Any], *names: str) -> None:
    """Fail unless every client comes to rest, and the server keeps nothing of the names."""
    for number, engine in enumerate(engines):
        eventually(partial(at_rest, engine), f"client {number} is at rest", timeout=5.0)
    for name in names:
        assert left_over(server, name) == []


async def aeventually(condition: Callable[[], object], what: str, timeout: float = 10.0) -> None:
    """The same in a task: the loop goes on meanwhile."""
    end = time.monotonic() + pace() * timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {timeout:g} s: {what}")
        await asyncio.sleep(0.002)


PATIENCE = 30.0


def run_threads(works: Iterable[Callable[[], None]]) -> None:
    """Run threads to their ends; fail if one fails or is stuck."""
    errors: list[BaseException] = []

    def serve(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    end = time.monotonic() + pace() * PATIENCE
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    stuck = [thread.name for thread in threads if thread.is_alive()]
    assert not stuck, f"still waiting: {stuck}; {errors}"
    if errors:
        raise errors[0]


def queue_length(server: Server, name: str) -> int:
    """How many tickets stand in the queue of a name."""
    length = server.command("ZCARD", f"{{pawlock:{name}}}:1:queue")
    assert isinstance(length, int)
    return length


def left_over(server: Server, name: str) -> list[str]:
    """What a name has left on the server besides its fence and its tombstones."""
    keys = (f"pawlock:{name}", f"{{pawlock:{name}}}:1:queue", f"{{pawlock:{name}}}:1:tickets")
    return [key for key in keys if server.command("EXISTS", key)]


@dataclass(frozen=True)
class Span:
    """A time during which one owner was sure of its lease: from its grant to the last check that said yes."""

    process: int
    fence: int
    start: float
    end: float


class Addressed(Protocol):
    """A server, or several."""

    @property
    def url(self) -> str:
        """What a client is connected with."""
        ...


class Crowd:
    """Processes that take one lock in turn.

    Args:
        server: Where.
        folder: Where the counter and the journals are.
        apis: The API of each process.
        names: The name that each process locks; default the same for all.
        worker: The program that each process runs.
        options: The rest of each order.
    """

    def __init__(
        self,
        server: Addressed,
        folder: Path,
        apis: list[str],
        names: list[str] | None = None,
        worker: Path = WORKER,
        **options: object,
    ) -> None:
        self.folder = folder
        (folder / "counter").write_bytes(b"%020d" % 0)
        with contextlib.closing(sqlite3.connect(folder / "guarded.db")) as db, db:
            db.execute("CREATE TABLE guarded (fence INTEGER)")
            db.execute("INSERT INTO guarded VALUES (0)")
        orders = [
            Order(server.url, str(folder), api, number=number, name=name, **options)  # type: ignore[arg-type]
            for number, (api, name) in enumerate(zip(apis, names or ["crowd"] * len(apis), strict=True))
        ]
        self.processes = [_start(order, worker) for order in orders]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            process.wait()

    def go(self) -> None:
        """Let them begin, once all are up."""
        for process in self.processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise AssertionError(process.communicate()[1])
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def finish(self, timeout: float, *, but: int | None = None) -> list[int]:
        """Wait for their ends; how many turns each did. `but` is one that was killed."""
        done: list[int] = []
        for number, process in enumerate(self.processes):
            out, err = process.communicate(timeout=timeout)
            if number != but:
                assert process.returncode == 0, f"process {number}: {process.returncode}\n{err}"
                done.append(json.loads(out.splitlines()[-1])["done"])
        return done

    @property
    def count(self) -> int:
        """What the counter says."""
        return int((self.folder / "counter").read_bytes())

    def journal(self, number: int) -> list[dict[str, Any]]:
        """The journal of one process so far."""
        path = self.folder / f"journal-{number}"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def holder(self) -> int | None:
        """The process whose last note is of a grant that has not ended."""
        last = [
            (entries[-1]["fence"], number)
            for number in range(len(self.processes))
            if (entries := self.journal(number))
        ]
        return max(last)[1] if last else None

    def spans(self) -> list[Span]:
        """Every lease, in the order of the grants."""
        spans: list[Span] = []
        for number in range(len(self.processes)):
            sure: dict[int, list[float]] = {}
            for entry in self.journal(number):
                if entry["event"] != "lost" and entry["at"] < entry["valid_until"]:
                    sure.setdefault(entry["fence"], []).append(entry["at"])
            spans += [Span(number, fence, times[0], times[-1]) for fence, times in sure.items()]
        return sorted(spans, key=lambda span: span.start)


def judge(spans: list[Span]) -> list[str]:
    """What is wrong with a history: leases that overlap, fences that do not rise, a fence given twice."""
    wrong: list[str] = []
    for before, after in pairwise(spans):
        if after.start < before.end:
            wrong.append(f"overlap of {before.end - after.start:.6f} s: {before} and {after}")
        if after.fence <= before.fence:
            wrong.append(f"the fence does not rise: {before} and {after}")
    return wrong


def _start(order: Order, worker: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", str(worker), json.dumps(asdict(order))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def send(process: subprocess.Popen[str], what: signal.Signals) -> None:
    """Send a signal to a process of a crowd."""
    os.kill(process.pid, what)
