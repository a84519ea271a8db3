"""Start, join, end and describe the embedded server. `_watch` says which files keep it free of races."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO

from pawlock._outsider import let_out
from pawlock.embedded import _data, _places, _watch
from pawlock.embedded._model import EmbeddedServer, EmbeddedStatus, ServerInUse, idle_seconds
from pawlock.errors import BackendUnavailable

_log = logging.getLogger("pawlock.embedded")
_noticed = threading.Event()
_held: set[IO[str]] = set()

_LOG = "server.log"
# How long a server process that nobody can reach may take to open its socket before it counts as lost. It opens it
# before it reads its data; and a client that waits here may have leases to renew.
_LOST_AFTER = 1.0
# How long a server may take to answer a status request or a stop.
_PATIENCE = 5.0
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")


@dataclass(frozen=True, slots=True)
class _Found:
    """A server that answered."""

    pid: int
    binary: str


def ensure(state: Path, timeout: float) -> EmbeddedServer:
    """Do the work of `pawlock.embedded.ensure`."""
    try:
        return _ensure(state, timeout)
    except OSError as error:  # the folder is read-only, full, or removed by somebody
        let_out(error)
        raise BackendUnavailable(
            f"the embedded server cannot use {state}: {error.strerror or error}; fix that, or name another "
            "folder in PAWLOCK_STATE_DIR"
        ) from error


def _ensure(state: Path, timeout: float) -> EmbeddedServer:
    idle = idle_seconds()
    state = _places.prepare(state)
    path = _places.socket_path(state)
    deadline = time.monotonic() + timeout
    found, started = _probe(path, deadline), False
    if found is None or (idle > 0 and not _watch.watcher_lives(str(state))):
        with _locked(state, deadline):
            found = _probe(path, deadline) or _recover_lost(state, path, deadline)
            with contextlib.ExitStack() as stack:
                # Held before the watcher starts: it leaves when nobody holds it, and nobody is about to.
                alive = None if found else stack.enter_context(_hold_for_child(state / _watch.ALIVE))
                if idle > 0 and not _watch.watcher_lives(str(state)):
                    _start_watcher(state, idle)
                if alive is not None:
                    found, started = _start(state, path, deadline, alive), True
            assert found is not None  # noqa: S101
    _log_first_use(state)
    return EmbeddedServer(
        socket=path, pid=found.pid, state_dir=str(state), started=started, binary=found.binary
    )


def stop(state: Path, *, force: bool) -> bool:
    """Do the work of `pawlock.embedded.stop`."""
    if not state.exists():
        return False
    try:
        return _stop(state, force=force)
    except OSError as error:
        let_out(error)
        raise BackendUnavailable(f"the embedded server in {state} cannot be stopped: {error}") from error


def _stop(state: Path, *, force: bool) -> bool:
    state = _places.check(state)
    path = _places.socket_path(state)
    with _locked(state, time.monotonic() + 10.0):
        if not _watch.server_lives(str(state)):
            return False
        try:
            with _reach(state, path) as connection:
                clients = _watch.retire(str(state), connection, force=force)
        except (OSError, _watch.Refused) as error:
            let_out(error)
            if not force:
                raise BackendUnavailable(
                    f"the embedded server in {state} does not respond: {error}"
                ) from error
            _end(state, signal.SIGKILL)
            clients = 0
    if clients:
        raise ServerInUse(f"the embedded server in {state} has connected clients: {clients}", clients=clients)
    # So that the folder may be removed: the watcher notices at once, and leaves when it gets the lock.
    patience = time.monotonic() + 1.0
    while _watch.watcher_lives(str(state)) and time.monotonic() < patience:
        time.sleep(0.005)
    return True


def _reach(state: Path, path: str) -> _watch.Connection:
    """Connect to a server that may be coming up still, its starter having been interrupted or killed."""
    coming = time.monotonic() + _LOST_AFTER
    while True:
        with contextlib.ExitStack() as stack:
            try:
                connection = stack.enter_context(_watch.Connection(path, _PATIENCE))
                connection.ask("PING")
            except (OSError, _watch.Refused) as error:
                let_out(error)
                if time.monotonic() > coming or not _watch.server_lives(str(state)):
                    raise
            else:
                stack.pop_all()
                return connection
        time.sleep(0.01)


def status(state: Path) -> EmbeddedStatus:
    """Do the work of `pawlock.embedded.status`."""
    if not state.exists():
        return EmbeddedStatus(running=False, state_dir=str(state))
    state = _places.check(state)
    path = _places.socket_path(state)
    try:
        with _watch.Connection(path, _PATIENCE) as connection:
            fields = connection.info("server", "keyspace")
            clients, keys = connection.others(), int(str(connection.ask("DBSIZE")))
    except (FileNotFoundError, ConnectionError) as error:
        let_out(error)
        return EmbeddedStatus(running=False, state_dir=str(state))
    except (OSError, _watch.Refused) as error:
        let_out(error)
        raise BackendUnavailable(f"the embedded server in {state} does not respond: {error}") from error
    valkey = fields.get("valkey_version")
    return EmbeddedStatus(
        running=True,
        state_dir=str(state),
        socket=path,
        pid=int(fields["process_id"]),
        version=f"valkey {valkey}" if valkey else f"redis {fields.get('redis_version', '?')}",
        binary=fields.get("executable", "?"),
        clients=clients,
        keys=keys,
        uptime=int(fields["uptime_in_seconds"]),
        watched=_watch.watcher_lives(str(state)),
    )


def _probe(path: str, deadline: float) -> _Found | None:
    """Look for a server at the socket; None when nobody listens there.

    Raises:
        BackendUnavailable: somebody listens and does not answer in time.
    """
    while True:
        left = deadline - time.monotonic()
        try:
            with _watch.Connection(path, max(left, 0.1)) as connection:
                connection.ask("PING")
                fields = connection.info("server")
                return _Found(int(fields["process_id"]), fields.get("executable", "?"))
        except (FileNotFoundError, ConnectionError) as error:
            let_out(error)
            return None
        except (TimeoutError, BlockingIOError, _watch.Refused) as error:
            let_out(error)
            # Refused: it is loading its data. Blocking: too many are connecting at once.
            if time.monotonic() > deadline:
                raise BackendUnavailable(
                    f"the embedded server at {path} does not respond: {error}"
                ) from error
            time.sleep(0.01)
        except OSError as error:
            let_out(error)
            raise BackendUnavailable(f"the embedded server at {path} cannot be reached: {error}") from error


@contextlib.contextmanager
def _locked(state: Path, deadline: float) -> Generator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(
                _watch.locked(str(state / _watch.LOCK), max(deadline - time.monotonic(), 0.0))
            )
        except TimeoutError as error:
            let_out(error)
            raise BackendUnavailable(
                f"another process is still starting or stopping the embedded server in {state}"
            ) from error
        yield


def _recover_lost(state: Path, path: str, deadline: float) -> _Found | None:
    """Deal with a server process that exists and cannot be reached; the caller holds the lock.

    It may be coming up still, its starter having been killed; a watcher may have been killed while it was
    ending it; or its socket was removed, and then it must end before another server opens the same data.
    """
    lost = min(deadline, time.monotonic() + _LOST_AFTER)
    while _watch.server_lives(str(state)):
        with contextlib.suppress(FileNotFoundError):
            (state / _watch.CLOSING).rename(state / _watch.SOCKET)
        found = _probe(path, deadline)
        if found is not None:
            return found
        if time.monotonic() > lost:
            _log.warning("the embedded server in %s had lost its socket; restarting it", state)
            _end(state, signal.SIGTERM)
            return None
        time.sleep(0.01)
    return None


def _end(state: Path, how: signal.Signals, timeout: float = 10.0) -> None:
    """End a server process that cannot be asked to, and wait for that; the caller holds the lock."""
    try:
        pid = int((state / _watch.PIDFILE).read_text())
    except (OSError, ValueError) as error:
        let_out(error)
        raise BackendUnavailable(
            f"a server process is running in {state}, but does not respond and has not written its process id"
        ) from error
    if _works_in(pid, state):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
    deadline = time.monotonic() + timeout
    while _watch.server_lives(str(state)):
        if time.monotonic() > deadline:
            raise BackendUnavailable(f"the embedded server in {state} (process {pid}) does not stop")
        time.sleep(0.01)


def _works_in(pid: int, state: Path) -> bool:
    """Make sure that a process id was not given to somebody else: a server works in its state folder.

    Where the system does not show where a process works, the `alive` hold must do.
    """
    if not Path("/proc/self/cwd").exists():
        return True
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == state
    except OSError as error:
        let_out(error)
        return False


def _start(state: Path, path: str, deadline: float, alive: IO[str]) -> _Found:
    """Start a server; the caller holds the lock and `alive`, and knows that none lives."""
    program = _places.find_program()
    _data.refuse_other_product(state, program)
    if not program.bundled:
        _log.info("the embedded server is %s, not the one of pawlock[embedded]", program.path)
    found, said = _launch(state, path, deadline, program, alive)
    if found is None and _data.set_aside(state, said):
        with _hold_for_child(state / _watch.ALIVE) as again:
            found, said = _launch(state, path, deadline, program, again)
    if found is not None:
        _data.note(state, program)
        return found
    why = _data.why_not(state, said)
    raise BackendUnavailable(
        f"the embedded server did not start; {program.path} says: {why} (full log: {state / _LOG})"
    )


def _launch(
    state: Path, path: str, deadline: float, program: _places.Program, alive: IO[str]
) -> tuple[_Found | None, str]:
    """Start a program once; what it said when it did not come up."""
    for leftover in (_watch.SOCKET, _watch.CLOSING):
        (state / leftover).unlink(missing_ok=True)
    # Emptied, not removed: the watcher has it open, and reads there whom to end when the folder is gone.
    open(state / _watch.PIDFILE, "w", opener=_watch.private).close()
    log = state / _LOG
    log_start = log.stat().st_size if log.exists() else 0
    with open(log, "ab", opener=_watch.private) as output:
        # Its own session: a Ctrl-C in the terminal of the process that happened to start it is not for it. It
        # turns itself into a daemon, so it is nobody's child to wait for.
        done = subprocess.run(
            [program.path, *_options(state)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=state,
            env=_environment(),
            pass_fds=(alive.fileno(),),
            start_new_session=True,
            umask=0o077,
            check=False,
        )
    alive.close()  # from now on the server alone holds it
    while done.returncode == 0:
        found = _probe(path, deadline)
        if found is not None:
            return found, ""
        if not _watch.server_lives(str(state)) or time.monotonic() > deadline:
            break
        time.sleep(0.002)
    with log.open("rb") as lines:
        lines.seek(log_start)
        return None, lines.read()[-4000:].decode(errors="replace").strip()


def _options(state: Path) -> list[str]:
    # The socket is named from within the folder, which has no limit of length.
    options = {
        "dir": str(state),
        "port": "0",
        "unixsocket": _watch.SOCKET,
        "unixsocketperm": "700",
        "daemonize": "yes",
        "pidfile": str(state / _watch.PIDFILE),
        "logfile": str(state / _LOG),
        # Each change is in the file before it is answered: a crash of the server forgets nothing. A crash of the
        # machine ends all holders with it, and fences come from the clock: no reply waits for the disk.
        "appendonly": "yes",
        "appendfsync": "no",
        "save": "",
        "auto-aof-rewrite-min-size": "4mb",
        # A lock must not vanish to make room.
        "maxmemory-policy": "noeviction",
    }
    return [part for key, value in options.items() for part in (f"--{key}", value)]


def _start_watcher(state: Path, idle: float) -> None:
    """Start the process that ends an idle server; the caller holds the lock and knows that there is none."""
    python = _python()
    if python is None:
        _log.info(
            "no Python interpreter found to watch the embedded server: it runs until `pawlock server stop`"
        )
        return
    with (
        _hold_for_child(state / _watch.WATCH) as hold,
        # Of its own, since a hold goes with the open file. They say who serves also when the folder is gone.
        open(state / _watch.ALIVE, "a+", opener=_watch.private) as alive,
        open(state / _watch.PIDFILE, "a+", opener=_watch.private) as pid,
    ):
        kept = [file.fileno() for file in (hold, alive, pid)]
        # The folder's name is for people who look at the list of processes: the watcher works in it.
        arguments = [python, "-I", "-S", *_watch_program(), str(state), str(idle), *map(str, kept)]
        # The shell leaves at once, so the watcher is nobody's child to wait for.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=state,
            env=_environment(),
            pass_fds=kept,
            start_new_session=True,
            check=True,
        )


def _watch_program() -> list[str]:
    """What a Python runs to be the watcher: its file; in a zip there is none, and it is the text itself."""
    if Path(_watch.__file__).is_file():
        return [_watch.__file__]
    return ["-c", files("pawlock.embedded").joinpath("_watch.py").read_text(encoding="utf-8")]


def _python() -> str | None:
    """Find a Python to run a script with: in a frozen program, `sys.executable` is that program."""
    name = Path(sys.executable or "").name.lower()
    if name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False):
        return sys.executable
    return shutil.which("python3")


def _environment() -> dict[str, str]:
    """Give a process that outlives its starter nothing of the starter's secrets."""
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}


@contextlib.contextmanager
def _hold_for_child(path: Path) -> Generator[IO[str]]:
    """Hold an flock on behalf of a process that inherits the descriptor and with it the hold."""
    with open(path, "a+", opener=_watch.private) as file:
        _held.add(file)
        try:
            deadline = time.monotonic() + 1.0
            # A process that checks whether it is held holds it for an instant.
            while not _watch.try_lock(file):
                if time.monotonic() > deadline:
                    raise BackendUnavailable(f"{path} is held by another process")
                time.sleep(0.001)
            yield file
        finally:
            _held.discard(file)


def _let_go_in_child() -> None:
    """Drop in a forked child what only the started process may hold, else it would seem to live indefinitely."""
    for file in _held:
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


def _log_first_use(state: Path) -> None:
    if not _noticed.is_set():
        _noticed.set()
        _log.info("using the embedded server in %s: it serves only this machine", state)
