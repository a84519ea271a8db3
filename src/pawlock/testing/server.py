"""A real server to throw away."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.exceptions import RedisError
from redis.retry import Retry

from pawlock._system import monotonic, sleep
from pawlock.embedded._places import find_program

__all__ = ["Server"]

_STARTS_WITHIN = 10.0

# It ends the server when our end of its standard input closes, which the kernel does however we die. PR_SET_PDEATHSIG
# would not do: it fires when the *thread* that forked ends, and is Linux only.
_GUARD = 'trap "" TERM; read -r _ || { kill -9 "$1"; rm -rf "$2"; }'


class Server:
    """A real, empty server on a port of 127.0.0.1, for as long as the ``with`` block lasts.

    Its program is the one that ``embedded://`` starts. It keeps nothing on disk, and ends with this process, however
    that ends. Methods may be called from any thread; one at a time.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Server {self.url}{'' if self.running else ' not running'}>"

    @property
    def url(self) -> str:
        """Its address, which stays the same when it is started again."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def running(self) -> bool:
        """Whether its process lives (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id.

        Raises:
            RuntimeError: It does not run.
        """
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start it and wait until it answers. Does nothing when it runs.

        Returns:
            The server itself.

        Raises:
            ConfigurationError: There is no server program on this machine.
            RuntimeError: It did not come up; the message ends with its own log.
        """
        if self.running:
            return self
        self.kill()
        program = find_program()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="pawlock-server-"))
        end = monotonic() + _STARTS_WITHIN
        chosen = self._port
        while True:
            self._port = chosen or _free_port()
            self._spawn(program, self._folder)
            if self._answers(end):
                # What `Faults.down` had it save: a later crash must not bring that back.
                (self._folder / "dump.rdb").unlink(missing_ok=True)
                return self
            log = (self._folder / "log").read_text(errors="replace")[-2000:]
            self.kill()
            # Somebody may have taken the port since we looked.
            if chosen or "in use" not in log:
                raise RuntimeError(f"{program} did not come up within {_STARTS_WITHIN:g} s:\n{log}")

    def stop(self) -> None:
        """End it and remove its folder. Does nothing when it was not started, or in a fork."""
        if os.getpid() == self._owner:
            self.kill()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would: ``start`` brings it back empty. Does nothing when it does not run."""
        process, guard = self._process, self._guard
        self._process = self._guard = None
        if process is not None and guard is not None:
            process.kill()
            guard.communicate(b"over\n")
            process.wait()

    def pause(self) -> None:
        """Freeze it: connections stay, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def flush(self) -> None:
        """Delete every key."""
        self.command("FLUSHALL")

    def command(self, *args: str | bytes | float, timeout: float = 10.0) -> Any:
        """Run a command on a connection of its own, without retries.

        Args:
            args: The command and its arguments.
            timeout: Seconds to wait for the connection and the reply.

        Returns:
            The reply in RESP2's types; texts are bytes.

        Raises:
            redis.RedisError: The server refused the command, or does not answer.
        """
        # redis-py leaves its connections without types.
        connection: Any = cast("Any", Connection)(
            host="127.0.0.1", port=self._port, socket_timeout=timeout, retry=Retry(NoBackoff(), 0), protocol=2
        )
        try:
            connection.send_command(*args)
            return connection.read_response()
        finally:
            connection.disconnect()

    def _spawn(self, program: str, folder: Path) -> None:
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        with (folder / "log").open("wb") as log:
            # Away from the terminal's signals: at a Ctrl-C the tests' clean-up still needs it.
            self._process = subprocess.Popen(
                [program, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "pawlock-guard", str(self._process.pid), str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _answers(self, end: float) -> bool:
        while self.running and monotonic() < end:
            # It refuses while it loads what it saved.
            with contextlib.suppress(RedisError):
                self.command("PING", timeout=1.0)
                return True
            sleep(0.005)
        return False


def _free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now, below those that outgoing connections get: it may be used again."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(10_240, 32_768)))
            return int(probe.getsockname()[1])
