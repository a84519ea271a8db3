"""What the project says to install is what it is: names and extras are those of the metadata."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
WITH_EXTRAS = re.compile(r"(?<![\w.])(pawlock\w*|/src|\.)\[([a-z, ]+)\]")


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
        for word in re.findall(r"(?<![\w./-])pawlock\w*", line)
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
    assert distribution(PROJECT["name"]).version == sys.modules["pawlock"].__version__


PYTHON = """#!/bin/sh
case $1:$2 in
    --version:) echo "Python @" ;;
    -m:venv) mkdir -p $3/bin && cp "$0" $3/bin/python ;;
esac
"""
"""What ``tools/setup_env.sh`` asks of a Python, and no more: of version @, and everything can be installed."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose environment can be made in no time, and two Pythons for it."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "setup_env.sh", tmp_path / "tools")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for version in ("3.12", "3.13"):
        program = tmp_path / f"python{version}"
        program.write_text(PYTHON.replace("@", version))
        program.chmod(0o755)
    return tmp_path


def set_up(checkout: Path, python: str) -> subprocess.CompletedProcess[str]:
    """What a make target does first, with a Python that is named, or with "" none."""
    return subprocess.run(
        ["bash", "tools/setup_env.sh", "dev"],
        cwd=checkout,
        env=os.environ | {"PYTHON": python and str(checkout / python)},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_environment_is_made_anew_for_a_python_that_is_named(checkout: Path) -> None:
    for named, version in (
        ("python3.12", "3.12"),
        ("", "3.12"),
        ("python3.12", "3.12"),
        ("python3.13", "3.13"),
    ):
        assert set_up(checkout, named).returncode == 0
        assert (checkout / ".venv/bin/python").read_text() == PYTHON.replace("@", version)
        assert set_up(checkout, named).stdout == "", "the second time there is nothing to do"


def test_a_python_that_cannot_be_used_is_an_error_also_with_an_environment(checkout: Path) -> None:
    assert set_up(checkout, "python3.12").returncode == 0
    refused = set_up(checkout, "none")
    assert refused.returncode == 1
    assert "no Python 3.11 or later was found" in refused.stderr
