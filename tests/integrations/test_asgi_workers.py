"""``pawlock.integrations.asgi`` in worker processes of uvicorn and gunicorn that are killed, stopped and shut down."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integrations.witness import Step, Witness
from tests.nightly.apps.rig import ROOT, Rig, ask, listening, rig, until
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.slow
TTL = 2.0
APP = "tests.integrations.asgi_app:app"
GUNICORN = ("gunicorn", APP, "--worker-class", "uvicorn.workers.UvicornWorker", "--bind", "fd://{fd}")
SERVERS = {
    "uvicorn": ("uvicorn", APP, "--fd", "{fd}", "--log-level", "warning", "--workers", "{workers}"),
    "gunicorn": (*GUNICORN, "--graceful-timeout", "10", "--workers", "{workers}"),
}


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with Witness(tmp_path) as found:
        yield found


@pytest.fixture
def workers(valkey: Server, tmp_path: Path, witness: Witness) -> Iterator[Rig]:
    valkey.command("FLUSHALL")
    environ = {
        "PAWLOCK_URL": valkey.url,
        "WITNESS": witness.path,
        "PYTHONWARNINGS": "ignore",
        "HOME": str(tmp_path),
    }
    with rig(tmp_path, environ) as found:
        yield found


def start(workers: Rig, server: str, count: int, fd: int) -> subprocess.Popen[str]:
    command = [part.format(fd=fd, workers=count) for part in SERVERS[server]]
    return workers.start(*command, fds=[fd])


def leads(valkey: Server) -> list[bytes]:
    """The election if somebody leads, and its queue; not what only remembers fencing tokens and withdrawals."""
    keys = valkey.command("KEYS", "*worker*")
    assert isinstance(keys, list)
    return [key for key in keys if isinstance(key, bytes) and b":fence" not in key and b":dead:" not in key]


@contextlib.contextmanager
def requests(port: int) -> Iterator[list[int]]:
    """Load: clients that ask for the same orders all the time; the statuses that they got."""
    ended = threading.Event()
    statuses: list[int] = []

    def client(number: int) -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):  # a worker that was killed answers nobody
                statuses.append(ask(port, "POST", f"/orders/{number % 2}", timeout=5).status)
            time.sleep(0.01)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for one in clients:
        one.start()
    try:
        yield statuses
    finally:
        ended.set()
        for one in clients:
            one.join()


def test_a_worker_that_is_shut_down_resigns_within_a_second(
    workers: Rig, witness: Witness, valkey: Server
) -> None:
    with listening() as gate, listening() as other:
        first = start(workers, "uvicorn", 1, gate.fileno())
        until("it serves", lambda: ask(gate.getsockname()[1], "GET", "/set-up").status == 200)
        led = witness.runner()
        start(workers, "uvicorn", 1, other.fileno())
        until("the other one serves", lambda: ask(other.getsockname()[1], "GET", "/set-up").status == 200)
        first.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        second = witness.runner(after=sent, other_than=led.pid)
        assert second.at - sent < 1 * pace(), workers.log()
        assert first.wait(30) in (0, -signal.SIGTERM), workers.log()
    assert witness.late == []
    assert len(witness.turns()) == 2


@pytest.mark.timeout(240)
@pytest.mark.parametrize("server", SERVERS)
def test_one_of_four_workers_runs_it_whatever_happens_to_them(
    server: str, workers: Rig, witness: Witness, valkey: Server
) -> None:
    took: dict[str, list[float]] = {"kill -9": [], "SIGSTOP": [], "SIGTERM": []}
    with listening() as gate:
        port = gate.getsockname()[1]
        master = start(workers, server, 4, gate.fileno())
        until("they serve", lambda: ask(port, "GET", "/set-up").body["set_up"] == "by the application")
        led = witness.runner()
        with requests(port) as statuses:
            for _ in range(4):
                led = killed(witness, took["kill -9"])
                led = stopped(witness, took["SIGSTOP"])
        assert statuses.count(200) > 50
        assert {status for status in statuses if status != 200} <= {423, 500}, workers.log()
        # Of one worker: the next one leads at once.
        os.kill(led.pid, signal.SIGTERM)
        sent = time.monotonic()
        led = witness.runner(after=sent, other_than=led.pid)
        took["SIGTERM"].append(led.at - sent)
        master.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        until("nobody leads", lambda: not leads(valkey))
        took["SIGTERM"].append(time.monotonic() - sent)
        assert master.wait(60) in (0, -signal.SIGTERM), workers.log()
    for what, seconds in took.items():
        print(server, what, [round(one, 2) for one in seconds])
    assert max(took["kill -9"] + took["SIGSTOP"]) < TTL + 1 * pace(), took
    assert max(took["SIGTERM"]) < 1 * pace(), took
    # Each process is named once for each of its leaderships: nobody ran between two steps of another.
    turns = witness.turns()
    assert [fence for _, fence in turns] == sorted({fence for _, fence in turns}), turns
    # One that was stopped between its check and its step: a guarded resource refuses that step, and there is no other.
    assert len(witness.late) <= len(took["SIGSTOP"])


def killed(witness: Witness, took: list[float]) -> Step:
    led = witness.steps[-1]
    os.kill(led.pid, signal.SIGKILL)
    sent = time.monotonic()
    found = witness.runner(after=sent + 0.05, other_than=led.pid)
    took.append(found.at - sent)
    time.sleep(0.5)
    return found


def stopped(witness: Witness, took: list[float]) -> Step:
    led = witness.steps[-1]
    os.kill(led.pid, signal.SIGSTOP)
    sent = time.monotonic()
    try:
        found = witness.runner(after=sent + 0.05, other_than=led.pid)
        took.append(found.at - sent)
    finally:
        with contextlib.suppress(ProcessLookupError):  # its master may have replaced it
            os.kill(led.pid, signal.SIGCONT)
    time.sleep(0.5)
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["0.115.0", "0.121.0"])
def test_another_version_of_fastapi(version: str, tmp_path: Path) -> None:
    """The tests beside this one. FastAPI ends a dependency at another moment since 0.118."""
    packages = tmp_path / "packages"
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(packages), f"fastapi=={version}"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"FastAPI {version} could not be installed")
    path = os.pathsep.join([str(packages), str(ROOT / "src"), str(ROOT)])
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environ |= {"PYTHONPATH": path, "PYTHONWARNINGS": "default"}
    options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-W", "default"]
    tests = [str(Path(__file__).with_name(one)) for one in ("test_asgi.py", "test_idempotency.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
