"""Stay with one embedded server: end it when nobody uses it any more, and end with it.

Run as a script, by path, with ``python -I -S``: it imports a little of the standard library, so that it starts fast and
stays small, and nothing of pawlock. The library uses its parts too.

The file ``lock`` in the state folder is held with flock(2) by the supervisor for as long as it lives; the kernel drops
the hold with the process, however that ends. The starter takes it and hands it over, so that of many starters one
starts anything. A shell starts the server and then becomes the supervisor, so that neither waits for the other. A server
whose supervisor was killed goes on, and the next program that connects starts another supervisor.
"""

# pathlib would add to the start-up and memory of a process that mostly sleeps, so:
# ruff: noqa: PTH104, PTH110, PTH116
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Self

SOCKET, HIDDEN, LOCK, PIDS, LOG = "sock", "sock.closing", "lock", "pids", "server.log"
"""``HIDDEN``: where the socket is while the server is being ended, so that nobody connects any more."""

HELD = 3
"""The descriptor by which the supervisor holds the lock."""

_NAME = "pawlock-supervisor"
_POLL = 5.0

_HAS_LEASES = """local from = '0' repeat
  local found = redis.call('SCAN', from, 'COUNT', 1000)
  for _, key in ipairs(found[2]) do
    if string.sub(key, -6) ~= ':fence' and redis.call('PTTL', key) > 0 then return 1 end
  end from = found[1]
until from == '0' return 0"""
"""Whether a lease, a waiter or a record lives: a key with a ttl. A fence has one too, but nobody behind it."""


class Refused(Exception):
    """The server answered with an error."""


class Connection:
    """A plain connection over a unix socket: a client library's retries would make a check take seconds.

    The kernel counts the time, so each failure has an ``errno``. A ``TimeoutError`` without one is not a failure: the
    caller's signal handler raised it.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(None)
            limit = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, *args: str) -> str:
        """Run one command that is answered with a word, a number or a text. Raises OSError, or Refused."""
        words = b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in map(str.encode, args))
        self._socket.sendall(b"*%d\r\n%s" % (len(args), words))
        answer, size = b"", 0
        while len(answer) < size or b"\r\n" not in answer:
            more = self._socket.recv(65536)
            if not more:
                raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
            answer += more
            if answer[:1] == b"$" and b"\r\n" in answer:
                size = answer.index(b"\r\n") + 4 + int(answer[1 : answer.index(b"\r\n")])
        line, _, text = answer[:-2].decode(errors="replace").partition("\r\n")
        if line[0] == "-":
            raise Refused(line[1:])
        return text if line[0] == "$" else line[1:]

    def info(self, section: str) -> dict[str, str]:
        """Read the fields of one section of INFO."""
        lines = [line.partition(":") for line in self.ask("INFO", section).splitlines()]
        return {key: value for key, colon, value in lines if colon}

    def others(self) -> int:
        """Count the connections of other people: neither this one nor the supervisor's."""
        own = f"id={self.ask('CLIENT', 'ID')}"
        lines = [line.split(" ") for line in self.ask("CLIENT", "LIST").splitlines()]
        return sum(own not in fields and f"name={_NAME}" not in fields for fields in lines)


def private(path: str, flags: int) -> int:
    """Open a file that nobody else may open: anyone who can read a file can hold an flock on it."""
    return os.open(path, flags, 0o600)


def try_lock(file: IO[str], how: int = fcntl.LOCK_EX) -> bool:
    """Take an flock if it is free."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Supervisor:
    """Stays with the server in the current folder.

    Args:
        idle: Seconds without clients and leases after which it ends the server; 0 or less for never.
        server: The server's process id: a child, unless an earlier supervisor was killed.
    """

    def __init__(self, idle: float, server: int) -> None:
        self._idle = idle
        self._server = server
        self._poll = min(_POLL, max(idle / 4, 0.05)) if idle > 0 else _POLL
        self._quiet_since = time.monotonic()
        self._comes_up_until = self._quiet_since + _POLL
        self._connections: str = ""
        self._connection: Connection | None = None
        # On a disk that is full it goes without.
        with contextlib.suppress(OSError), open(PIDS, "w", opener=private) as file:
            file.write(f"{server} {os.getpid()}")

    def run(self) -> None:
        """Stay until the server has ended."""
        while not self._ended():
            try:
                if not self._is_found():
                    # Who connects now starts a server of its own, and shares no lock with those who use this one.
                    os.kill(self._server, signal.SIGKILL)
                if self._connection is None:
                    self._connection = Connection(SOCKET, 10.0)
                    self._connection.ask("CLIENT", "SETNAME", _NAME)
                if self._is_idle(self._connection):
                    self._retire(self._connection)
                # Readable means that the server is gone: nothing else arrives unasked.
                select.select([self._connection], [], [], self._poll)
            except (OSError, Refused):
                # It is coming up, has just ended, or is too busy to answer.
                self._connection = None
                time.sleep(0.01)
        # Not left to the end: a process that was forked from the starter may have a copy of the descriptor.
        fcntl.flock(HELD, fcntl.LOCK_UN)

    def _ended(self) -> bool:
        try:
            return os.waitpid(self._server, os.WNOHANG)[0] != 0
        except ChildProcessError:  # an earlier supervisor started it
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._server, 0)
                return False
            return True

    def _is_found(self) -> bool:
        """Whether who comes now finds this server: nobody has removed the folder, or the socket."""
        try:
            there = os.path.samestat(os.stat(LOCK), os.fstat(HELD))
        except OSError:
            return False
        coming = self._connection is None and time.monotonic() < self._comes_up_until
        return there and (coming or os.path.exists(SOCKET))

    def _is_idle(self, connection: Connection) -> bool:
        if self._idle <= 0:
            return False
        now = time.monotonic()
        # Connections that came and went between two looks are use as well.
        connections = connection.info("stats")["total_connections_received"]
        if connections != self._connections or connection.others():
            self._connections, self._quiet_since = connections, now
        return now - self._quiet_since >= self._idle and connection.ask("EVAL", _HAS_LEASES, "0") == "0"

    def _retire(self, connection: Connection) -> None:
        """End the server unless somebody turns out to have connected before its socket was moved away."""
        os.rename(SOCKET, HIDDEN)
        try:
            # The second look comes in a later turn of the server's loop, so it sees every connection that was made
            # before the move, even one that was not accepted yet at the first look.
            if not (connection.others() or connection.others()):
                connection.ask("SHUTDOWN", "NOSAVE")
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.rename(HIDDEN, SOCKET)


if __name__ == "__main__":
    Supervisor(float(sys.argv[2]), int(sys.argv[3])).run()
