"""What a signal handler or another thread raises in a call of pawlock reaches the caller, and leaves nothing behind.

The time limits of Celery, RQ and ``signal.alarm`` raise an ``Exception``, often a ``TimeoutError``, on top of whatever
the thread does. A call must not take it for the failure of a connection: it ends, with that exception, and no outage is
counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pawlock
from tests.faults.rig import in_thread, remains, until, waiters
from tests.support.proxy import Proxy
from tests.support.servers import Server

pytestmark = pytest.mark.fault

TTL = 5.0
TICKET = 1.0


class Limit(Exception):
    """As Celery's ``SoftTimeLimitExceeded``."""


class Late(TimeoutError):
    """As RQ's and many a program's own."""


LIMITS = [Limit, TimeoutError, Late, ValueError]


class Handler:
    """What handlers are: functions, methods, partial functions and objects."""

    def __init__(self, limit: type[Exception]) -> None:
        self._limit = limit

    def __call__(self, *_: object) -> None:
        self.strike()

    def strike(self, *_: object) -> None:
        raise self._limit("time is up")


@pytest.fixture
def install() -> Iterator[Callable[[Any], object]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield functools.partial(signal.signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def strike_when(condition: Callable[[], object]) -> None:
    """Send the signal to the calling thread a moment after something holds."""
    main = threading.get_ident()

    def strike() -> None:
        until(condition)
        time.sleep(0.02)
        signal.pthread_kill(main, signal.SIGUSR1)

    in_thread(strike)


@pytest.fixture
def pair(server: Server) -> Iterator[tuple[pawlock.Client, pawlock.Client]]:
    with pawlock.connect(server.url) as client, pawlock.connect(server.url) as rival:
        yield client, rival


def clean(server: Server) -> None:
    until(lambda: remains(server) == [], timeout=TICKET + 2, what="a clean server")


@pytest.mark.parametrize("limit", LIMITS)
def test_a_time_limit_ends_a_wait(
    limit: type[Exception],
    pair: tuple[pawlock.Client, pawlock.Client],
    server: Server,
    install: Callable[[Any], object],
) -> None:
    client, rival = pair
    install(Handler(limit).strike)
    with rival.lock("n", ttl=TTL).acquire(5):
        strike_when(lambda: waiters(server, "n") == 1)
        with pytest.raises(limit, match="time is up"):
            client.lock("n", ttl=TTL, ticket_ttl=TICKET).acquire(5)
        until(lambda: waiters(server, "n") == 0, timeout=TICKET + 2)
    with client.lock("n", ttl=TTL).acquire(5) as lease:
        lease.check()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("operation", ["acquire", "extend", "release", "connect"])
def test_a_time_limit_ends_a_call_that_has_no_answer(
    operation: str, limit: type[Exception], server: Server, install: Callable[[Any], object]
) -> None:
    handler = Handler(limit)
    install(
        {"acquire": handler, "extend": functools.partial(handler.strike, 1)}.get(operation, handler.strike)
    )
    with Proxy(server) as proxy, pawlock.connect(proxy.url) as client:
        lock = client.lock("n", ttl=TTL, ticket_ttl=TICKET)
        if operation != "connect":
            client.inspect("n")
        held = lock.acquire() if operation in {"extend", "release"} else None
        rule = proxy.hold_reply("HELLO" if operation == "connect" else "EVALSHA")
        strike_when(lambda: rule.hits)

        def call() -> None:
            if held is None:
                lock.acquire(5)
            elif operation == "release":
                held.release()
            else:
                held.extend(TTL)

        with pytest.raises(limit, match="time is up"):
            call()
        rule.remove()
        if operation == "extend" and held is not None:
            held.release()
        clean(server)
        # No outage was counted: the next caller is not refused, and gets no degraded lease.
        lease = client.lock("n", on_unavailable="local").try_acquire()
        assert lease is not None
        assert lease.degraded is None
        lease.release()


@pytest.mark.parametrize("limit", [Limit, TimeoutError])
def test_a_time_limit_ends_a_vote(limit: type[Exception], install: Callable[[Any], object]) -> None:
    install(Handler(limit))
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server()) for _ in range(3)]
        client = stack.enter_context(
            pawlock.connect(
                [server.url for server in servers],
                redlock=pawlock.RedlockOptions(fresh=True, node_timeout=1.0),
            )
        )
        client.lock("n").acquire().release()
        for server in servers:
            stack.enter_context(server.paused())
        strike_when(lambda: True)  # a vote takes up to a second here
        with pytest.raises(limit, match="time is up"):
            client.lock("n").acquire(5)
        for server in servers:
            server.resume()
        client.lock("n").acquire(5).release()


@pytest.mark.parametrize("limit", [Limit, KeyboardInterrupt])
def test_what_another_thread_raises_ends_a_wait(
    limit: type[BaseException], pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    client, rival = pair
    idents: list[int] = []

    def wait() -> None:
        idents.append(threading.get_ident())
        with pytest.raises(limit):
            client.lock("n", ttl=TTL, ticket_ttl=TICKET).acquire(5)

    held = rival.lock("n", ttl=TTL).acquire(5)
    waiting = in_thread(wait)
    until(lambda: waiters(server, "n") == 1)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(idents[0]), ctypes.py_object(limit))
    held.release()
    waiting.result(5)
    clean(server)


def test_a_failure_of_the_connection_stays_one_while_a_time_limit_is_handled(
    install: Callable[[Any], object],
) -> None:
    told: list[BaseException] = []

    def handler(*_: object) -> None:
        with pytest.raises(pawlock.BackendUnavailable) as caught:
            client.lock("n").try_acquire()
        told.append(caught.value)

    install(handler)
    with pawlock.connect("redis://127.0.0.1:1") as client:
        try:
            raise Limit
        except Limit:
            with pytest.raises(pawlock.BackendUnavailable):
                client.lock("n").try_acquire()
        signal.raise_signal(signal.SIGUSR1)
    assert told
