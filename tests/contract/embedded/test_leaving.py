"""When the server leaves by itself, when it does not, and how it is stopped."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

import pawlock
from pawlock import embedded
from pawlock.errors import ConfigurationError
from tests.support.embedded import ask, eventually, lives, looked_after, servers, watcher_of, watchers
from tests.support.resp import Wire

IDLE = 0.4


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", str(IDLE))


@pytest.mark.usefixtures("hasty")
class TestIdle:
    def test_it_leaves_and_so_does_its_watcher(self, state: Path) -> None:
        start = time.monotonic()
        server = embedded.ensure(state)
        watcher = watcher_of(state)
        assert eventually(lambda: not lives(server.pid))
        assert time.monotonic() - start >= IDLE
        assert eventually(lambda: not lives(watcher))
        assert not list(state.glob("*.sock*"))
        assert embedded.ensure(state).started

    def test_not_while_somebody_is_connected(self, state: Path) -> None:
        server = embedded.ensure(state)
        with Wire(server.socket) as connection:
            time.sleep(3 * IDLE)
            assert connection.command("PING") == "PONG"
        assert eventually(lambda: not lives(server.pid))

    def test_not_while_it_is_used_now_and_then(self, state: Path) -> None:
        pid = embedded.ensure(state).pid
        for _ in range(8):
            time.sleep(IDLE / 2)
            assert embedded.ensure(state).pid == pid

    def test_not_while_a_lease_lives(self, state: Path) -> None:
        server = embedded.ensure(state)
        with Wire(server.socket) as connection:
            connection.command("SELECT", "3")
            connection.command("SET", "pawlock:job", "token@host", "PX", "1500")
            connection.command("SET", "forever", "without a ttl")
            connection.command("HSET", "{pawlock:job}:fence", "last", "1")
            connection.command("PEXPIRE", "{pawlock:job}:fence", "86400000")
        time.sleep(1.2)
        assert lives(server.pid)
        assert eventually(lambda: not lives(server.pid)), "a fence alone keeps nobody waiting"

    def test_a_lost_watcher_is_replaced(self, state: Path) -> None:
        server = embedded.ensure(state)
        with Wire(server.socket) as connection:
            looked_after(connection)
            watcher = watcher_of(state)
            os.kill(watcher, signal.SIGKILL)
            assert eventually(lambda: not lives(watcher))
            assert embedded.ensure(state).pid == server.pid
            assert embedded.status(state).watched
        assert eventually(lambda: not lives(server.pid))

    def test_a_watcher_takes_to_the_next_server(self, state: Path) -> None:
        for _ in range(3):
            os.kill(embedded.ensure(state).pid, signal.SIGKILL)
        server = embedded.ensure(state)
        assert server.started
        assert embedded.status(state).watched
        assert eventually(lambda: not lives(server.pid))
        assert eventually(lambda: not watchers(state))

    def test_a_removed_folder_leaves_nothing_running(self, state: Path) -> None:
        server = embedded.ensure(state)
        watcher = watcher_of(state)
        with Wire(server.socket) as connection:
            looked_after(connection)
        shutil.rmtree(state)
        assert eventually(lambda: not lives(server.pid))
        assert eventually(lambda: not lives(watcher))

    def test_a_removed_folder_ends_a_server_that_is_used(self, state: Path) -> None:
        # Whoever comes next gets a new server: two of them would grant one name twice.
        server = embedded.ensure(state)
        with Wire(server.socket) as connection:
            looked_after(connection)
            shutil.rmtree(state)
            again = embedded.ensure(state)
            assert again.pid != server.pid
            assert eventually(lambda: not lives(server.pid))
        assert eventually(lambda: not lives(again.pid))

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
                    ask(server, "INCR", "visits")
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
        assert ask(embedded.ensure(state), "GET", "visits") == str(sum(done for done, _ in counts)).encode()
        assert sum(starts for _, starts in counts) >= 3, "the server left several times meanwhile"


def test_idle_zero_means_for_ever(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for idle in ("0", "-1"):
        monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", idle)
        embedded.ensure(state)
        assert watchers(state) == [], idle
        assert embedded.status(state).watched is False
        embedded.stop(state, force=True)


def test_idle_must_be_a_number_of_seconds(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("soon", "0x10", "nan"):
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
    with Wire(server.socket) as connection:
        with pytest.raises(embedded.ServerInUse) as caught:
            embedded.stop(state)
        assert caught.value.clients == 1
        assert connection.command("PING") == "PONG"
        assert embedded.stop(state, force=True) is True
    assert (servers(state), watchers(state)) == ([], [])
    assert embedded.stop(state) is False


def test_status(state: Path) -> None:
    assert embedded.status(state) == embedded.EmbeddedStatus(running=False, state_dir=str(state))
    assert not state.exists()
    server = embedded.ensure(state)
    with Wire(server.socket) as connection:
        looked_after(connection)
        connection.command("SET", "k", "v")
        found = embedded.status(state)
    assert found.running
    assert (found.pid, found.socket, found.binary) == (server.pid, server.socket, server.binary)
    assert (found.clients, found.keys, found.watched) == (1, 1, True)
    assert found.version is not None
    assert found.version.split()[0] in {"valkey", "redis"}
    embedded.stop(state, force=True)
    assert not embedded.status(state).running
