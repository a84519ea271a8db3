"""mypy and pyright, both strict, agree with what ``api.py`` says of the public API."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
API = Path(__file__).with_name("api.py")


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_mypy() -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    run("mypy", "--strict", "--warn-unused-ignores", str(API))


@pytest.mark.slow
def test_pyright(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    # Its own folder: pyright includes only what lies under its settings.
    (tmp_path / API.name).write_text(API.read_text())
    settings = {
        "include": [API.name],
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "reportMissingTypeStubs": False,
        "reportUnnecessaryTypeIgnoreComment": True,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    output = run("pyright", "-p", str(tmp_path), "--pythonpath", sys.executable, "--outputjson")
    assert json.loads(output[output.index("{") :])["summary"]["filesAnalyzed"] >= 1
