"""A state folder for each test, and a server that does not outlive it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pawlock import embedded

Spawn: TypeAlias = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAWLOCK_STATE_DIR", "PAWLOCK_SERVER_BIN", "PAWLOCK_EMBEDDED_IDLE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    yield folder
    if folder.exists():
        folder.chmod(0o700)
        embedded.stop(folder, force=True)


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Run a piece of Python in a process of its own; whatever is left of it is ended."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *args: object, **options: Any) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
