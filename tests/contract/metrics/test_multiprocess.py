"""The metrics of several processes that share a folder, as under gunicorn: gauges are there, and summed."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

import pawlock
from tests.contract.edges.helpers import eventually
from tests.contract.metrics.test_alerts import free_port
from tests.support.command import environment
from tests.support.servers import Server

pytestmark = pytest.mark.slow
WORKER = """
import sys
import pawlock
from pawlock.metrics.prometheus import instrument
client = pawlock.connect(sys.argv[1])
instrument(client)
with client.lock(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.readline()
print("free", flush=True)
sys.stdin.readline()
"""
FORKED = """
import os, sys
import pawlock
from pawlock.metrics.prometheus import instrument
client = pawlock.connect(sys.argv[1])
instrument(client)
for number in range(2):
    if not os.fork():
        with client.lock(f"{sys.argv[2]}-{number}"):
            sys.stdin.readline()
        os._exit(0)
client.close()
print("held", flush=True)
for number in range(2):
    os.wait()
"""
APP = """
import os, threading
import pawlock
from pawlock.metrics.prometheus import instrument
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
client = pawlock.connect(os.environ["PAWLOCK_URL"])
instrument(client)
lease = None

def app(environ, start):
    global lease
    if environ["PATH_INFO"] == "/metrics":
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        body = generate_latest(registry)
    else:
        lease = lease or client.lock(f"of-{os.getpid()}").acquire()
        body = str(os.getpid()).encode()
    start("200 OK", [("Content-Length", str(len(body))), ("Connection", "close")])
    return [body]
"""


class Folder:
    """What whoever is scraped reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {**environment(), "PROMETHEUS_MULTIPROC_DIR": str(path)}

    def __call__(self, metric: str, **labels: str) -> float | None:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(self.path))
        try:
            return registry.get_sample_value(f"pawlock_{metric}", labels)
        except struct.error:
            # A process has just made its file; prometheus-client reads it before it has its length.
            return None

    def until(self, value: float | None, metric: str, **labels: str) -> None:
        eventually(lambda: self(metric, **labels) == value, f"{metric}{labels} is {value}", timeout=30)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    path = tmp_path / "metrics"
    path.mkdir()
    return Folder(path)


class Worker:
    """One process with one lock."""

    def __init__(self, folder: Folder, url: str, name: str, program: str = WORKER) -> None:
        command = [sys.executable, "-c", program, url, name]
        self.process: Any = subprocess.Popen(
            command, env=folder.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def workers(folder: Folder, valkey: Server) -> Iterator[list[Worker]]:
    valkey.command("FLUSHALL")  # those of the test before were killed while they held
    made = [Worker(folder, valkey.url, name) for name in ("one", "two")]
    yield made
    for worker in made:
        worker.end()


def test_gauges_are_the_sum_over_two_processes(folder: Folder, workers: list[Worker]) -> None:
    folder.until(2, "locks_held", kind="lock")
    folder.until(2, "backend_clients", state="up")
    assert folder("lock_waiters", kind="lock") == 0
    assert folder("backend_clients", state="down") == 0
    assert folder("build_info", version=pawlock.__version__) == 1
    assert folder("lock_acquisitions_total", kind="lock", outcome="acquired") == 2
    assert folder("lock_lost_total", kind="lock", reason="expired") == 0
    workers[0].go_on()
    folder.until(1, "locks_held", kind="lock")


def test_a_process_that_ends_takes_its_gauges_along(folder: Folder, workers: list[Worker]) -> None:
    folder.until(2, "locks_held", kind="lock")
    folder.until(2, "backend_clients", state="up")
    for _ in range(2):
        workers[0].go_on()
    assert workers[0].process.wait(30) == 0
    assert folder("locks_held", kind="lock") == 1
    assert folder("backend_clients", state="up") == 1
    # Whoever is killed writes nothing more: gunicorn's child_exit says that it is dead.
    workers[1].process.send_signal(signal.SIGKILL)
    workers[1].process.wait()
    mark_process_dead(workers[1].process.pid, path=str(folder.path))
    assert not folder("locks_held", kind="lock")
    assert folder("lock_acquisitions_total", kind="lock", outcome="acquired") == 2


def test_processes_that_were_forked_write_their_own(folder: Folder, valkey: Server) -> None:
    parent = Worker(folder, valkey.url, "forked", FORKED)
    try:
        folder.until(2, "locks_held", kind="lock")
        folder.until(2, "backend_clients", state="up")
    finally:
        for _ in range(2):
            parent.go_on()
        parent.process.communicate(timeout=30)


@pytest.mark.parametrize("preload", [False, True], ids=["each worker loads", "preload"])
def test_under_gunicorn(folder: Folder, valkey: Server, tmp_path: Path, *, preload: bool) -> None:
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    (tmp_path / "shop.py").write_text(APP, encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "shop:app", "-w", "2", "-b", f"127.0.0.1:{port}"]
    command += ["--preload"] if preload else []
    variables = {**folder.environment, "PAWLOCK_URL": valkey.url, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=log, stderr=log)

    def ask(path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            time.sleep(0.05)
            return ""

    def both() -> bool:
        seen.add(ask("lock"))
        return len(seen - {""}) == 2

    seen: set[str] = set()
    try:
        eventually(both, "both workers hold a lock", timeout=60)
        eventually(lambda: 'pawlock_locks_held{kind="lock"} 2.0' in ask("metrics"), "the sum", timeout=30)
        text = ask("metrics")
        assert f'pawlock_build_info{{version="{pawlock.__version__}"}} 1.0' in text
        assert 'pawlock_lock_acquisitions_total{kind="lock",outcome="acquired"} 2.0' in text
        # With preload the process above the workers has the client, too.
        up = [line for line in text.splitlines() if line.startswith('pawlock_backend_clients{state="up"}')]
        assert float(up[0].split()[1]) >= 2
    finally:
        server.terminate()
        server.wait(30)
