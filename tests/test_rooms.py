"""`make lint` refuses an import upwards between the rooms of the core, one for types alone included."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

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
    shutil.copytree(ROOT / "src" / "pawl", tmp_path / "pawl", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("state/records.py", "pawl.core.keep.engine import Engine"),
        ("release/release.py", "pawl.core.acquire.fast import begin"),
    ],
    ids=["up", "across"],
)
def test_an_import_for_types_alone_counts_as_any_other(copy: Path, low: str, high: str) -> None:
    file = copy / "pawl" / "core" / low
    text = file.read_text(encoding="utf-8")
    assert "if TYPE_CHECKING:\n" in text
    file.write_text(
        text.replace("if TYPE_CHECKING:\n", f"if TYPE_CHECKING:\n    from {high}\n", 1), encoding="utf-8"
    )
    said = refused(copy)
    assert "Each room of the core imports only those below it BROKEN" in said
    assert low.removesuffix(".py").replace("/", ".") in said
