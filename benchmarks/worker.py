"""A participant's process: reads one JSON command a line, answers with one JSON line.

Started by `benchmarks.runner` and by nothing else. It ends when its standard input ends, so it cannot outlive
the run that started it.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import select
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, cast

from benchmarks.model import Sample
from benchmarks.peers import PEERS, AsyncSession
from benchmarks.workloads.contended import ContendedTasks, ContendedThreads
from benchmarks.workloads.crowd import CrowdTasks, CrowdThreads
from benchmarks.workloads.pairs import PairTasks, PairThreads
from benchmarks.workloads.scale import Leases, LeaseThreads, Waiters
from benchmarks.workloads.turns import Turns

ASYNC = frozenset({"pair-tasks", "contended-tasks", "crowd-tasks", "leases", "waiters", "names"})


class _Tasks(Protocol):
    """Work of one event loop."""

    def run(self, command: dict[str, float]) -> Awaitable[dict[str, Any]]:
        """Do what was told; the answer goes to the runner."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker process is to be."""

    peer: str
    workload: str
    url: str
    name: str
    workers: int = 1
    options: dict[str, float] = field(default_factory=dict[str, float])

    def dump(self) -> str:
        """Return the job as the command-line argument of a worker."""
        return json.dumps(asdict(self))

    def but(self, **changes: Any) -> Job:  # noqa: ANN401 - any field
        """Return this job with some fields changed."""
        return replace(self, **changes)

    def names(self) -> list[str]:
        """Return one lock name for each worker."""
        return [f"{self.name}-{worker}" for worker in range(self.workers)]


def _say(line: dict[str, Any] | Sample) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _read() -> dict[str, float]:
    line = sys.stdin.readline()
    if not line:
        # Workers may still be blocked in a lock; nobody is there to wait for them.
        os._exit(0)
    command: dict[str, float] = json.loads(line)
    return command


def _run_threads(job: Job) -> None:
    peer = PEERS[job.peer]
    if peer.open is None:
        raise LookupError(f"{peer.label} has no threads")
    session = peer.open(job.url, job.options)
    if job.workload == "turns":
        turns = Turns(session, job.name)
        _say({"ready": 1})
        while True:
            _say(turns.turn(_read()["hold"], _say))
    work: PairThreads | ContendedThreads | CrowdThreads | LeaseThreads
    if job.workload == "pair-threads":
        work = PairThreads(session, job.names())
    elif job.workload == "contended-threads":
        work = ContendedThreads(session, job.name, job.workers)
    elif job.workload == "crowd-threads":
        work = CrowdThreads(session, job.name, job.workers)
    else:
        work = LeaseThreads(session, job.name)
    _say({"ready": 1})
    while True:
        _say(work.run(_read()))


async def _open_tasks(job: Job, session: AsyncSession) -> _Tasks:
    if job.workload == "pair-tasks":
        return await PairTasks.open(session, job.names())
    if job.workload == "contended-tasks":
        return await ContendedTasks.open(session, job.name, job.workers)
    if job.workload == "crowd-tasks":
        return await CrowdTasks.open(session, job.name, job.workers)
    if job.workload == "waiters":
        return await Waiters.open(session, job.name)
    return await Leases.open(session, job.name)


async def _run_tasks(job: Job) -> None:
    peer = PEERS[job.peer]
    if peer.open_async is None:
        raise LookupError(f"{peer.label} has no asyncio API")
    work = await _open_tasks(job, await peer.open_async(job.url, job.options))
    _say({"ready": 1})
    loop = asyncio.get_running_loop()
    while True:
        command = await loop.run_in_executor(None, _read)
        _say(await work.run(command))


def _loop_factory(job: Job) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not job.options.get("uvloop"):
        return None
    import uvloop

    return uvloop.new_event_loop


def _first(error: BaseException) -> BaseException:
    group = cast("BaseExceptionGroup[BaseException] | None", error if hasattr(error, "exceptions") else None)
    return error if group is None else _first(group.exceptions[0])


def main() -> None:
    """Be the participant that the first argument describes, until standard input ends.

    Pairs of further arguments are pipes, commands and answers: for each pair there is one such participant.
    """
    job = Job(**json.loads(sys.argv[1]))
    pipes = [int(word) for word in sys.argv[2:]]
    if pipes:
        _split(job, pipes)
    else:
        _be(job)


def _split(job: Job, pipes: list[int]) -> None:
    """Have a child be a participant at each pair of pipes, and wait for all of them."""
    for module in PEERS[job.peer].modules:
        importlib.import_module(module)
    # Nothing here is ever freed: the children need not look at it, and so not copy it.
    gc.freeze()
    children: list[int] = []
    for number in range(0, len(pipes), 2):
        child = os.fork()
        if not child:
            os.dup2(pipes[number], 0)
            os.dup2(pipes[number + 1], 1)
            # An answer's end is seen only when no sibling holds its pipe.
            for pipe in pipes:
                os.close(pipe)
            _be(job)
            os._exit(0)
        children.append(child)
    for pipe in pipes:
        os.close(pipe)
    for child in children:
        os.waitpid(child, 0)


def _end_with_input() -> None:
    """End the process as soon as nobody can write to its input any more, whatever it is doing."""
    input_ends = select.poll()
    # Of no events only the hang-up is told: what is written is left to whoever reads.
    input_ends.register(0, 0)
    input_ends.poll()
    os._exit(0)


def _be(job: Job) -> None:
    # In the middle of a million locks nobody reads, and a runner that was killed does not tell.
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        if job.workload in ASYNC:
            with asyncio.Runner(loop_factory=_loop_factory(job)) as runner:
                runner.run(_run_tasks(job))
        else:
            _run_threads(job)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the runner must hear of it
        traceback.print_exc()
        first = _first(error)
        _say({"error": f"{type(first).__name__}: {first}", "kind": type(first).__name__})
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
