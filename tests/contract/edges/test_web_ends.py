"""Web servers that are stopped while requests hold, wait and release: nothing stays behind, far before the TTL."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.nightly.apps.rig import ask, listening, rig, until
from tests.support.pace import pace
from tests.support.resp import texts
from tests.support.servers import Server

for package in ("gunicorn", "uvicorn"):
    pytest.importorskip(package)

BOUND = 3.0
"""Seconds from the end of the server until nothing is left; the TTL is 60, and that of a ticket 30."""
ENDS = 15.0

GUNICORN = ("gunicorn", "tests.contract.edges.web:wsgi", "--workers", "2", "--bind", "fd://{fd}")
UVICORN = ("uvicorn", "tests.contract.edges.web:asgi", "--log-level", "warning", "--fd", "{fd}", "--lifespan")
SERVERS = {
    "gunicorn, sync": (*GUNICORN, "--worker-class", "sync"),
    "gunicorn, gthread": (*GUNICORN, "--worker-class", "gthread", "--threads", "4"),
    "gunicorn, preloaded": (*GUNICORN, "--worker-class", "gthread", "--threads", "4", "--preload"),
    "uvicorn, 1 worker": (*UVICORN, "off"),
    "uvicorn, 2 workers": (*UVICORN, "off", "--workers", "2"),
    "uvicorn, lifespan": (*UVICORN, "on"),
    "uvicorn, impatient": (*UVICORN, "on", "--timeout-graceful-shutdown", "1"),
}


def left(server: Server) -> list[str]:
    """The keys of holders and waiters."""
    found = texts(server.command("KEYS", "*"))
    return [name for name in found if not name.endswith(":fence") and ":dead:" not in name]


@contextmanager
def requests(port: int, *paths: str) -> Iterator[None]:
    """Clients that each ask for one path again and again, until the server is gone."""
    over = threading.Event()

    def work(path: str) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError, ValueError):
                ask(port, "GET", path, timeout=ENDS)
            over.wait(0.001)

    threads = [threading.Thread(target=work, args=(path,), daemon=True) for path in paths]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join(pace() * ENDS)


def stopped(name: str, valkey: Server, folder: Path, moment: float, *, long: bool = False) -> None:
    """One run: requests of every kind, a stop at some moment, and a look at what is left."""
    valkey.command("FLUSHALL")
    held = "/lock/held/60" if long else "/lock/held/0.3"
    with rig(folder, {"PAWLOCK_URL": valkey.url}) as web, listening() as gate:
        port = gate.getsockname()[1]
        process = web.start(*[part.format(fd=gate.fileno()) for part in SERVERS[name]], fds=[gate.fileno()])
        ask(port, "GET", "/lock/first/0")
        with requests(
            port, held, held, "/lock/busy/0", "/lock/busy/0", "/fair_lock/fair/0.01", "/fair_lock/fair/0"
        ):
            until("it is held", lambda: valkey.command("EXISTS", "pawlock:held"))
            time.sleep(moment)
            gate.close()
            process.send_signal(signal.SIGTERM)
            process.wait(pace() * ENDS)
            end = time.monotonic() + min(4.0, pace()) * BOUND
            while (found := left(valkey)) and time.monotonic() < end:
                time.sleep(0.02)
        assert not found, f"left by {name} at {moment:.3f} s: {found}\n{web.log()}"
        # What servers themselves say of a task that they cancel is no concern of this test.
        assert long or "Traceback" not in web.log(), web.log()


@pytest.mark.slow
def test_a_request_that_is_cancelled_by_the_stop_leaves_nothing(valkey: Server, tmp_path: Path) -> None:
    """It holds for longer than the server waits for it, and another one waits for it."""
    stopped("uvicorn, impatient", valkey, tmp_path, 0.05, long=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_is_stopped_at_any_moment_leaves_nothing(
    name: str, valkey: Server, tmp_path: Path
) -> None:
    dice = random.Random(name)
    for _ in range(8):
        stopped(name, valkey, tmp_path, dice.random() * 0.6, long="impatient" in name)
