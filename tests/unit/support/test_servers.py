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

from tests.support.pace import pace
from tests.support.resp import ReplyError
from tests.support.servers import EVERY_FLAVOUR, Flavour, Server, available, free_port


def eventually(condition: Callable[[], bool], timeout: float = 5.0) -> bool:
    deadline = time.monotonic() + pace() * timeout
    while not condition():
        if time.monotonic() > deadline:
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


@pytest.fixture(params=EVERY_FLAVOUR)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    chosen: Flavour = request.param
    reason = available(chosen)
    if reason is not None:
        pytest.skip(reason)
    return chosen


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


def test_it_is_the_flavour_that_was_asked_for(flavour: Flavour) -> None:
    with Server(flavour) as server:
        info = server.command("INFO", "server")
        assert isinstance(info, bytes)
        assert (b"valkey_version" in info) == (flavour == "valkey")
        assert (b"redis_version:6.2." in info) == (flavour == "redis-6.2")
        assert f"process_id:{server.pid}\r\n".encode() in info


def test_clients_reach_it_both_ways(server: Server) -> None:
    with redis.Redis.from_url(server.url) as over_tcp, redis.Redis.from_url(server.unix_url) as over_unix:
        over_tcp.set("k", "v")
        assert over_unix.get("k") == b"v"
    assert server.url.startswith("redis://127.0.0.1:")


def test_only_one_way_when_asked_for() -> None:
    with Server(tcp=False) as server:
        assert server.url == server.unix_url
        with pytest.raises(RuntimeError, match="no TCP port"):
            _ = server.port
    with Server(unix=False) as server:
        assert server.command("PING") == "PONG"
        with pytest.raises(RuntimeError, match="no unix socket"):
            _ = server.unix_url
    with pytest.raises(ValueError, match="must listen"):
        Server(unix=False, tcp=False)


def test_errors_are_raised(server: Server) -> None:
    with pytest.raises(ReplyError, match="ERR unknown command"):
        server.command("NOSUCH")


def test_arguments_reach_the_program() -> None:
    with Server(args=["--maxmemory", "7mb"]) as server:
        assert server.command("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"7340032"]


def test_a_wrong_argument_is_told_with_the_servers_words() -> None:
    server = Server(args=["--no-such-option", "1"])
    with pytest.raises(RuntimeError, match="did not come up") as caught:
        server.start()
    assert "no-such-option" in str(caught.value)
    server.stop()


def test_restart_forgets_or_keeps() -> None:
    with Server() as server:
        url, pid = server.url, server.pid
        server.command("SET", "k", "v")
        server.restart(keep_data=False)
        assert server.command("GET", "k") is None
        assert (server.url == url, server.pid == pid) == (True, False)
        with pytest.raises(ValueError, match="persist=False"):
            server.restart(keep_data=True)
    with Server(persist=True) as server:
        server.command("SET", "k", "v")
        assert server.restart(keep_data=True).command("GET", "k") == b"v"
        assert server.restart(keep_data=False).command("GET", "k") is None


def test_kill_then_start(server: Server) -> None:
    pid = server.pid
    server.kill()
    assert gone(pid)
    assert not server.running
    with pytest.raises(OSError, match=r"refused|No such file"):
        server.command("PING")
    assert server.start().command("PING") == "PONG"


def test_a_paused_server_answers_later(server: Server) -> None:
    with server.paused():
        with pytest.raises(TimeoutError):
            server.command("PING", timeout=0.2)
        assert server.running
    assert server.command("PING") == "PONG"


def test_a_paused_server_can_be_killed(server: Server) -> None:
    pid = server.pid
    server.pause()
    server.kill()
    assert gone(pid)


def test_a_server_that_ended_by_itself_is_noticed(server: Server) -> None:
    with pytest.raises(ConnectionError):
        server.command("SHUTDOWN", "NOSAVE")
    assert eventually(lambda: not server.running)
    assert server.start().command("PING") == "PONG"


def test_nothing_stays_behind() -> None:
    with Server() as server:
        pid, folder = server.pid, server.folder
    assert gone(pid)
    assert not folder.exists()
    server.stop()


def test_the_end_of_the_thread_that_started_it_does_not_matter() -> None:
    server = Server()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    time.sleep(0.1)
    assert server.command("PING") == "PONG"
    server.stop()


def test_a_forked_child_leaves_it_alone(server: Server) -> None:
    child = os.fork()
    if child == 0:
        server.stop()
        os._exit(0 if not server.running else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert server.command("PING") == "PONG"


SCRIPT = """
import os, sys, time
from tests.support.servers import Server
server = Server().start()
if os.fork() == 0:
    time.sleep(30)
print(server.pid, server.folder, flush=True)
time.sleep(30)
"""


def test_it_dies_with_a_test_process_that_is_killed() -> None:
    # The child of the killed process lives on, in its group, and must not keep the server alive.
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as lines:
        word, folder = lines.readline().split()
    assert not gone(int(word))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    try:
        assert eventually(lambda: gone(int(word)))
        assert eventually(lambda: not Path(folder).exists())
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_free_port_leaves_room_for_the_bus_of_a_cluster() -> None:
    """The bus is 10,000 further up; and no port that outgoing connections get may be taken before the server is up."""
    ports = {free_port() for _ in range(200)}
    assert max(ports) + 10_000 < 65_536
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if outgoing.exists() and int(outgoing.read_text().split()[0]) == 32768:
        assert max(ports) + 10_000 < 32_768
    assert len(ports) > 100, "several workers that ask at once get ports of their own"


def test_why_a_flavour_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = available("redis")
    assert reason is not None
    assert "no redis-server on PATH" in reason
    link = tmp_path / "redis-server"
    link.write_text("#!/bin/sh\necho Valkey server v=9.1.2\n")
    link.chmod(0o755)
    assert available("redis") == reason, "a compatibility link to Valkey is not Redis"
    link.write_text("#!/bin/sh\necho Redis server v=7.0.15\n")
    assert available("redis") is None
