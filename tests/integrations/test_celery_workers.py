"""``Unique`` under what happens to tasks: real workers with a pool of processes, and a real broker.

Each test is a row of the table in docs/integrations/celery.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chord
from celery.exceptions import TaskRevokedError, TimeLimitExceeded, WorkerLostError

from pawlock.integrations.celery import client
from tests.integrations.celery_tasks import LOG, RUN_TTL, make
from tests.nightly.apps.rig import Rig, rig, until
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def app(valkey: Server) -> Iterator[Any]:
    valkey.command("FLUSHALL")
    found = make(valkey.url)
    # A result that is collected after the server is gone would try for long to end its subscription.
    found.backend.on_task_call = found.backend.result_consumer.cancel_for = lambda *_args: None
    yield found
    client(found).close()
    found.close()


@pytest.fixture
def workers(valkey: Server, tmp_path: Path, app: object) -> Iterator[Rig]:
    with rig(tmp_path, {"BROKER": valkey.url, "HOME": str(tmp_path)}) as found:
        yield found


def start(workers: Rig, count: int = 2) -> subprocess.Popen[str]:
    before = workers.log().count(" ready.")
    options = ("-P", "prefork", "-c", str(count), "-l", "INFO", "-E", "--without-gossip", "--without-mingle")
    found = workers.start("celery", "-A", "tests.integrations.celery_tasks", "worker", *options)
    until("the worker is up", lambda: workers.log().count(" ready.") > before)
    return found


def result(found: Any) -> Any:
    """What a task returned, or raised. Asked for, since to wait for it would subscribe to it."""
    until("the result is there", found.ready)
    return found.get()


def log(valkey: Server) -> list[list[str]]:
    """What the runs said, in order: key, "begin" or "end", fencing token, process."""
    lines = valkey.command("LRANGE", LOG, "0", "-1")
    assert isinstance(lines, list)
    return [bytes(line).decode().split() for line in lines]  # type: ignore[arg-type]


def begun(valkey: Server, key: str, times: int = 1) -> tuple[int, int]:
    """Wait until a task has begun; its fencing token and process."""

    def look() -> list[list[str]]:
        found = [line for line in log(valkey) if line[:2] == [key, "begin"]]
        return found if len(found) >= times else []

    fence, pid = until(f"{key} begins", look)[times - 1][2:]
    return int(fence), int(pid)


def freed_within(app: Any, task: Any, key: str) -> float:
    """Wait until the lock of a task is free: how long it took."""
    began = time.monotonic()
    until(f"{key} is free", lambda: not client(app).inspect(task.unique_name((key,))).held)
    return time.monotonic() - began


def one_at_a_time(valkey: Server, key: str) -> None:
    """No run began before the one with the token before had ended, or was dead."""
    fences = [int(line[2]) for line in log(valkey) if line[0] == key]
    assert fences == sorted(fences), fences


def test_retry_and_chord_and_keep(app: Any, workers: Rig, valkey: Server) -> None:
    """Retry: one lease over all attempts. Chord: a duplicate does nothing, and the chord ends. ``keep``: it stays."""
    work, kept = app.tasks["work"], app.tasks["kept"]
    worker = start(workers)
    attempts = work.delay("retried", 0.0, 2)
    begun(valkey, "retried", 2)
    assert work.delay("retried").state == "IGNORED"
    assert result(attempts) == "retried"
    fences = [line[2] for line in log(valkey) if line[:2] == ["retried", "begin"]]
    assert len(fences) == 3
    assert len({*fences}) == 1, "one fencing token throughout"
    assert freed_within(app, work, "retried") < 1 * pace()
    found = chord([work.s("a", 0.2), work.s("a"), work.s("b")])(app.tasks["gather"].s())
    assert result(found) == ["a", None, "b"]
    first = kept.delay("once")
    assert result(first) == "once"
    assert kept.delay("once").state == "IGNORED"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0, workers.log()


def test_hard_time_limit(app: Any, workers: Rig, valkey: Server) -> None:
    start(workers)
    limited = app.tasks["limited"]
    found = limited.delay("long", 60)
    begun(valkey, "long")
    with pytest.raises(TimeLimitExceeded):
        result(found)
    assert freed_within(app, limited, "long") < RUN_TTL + 1 * pace()
    fence, _ = begun(valkey, "long")
    result(limited.delay("long", 0.1))
    assert begun(valkey, "long", 2)[0] > fence


@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_revoked_while_it_runs(number: str, app: Any, workers: Rig, valkey: Server) -> None:
    start(workers)
    work = app.tasks["work"]
    found = work.delay("running", 60)
    begun(valkey, "running")
    found.revoke(terminate=True, signal=number)
    with pytest.raises(TaskRevokedError):
        result(found)
    assert freed_within(app, work, "running") < RUN_TTL + 1 * pace()
    result(work.delay("running", 0.1))


def revoke(found: Any) -> None:
    found.revoke()


@pytest.mark.parametrize(
    ("options", "end"), [({}, revoke), ({"expires": 0.5}, None)], ids=["revoked", "expired"]
)
def test_ended_while_it_waits(
    options: dict[str, float],
    end: Callable[[Any], None] | None,
    app: Any,
    workers: Rig,
    valkey: Server,
) -> None:
    """Freed when the worker comes to it and discards it."""
    start(workers, 1)
    work = app.tasks["work"]
    busy = work.delay("busy", 1.5)
    begun(valkey, "busy")
    found = work.apply_async(("waiting",), **options)
    assert work.delay("waiting").state == "IGNORED"
    if end is not None:
        end(found)
    result(busy)
    with pytest.raises(TaskRevokedError):
        result(found)
    assert freed_within(app, work, "waiting") < 1 * pace()
    result(work.delay("waiting"))
    assert len([line for line in log(valkey) if line[:2] == ["waiting", "begin"]]) == 1


def test_its_process_is_killed(app: Any, workers: Rig, valkey: Server) -> None:
    """As the kernel does when memory runs out."""
    start(workers)
    work = app.tasks["work"]
    found = work.delay("killed", 60)
    os.kill(begun(valkey, "killed")[1], signal.SIGKILL)
    with pytest.raises(WorkerLostError):
        result(found)
    assert freed_within(app, work, "killed") < RUN_TTL + 1 * pace()
    result(work.delay("killed", 0.1))


def test_its_process_is_killed_and_the_message_delivered_again(
    app: Any,
    workers: Rig,
    valkey: Server,
) -> None:
    start(workers)
    late = app.tasks["late"]
    found = late.delay("again", 1.0)
    fence, pid = begun(valkey, "again")
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    second, _ = begun(valkey, "again", 2)
    # What the worker needs to notice it and to start another process comes on top.
    assert time.monotonic() - killed < RUN_TTL + 3 * pace()
    assert late.delay("again").state == "IGNORED"
    assert second > fence
    assert result(found) == "again"
    assert freed_within(app, late, "again") < 1 * pace()
    one_at_a_time(valkey, "again")


def test_the_whole_worker_is_killed_and_another_one_gets_the_message(
    app: Any,
    workers: Rig,
    valkey: Server,
) -> None:
    workers.environ["VISIBILITY"] = "1"
    late = app.tasks["late"]
    first = start(workers)
    found = late.delay("moved", 0.5)
    fence, _ = begun(valkey, "moved")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert late.delay("moved").state == "IGNORED", "its lease lives on for its TTL"
    time.sleep(1.1)  # what the broker waits before it delivers again
    start(workers)
    second, _ = begun(valkey, "moved", 2)
    assert second > fence
    assert result(found) == "moved"
    one_at_a_time(valkey, "moved")


def test_a_message_that_is_delivered_again_while_it_runs(app: Any, workers: Rig, valkey: Server) -> None:
    """The broker's visibility timeout is shorter than the run: a second worker gets the message, and drops it."""
    workers.environ["VISIBILITY"] = "1"
    late = app.tasks["late"]
    start(workers)
    found = late.delay("slow", 12)
    begun(valkey, "slow")
    time.sleep(1.1)
    start(workers)
    until("it is dropped", lambda: "this delivery is dropped" in workers.log())
    assert result(found) == "slow"
    assert len([line for line in log(valkey) if line[:2] == ["slow", "begin"]]) == 1
