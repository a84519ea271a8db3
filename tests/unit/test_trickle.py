"""A reply that comes byte by byte has the same deadline as one that does not come, wherever it begins to trickle."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from itertools import product
from typing import Any, Self

import pawlock
from pawlock.core.faults import to_error
from pawlock.core.runtime import Fault, run
from pawlock.primitives.mutex import Mutex
from pawlock.runtimes.shared import Routed
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.link import Link, ask_sync
from tests.faults.rig import in_thread
from tests.support.pace import pace
from tests.support.servers import Server

TIMEOUT = 0.3
PAUSE = 0.15
"""Between two bytes, so that each comes in time, and a whole reply never."""

MOST = 3 * TIMEOUT + 2.0
"""A connect, its handshake and one question have three deadlines; the rest is for a busy machine."""


def connect(server: Server) -> socket.socket:
    address = server.address
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
        return sock
    return socket.create_connection(address)


class Relay:
    """Before a server: after so many whole bytes what comes back trickles. Without one it answers by itself."""

    def __init__(self, upstream: Server | None) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self._ended = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        self.whole: float = float("inf")
        self.carried = 0
        self._threads = [self._start(self._accept)]

    def _start(self, work: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=args)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self._open.append(here)
                if self._upstream is None:
                    self._threads.append(self._start(self._answer, here))
                    continue
                there = connect(self._upstream)
                self._open.append(there)
                self._threads += [self._start(self._carry, here, there), self._start(self._back, there, here)]

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(65536):
                target.sendall(chunk)

    def _answer(self, here: socket.socket) -> None:
        body = b'{"answer": "%s"}' % (b"x" * 200)
        with suppress(OSError):
            while here.recv(65536):
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                self._send(here, head + body)

    def _back(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(65536):
                self._send(target, chunk)

    def _send(self, target: socket.socket, chunk: bytes) -> None:
        for at in range(len(chunk)):
            self.carried += 1
            if self.carried > self.whole and self._ended.wait(PAUSE):
                return
            target.sendall(chunk[at : at + 1])

    def trickle(self, after: int) -> None:
        """From so many bytes on."""
        self.carried, self.whole = 0, after

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(10)


LOCK = Mutex("lock", "x", "pawlock:x")
CALL = LOCK.acquire("t@x", 5000, 5000, wait=False, block=1, channel="-", max_queue=10)


def endpoint_of(relay: Relay) -> Endpoint:
    return Endpoint("redis", "redis://relay", {"host": "127.0.0.1", "port": relay.port})


def connected(relay: Relay, after: int) -> Link:
    link = Link(endpoint_of(relay), "c", TIMEOUT, first=True)
    relay.trickle(after)
    return link


def greet(relay: Relay, after: int) -> None:
    relay.trickle(after)
    Link(endpoint_of(relay), "c", TIMEOUT, first=True).close()


def ask(relay: Relay, after: int) -> None:
    with closing(connected(relay, after)) as link:
        link.ask(CALL, TIMEOUT)


def ask_many(relay: Relay, after: int) -> None:
    with closing(connected(relay, after)) as link:
        for outcome in link.exchange([CALL] * 5, TIMEOUT):
            if isinstance(outcome, Fault):
                raise outcome


def ask_replicas(relay: Relay, after: int) -> None:
    with closing(connected(relay, after)) as link:
        exchange = partial(link.exchange_now, turns=False)
        run(Routed.ask_replicas(exchange, [CALL], 1, TIMEOUT))


def ask_a_sentinel(relay: Relay, after: int) -> None:
    relay.trickle(after)
    run(ask_sync(endpoint_of(relay), ("INFO",), TIMEOUT))


EVERY = (greet, ask, ask_many, ask_replicas, ask_a_sentinel)


def test_every_question_of_a_thread_has_one_deadline(server: Server) -> None:
    def trial(step: Callable[[Relay, int], None], after: int) -> None:
        failed: Fault | None = None
        with Relay(server) as relay:
            began = time.monotonic()
            try:
                step(relay, after)
            except Fault as fault:
                failed = fault
            assert time.monotonic() - began < pace() * MOST, (step, after)
            if failed is None:
                assert relay.carried <= after + 20, (step, after, "the answer was over before")
            else:
                assert isinstance(to_error(failed, "x", "ask"), pawlock.BackendUnavailable), (step, after)

    # All at once: they wait.
    for running in [in_thread(partial(trial, *case)) for case in product(EVERY, (1, 30, 160, 400))]:
        running.result(30)
