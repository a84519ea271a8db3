"""Moments that a test can only make by taking the parts of the embedded server one by one."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from pawlock import embedded
from pawlock.embedded import _server, _watch
from pawlock.embedded._watch import Connection
from pawlock.errors import BackendUnavailable
from tests.support.embedded import Spawn, eventually


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


def test_stop_a_server_that_hangs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server, "_PATIENCE", 0.3)
    server = embedded.ensure(state)
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(BackendUnavailable, match="does not respond"):
        embedded.stop(state)
    assert _watch.server_lives(str(state))
    with pytest.raises(BackendUnavailable, match="does not respond"):
        embedded.status(state)
    assert embedded.stop(state, force=True) is True
    assert not _watch.server_lives(str(state))


def test_a_stale_pid_file_ends_no_other_process(state: Path, spawn: Spawn) -> None:
    server = embedded.ensure(state)
    embedded.stop(state, force=True)
    bystander = spawn("import time; time.sleep(60)")
    (state / "server.pid").write_text(str(bystander.pid))
    with (
        pytest.raises(BackendUnavailable, match="does not stop"),
        _server._hold_for_child(state / _watch.ALIVE),
    ):
        _server._end(state, signal.SIGKILL, 0.1)
    assert bystander.poll() is None
    assert embedded.ensure(state).pid != server.pid


def test_a_fork_during_the_start_does_not_count_as_a_server(state: Path) -> None:
    state.mkdir(mode=0o700)
    with _server._hold_for_child(state / _watch.ALIVE):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        assert _watch.server_lives(str(state))
    try:
        deadline = time.monotonic() + 5
        while _watch.server_lives(str(state)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
