"""A real server to throw away: it is empty, it can be broken, and nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from pawlock.testing import Faults, Server
from tests.support.pace import pace


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + pace() * 5
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_it_answers_and_is_emptied(server: Server) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.set("k", "v")
    assert server.command("GET", "k") == b"v"
    server.flush()
    assert server.command("DBSIZE") == 0
    with pytest.raises(redis.ResponseError, match="unknown command"):
        server.command("NOSUCH")
    assert server.url in repr(server)


def test_it_is_killed_and_comes_back_empty_on_its_port(server: Server) -> None:
    url, pid = server.url, server.pid
    server.command("SET", "k", "v")
    server.kill()
    assert gone(pid)
    assert not server.running
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.pid
    with pytest.raises(redis.ConnectionError):
        server.command("PING")
    assert server.start().command("GET", "k") is None
    assert (server.url, server.start()) == (url, server)


def test_an_outage_keeps_the_data_and_a_later_crash_brings_none_back(server: Server) -> None:
    faults = Faults(server)
    server.command("SET", "k", "v")
    with faults.down():
        assert not server.running
    assert server.command("GET", "k") == b"v"
    with faults.down(keep_data=False):
        pass
    assert server.command("GET", "k") is None


def test_a_frozen_one_answers_later_and_can_be_killed(server: Server) -> None:
    server.pause()
    with pytest.raises(redis.TimeoutError):
        server.command("PING", timeout=0.2)
    assert server.running
    server.resume()
    assert server.command("PING") == b"PONG"
    pid = server.pid
    server.pause()
    server.kill()
    assert gone(pid)


def test_one_that_ended_by_itself_is_noticed(server: Server) -> None:
    with pytest.raises(redis.ConnectionError):
        server.command("SHUTDOWN", "NOSAVE")
    assert eventually(lambda: not server.running)
    assert server.start().command("PING") == b"PONG"


def test_one_that_does_not_come_up_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "valkey-server"
    program.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo 'Server v=9.0.0' || { echo too bad; exit 1; }\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", str(program))
    server = Server()
    with pytest.raises(RuntimeError, match=r"(?s)did not come up.*too bad"):
        server.start()
    server.stop()


def test_the_thread_that_started_it_may_end_and_a_fork_leaves_it_alone() -> None:
    server = Server()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    child = os.fork()
    if child == 0:
        server.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert server.command("PING") == b"PONG"
    pid = server.pid
    server.stop()
    server.stop()
    assert gone(pid)


SCRIPT = """
import subprocess, sys, time
from pawlock.testing import Server
server = Server().start()
print(server.pid, server.command("CONFIG", "GET", "dir")[1].decode(), flush=True)
time.sleep(30)
"""


def test_it_dies_with_a_test_process_that_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as lines:
        word, folder = lines.readline().split()
    assert not gone(int(word))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert eventually(lambda: gone(int(word)))
    assert eventually(lambda: not Path(folder).exists())
