"""Many processes, one server: whoever starts it, is killed, forks or comes late."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from pawlock import embedded
from pawlock.errors import BackendUnavailable, ConfigurationError
from tests.contract.edges.blocking import blocked
from tests.support.embedded import Spawn, ask, servers, supervisor_of
from tests.support.pace import pace
from tests.support.servers import find_binary

JOIN = """
import socket, sys
from pawlock import embedded
sys.stdin.readline() if sys.argv[2:] == ["wait"] else None
server = embedded.ensure(sys.argv[1])
with socket.socket(socket.AF_UNIX) as link:
    link.connect(server.socket)
    link.sendall(b"INCR joined\\r\\n")
    link.recv(64)
print(server.pid, server.started, flush=True)
"""


def program(folder: Path, *, before: str) -> Path:
    """A server program that does something else first: it sleeps, to be interrupted in, or fails."""
    found = folder / "own-server"
    real = find_binary("valkey")
    found.write_text(f'#!/bin/sh\n[ "$1" = --version ] || {before}\nexec {real} "$@"\n')
    found.chmod(0o755)
    return found


def test_twelve_racing_processes_get_one_server(state: Path, spawn: Spawn) -> None:
    racers = [spawn(JOIN, state, "wait", stdin=subprocess.PIPE) for _ in range(12)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.close()
        racer.stdin = None
    answers = [racer.communicate(timeout=30)[0].split() for racer in racers]
    pids = {int(pid) for pid, _ in answers}
    assert len(pids) == 1
    assert sorted(started for _, started in answers) == ["False"] * 11 + ["True"]
    assert servers(state) == list(pids)
    assert supervisor_of(state)
    server = embedded.ensure(state)
    assert (server.started, server.pid, ask(server, "GET", "joined")) == (False, *pids, b"12")


def test_threads_of_one_process_get_one_server(state: Path) -> None:
    found: list[embedded.EmbeddedServer] = []
    threads = [threading.Thread(target=lambda: found.append(embedded.ensure(state))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.pid for server in found}) == 1
    assert [server.started for server in found].count(True) == 1


def test_a_starter_killed_while_the_server_comes_up(
    state: Path, tmp_path: Path, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = program(tmp_path, before="sleep 0.6")
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", str(slow))
    starter = spawn(JOIN, state)
    deadline = time.monotonic() + 10
    while not any(os.fsencode(slow) in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in servers(state)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    starter.kill()
    starter.wait()
    racers = [spawn(JOIN, state) for _ in range(4)]
    answers = [racer.communicate(timeout=30)[0].split() for racer in racers]
    assert {started for _, started in answers} == {"False"}, "the server that was coming up is the one"
    assert len({pid for pid, _ in answers}) == 1
    assert servers(state) == [int(answers[0][0])]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_starters_killed_at_any_moment(state: Path, spawn: Spawn, seed: int) -> None:
    chance = random.Random(seed)
    racers = [spawn(JOIN, state) for _ in range(6)]
    time.sleep(chance.uniform(0.03, 0.25))
    for victim in chance.sample(racers, 3):
        victim.kill()
    answers = [racer.communicate(timeout=30)[0].split() for racer in racers]
    survivors = [answer for racer, answer in zip(racers, answers, strict=True) if racer.returncode == 0]
    assert len(survivors) >= 3
    assert len({answer[0] for answer in answers if answer}) == 1
    server = embedded.ensure(state)
    assert servers(state) == [server.pid] == [int(survivors[0][0])]
    assert supervisor_of(state)


def test_a_stopped_starter_is_waited_for_and_named(state: Path) -> None:
    state.mkdir(mode=0o700)
    with (state / "lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        start = time.monotonic()
        with pytest.raises(BackendUnavailable, match=r"did not start within 0\.3 s"):
            embedded.ensure(state, timeout=0.3)
        assert 0.3 <= time.monotonic() - start < pace() * 2
    assert embedded.ensure(state).started


def test_it_is_nobodys_child_and_inherits_nothing(state: Path) -> None:
    with (state.parent / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        os.environ["PAWLOCK_TEST_SECRET"] = "in the environment"
        try:
            server = embedded.ensure(state)
        finally:
            del os.environ["PAWLOCK_TEST_SECRET"]
        for pid in (server.pid, supervisor_of(state)):
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                # It serves: one that was listed may be closed by now.
                with contextlib.suppress(FileNotFoundError):
                    assert "secret" not in str(fd.readlink())
            assert b"PAWLOCK_TEST_SECRET" not in Path(f"/proc/{pid}/environ").read_bytes()
            assert os.getsid(pid) != os.getsid(0)
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            assert int(fields[1]) != os.getpid(), "its end would leave a zombie"
            assert fields[4] == "0", "it has no terminal, so no Ctrl-C"
    assert Path(f"/proc/{server.pid}/fd/0").readlink() == Path("/dev/null")


def test_what_it_is_told(state: Path) -> None:
    server = embedded.ensure(state)
    wanted = {
        "port": "0",
        "appendonly": "no",
        "databases": "1",
        "save": "",
        "maxmemory-policy": "noeviction",
        "dir": str(state),
    }
    for name, value in wanted.items():
        assert ask(server, "CONFIG", "GET", name) == [name.encode(), value.encode()]
    assert stat.S_IMODE(Path(server.socket).stat().st_mode) == 0o700
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    for path in state.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, f"others may open {path}"
    assert Path(f"/proc/{server.pid}/exe").resolve() == Path(server.binary).resolve()


def test_a_server_whose_socket_was_removed_ends_before_the_next_starts(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is removed before the supervisor has connected to it."""
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", "2")
    for seconds in (0.0, 0.5):
        server = embedded.ensure(state)
        time.sleep(seconds)
        Path(server.socket).unlink()
        again = embedded.ensure(state)
        assert servers(state) == [again.pid]
        assert again.started
        assert embedded.stop(state)


def test_a_server_that_hangs_is_not_replaced(state: Path) -> None:
    server = embedded.ensure(state)
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(BackendUnavailable, match="does not respond"):
        embedded.ensure(state, timeout=0.5)
    assert servers(state) == [server.pid]
    os.kill(server.pid, signal.SIGCONT)
    assert embedded.ensure(state).pid == server.pid


def test_a_server_that_cannot_start_says_why(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = program(tmp_path, before="{ echo 'no such luck' >&2; exit 1; }")
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", str(broken))
    with pytest.raises(BackendUnavailable, match=r"did not start.*no such luck"):
        embedded.ensure(state)
    assert servers(state) == []


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    state = tmp_path / ("long" * 30) / "state"
    for look in (embedded.ensure, embedded.status, embedded.stop):
        with pytest.raises(ConfigurationError, match=r"too long a path for a socket \(at most 98 bytes\)"):
            look(state)
    (tmp_path / "short").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir(mode=0o700)
    assert embedded.ensure(tmp_path / "short").socket == str(tmp_path / "real" / "sock")
    assert embedded.stop(tmp_path / "short")


def test_a_blocked_event_loop_keeps_its_lease(state: Path) -> None:
    blocked(f"embedded://{state}", ttl=1, seconds=2.2)
