"""A client that costs as little as one in Python can: requests made beforehand, sent on plain sockets."""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Door", "Line", "drive"]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_TOKEN = re.compile(rb'"token": ?"([^"]+)"')


@dataclass(frozen=True)
class Door:
    """Where a service is, and what is asked there.

    Attributes:
        port: Its port on this machine.
        bearer: The token of the client; "" where none is asked for.
    """

    port: int
    bearer: str = ""

    def request(self, path: str, body: bytes) -> bytes:
        """The bytes of a request."""
        allowed = f"Authorization: Bearer {self.bearer}\r\n" if self.bearer else ""
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{allowed}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


class Line:
    """One connection."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.socket = socket.create_connection(("127.0.0.1", door.port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._had = b""

    def send(self, request: bytes) -> None:
        """Send a request."""
        self.socket.sendall(request)

    def take(self) -> bytes | None:
        """Read once; the body of the answer when all of it is there.

        Raises:
            RuntimeError: It was no success.
        """
        data = self._had + self.socket.recv(65536)
        end = data.find(b"\r\n\r\n")
        found = _LENGTH.search(data, 0, end + 2) if end >= 0 else None
        if found is None or len(data) < end + 4 + int(found[1]):
            self._had = data
            return None
        self._had = b""
        if not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(data.decode())
        return data[end + 4 :]

    def read(self) -> bytes:
        """Wait for an answer."""
        while (body := self.take()) is None:
            pass
        return body

    def ask(self, request: bytes) -> bytes:
        """Send a request and wait for its answer."""
        self.send(request)
        return self.read()


Next = Callable[[int, bytes], bytes]
"""The next request of a connection, from its number and the body of its last answer."""


def drive(lines: list[Line], first: list[bytes], following: Next, seconds: float) -> float:
    """Keep one request under way on each connection.

    Returns:
        Answers a second.
    """
    poll = select.epoll()
    numbers = {line.socket.fileno(): number for number, line in enumerate(lines)}
    for number, line in enumerate(lines):
        poll.register(line.socket, select.EPOLLIN)
        line.send(first[number])
    answers, began = 0, time.perf_counter()
    end, under_way = began + seconds, len(lines)
    while under_way:
        for descriptor, _ in poll.poll():
            number = numbers[descriptor]
            body = lines[number].take()
            if body is None:
                continue
            answers += 1
            # A pair is never left half done.
            request = following(number, body)
            if request is first[number] and time.perf_counter() >= end:
                under_way -= 1
                continue
            lines[number].send(request)
    took = time.perf_counter() - began
    poll.close()
    return answers / took


def lock_requests(door: Door, name: str, **body: object) -> tuple[bytes, Callable[[bytes], bytes]]:
    """What takes a name, and what makes of its answer the request that gives it back."""
    import json

    path = f"/v1/ns/pawlock/lock/{name}"
    take = door.request(f"{path}/acquire", json.dumps(body).encode())

    def give(answer: bytes) -> bytes:
        found = _TOKEN.search(answer)
        if found is None:
            raise RuntimeError(answer.decode())
        return door.request(f"{path}/release", b'{"token":"' + found[1] + b'"}')

    return take, give
