"""Gets the libraries of others ready, once, in a folder that `make clean` removes.

Each stands by itself: two Python libraries that want different versions of redis-py have an environment each. What
cannot be had is named in the report with the reason, and left out.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

__all__ = ["CACHE", "go", "java", "node", "venv"]

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".make" / "peers"
HERE = Path(__file__).resolve().parent
LIMIT = 400.0  # s for one of them to be fetched and built


class _CannotError(Exception):
    """Why something cannot be installed, in one line."""


def _run(command: Sequence[str | Path], folder: Path) -> None:
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _CannotError(f"{Path(command[0]).name}: {error}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise _CannotError(f"{Path(command[0]).name} failed: {said[-1][:200] if said else 'it said nothing'}")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise _CannotError(f"no {name} on PATH")
    return found


def _built(folder: Path, sources: Sequence[Path]) -> tuple[bool, str]:
    """Whether what lies in a folder was made of these sources, and what to write down once it is."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = folder / "made-of"
    return stamp.exists() and stamp.read_text() == digest, digest


@cache
def venv(name: str, *requirements: str) -> str | None:
    """Make an environment with some Python packages; say why it cannot be made, or None."""
    folder = CACHE / name
    wanted = "\n".join((sys.version, *requirements))
    stamp = folder / "made-of"
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run([sys.executable, "-m", "venv", folder], ROOT)
        _run([python(name), "-m", "pip", "install", "--quiet", "--no-input", *requirements], ROOT)
    except _CannotError as error:
        return str(error)
    stamp.write_text(wanted)
    return None


def python(name: str) -> Path:
    """Return the interpreter of an environment."""
    return CACHE / name / "bin" / "python"


@cache
def node() -> str | None:
    """Install node-redlock and ioredis; say why it cannot be done, or None."""
    folder = CACHE / "node"
    sources = sorted((HERE / "node").iterdir())
    ready, digest = _built(folder, sources)
    if ready:
        return None
    try:
        _program("node")
        npm = _program("npm")
        _fresh(folder, sources)
        _run([npm, "ci", "--silent", "--no-audit", "--no-fund"], folder)
    except _CannotError as error:
        return str(error)
    (folder / "made-of").write_text(digest)
    return None


@cache
def go(name: str) -> str | None:
    """Build the program that drives some Go libraries; say why it cannot be done, or None."""
    folder = CACHE / f"go-{name}"
    sources = [HERE / "go" / "main.go", *sorted((HERE / "go" / name).iterdir())]
    ready, digest = _built(folder, sources)
    if ready:
        return None
    try:
        program = _program("go")
        _fresh(folder, sources)
        _run([program, "build", "-o", "driver", "."], folder)
    except _CannotError as error:
        return str(error)
    (folder / "made-of").write_text(digest)
    return None


@cache
def java() -> str | None:
    """Build the program that drives Redisson; say why it cannot be done, or None."""
    folder = CACHE / "java"
    sources = [HERE / "java" / "pom.xml", HERE / "java" / "src" / "main" / "java" / "Driver.java"]
    ready, digest = _built(folder, sources)
    if ready:
        return None
    try:
        _program("java")
        maven = _program("mvn")
        _fresh(folder, sources[:1])
        (folder / "src" / "main" / "java").mkdir(parents=True)
        shutil.copy(sources[1], folder / "src" / "main" / "java")
        _run([maven, "-q", "-B", "package"], folder)
    except _CannotError as error:
        return str(error)
    (folder / "made-of").write_text(digest)
    return None


def _fresh(folder: Path, sources: Sequence[Path]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in sources:
        shutil.copy(path, folder)
