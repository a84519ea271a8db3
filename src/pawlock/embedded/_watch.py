"""Watch over one embedded server and end it when nobody uses it any more.

Run as a script, by path, with `python -I -S`: it imports a little of the standard library, so that it stays
small, and nothing of pawlock. The library uses its parts too.

Three files in the state folder are held with flock(2); the kernel drops a hold with its process, however that
ends:

- `lock`: by the process that starts or stops a server, meanwhile.
- `alive`: by the server process itself, through a descriptor that it inherits and knows nothing of. So a
  server that is still coming up, or whose socket somebody removed, is never mistaken for no server.
- `watch`: by the watcher, in the same way.
"""

# pathlib would add to the start-up and memory of a process that mostly sleeps, so:
# ruff: noqa: PTH104, PTH116, PTH108, PTH118, PTH123
from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import IO, NoReturn, Self, TypeAlias

    Reply: TypeAlias = "str | int | list[Reply] | None"

SOCKET = "pawlock.sock"
# Where the socket is moved while a server is being ended, so that nobody connects any more.
CLOSING = "pawlock.sock.closing"
LOCK, ALIVE, WATCH, PIDFILE = "lock", "alive", "watch", "server.pid"
WATCHER_NAME = "pawlock-watcher"
_POLL = 5.0
_LOST = 10.0


class Refused(Exception):
    """The server answered with an error."""


class Connection:
    """A plain connection over a unix socket: a client library's retries would make a check take seconds."""

    def __init__(self, path: str, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
            self._file = self._socket.makefile("rb")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, *args: str) -> Reply:
        """Run one command. Raises OSError when the server is gone or silent, and Refused."""
        raw = [arg.encode("utf-8", "surrogateescape") for arg in args]
        body = b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in raw)
        self._socket.sendall(b"*%d\r\n%s" % (len(raw), body))
        return self._read()

    def info(self, *sections: str) -> dict[str, str]:
        """Read the fields of INFO; the sections one by one, as old servers want it."""
        fields: dict[str, str] = {}
        for section in sections:
            for line in str(self.ask("INFO", section)).splitlines():
                key, colon, value = line.partition(":")
                if colon:
                    fields[key] = value
        return fields

    def others(self) -> int:
        """Count the connections of other people: neither this one nor a watcher's."""
        own = str(self.ask("CLIENT", "ID"))
        count = 0
        for line in str(self.ask("CLIENT", "LIST")).splitlines():
            fields = line.split(" ")
            count += f"id={own}" not in fields and f"name={WATCHER_NAME}" not in fields
        return count

    def _read(self) -> Reply:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection")
        kind, head = line[:1], line[1:-2].decode("utf-8", "surrogateescape")
        if kind == b"-":
            raise Refused(head)
        if kind == b":":
            return int(head)
        if kind == b"$":
            size = int(head)
            return None if size < 0 else self._blob(size).decode("utf-8", "surrogateescape")
        if kind == b"*":
            return [self._read() for _ in range(int(head))]
        return head

    def _blob(self, size: int) -> bytes:
        data = self._file.read(size + 2)
        if len(data) != size + 2:
            raise ConnectionResetError("the server closed the connection")
        return data[:-2]


def private(path: str, flags: int) -> int:
    """Open a file that nobody else may open: anyone who can read a file can hold an flock on it."""
    return os.open(path, flags, 0o600)


def try_lock(file: IO[str]) -> bool:
    """Take an flock if it is free."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def locked(path: str, timeout: float, *, make: bool = True) -> Generator[IO[str]]:
    """Hold an flock for the length of a block. Raises TimeoutError; a timeout below 0 waits indefinitely.

    A missing file is created, unless ``make`` is False: another process may be removing the folder.
    """
    with open(path, "a+" if make else "r+", opener=private) as file:
        deadline = time.monotonic() + timeout
        while not try_lock(file):
            if timeout >= 0 and time.monotonic() > deadline:
                raise TimeoutError(path)
            time.sleep(0.01)
        try:
            yield file
        finally:
            # Not left to the close: a process forked meanwhile has a copy of the descriptor.
            fcntl.flock(file, fcntl.LOCK_UN)


def server_lives(state: str) -> bool:
    """Whether a server process exists, answering or not."""
    return _held(os.path.join(state, ALIVE))


def watcher_lives(state: str) -> bool:
    """Whether a watcher exists."""
    return _held(os.path.join(state, WATCH))


def _held(path: str) -> bool:
    try:
        with open(path) as file:
            return _is_held(file.fileno())
    except FileNotFoundError:
        return False


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def retire(state: str, connection: Connection, *, force: bool, timeout: float = 10.0) -> int:
    """End the server. The caller holds `lock`.

    Unless forced, nobody is cut off: the socket is moved away first, and the server goes on when somebody
    turns out to have connected before that.

    Returns 0 when it has ended, else the number of clients that keep it. Raises OSError when it does not
    answer, or does not end.
    """
    visible, hidden = os.path.join(state, SOCKET), os.path.join(state, CLOSING)
    if not force:
        moved = _move(visible, hidden)
        others = -1
        try:
            # The second look comes in a later turn of the server's loop, so it sees every connection that was
            # made before the move, even one that was not accepted yet at the first look.
            others = connection.others() or connection.others()
        finally:
            if others and moved:
                _move(hidden, visible)
        if others:
            return others
    with contextlib.suppress(ConnectionError):
        connection.ask("SHUTDOWN")
    deadline = time.monotonic() + timeout
    while server_lives(state):
        if time.monotonic() > deadline:
            raise TimeoutError("the server does not stop")
        time.sleep(0.005)
    for leftover in (visible, hidden):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(leftover)
    return 0


def _move(source: str, target: str) -> bool:
    """Rename a file; False when there is none, as when somebody removed the folder."""
    try:
        os.rename(source, target)
    except FileNotFoundError:
        return False
    return True


def has_leases(connection: Connection) -> bool:
    """Whether a lease or a waiter lives: a key with a ttl. A fence has a ttl too, but nobody behind it."""
    for database in connection.info("keyspace"):
        connection.ask("SELECT", database.removeprefix("db"))
        cursor = "0"
        while True:
            reply = connection.ask("SCAN", cursor, "COUNT", "1000")
            if not isinstance(reply, list) or not isinstance(reply[1], list):
                raise TypeError(reply)
            for key in reply[1]:
                if not str(key).endswith(":fence") and int(str(connection.ask("PTTL", str(key)))) > 0:
                    return True
            cursor = str(reply[0])
            if cursor == "0":
                break
    return False


class Watcher:
    """Looks at the server in the current folder every few seconds, and ends it after enough idle time."""

    def __init__(self, idle: float, held: int, alive: int, pid: int) -> None:
        self._idle = idle
        self._held = held
        self._alive = alive
        self._pid = pid
        self._poll = min(_POLL, max(idle / 4, 0.05))
        self._connection: Connection | None = None
        self._connections = ""
        self._quiet_since = time.monotonic()

    def run(self) -> NoReturn:
        while True:
            try:
                # Who connects now makes the folder anew, with a server of its own, and shares no lock with those who
                # are connected to this one.
                os.stat(LOCK)
                connection = self._connection = self._connection or self._connect()
                if self._idle_for(connection) >= self._idle and not has_leases(connection):
                    self._retire(connection)
                # Readable means that the server is gone: nothing else arrives unasked.
                gone = bool(select.select([connection], [], [], self._poll)[0])
            except (OSError, Refused):
                gone = True
            if gone:
                self._leave_without_server()

    def _connect(self) -> Connection:
        connection = Connection(SOCKET, 10.0)
        connection.ask("CLIENT", "SETNAME", WATCHER_NAME)
        self._connections = ""
        return connection

    def _idle_for(self, connection: Connection) -> float:
        now = time.monotonic()
        # Connections that came and went between two looks are use as well.
        connections = connection.info("stats")["total_connections_received"]
        if connections != self._connections or connection.others():
            self._connections, self._quiet_since = connections, now
        return now - self._quiet_since

    def _retire(self, connection: Connection) -> None:
        try:
            with locked(LOCK, 0, make=False):
                if retire(".", connection, force=False) == 0:
                    self._leave()
        except TimeoutError:
            # Somebody is starting, joining or ending the server, so it is not idle; or it is slow to end.
            return
        except FileNotFoundError:
            self._leave_without_folder()

    def _leave_without_server(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        try:
            # While a server is being started its starter holds the lock, and then there is one.
            with locked(LOCK, -1, make=False):
                # Of the file that was open before: while the folder is being removed, its name may be gone already.
                if not _is_held(self._alive) and not server_lives("."):
                    self._leave()
        except FileNotFoundError:
            self._leave_without_folder()
        time.sleep(min(self._poll, 0.2))

    def _leave_without_folder(self) -> NoReturn:
        """The folder was removed: nobody can find its server any more, and it cannot end in order.

        It may be coming up, and not have said its process id yet. What it holds says whether it lives.
        """
        deadline = time.monotonic() + _LOST
        while _is_held(self._alive) and time.monotonic() < deadline:
            said = os.pread(self._pid, 32, 0).strip()
            if said.isdigit():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(said), signal.SIGKILL)
            time.sleep(0.01)
        self._leave()

    def _leave(self) -> NoReturn:
        """End, holding `lock`; give up `watch` first: no starter may count on a watcher that is leaving."""
        fcntl.flock(self._held, fcntl.LOCK_UN)
        os._exit(0)


def main() -> None:
    """Watch over the current folder.

    Arguments: its name, idle seconds, the descriptor that holds `watch`, others of `alive` and the process id.
    """
    _, idle, held, alive, pid = sys.argv[1:6]
    Watcher(float(idle), int(held), int(alive), int(pid)).run()


if __name__ == "__main__":
    main()
