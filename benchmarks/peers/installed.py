"""Gets the libraries of others ready, once, in a folder that `make clean` removes.

Each stands by itself: two Python libraries that want different versions of redis-py have an environment each. What
cannot be had is named in the report with the reason, and left out.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

__all__ = ["CACHE", "HERE", "ready"]

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".make" / "peers"
LIMIT = 400.0  # s for one command, which may fetch and build


@cache
def ready(name: str, sources: tuple[str, ...], *commands: tuple[str, ...]) -> str | None:
    """Copy some sources into a folder and run commands there; say why that cannot be done, or None.

    Args:
        name: The folder, below `CACHE`.
        sources: Files and folders beside this module; what they contain decides whether the commands are run again.
        commands: Each in the folder; the first word is a program.
    """
    folder, made = CACHE / name, _digest(sources, commands)
    stamp = folder / "made-of"
    if stamp.exists() and stamp.read_text() == made:
        return None
    if shutil.which(commands[0][0]) is None:
        return f"no {commands[0][0]} on PATH"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for place in (HERE / source for source in sources):
        if place.is_dir():
            shutil.copytree(place, folder, dirs_exist_ok=True)
        else:
            shutil.copy(place, folder)
    for words in commands:
        try:
            done = subprocess.run(
                words, cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{words[0]}: {error}"
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
            return f"{words[0]} failed: {said[-1][:200]}"
    stamp.write_text(made)
    return None


def _digest(sources: tuple[str, ...], commands: tuple[tuple[str, ...], ...]) -> str:
    made = hashlib.sha256(repr((sys.version, commands)).encode())
    for place in (HERE / source for source in sources):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file():
                made.update(path.read_bytes())
    return made.hexdigest()
