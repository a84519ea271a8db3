"""pawlock works with each major version of redis-py that its metadata allows."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.support.servers import Server

PROGRAM = Path(__file__).with_name("versions.py")
OLDEST = "5.0.0"


def run(server: Server, folder: Path | None) -> str:
    path = [str(folder)] if folder else []
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), server.url], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_versions_are_those_of_the_metadata() -> None:
    (redis,) = [one for one in requires("pawlock") or () if one.startswith("redis")]
    assert set(redis.removeprefix("redis").split(",")) == {">=5", "<9"}


def test_the_version_that_is_installed(valkey: Server) -> None:
    assert run(valkey, None).split(".")[0] in "5678"


@pytest.mark.slow
@pytest.mark.parametrize("version", [OLDEST, "6.4.0", "7.1.0"])
def test_another_version(version: str, valkey: Server, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path),
        f"redis=={version}",
    ]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"redis-py {version} could not be installed")
    assert run(valkey, tmp_path) == version
