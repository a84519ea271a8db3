"""The Redis wire format, as far as tests need it: where a unit ends, what it says, how a command is spelt."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeAlias

Argument: TypeAlias = str | bytes | int | float
Reply: TypeAlias = "bytes | str | int | bool | list[Reply] | dict[str, Reply] | ReplyError | None"

_LINES = b"+-:_,#("
_BLOBS = b"$=!"
_AGGREGATES = b"*~>"


class ReplyError(Exception):
    """The server answered a command with an error; the message is the server's, code first."""


class ProtocolError(Exception):
    """The bytes are not RESP."""


def encode(*args: Argument) -> bytes:
    """Spell a command as an array of bulk strings."""
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        raw = arg if isinstance(arg, bytes) else str(arg).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(raw), raw))
    return b"".join(parts)


def unit_end(data: bytes | bytearray, start: int = 0) -> int | None:
    """Find where the RESP2 or RESP3 unit that begins at `start` ends.

    An attribute (`|`) belongs to the unit that follows it.

    Returns:
        The index just past the unit, or None when it is not complete yet.

    Raises:
        ProtocolError: the bytes are not RESP.
    """
    position, missing = start, 1
    while missing:
        newline = data.find(b"\r\n", position)
        if newline < 0:
            return None
        kind = data[position]
        head = data[position + 1 : newline]
        position = newline + 2
        missing -= 1
        if kind in _LINES:
            continue
        try:
            size = int(head)
        except ValueError as error:
            raise ProtocolError(f"not RESP: {bytes(data[start : newline + 2])!r}") from error
        if kind in _BLOBS:
            position += size + 2 if size >= 0 else 0
        elif kind in _AGGREGATES:
            missing += max(size, 0)
        elif kind == ord("%"):
            missing += 2 * size
        elif kind == ord("|"):
            missing += 2 * size + 1
        else:
            raise ProtocolError(f"not RESP: {bytes(data[start : newline + 2])!r}")
    return position if position <= len(data) else None


def parse(data: bytes | bytearray, start: int = 0) -> tuple[Reply, int]:
    """Read one complete unit (see `unit_end`).

    Returns:
        Its value and the index just past it. An error is returned as a `ReplyError`, not raised.
    """
    newline = data.index(b"\r\n", start)
    kind = chr(data[start])
    head = bytes(data[start + 1 : newline])
    position = newline + 2
    if kind not in "$=!*~>%|":
        return _parse_line(kind, head), position
    size = int(head)
    if size < 0:
        return None, position
    if kind not in "$=!":
        return _parse_aggregate(data, kind, size, position)
    blob = bytes(data[position : position + size])
    return (ReplyError(blob.decode(errors="replace")) if kind == "!" else blob), position + size + 2


def _parse_line(kind: str, head: bytes) -> Reply:
    if kind == ":":
        return int(head)
    if kind == "_":
        return None
    if kind == "#":
        return head == b"t"
    text = head.decode(errors="replace")
    return ReplyError(text) if kind == "-" else text


def _parse_aggregate(data: bytes | bytearray, kind: str, size: int, position: int) -> tuple[Reply, int]:
    values: list[Reply] = []
    for _ in range(2 * size if kind in "%|" else size):
        value, position = parse(data, position)
        values.append(value)
    if kind == "|":
        return parse(data, position)
    if kind == "%":
        keys = (key.decode() if isinstance(key, bytes) else str(key) for key in values[::2])
        return dict(zip(keys, values[1::2], strict=True)), position
    return values, position


class Wire:
    """One plain connection to a server: no retries, no pool, no client library in between."""

    def __init__(self, address: str | tuple[str, int], *, timeout: float = 10.0) -> None:
        """Connect.

        Args:
            address: Path of a unix socket, or `(host, port)`.
            timeout: Seconds to wait for the connection and for each reply.

        Raises:
            OSError: nobody listens there, or not in time.
        """
        if isinstance(address, str):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(timeout)
            try:
                self._socket.connect(address)
            except OSError:
                self._socket.close()
                raise
        else:
            self._socket = socket.create_connection(address, timeout=timeout)
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, *args: Argument) -> None:
        """Send a command without waiting for its reply."""
        self._socket.sendall(encode(*args))

    def receive(self) -> Reply:
        """Wait for one unit, whatever it is.

        Raises:
            OSError: no reply in time, or the connection is gone.
        """
        while (end := unit_end(self._buffer)) is None:
            chunk = self._socket.recv(65536)
            if not chunk:
                raise ConnectionResetError("the server closed the connection")
            self._buffer += chunk
        value, _ = parse(self._buffer)
        del self._buffer[:end]
        return value

    def command(self, *args: Argument) -> Reply:
        """Send a command and wait for its reply.

        Raises:
            ReplyError: the server refused it.
            OSError: no reply in time, or the connection is gone.
        """
        self.send(*args)
        reply = self.receive()
        if isinstance(reply, ReplyError):
            raise reply
        return reply


def texts(reply: Reply) -> Sequence[str]:
    """Read a reply that is a list of strings, such as that of `KEYS`."""
    if not isinstance(reply, list):
        raise TypeError(f"not a list: {reply!r}")
    return [item.decode() if isinstance(item, bytes) else str(item) for item in reply]
