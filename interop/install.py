"""Install the libraries that the interop tests drive, each from its own registry, into ``.interop/``.

``python -m interop.install`` prints one line for each part. What is there already, in these versions, stays. A
part that this machine cannot have is skipped with the reason; with ``PAWLOCK_INTEROP=require`` that is a failure.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from interop.kinds import DRIVERS, HOME, NEEDS, REQUIRED

LIMIT = 900.0
"""Seconds that one command may take: a first download over a slow line."""

INSTALLED = {
    "python": ("requirements.txt",),
    "node": ("package*.json",),
    "go": ("*", "../../clients/go/*"),
    "java": ("**/*.xml", "**/*.java"),
}
"""What each part is made of: a driver that is run from its source needs nothing new when it changes."""

JAVA = {"redisson4": "redisson", "redisson3": "redisson", "spring": "spring"}
"""Each folder of Java libraries, and the folder of the sources that are compiled with them."""


def run(command: Sequence[str | Path], cwd: Path, **environ: str) -> None:
    """Run one command; what it says is shown only when it fails.

    Raises:
        SystemExit: It failed.
    """
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}")


def python(folder: Path) -> None:
    venv.create(folder, with_pip=True, clear=True, symlinks=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run([*pip, "-r", DRIVERS / "python" / "requirements.txt"], folder)


def node(folder: Path) -> None:
    modules = folder / "modules"
    modules.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(DRIVERS / "node" / name, modules)
    quiet = ("--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts")
    run(["npm", "ci", *quiet, "--cache", folder / "cache"], modules)


def go(folder: Path) -> None:
    # Read-only folders, Go's default, could not be removed again by `make clean`.
    caches = {
        "GOMODCACHE": str(folder / "modules"),
        "GOCACHE": str(folder / "cache"),
        "GOFLAGS": "-modcacherw",
    }
    run(["go", "build", "-o", folder / "driver", "."], DRIVERS / "go", **caches)


def java(folder: Path) -> None:
    source = DRIVERS / "java"
    options = ("-q", "-B", f"-Dmaven.repo.local={folder / 'cache'}", f"-Dlibraries={folder / 'lib'}")
    run(["mvn", *options, "-f", source / "pom.xml", "generate-resources"], source)
    for name, own in JAVA.items():
        files = [*sorted((source / "common").glob("*.java")), *sorted((source / own).glob("*.java"))]
        classes = folder / "classes" / name
        run(["javac", "-nowarn", "-d", classes, "-cp", f"{folder / 'lib' / name}/*", *files], source)


PARTS: dict[str, Callable[[Path], None]] = {"python": python, "node": node, "go": go, "java": java}


def fingerprint(part: str) -> str:
    """What decides whether a part is current: its files, its place and the interpreter."""
    found = hashlib.sha256(f"{HOME} {sys.version} {Path(__file__).read_text(encoding='utf-8')}".encode())
    for pattern in INSTALLED[part]:
        for path in sorted((DRIVERS / part).glob(pattern)):
            found.update(path.read_bytes())
    return found.hexdigest()


def size(folder: Path) -> float:
    """Megabytes below a folder, links not followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*")) / 1e6


def install(part: str) -> tuple[bool, str]:
    """Install one part unless it is there; say whether it can be used, and a line about it."""
    for program in NEEDS[part]:
        if shutil.which(program) is None:
            return False, f"skipped (no {program} on PATH)"
    folder, wanted = HOME / part, fingerprint(part)
    stamp = folder / "installed"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return True, "as installed"
    begin = time.monotonic()
    stamp.unlink(missing_ok=True)
    for old in (folder / "modules", folder / "classes", folder / "lib") if part != "go" else ():
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        PARTS[part](folder)
    except (SystemExit, OSError, subprocess.TimeoutExpired) as error:
        return False, f"skipped (could not be installed: {error})"
    stamp.write_text(wanted, encoding="utf-8")
    return True, f"installed in {time.monotonic() - begin:.1f} s, {size(folder):.0f} MB"


def main() -> int:
    """Install all parts; 1 if one is missing that must be there."""
    print("libraries of other languages (.interop/)", flush=True)
    failed = []
    HOME.mkdir(exist_ok=True)
    with (HOME / "lock").open("w") as alone:
        # Two runs at once would install into each other's folders.
        fcntl.flock(alone, fcntl.LOCK_EX)
        for part in PARTS:
            usable, line = install(part)
            print(f"  {part:<8} {line}", flush=True)
            if not usable:
                failed.append(part)
    if failed and REQUIRED:
        print(f"PAWLOCK_INTEROP=require, but these are missing: {', '.join(failed)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
