"""Real processes that get a real signal at a random moment: `python -m tests.nightly.workloads.terms --count 2000`.

Each takes and releases, holds, waits in a queue or hands over locally, with threads or asyncio, on a server that is
near or far, and ends as programs end: its handler closes the client, or only exits, or cancels the main task. Judged is
what is left once it has ended: no key and no ticket, within a bound far below its TTL. An exit that strikes between two
steps of pawlock may leave one lease to its TTL, which is counted: no more than one process in a hundred.

The processes are forked from one that has imported everything, and end as any other does, `atexit` included.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import pawlock
from tests.support.pace import pace as measured
from tests.support.proxy import Proxy
from tests.support.resp import texts
from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[3]
TTL = 60.0
TICKET = 30.0
BOUND = 3.0
"""Seconds within which nothing is left of a process that has ended, on a machine that is not busy."""
ENDS = 15.0
"""Seconds within which a process ends that got its signal, on such a machine."""
LONG = 300.0
MOMENTS = 0.35
"""The signal comes within so many seconds."""
AT_ONCE = 12
DROPPED = "the end was dropped by Python"
NEVER_AWAITED = re.compile(
    r"^\S+: RuntimeWarning: coroutine '.*' was never awaited\n(?:  .*\n)*|^RuntimeWarning: Enable tracemalloc .*\n",
    re.MULTILINE,
)

KINDS = ("lock", "fair_lock", "rlock", "semaphore", "rwlock")
DUTIES = ("cycle", "hold", "wait", "handover", "local", "pool")
DELAYS = (0.0, 0.005, 0.05)
HANDLERS = {
    "threads": ("close", "exit", "interrupt"),
    "asyncio": ("cancel", "close", "exit", "interrupt"),
}


@dataclass(frozen=True)
class Job:
    """What one process does.

    Attributes:
        duty: What the signal interrupts.
        handler: What the signal does.
        workers: So many threads or tasks.
        errors: The file for what it writes to stderr.
    """

    number: int
    url: str
    kind: str
    runtime: str
    duty: str
    handler: str
    workers: int
    errors: str

    @property
    def name(self) -> str:
        return f"term-{self.number}"

    @property
    def signal(self) -> signal.Signals:
        return signal.SIGINT if self.handler == "interrupt" else signal.SIGTERM

    def __str__(self) -> str:
        return f"{self.number}: {self.runtime}, {self.kind}, {self.duty} × {self.workers}, {self.handler}"


def pace() -> float:
    """With a bound: what is left for the TTL is to be found on any machine."""
    return min(4.0, measured())


def lock_of(client: Any, job: Job) -> Any:
    options: dict[str, Any] = {"ttl": TTL, "ticket_ttl": TICKET}
    if job.kind == "semaphore":
        return client.semaphore(job.name, permits=1, **options)
    if job.kind == "rwlock":
        return client.rwlock(job.name, **options).write
    return getattr(client, job.kind)(job.name, **options)


# In the process that ends ---------------------------------------------------------------------------------------------


def say(what: str) -> None:
    """One line for the parent, in one write: the pipe is shared with other processes."""
    os.write(1, f"{what}\n".encode())


def forever(turn: Callable[[], None]) -> NoReturn:
    while True:
        turn()


def in_pool(turn: Callable[[], None], workers: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        while True:
            for done in [pool.submit(turn) for _ in range(2 * workers)]:
                done.result()


def by_threads(job: Job) -> None:
    client = pawlock.connect(job.url)

    def handle(*_: object) -> None:
        if job.handler == "close":
            client.close()
        sys.exit(0)

    if job.handler != "interrupt":
        signal.signal(signal.SIGTERM, handle)
    lock = lock_of(client, job)

    def turn() -> None:
        with lock:
            if job.duty not in {"cycle", "local", "pool"}:
                time.sleep(LONG)

    def turns() -> None:
        with contextlib.suppress(pawlock.ClientClosed):
            forever(turn)

    say(f"go {job.number}")
    if job.duty == "pool":
        in_pool(turn, job.workers)
    for _ in range(job.workers - 1):
        # As a daemon: who only exits would wait for it without end.
        threading.Thread(target=turns, daemon=True).start()
    forever(turn)


async def by_tasks(job: Job) -> None:
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None
    ending: list[asyncio.Task[None]] = []
    async with pawlock.connect_async(job.url) as client:

        async def close() -> None:
            await client.close()
            main.cancel()

        if job.handler == "cancel":
            loop.add_signal_handler(signal.SIGTERM, main.cancel)
        elif job.handler == "close":
            loop.add_signal_handler(signal.SIGTERM, lambda: ending.append(loop.create_task(close())))
        elif job.handler == "exit":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        lock = lock_of(client, job)

        async def turns() -> None:
            # A body whose client is closed by another task learns it from the loss of its lease.
            with contextlib.suppress(pawlock.ClientClosed, pawlock.LeaseLost):
                while True:
                    async with lock:
                        if job.duty not in {"cycle", "local", "pool"}:
                            await asyncio.sleep(LONG)

        say(f"go {job.number}")
        await asyncio.gather(*(turns() for _ in range(job.workers)))
        # Closed: the handler's task cancels this one.
        await asyncio.sleep(LONG)


def work(job: Job) -> None:
    """Do the job until the signal ends it."""
    file = os.open(job.errors, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(file, 2)
    os.close(file)
    # Says where it stands, if it does not end.
    faulthandler.register(signal.SIGUSR1)
    # A shell's background job ignores it, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        if job.runtime == "asyncio":
            asyncio.run(by_tasks(job))
        else:
            by_threads(job)


def zygote() -> Job | None:
    """Fork a process for each line that comes; returns a job in each of them, and None at the end."""
    rest, alive, more = b"", set[int](), True
    while more:
        ready, _, _ = select.select([0], [], [], 0.005)
        if ready:
            found = os.read(0, 65536)
            more = bool(found)
            *lines, rest = (rest + found).split(b"\n")
            for line in lines:
                pid = os.fork()
                if not pid:
                    return Job(**json.loads(line))
                alive.add(pid)
                say(f"pid {json.loads(line)['number']} {pid}")
        for pid in list(alive):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                alive.remove(pid)
                say(f"end {pid} {os.waitstatus_to_exitcode(status)}")
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return None


# In the process that judges -------------------------------------------------------------------------------------------


class Zygote:
    """The process that others are forked from, and what it says of them."""

    def __init__(self) -> None:
        self._said: defaultdict[str, str] = defaultdict(str)
        self._changed = threading.Condition()
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT / "src"), str(ROOT))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.nightly.workloads.terms", "--zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, about, *rest = line.split()
            with self._changed:
                self._said[f"{what} {about}"] = rest[0] if rest else "yes"
                self._changed.notify_all()

    def start(self, job: Job) -> int:
        with self._changed:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(asdict(job)) + "\n")
            self._process.stdin.flush()
        return int(self.wait(f"pid {job.number}", 60.0))

    def wait(self, what: str, timeout: float) -> str:
        """What was said of it; "" if nothing was in time."""
        with self._changed:
            self._changed.wait_for(lambda: what in self._said, timeout)
            return self._said.pop(what, "")


@dataclass
class Figures:
    """What came out."""

    done: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    gone: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        ended, gone = sorted(self.ended) or [0.0], sorted(self.gone) or [0.0]
        rows = "\n".join(f"  {what:<40}{number:>6}" for what, number in sorted(self.done.items()))
        return (
            f"{len(self.ended)} processes ended, {len(self.faults)} faults, {len(self.left)} leases left\n{rows}\n"
            f"  from the signal to the end:   median {ended[len(ended) // 2]:.3f} s, longest {ended[-1]:.3f} s\n"
            f"  from the end to nothing left: median {gone[len(gone) // 2]:.3f} s, longest {gone[-1]:.3f} s"
        )


def _dropped(errors: str, code: str) -> bool:
    """Whether Python dropped what the handler raised, or raised it where its own code cannot bear it."""
    if "Exception ignored in" in errors:
        # In a finaliser, or a callback of a weak reference: it goes on, or comes to a client that the handler closed.
        return not code or "ClientClosed" in errors
    # In a lock of an executor of Python. Of pawlock, only the maintenance may stand anywhere.
    ours = [
        part for part in errors.split("\n\n") if "src/pawlock/" in part and "core/maintenance.py" not in part
    ]
    return "in in_pool" in errors and not ours


class Terms:
    """One run over one server.

    Args:
        only: Handlers to use; all if empty.
    """

    def __init__(self, server: Server, folder: Path, seed: int, *, only: tuple[str, ...] = ()) -> None:
        self.figures = Figures()
        self._server = server
        self._folder = folder
        self._seed = seed
        self._only = only
        self._guard = threading.Lock()

    def run(self, count: int) -> Figures:
        with ExitStack() as stack:
            self._zygote = stack.enter_context(Zygote())
            self._urls = [self._server.url]
            for delay in DELAYS[1:]:
                proxy = stack.enter_context(Proxy(self._server))
                proxy.delay(replies=delay)
                self._urls.append(proxy.url)
            self._holder = stack.enter_context(pawlock.connect(self._server.url))
            with ThreadPoolExecutor(AT_ONCE) as pool:
                for done in [pool.submit(self._one, number) for number in range(count)]:
                    done.result()
        return self.figures

    def _job(self, number: int, dice: random.Random) -> Job:
        pairs = [(runtime, one) for runtime, found in HANDLERS.items() for one in found]
        chosen = [pair for pair in pairs if not self._only or pair[1] in self._only]
        runtime, handler = chosen[number % len(chosen)]
        duty = DUTIES[number // len(chosen) % len(DUTIES)]
        workers = 3 if duty in {"local", "pool"} else 1
        if duty in {"wait", "handover", "hold"}:
            workers = dice.choice([1, 3])
        return Job(
            number=number,
            url=dice.choice(self._urls),
            kind=dice.choice(KINDS),
            runtime=runtime,
            duty=duty,
            handler=handler,
            workers=workers,
            errors=str(self._folder / f"errors-{number}"),
        )

    def _one(self, number: int) -> None:
        dice = random.Random(f"{self._seed} {number}")
        job = self._job(number, dice)
        faults: list[str] = []
        holds = job.duty in {"wait", "handover"}
        held = lock_of(self._holder, job).acquire(timeout=10.0) if holds else None
        pid = self._zygote.start(job)
        if not self._zygote.wait(f"go {number}", 60.0):
            faults.append("it did not begin")
        moment = dice.random() * MOMENTS
        if held is not None and job.duty == "handover":
            early = max(0.0, moment + (dice.random() - 0.5) * 0.1)
            time.sleep(early)
            moment = max(0.0, moment - early)
            held.release()
            held = None
        time.sleep(moment)
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, job.signal)
        code = self._zygote.wait(f"end {pid}", pace() * ENDS)
        ended = time.monotonic()
        if code != "0":
            faults.append(f"ended with {code or 'nothing: it goes on'}")
        if not code:
            os.kill(pid, signal.SIGUSR1)
            time.sleep(1.0)
            os.kill(pid, signal.SIGKILL)
            self._zygote.wait(f"end {pid}", 60.0)
        errors = Path(job.errors).read_text(encoding="utf-8", errors="replace")
        if code != "0" and _dropped(errors, code):
            with self._guard:
                self.figures.done[DROPPED] += 1
            if held is not None:
                held.release()
            return
        # What Python itself says of an exit that a handler raises just after the call of a coroutine. In asyncio it may
        # strike between any two steps of asyncio's own, which then speaks of tasks and transports that it has half made:
        # of such a program only its end and what it leaves are judged.
        said = NEVER_AWAITED.sub("", errors)
        if said and (job.runtime, job.handler) != ("asyncio", "exit"):
            faults.append(f"said: {errors}")
        left = [*self._left(job, held=held is not None)]
        gone = time.monotonic()
        if held is not None:
            held.release()
            left += self._left(job, held=False)
        # A ticket would be in the way of others: only what it held may stay.
        faults += [one for one in left if ":queue" in one]
        with self._guard:
            delay = DELAYS[self._urls.index(job.url)]
            self.figures.done[f"{job.runtime}, {job.handler}, {delay * 1000:.0f} ms"] += 1
            self.figures.ended.append(ended - began)
            self.figures.gone.append(gone - ended)
            self.figures.faults += [f"{job}, {delay * 1000:.0f} ms: {fault}" for fault in faults]
            self.figures.left += [f"{job}, {delay * 1000:.0f} ms: {one}" for one in left]

    def _left(self, job: Job, *, held: bool) -> Iterator[str]:
        """What is still there of its name when the time for it is over."""
        end = time.monotonic() + pace() * BOUND
        while found := self._keys(job, held=held):
            if time.monotonic() > end:
                yield f"left: {found}"
                return
            time.sleep(0.02)

    def _keys(self, job: Job, *, held: bool) -> list[str]:
        """Keys of the name that are more than a memory; while it is held here, only those of tickets."""
        mine = re.compile(rf"\b{job.name}\b")
        found = []
        for name in texts(self._server.command("KEYS", f"*{job.name}*")):
            memory = name.endswith(":fence") or ":dead:" in name
            if mine.search(name) and not memory and (not held or name.endswith("queue")):
                found.append(name)
        return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], help="a handler; may be given several times")
    parser.add_argument("--zygote", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.zygote:
        job = zygote()
        if job is not None:
            work(job)
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        figures = Terms(server, Path(folder), asked.seed, only=tuple(asked.only)).run(asked.count)
    for fault in (*figures.faults, *figures.left):
        print(fault)
    print(f"{figures}\n  in {time.monotonic() - began:.0f} s")
    return 1 if figures.faults or len(figures.left) > asked.count / 100 else 0


if __name__ == "__main__":
    sys.exit(main())
