"""A participant's process: reads one JSON command a line, answers with one JSON line.

Started by `benchmarks.process` and by nothing else. It ends when its standard input ends, so it cannot outlive
the run that started it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from benchmarks.model import Sample
from benchmarks.peers import PEERS
from benchmarks.workloads import Leases, Tasks, Threads, Waiters, turn


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker process is to be."""

    peer: str
    workload: str
    url: str
    name: str
    workers: int = 1
    tasks: bool = False
    options: dict[str, float] = field(default_factory=dict[str, float])

    def dump(self) -> str:
        """Return the job as the command-line argument of a worker."""
        return json.dumps(asdict(self))

    def names(self) -> list[str]:
        """Return a lock name for each worker: one for all of a crowd, else one for each."""
        return [self.name if self.workload == "crowd" else f"{self.name}-{n}" for n in range(self.workers)]


def _say(line: dict[str, Any] | Sample) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _ready() -> None:
    # The first full collection looks at all that the imports made, some 30 ms: in whose turn it falls is chance.
    gc.collect()
    gc.freeze()
    _say({"ready": 1})


def _read() -> dict[str, float]:
    line = sys.stdin.readline()
    if not line:
        # Workers may still be blocked in a lock; nobody is there to wait for them.
        os._exit(0)
    command: dict[str, float] = json.loads(line)
    return command


def _run_threads(job: Job) -> None:
    opened = PEERS[job.peer].open
    if opened is None:
        raise LookupError(f"{job.peer} has no threads")
    session = opened(job.url, job.options)
    if job.workload == "turns":
        handle = session(job.name)
        _ready()
        while True:
            _say(turn(handle, _read()["hold"], _say))
    work = Threads(job.workload, session, job.names())
    _ready()
    while True:
        _say(work.run(_read()))


async def _run_tasks(job: Job) -> None:
    opened = PEERS[job.peer].open_async
    if opened is None:
        raise LookupError(f"{job.peer} has no asyncio API")
    session = await opened(job.url, job.options)
    work: Tasks | Leases | Waiters
    if job.workload in ("leases", "waiters"):
        work = (Leases if job.workload == "leases" else Waiters)(session, job.name)
    else:
        work = Tasks(job.workload, session, job.names())
    _ready()
    loop = asyncio.get_running_loop()
    while True:
        _say(await work.run(await loop.run_in_executor(None, _read)))


def _loop_factory(job: Job) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not job.options.get("uvloop"):
        return None
    import uvloop

    return uvloop.new_event_loop


def _first(error: BaseException) -> BaseException:
    group = cast("BaseExceptionGroup[BaseException] | None", error if hasattr(error, "exceptions") else None)
    return error if group is None else _first(group.exceptions[0])


def _end_with_input() -> None:
    """End the process as soon as nobody can write to its input any more, whatever it is doing."""
    input_ends = select.poll()
    # Of no events only the hang-up is told: what is written is left to whoever reads.
    input_ends.register(0, 0)
    input_ends.poll()
    os._exit(0)


def main() -> None:
    """Be the participant that the argument describes, until standard input ends."""
    job = Job(**json.loads(sys.argv[1]))
    # In the middle of a million locks nobody reads, and a runner that was killed does not tell.
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        if job.tasks:
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
