"""A participant's process: reads one JSON command a line, answers with one JSON line.

Started by `benchmarks.runner` and by nothing else. It ends when its standard input ends, so it cannot outlive
the run that started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from benchmarks.model import Sample
from benchmarks.peers import PEERS
from benchmarks.workloads.contended import ContendedTasks, ContendedThreads
from benchmarks.workloads.pairs import PairTasks, PairThreads
from benchmarks.workloads.turns import Turns

ASYNC = frozenset({"pair-tasks", "contended-tasks"})


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
    work = (
        PairThreads(session, job.names())
        if job.workload == "pair-threads"
        else ContendedThreads(session, job.name, job.workers)
    )
    _say({"ready": 1})
    while True:
        _say(work.run(_read()["seconds"]))


async def _run_tasks(job: Job) -> None:
    peer = PEERS[job.peer]
    if peer.open_async is None:
        raise LookupError(f"{peer.label} has no asyncio colour")
    session = await peer.open_async(job.url, job.options)
    work = (
        await PairTasks.open(session, job.names())
        if job.workload == "pair-tasks"
        else await ContendedTasks.open(session, job.name, job.workers)
    )
    _say({"ready": 1})
    loop = asyncio.get_running_loop()
    while True:
        command = await loop.run_in_executor(None, _read)
        _say(await work.run(command["seconds"]))


def _first(error: BaseException) -> BaseException:
    group = cast("BaseExceptionGroup[BaseException] | None", error if hasattr(error, "exceptions") else None)
    return error if group is None else _first(group.exceptions[0])


def main() -> None:
    """Be the participant that the first argument describes, until standard input ends."""
    job = Job(**json.loads(sys.argv[1]))
    try:
        if job.workload in ASYNC:
            asyncio.run(_run_tasks(job))
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
