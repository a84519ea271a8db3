"""`make lint` refuses imports up or across the layers of the core, and cycles; for types alone too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("importlinter")


def refused(folder: Path) -> str:
    """What the layers' check says of a copy of the package; "" if it finds nothing."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache", "--config", ROOT / "pyproject.toml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(
        ROOT / "src" / "pawlock", tmp_path / "pawlock", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


LAYERS, CYCLES = (
    "Each layer of the core imports only those below it",
    "No modules import each other in a cycle",
)


@pytest.mark.parametrize(
    ("low", "high", "broken"),
    [
        ("core/state/records.py", "pawlock.core.keep.engine import Engine", LAYERS),
        ("core/release/release.py", "pawlock.core.acquire.first_request import begin", LAYERS),
        ("core/state/records.py", "pawlock.core.state.schedule import Schedule", CYCLES),
        ("sync/lock.py", "pawlock.sync.client import Client", CYCLES),
    ],
    ids=["up", "across", "a cycle in a layer", "a cycle of shells"],
)
def test_an_import_for_types_alone_counts_as_any_other(copy: Path, low: str, high: str, broken: str) -> None:
    file = copy / "pawlock" / low
    text = file.read_text(encoding="utf-8")
    assert "if TYPE_CHECKING:\n" in text
    file.write_text(
        text.replace("if TYPE_CHECKING:\n", f"if TYPE_CHECKING:\n    from {high}\n", 1), encoding="utf-8"
    )
    said = refused(copy)
    assert f"{broken} BROKEN" in said
    assert Path(low).stem in said
