"""Start, join, end and describe the embedded server; see ``_supervisor`` for what keeps that free of races."""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pawlock._system import monotonic, sleep
from pawlock.embedded import _places, _supervisor
from pawlock.embedded._model import EmbeddedServer, EmbeddedStatus, ServerInUse, idle_seconds
from pawlock.embedded._supervisor import LOCK, LOG, PIDS, SOCKET, Connection, Refused, private, try_lock
from pawlock.errors import BackendUnavailable, ConfigurationError

T = TypeVar("T")

_log = logging.getLogger("pawlock.embedded")
_noticed = threading.Event()

_PATIENCE = 5.0
"""Seconds that a server may take to answer a status request or a stop."""

_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
_STAMP = re.compile(r"^\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ [#*.-] ")


def ensure(state: Path, timeout: float) -> EmbeddedServer:
    """Do the work of `pawlock.embedded.ensure`."""
    try:
        return _ensure(state, timeout)
    except OSError as error:  # the folder is read-only, full, or removed by somebody
        if error.errno is None:
            raise
        raise BackendUnavailable(
            f"the embedded server cannot use {state}: {error.strerror}; fix that, or name another folder in "
            "PAWLOCK_STATE_DIR"
        ) from error


def _ensure(state: Path, timeout: float) -> EmbeddedServer:
    idle = idle_seconds()
    state, path = _places.prepare(state)
    deadline = monotonic() + timeout
    found = before = _probe(path, deadline)
    started = False
    while found is None or not (started or _supervised(state)):
        if started and not _supervised(state):
            raise BackendUnavailable(f"the embedded server did not start: {_last_words(state)}")
        if monotonic() > deadline:
            raise BackendUnavailable(f"the embedded server in {state} did not start within {timeout:g} s")
        if started or not _start(state, path, idle, deadline):
            sleep(0.002)
        else:
            started = True
        found = _probe(path, deadline)
    if not _noticed.is_set():
        _noticed.set()
        _log.info("using the embedded server in %s: it serves only this machine", state)
    return EmbeddedServer(
        socket=path, pid=found[0], state_dir=str(state), started=started and found != before, binary=found[1]
    )


def stop(state: Path, *, force: bool) -> bool:
    """Do the work of `pawlock.embedded.stop`."""
    if not state.exists():
        return False
    state, path = _places.check(state)
    found, deadline = None, monotonic() + _PATIENCE
    try:
        while (found := _probe(path, deadline)) is None:
            if not _supervised(state):
                return False
            if monotonic() > deadline:
                raise BackendUnavailable(f"the embedded server in {state} is still starting")
            sleep(0.01)
        _ask(path, monotonic() + _PATIENCE, lambda connection: _shut_down(connection, force=force))
    except BackendUnavailable:
        if not force:
            raise
        _kill(state)
    deadline = monotonic() + 10.0
    # Unless somebody has started the next one already.
    while (present := _probe(path, deadline)) in {None, found} and (present or _supervised(state)):
        if monotonic() > deadline:
            raise BackendUnavailable(f"the embedded server in {state} does not stop")
        sleep(0.005)
    return True


def status(state: Path) -> EmbeddedStatus:
    """Do the work of `pawlock.embedded.status`."""
    found = path = None
    if state.exists():
        state, path = _places.check(state)
        found = _ask(path, monotonic() + _PATIENCE, lambda link: (link.info("server"), link.others()))
    if found is None:
        return EmbeddedStatus(running=False, state_dir=str(state))
    fields, clients = found
    valkey = fields.get("valkey_version")
    return EmbeddedStatus(
        running=True,
        state_dir=str(state),
        socket=path,
        pid=int(fields["process_id"]),
        version=f"valkey {valkey}" if valkey else f"redis {fields.get('redis_version', '?')}",
        binary=fields.get("executable", "?"),
        clients=clients,
    )


def _ask(path: str, deadline: float, question: Callable[[Connection], T]) -> T | None:
    """Ask the server at the socket; None when nobody listens there.

    Raises:
        BackendUnavailable: somebody listens and does not answer in time.
    """
    while True:
        try:
            with Connection(path, max(deadline - monotonic(), 0.1)) as connection:
                return question(connection)
        except (FileNotFoundError, ConnectionError):
            return None
        except (BlockingIOError, Refused) as error:
            # Blocking: it did not answer in time, or too many are connecting at once.
            if monotonic() > deadline:
                raise BackendUnavailable(f"the server at {path} does not respond: {error}") from error
            sleep(0.01)


def _probe(path: str, deadline: float) -> tuple[int, str] | None:
    """Look for a server: its process and program."""
    fields = _ask(path, deadline, lambda connection: connection.info("server"))
    return (int(fields["process_id"]), fields.get("executable", "?")) if fields else None


def _shut_down(connection: Connection, *, force: bool) -> None:
    deadline = monotonic() + 0.5
    while not force and (clients := connection.others()):
        # A connection that was closed counts for a moment more, and that of the supervisor until it has a name.
        if monotonic() > deadline:
            raise ServerInUse(f"the embedded server has connected clients: {clients}", clients=clients)
        sleep(0.01)
    connection.ask("SHUTDOWN", "NOSAVE")


def _supervised(state: Path) -> bool:
    """Whether a supervisor lives, or somebody is starting one."""
    try:
        with open(state / LOCK, opener=private) as file:
            # Shared, so that several processes may check at once, without keeping one from starting a supervisor.
            return not try_lock(file, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _start(state: Path, path: str, idle: float, deadline: float) -> bool:
    """Start a server with a supervisor, or give a server that has none another one; False if there is one."""
    with open(state / LOCK, "a+", opener=private) as lock:
        if not try_lock(lock):
            return False
        with contextlib.suppress(FileNotFoundError):
            # The supervisor was killed while it was ending its server.
            (state / _supervisor.HIDDEN).rename(state / SOCKET)
        # What was found before may have ended, or been started, since.
        if orphan := _probe(path, deadline):
            server = f"server={orphan[0]}"
        else:
            server = f"{shlex.join(_command(state))} 3<&- & server=$!"
            (state / SOCKET).unlink(missing_ok=True)
        (state / PIDS).unlink(missing_ok=True)
        # The folder's name is for people who look at the list of processes: the supervisor works in it.
        supervisor = shlex.join([*_supervisor_command(), str(state), str(idle)])
        # The shell leaves at once, so the supervisor is nobody's child to wait for.
        script = f"exec 3<&0\n{{ {server}\nexec {supervisor} $server\n}} </dev/null &"
        environ = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        with open(state / LOG, "ab" if orphan else "wb", opener=private) as log:
            # Its own session: a Ctrl-C in the terminal of the process that happened to start it is not for it.
            subprocess.run(
                ["/bin/sh", "-c", script],
                stdin=lock, stdout=log, stderr=log, cwd=state, env=environ, umask=0o077, start_new_session=True, check=True,
            )  # fmt: skip
    return True


def _supervisor_command() -> list[str]:
    """A Python, and what it runs to be the supervisor: its file; in a zip there is none, and it is the text itself.

    Raises:
        ConfigurationError: There is no Python to run it.
    """
    python: str | None = sys.executable
    # In a frozen program it is that program.
    if getattr(sys, "frozen", False) or not Path(python or "").name.lower().startswith(("python", "pypy")):
        python = shutil.which("python3")
    if python is None:
        raise ConfigurationError(
            "the embedded server is supervised by a Python program, and no python3 is on PATH: install one, "
            "or set PAWLOCK_URL to the URL of a server"
        )
    file = _supervisor.__file__
    return [python, "-I", "-S", *([file] if Path(file).is_file() else ["-c", inspect.getsource(_supervisor)])]


def _command(state: Path) -> list[str]:
    # The socket is named from within the folder, which has no limit of length.
    options = {
        "dir": str(state),
        "port": "0",
        "unixsocket": SOCKET,
        "unixsocketperm": "700",
        # What a file would survive is a crash of the server alone: who holds a lock is on this machine, too, and the
        # next fences come from the clock.
        "appendonly": "no",
        "databases": "1",
        "save": "",
        # A lock must not vanish to make room.
        "maxmemory-policy": "noeviction",
    }
    return [_places.find_program(), *(part for key, value in options.items() for part in (f"--{key}", value))]


def _kill(state: Path) -> None:
    """End a server that does not respond. It listens, or has a supervisor: so the file is about the present one."""
    with contextlib.suppress(FileNotFoundError):
        pids = (state / PIDS).read_text().split()
        for pid in map(int, pids[: 1 + _supervised(state)]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _last_words(state: Path) -> str:
    """What a server said last, in one line, without its clock."""
    lines = (state / LOG).read_text(errors="replace").splitlines()
    said = "; ".join([line for line in (_STAMP.sub("", line).strip() for line in lines) if line][-4:])
    return f"{said or 'it said nothing'} (full log: {state / LOG})"
