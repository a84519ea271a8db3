"""Moments that a test can only make by taking the parts of the embedded server one by one."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from pawlock import embedded
from pawlock.embedded import _server, _supervisor
from pawlock.embedded._supervisor import Connection, Supervisor
from pawlock.errors import BackendUnavailable
from tests.support.embedded import Spawn, eventually, lives, servers, supervisor_of


def test_a_client_that_connects_in_the_last_moment_is_not_cut_off(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = embedded.ensure(state)
    monkeypatch.chdir(state)
    ending = Supervisor.__new__(Supervisor)
    with Connection(server.socket, 5.0) as own:
        os.kill(server.pid, signal.SIGSTOP)
        # Waits in the backlog: the server has not even accepted it.
        with Connection(server.socket, 5.0) as late:
            thread = threading.Thread(target=ending._retire, args=(own,))
            thread.start()
            assert eventually(lambda: not Path(server.socket).exists())
            os.kill(server.pid, signal.SIGCONT)
            thread.join()
            assert late.ask("PING") == "PONG"
    assert embedded.ensure(state).pid == server.pid


def kill_supervisor(state: Path) -> None:
    pid = supervisor_of(state)
    assert eventually(lambda: (state / "pids").exists() and str(pid) in (state / "pids").read_text())
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not lives(pid))


def test_a_supervisor_killed_while_it_ends_the_server(state: Path) -> None:
    pid = embedded.ensure(state).pid
    kill_supervisor(state)
    (state / _supervisor.SOCKET).rename(state / _supervisor.HIDDEN)
    assert embedded.ensure(state).pid == pid
    assert servers(state) == [pid]


def test_stop_a_server_that_hangs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server, "_PATIENCE", 0.3)
    for supervised in (True, False):
        server = embedded.ensure(state)
        if not supervised:
            kill_supervisor(state)
        os.kill(server.pid, signal.SIGSTOP)
        for look in (embedded.stop, embedded.status):
            with pytest.raises(BackendUnavailable, match="does not respond"):
                look(state)
        assert lives(server.pid)
        assert embedded.stop(state, force=True) is True
        assert eventually(lambda: not lives(server.pid))


def test_a_stale_pid_file_ends_no_other_process(state: Path, spawn: Spawn) -> None:
    server = embedded.ensure(state)
    embedded.stop(state, force=True)
    bystander = spawn("import time; time.sleep(60)")
    (state / "pids").write_text(f"{bystander.pid} {bystander.pid}")
    assert embedded.stop(state, force=True) is False
    assert embedded.ensure(state).pid != server.pid
    embedded.stop(state, force=True)
    assert bystander.poll() is None


def test_a_process_forked_from_the_starter_does_not_count_as_a_supervisor(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a copy of the descriptor, if it was forked while another thread was starting the server."""
    children: list[int] = []

    def fork_first(state: Path) -> list[str]:
        children.append(os.fork())
        if children == [0]:
            signal.pause()
        return command(state)

    command = _server._command
    monkeypatch.setattr(_server, "_command", fork_first)
    try:
        embedded.ensure(state)
        assert embedded.stop(state) is True
        assert not _server._supervised(state)
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)
