"""What the project says to install is what it is: names and extras are those of the metadata."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
PLACES = (
    "src",
    "docs",
    "tests",
    "tools",
    "deploy",
    "examples",
    "benchmarks",
    "demo",
    "formal",
    "changelog.d",
)
KINDS = {".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml", ".html", ".service", ""}
INSTALL = re.compile(r"pip3? install ([^\n`]*)")
WITH_EXTRAS = re.compile(r"(?<![\w.])(pawl\w*|/src|\.)\[([a-z, ]+)\]")


def texts() -> Iterator[tuple[str, str]]:
    """Every text of the tree, and where it is."""
    files = [file for file in ROOT.iterdir() if file.is_file()]
    for place in PLACES:
        files += (ROOT / place).rglob("*")
    for file in files:
        if (
            file.is_file()
            and file.suffix in KINDS
            and "__pycache__" not in file.parts
            and file != Path(__file__)
        ):
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8", errors="replace")


def test_every_install_line_names_this_distribution() -> None:
    lines = [
        (place, word)
        for place, text in texts()
        for line in INSTALL.findall(text)
        for word in re.findall(r"(?<![\w./-])pawl\w*", line)
    ]
    assert len(lines) > 15, "no line was found: are they written in another way now?"
    assert not [(place, word) for place, word in lines if word != PROJECT["name"]]


def test_every_extra_that_is_named_exists() -> None:
    named = [
        (place, name, extra.strip())
        for place, text in texts()
        for name, extras in WITH_EXTRAS.findall(text)
        for extra in extras.split(",")
    ]
    assert {extra for _, _, extra in named} >= {"cli", "embedded", "serve", "testing", "prometheus", "otel"}
    assert not [one for one in named if one[2] not in EXTRAS or one[1] not in (PROJECT["name"], ".", "/src")]


def test_the_checkout_is_installed_once() -> None:
    """Two distributions that own one package: whichever is uninstalled takes the other's files along."""
    assert distribution(PROJECT["name"]).version == sys.modules["pawl"].__version__
    with pytest.raises(PackageNotFoundError):
        distribution("pawl")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with a copy of the package."""
    shutil.copytree(ROOT / "src" / "pawl", tmp_path / "pawl", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def start(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the package of a folder."""
    return subprocess.run(
        [sys.executable, *command], cwd=folder, check=False, capture_output=True, text=True, timeout=60
    )


def test_files_of_the_other_distribution_are_one_clear_error(mixed: Path) -> None:
    (mixed / "pawl" / "linkedin.py").write_text("")
    done = start(mixed, "-c", "import pawl")
    assert done.returncode == 1
    assert f"ImportError: {mixed}/pawl has files of another distribution" in done.stderr
    assert "pip install pawlock" in done.stderr


def test_the_command_over_which_the_other_was_installed_says_so_in_one_line(mixed: Path) -> None:
    (mixed / "pawl" / "__init__.py").write_text("")
    done = start(mixed, "-m", "pawl", "--help")
    assert done.returncode == 69
    assert done.stderr.count("\n") == 1
    assert "pip install pawlock" in done.stderr
