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
from tests.support.embedded import (
    ask,
    eventually,
    lives,
    looked_after,
    servers,
    supervisor_of,
    supervisors,
    workers,
)
from tests.support.resp import Wire

IDLE = 0.4


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", str(IDLE))


@pytest.mark.usefixtures("hasty")
class TestIdle:
    def test_it_leaves_and_so_does_its_supervisor(self, state: Path) -> None:
        start = time.monotonic()
        server = embedded.ensure(state)
        supervisor = supervisor_of(state)
        assert eventually(lambda: not lives(server.pid))
        assert time.monotonic() - start >= IDLE
        assert eventually(lambda: not lives(supervisor))
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
            connection.command("SET", "pawlock:job", "token@host", "PX", "1500")
            connection.command("SET", "forever", "without a ttl")
            connection.command("HSET", "{pawlock:job}:fence", "last", "1")
            connection.command("PEXPIRE", "{pawlock:job}:fence", "86400000")
        time.sleep(1.2)
        assert lives(server.pid)
        assert eventually(lambda: not lives(server.pid)), "a fence alone keeps nobody waiting"

    def test_a_killed_supervisor_is_replaced(self, state: Path) -> None:
        server = embedded.ensure(state)
        with Wire(server.socket) as connection:
            for _ in range(2):
                looked_after(connection)
                supervisor = supervisor_of(state)
                os.kill(supervisor, signal.SIGKILL)
                assert eventually(lambda: not lives(supervisor))
                again = embedded.ensure(state)
                assert (again.pid, again.started) == (server.pid, False)
                assert supervisor_of(state) != supervisor
        assert eventually(lambda: not lives(server.pid))
        assert eventually(lambda: not supervisors(state))

    def test_a_killed_server_is_started_anew_at_the_next_call(self, state: Path) -> None:
        for _ in range(3):
            os.kill(embedded.ensure(state).pid, signal.SIGKILL)
        server = embedded.ensure(state)
        assert server.started
        assert servers(state) == [server.pid]
        assert eventually(lambda: not lives(server.pid))
        assert eventually(lambda: not supervisors(state))

    def test_a_server_and_its_supervisor_killed_together(self, state: Path) -> None:
        address = f"embedded://{state}"
        with pawlock.connect(address) as client, pawlock.connect(address) as another:
            lease = client.lock("job").acquire()
            for pid in (supervisor_of(state), *servers(state)):
                os.kill(pid, signal.SIGKILL)
            with another.lock("job").acquire(timeout=5) as again:
                assert again.fence > lease.fence
            (pid,) = servers(state)
        assert eventually(lambda: not lives(pid))

    def test_a_removed_folder_leaves_nothing_running(self, state: Path) -> None:
        server = embedded.ensure(state)
        supervisor = supervisor_of(state)
        with Wire(server.socket) as connection:
            looked_after(connection)
        shutil.rmtree(state)
        assert eventually(lambda: not lives(server.pid))
        assert eventually(lambda: not lives(supervisor))

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

    def test_coming_and_going_loses_no_lease(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", "0.05")
        end = time.monotonic() + 4
        starts: list[int] = []

        def visit(seed: int) -> None:
            chance, started, token, until = random.Random(seed), 0, b"", 0.0
            while (now := time.monotonic()) < end:
                server = embedded.ensure(state)
                started += server.started
                try:
                    found = ask(server, "SET", f"lease:{seed}", f"{now}", "GET", "PX", "100")
                except (FileNotFoundError, ConnectionRefusedError):
                    continue
                assert found == token or time.monotonic() > until, "a lease lived, and the server left"
                token, until = f"{now}".encode(), now + 0.1
                time.sleep(chance.choice([0.02, 0.05, 0.5, 0.7]))
            starts.append(started)

        visitors = [threading.Thread(target=visit, args=(seed,)) for seed in range(3)]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
        assert len(starts) == 3, "a visitor was cut off in the middle"
        assert sum(starts) >= 3, "the server left several times meanwhile"


def test_idle_zero_means_for_ever(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for idle in ("0", "-1"):
        monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", idle)
        server = embedded.ensure(state)
        time.sleep(0.5)
        assert lives(server.pid), idle
        assert embedded.stop(state)
        assert eventually(lambda: not supervisors(state))


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
    assert eventually(lambda: not workers(state))
    assert embedded.stop(state) is False


def test_status(state: Path) -> None:
    assert embedded.status(state) == embedded.EmbeddedStatus(running=False, state_dir=str(state))
    assert not state.exists()
    server = embedded.ensure(state)
    with Wire(server.socket) as connection:
        looked_after(connection)
        found = embedded.status(state)
    assert found.running
    assert (found.pid, found.socket, found.binary) == (server.pid, server.socket, server.binary)
    assert found.clients == 1
    assert found.version is not None
    assert found.version.split()[0] in {"valkey", "redis"}
    embedded.stop(state)
    assert not embedded.status(state).running
