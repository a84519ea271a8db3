"""What nobody asked for: heads without an end, bodies without a token, requests in a row; memory stays flat."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.rig import Instance, Tokens, resident

pytestmark = pytest.mark.slow
MIB = 1024 * 1024
HEAD = b"POST /v1/ns/pawlock/lock/a/acquire HTTP/1.1\r\nHost: x\r\n"


def _headers() -> Iterator[bytes]:
    yield HEAD
    while True:
        yield b"".join(b"X-%05d: %s\r\n" % (number, b"a" * 16) for number in range(2000))


def _value() -> Iterator[bytes]:
    yield HEAD + b"X: "
    while True:
        yield b"a" * 65536


def _line() -> Iterator[bytes]:
    yield b"GET /"
    while True:
        yield b"a" * 65536


def _body() -> Iterator[bytes]:
    yield HEAD + b"Content-Length: 999999999999\r\n\r\n"
    while True:
        yield b"a" * 65536


def _chunks() -> Iterator[bytes]:
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"8000\r\n" + b"a" * 0x8000 + b"\r\n"


def _trailer() -> Iterator[bytes]:
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: "
    while True:
        yield b"a" * 65536


def _extension() -> Iterator[bytes]:
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;"
    while True:
        yield b"a" * 65536


def _row() -> Iterator[bytes]:
    while True:
        yield b"GET /v1/ns/pawlock/locks HTTP/1.1\r\n\r\n" * 2000


JUNK: dict[str, tuple[Callable[[], Iterator[bytes]], int]] = {
    "headers": (_headers, 431), "value": (_value, 431), "line": (_line, 431), "body": (_body, 401),
    "chunks": (_chunks, 401), "trailer": (_trailer, 431), "extension": (_extension, 431), "row": (_row, 401),
}  # fmt: skip


def _send(service: Instance, make: Callable[[], Iterator[bytes]], most: int) -> tuple[int, bytes]:
    """Send until so much is sent or nothing more is taken; how much that was, and what was answered."""
    sent, had = 0, b""
    with socket.create_connection(("127.0.0.1", service.port), 20) as one:
        try:
            for part in make():
                if sent > most:
                    break
                one.sendall(part)
                sent += len(part)
        except OSError:
            pass
        try:
            while more := one.recv(65536):
                had += more[: 1000 - len(had)]
        except OSError:
            pass
    return sent, had


@pytest.mark.parametrize("kind", JUNK)
def test_what_has_no_end_is_refused_and_the_connection_closed(instance: Instance, kind: str) -> None:
    make, status = JUNK[kind]
    sent, had = _send(instance, make, 64 * MIB)
    # What the sockets' buffers take counts as sent, and what comes within the second in which the answer is read.
    assert sent < 40 * MIB, f"{sent / MIB:.0f} MiB were taken of what has no end"
    # An answer to who does not read until it has sent all may be lost; what matters is that it ends.
    # Of a trailer, the lack of a token may be found first.
    assert not had or had.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 %d " % status)), had
    assert instance.ask("GET", "/healthz", token=None).status == 200


@pytest.mark.parametrize("kind", ["headers", "value", "line"])
def test_who_sends_a_little_too_much_is_told_so(instance: Instance, kind: str) -> None:
    make, status = JUNK[kind]
    data = b""
    for part in make():
        data += part
        if len(data) > 60_000:
            break
    with socket.create_connection(("127.0.0.1", instance.port), 20) as one:
        one.sendall(data[:60_000])
        had = b""
        while more := one.recv(65536):
            had += more
    assert had.startswith(b"HTTP/1.1 %d " % status), had
    assert b"HEAD_TOO_LARGE" in had


def test_a_body_that_is_too_large_is_told_so_before_all_of_it_came(instance: Instance) -> None:
    token = instance.tokens.secrets["admin"].encode()
    with socket.create_connection(("127.0.0.1", instance.port), 20) as one:
        one.sendall(
            HEAD + b"Authorization: Bearer " + token + b"\r\nContent-Length: 50000000\r\n\r\n" + b"a" * 30_000
        )
        had = b""
        while more := one.recv(65536):
            had += more
    assert had.startswith(b"HTTP/1.1 413 "), had


def test_a_head_of_a_usual_size_passes(instance: Instance) -> None:
    headers = {f"X-{number}": "a" * 300 for number in range(80)}
    assert instance.ask("GET", "/v1/ns/pawlock/locks", headers=headers).status == 200


def _flood(service: Instance, connections: int, each: int) -> int:
    """Junk of every kind from so many connections at once; the most memory that it took meanwhile."""
    usual = resident(service)
    worst, over = 0, threading.Event()

    def watch() -> None:
        nonlocal worst
        while not over.wait(0.02):
            worst = max(worst, resident(service) - usual)

    def one(number: int) -> None:
        sent, kinds = 0, list(JUNK)
        while sent < each:
            number += 1
            sent += max(65536, _send(service, JUNK[kinds[number % len(kinds)]][0], each - sent)[0])

    watcher = threading.Thread(target=watch)
    threads = [threading.Thread(target=one, args=(number,)) for number in range(connections)]
    for thread in (watcher, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.1)
    over.set()
    watcher.join()
    assert service.ask("GET", "/healthz", token=None).status == 200
    return worst


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_stays_flat_under_junk(serve: Callable[..., Instance], tokens: Tokens) -> None:
    service = serve()
    del tokens
    assert _flood(service, 10, 6 * MIB) < 40 * MIB


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_stays_flat_under_a_gigabyte_of_junk(serve: Callable[..., Instance], tokens: Tokens) -> None:
    service = serve()
    del tokens
    assert _flood(service, 50, 21 * MIB) < 80 * MIB
