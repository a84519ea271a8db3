"""When the server leaves by itself, when it does not, and how it is stopped."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pawlock
from pawlock import embedded
from pawlock.embedded import _watch
from pawlock.embedded._watch import Connection
from pawlock.errors import BackendUnavailable, ConfigurationError
from tests.support.pace import pace

IDLE = 0.4


def eventually(condition: Callable[[], bool], timeout: float = 5.0) -> bool:
    deadline = time.monotonic() + pace() * timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def lives(state: Path) -> bool:
    return _watch.server_lives(str(state))


def watched(state: Path) -> bool:
    return _watch.watcher_lives(str(state))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", str(IDLE))


@pytest.mark.usefixtures("hasty")
class TestIdle:
    def test_it_leaves_and_so_does_its_watcher(self, state: Path) -> None:
        start = time.monotonic()
        embedded.ensure(state)
        assert eventually(lambda: not lives(state))
        assert time.monotonic() - start >= IDLE
        assert eventually(lambda: not watched(state))
        assert not (state / _watch.SOCKET).exists()
        assert not (state / _watch.CLOSING).exists()
        assert embedded.ensure(state).started

    def test_not_while_somebody_is_connected(self, state: Path) -> None:
        server = embedded.ensure(state)
        with Connection(server.socket, 5.0) as connection:
            time.sleep(3 * IDLE)
            assert connection.ask("PING") == "PONG"
        assert eventually(lambda: not lives(state))

    def test_not_while_it_is_used_now_and_then(self, state: Path) -> None:
        pid = embedded.ensure(state).pid
        for _ in range(8):
            time.sleep(IDLE / 2)
            assert embedded.ensure(state).pid == pid

    def test_not_while_a_lease_lives(self, state: Path) -> None:
        server = embedded.ensure(state)
        with Connection(server.socket, 5.0) as connection:
            connection.ask("SELECT", "3")
            connection.ask("SET", "pawlock:job", "token@host", "PX", "1500")
            connection.ask("SET", "forever", "without a ttl")
            connection.ask("HSET", "{pawlock:job}:fence", "last", "1")
            connection.ask("PEXPIRE", "{pawlock:job}:fence", "86400000")
        time.sleep(1.2)
        assert lives(state)
        assert eventually(lambda: not lives(state)), "a fence alone keeps nobody waiting"
        with Connection(embedded.ensure(state).socket, 5.0) as connection:
            connection.ask("SELECT", "3")
            assert connection.ask("HGET", "{pawlock:job}:fence", "last") == "1"

    def test_a_lost_watcher_is_replaced(self, state: Path) -> None:
        server = embedded.ensure(state)
        with Connection(server.socket, 5.0) as connection:
            assert eventually(lambda: _watch.WATCHER_NAME in str(connection.ask("CLIENT", "LIST")))
            os.kill(watcher_pid(state), signal.SIGKILL)
            assert eventually(lambda: not watched(state))
            assert embedded.ensure(state).pid == server.pid
            assert watched(state)
        assert eventually(lambda: not lives(state))

    def test_a_watcher_takes_to_the_next_server(self, state: Path) -> None:
        for _ in range(3):
            os.kill(embedded.ensure(state).pid, signal.SIGKILL)
        assert embedded.ensure(state).started
        assert watched(state)
        assert eventually(lambda: not lives(state))
        assert eventually(lambda: not watched(state))

    def test_a_removed_folder_leaves_nothing_running(self, state: Path) -> None:
        server = embedded.ensure(state)
        pid, watcher = server.pid, watcher_pid(state)
        with Connection(server.socket, 5.0) as connection:
            assert eventually(lambda: _watch.WATCHER_NAME in str(connection.ask("CLIENT", "LIST")))
        shutil.rmtree(state)
        assert eventually(lambda: not Path(f"/proc/{pid}").exists() or zombie(pid))
        assert eventually(lambda: not Path(f"/proc/{watcher}").exists() or zombie(watcher))

    def test_a_removed_folder_ends_a_server_that_is_used(self, state: Path) -> None:
        # Whoever comes next gets a new server: two of them would grant one name twice.
        server = embedded.ensure(state)
        with Connection(server.socket, 5.0) as connection:
            assert eventually(lambda: _watch.WATCHER_NAME in str(connection.ask("CLIENT", "LIST")))
            shutil.rmtree(state)
            assert embedded.ensure(state).pid != server.pid
            assert eventually(lambda: not Path(f"/proc/{server.pid}").exists() or zombie(server.pid))
        assert eventually(lambda: not lives(state))

    def test_coming_and_going_loses_nothing(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", "0.05")
        end = time.monotonic() + 4
        counts: list[tuple[int, int]] = []

        def visit(seed: int) -> None:
            chance, done, starts = random.Random(seed), 0, 0
            while time.monotonic() < end:
                server = embedded.ensure(state)
                starts += server.started
                try:
                    with Connection(server.socket, 5.0) as connection:
                        connection.ask("INCR", "visits")
                        done += 1
                except (FileNotFoundError, ConnectionRefusedError):
                    continue
                time.sleep(chance.uniform(0.0, 0.4))
            counts.append((done, starts))

        visitors = [threading.Thread(target=visit, args=(seed,)) for seed in range(3)]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
        assert len(counts) == 3, "a visitor was cut off in the middle"
        with Connection(embedded.ensure(state).socket, 5.0) as connection:
            assert connection.ask("GET", "visits") == str(sum(done for done, _ in counts))
        assert sum(starts for _, starts in counts) >= 3, "the server left several times meanwhile"


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def watcher_pid(state: Path) -> int:
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = line.read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(_watch.__file__) in arguments and os.fsencode(state) in arguments:
            return int(line.parent.name)
    raise LookupError("no watcher")


def test_a_client_that_connects_in_the_last_moment_is_not_cut_off(state: Path) -> None:
    server = embedded.ensure(state)
    kept: list[int] = []
    with Connection(server.socket, 5.0) as own:
        os.kill(server.pid, signal.SIGSTOP)
        # Waits in the backlog: the server has not even accepted it.
        with Connection(server.socket, 5.0) as late:
            ending = threading.Thread(target=lambda: kept.append(_watch.retire(str(state), own, force=False)))
            ending.start()
            assert eventually(lambda: not Path(server.socket).exists())
            os.kill(server.pid, signal.SIGCONT)
            ending.join()
            assert late.ask("PING") == "PONG"
    assert kept == [1]
    assert embedded.ensure(state).pid == server.pid


def test_a_watcher_killed_while_it_ends_the_server(state: Path) -> None:
    pid = embedded.ensure(state).pid
    (state / _watch.SOCKET).rename(state / _watch.CLOSING)
    assert embedded.ensure(state).pid == pid


@pytest.mark.parametrize("idle", ["0", "-1"])
def test_idle_zero_means_for_ever(state: Path, monkeypatch: pytest.MonkeyPatch, idle: str) -> None:
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", idle)
    embedded.ensure(state)
    assert not watched(state)
    assert embedded.status(state).watched is False


@pytest.mark.parametrize("text", ["soon", "0x10", "nan"])
def test_idle_must_be_a_number_of_seconds(state: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", text)
    with pytest.raises(ConfigurationError, match=rf"PAWLOCK_EMBEDDED_IDLE must be .* got {text}"):
        embedded.ensure(state)
    # It is a mistake, not an outage: it is reported when the client is made, and starts no degraded mode.
    for connect in (pawlock.connect, pawlock.connect_async):
        with pytest.raises(ConfigurationError, match=rf"got {text}"):
            connect(f"embedded://{state}", on_unavailable="open")
    assert not state.exists()


def test_stop(state: Path) -> None:
    assert embedded.stop(state) is False
    assert not state.exists()
    server = embedded.ensure(state)
    with Connection(server.socket, 5.0) as connection:
        connection.ask("SET", "k", "v")
        with pytest.raises(embedded.ServerInUse) as caught:
            embedded.stop(state)
        assert caught.value.clients == 1
        assert connection.ask("PING") == "PONG"
        assert embedded.stop(state, force=True) is True
    assert (lives(state), watched(state)) == (False, False)
    assert embedded.stop(state) is False
    with Connection(embedded.ensure(state).socket, 5.0) as connection:
        assert connection.ask("GET", "k") == "v"


def test_stop_a_server_that_hangs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pawlock.embedded import _server

    monkeypatch.setattr(_server, "_PATIENCE", 0.3)
    server = embedded.ensure(state)
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(BackendUnavailable, match="does not respond"):
        embedded.stop(state)
    assert lives(state)
    with pytest.raises(BackendUnavailable, match="does not respond"):
        embedded.status(state)
    assert embedded.stop(state, force=True) is True
    assert not lives(state)


def test_status(state: Path) -> None:
    assert embedded.status(state) == embedded.EmbeddedStatus(running=False, state_dir=str(state))
    assert not state.exists()
    server = embedded.ensure(state)
    with Connection(server.socket, 5.0) as connection:
        connection.ask("SET", "k", "v")
        found = embedded.status(state)
    assert found.running
    assert (found.pid, found.socket, found.binary) == (server.pid, server.socket, server.binary)
    assert (found.clients, found.keys, found.watched) == (1, 1, True)
    assert found.version is not None
    assert found.version.split()[0] in {"valkey", "redis"}
    embedded.stop(state)
    assert not embedded.status(state).running
