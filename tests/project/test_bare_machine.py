"""No test fails for a program that is not installed: it is skipped, and the reason names the program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
HIDDEN = re.compile(
    r"(redis|valkey|sentinel|mariadb|mysql|pg_|chrom|prometheus|promtool|systemd|schemathesis|go|java|node|npm|gcc|clang)"
    r".*|cc|c\+\+|tcc|spin|initdb|postgres|psql|openssl"
)
"""Programs that some test wants and a fresh machine does not have."""
WANTED = re.compile(
    r"shutil\.which|find_binary|available\(|FLAVOURS|Server\(\"(redis|valkey-8)|SentinelGroup|ClusterGroup"
)
"""What a test that needs a program says, in its file or in one that its folder shares."""


def files_that_want_programs() -> list[str]:
    """Every test file that looks for a program, and all of a folder whose helpers do."""
    found: set[Path] = set()
    for file in TESTS.rglob("*.py"):
        if file.parent == TESTS or not WANTED.search(file.read_text(encoding="utf-8")):
            continue
        found.update([file] if file.name.startswith("test_") else file.parent.glob("test_*.py"))
    return sorted(str(file) for file in found)


def bare_path(folder: Path) -> str:
    """A PATH with all programs of this one but the hidden ones."""
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*"):
            if not HIDDEN.fullmatch(program.name):
                link = folder / program.name
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(folder)


def run_bare(folder: Path, mode: str, *arguments: str) -> str:
    """Run tests as on a bare machine; their output. None may fail."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "not slow",
            "-p",
            "tests.support.plugins.bare",
            *arguments,
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
        env={**os.environ, "PATH": bare_path(folder), "PAWLOCK_BARE": mode},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_without_any_server_nothing_fails(tmp_path: Path) -> None:
    # One file is about finding the programs.
    files = [file for file in files_that_want_programs() if not file.endswith("support/test_servers.py")]
    out = run_bare(tmp_path, "servers", *files)
    assert "no valkey on a bare machine" in out
    assert "no promtool" in out
    assert "no PostgreSQL" in out, "programs beside PATH are hidden as well"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_without_any_program_nothing_fails(tmp_path: Path) -> None:
    """The server that comes as a wheel is there, and nothing else."""
    out = run_bare(tmp_path, "programs", *files_that_want_programs())
    assert "no redis-server on PATH" in out
