"""Which folder, which program, and where an embedded server would be wrong."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

import pawlock
from pawlock import embedded
from pawlock.errors import ConfigurationError
from tests.support.embedded import Spawn, servers
from tests.support.servers import find_binary


def test_a_folder_that_others_may_write_to_is_refused(state: Path) -> None:
    state.mkdir()
    for mode in (0o770, 0o707, 0o777):
        state.chmod(mode)
        with pytest.raises(ConfigurationError, match=f"others may not write to.*0{mode:o}"):
            embedded.ensure(state)


def test_a_folder_of_somebody_else_is_refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = embedded.ensure(state)
    me = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: me + 1)
        for look in (embedded.ensure, embedded.status, embedded.stop):
            with pytest.raises(ConfigurationError, match=f"a folder of yours.*belongs to user id {me}:"):
                look(state)
    assert embedded.ensure(state).pid == server.pid


AS_SOMEBODY_ELSE = """
import os, sys
from pawlock import embedded
embedded.status("/nowhere")
os.setgid(65534)
os.setuid(65534)
try:
    embedded.ensure(sys.argv[1])
except embedded.ConfigurationError:
    print("refused")
try:
    open(sys.argv[1] + "/lock")
except PermissionError:
    print("out of the way")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_neither_joins_nor_stands_in_the_way(spawn: Spawn) -> None:
    """Although the folder is open to read: whoever can open its file can hold an flock on it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = embedded.ensure(folder)
        try:
            assert spawn(AS_SOMEBODY_ELSE, folder).communicate(timeout=30)[0] == "refused\nout of the way\n"
            assert embedded.ensure(folder).pid == server.pid
        finally:
            embedded.stop(folder, force=True)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigurationError, match="PAWLOCK_STATE_DIR"):
            embedded.ensure(path)


def test_a_link_to_the_folder_leads_to_the_same_server(state: Path, tmp_path: Path) -> None:
    server = embedded.ensure(state)
    (tmp_path / "link").symlink_to(state)
    assert embedded.ensure(tmp_path / "link") == embedded.EmbeddedServer(
        socket=server.socket, pid=server.pid, state_dir=str(state), started=False, binary=server.binary
    )


def test_the_program_that_was_chosen(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = tmp_path / "mine"
    chosen.symlink_to(find_binary("valkey"))
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"PAWLOCK_SERVER_BIN=.*not an executable file"):
        embedded.ensure(state)
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", str(chosen))
    assert embedded.ensure(state).started


def test_redis_serves_as_well(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on PATH")
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", program)
    server = embedded.ensure(state)
    assert server.started
    assert embedded.ensure(state).pid == server.pid
    assert (embedded.status(state).version or "").startswith(("redis", "valkey"))


def test_without_a_python_to_supervise_it(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("", "/usr/bin/uwsgi"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", missing)
            patch.setattr(shutil, "which", lambda *_: None)
            with pytest.raises(ConfigurationError, match="no python3 is on PATH"):
                embedded.ensure(state)
    assert servers(state) == []


NOTICED = """
import logging, sys
from pawlock import embedded
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
embedded.ensure(sys.argv[1])
embedded.ensure(sys.argv[1])
"""


def test_the_notice_comes_once(state: Path, spawn: Spawn) -> None:
    said = spawn(NOTICED, state).communicate(timeout=30)[0]
    assert said.count("it serves only this machine") == 1


def test_not_on_other_systems(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        with pytest.raises(ConfigurationError, match="POSIX"):
            embedded.ensure("x")


def test_a_variable_that_can_never_work_is_refused_at_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in (
        ("PAWLOCK_EMBEDDED_IDLE", "soon"),
        ("PAWLOCK_EMBEDDED_IDLE", "nan"),
        ("PAWLOCK_SERVER_BIN", "/no/such/program"),
        ("PAWLOCK_SERVER_BIN", os.devnull),
        ("PAWLOCK_STATE_DIR", os.devnull),
        ("PAWLOCK_STATE_DIR", f"{os.devnull}/below"),
        ("PAWLOCK_STATE_DIR", "~no-such-user/state"),
    ):
        for connect in (pawlock.connect, pawlock.connect_async):
            with monkeypatch.context() as patch:
                patch.setenv(variable, value)
                with pytest.raises(ConfigurationError, match=variable) as refused:
                    connect("embedded://")
                assert value in str(refused.value)
                assert "set " in str(refused.value) or "must be " in str(refused.value)
