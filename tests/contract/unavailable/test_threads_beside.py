"""Threads with connections of their own beside a server that hangs: one of them finds it out for all."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import pawlock
import pawlock.metrics
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("policy", ["local", "open"])
def test_a_thread_with_a_connection_degrades_at_once_while_the_breaker_is_open(policy: str) -> None:
    with Server() as server, pawlock.connect(server.url, ttl=6) as client, ThreadPoolExecutor(1) as other:

        def acquire(name: str) -> str | None:
            with client.lock(name, on_unavailable=policy, unavailable_after=0.2) as lease:
                return lease.degraded

        # Each thread has a connection of its own.
        assert acquire("a") is None
        assert other.submit(acquire, "b").result(10) is None
        with server.paused():
            assert acquire("a") == policy
            began = time.monotonic()
            assert other.submit(acquire, "b").result(30) == policy
            # Else it would wait for its own answer: a second.
            assert time.monotonic() - began < 0.5 * pace()


class _Quiet:
    def _ignore(self, *_: object, **__: object) -> None:
        pass

    acquired = refused = queued = released = lost = counted = called = _ignore


def test_an_observed_client_does_not_ask_while_the_breaker_is_open() -> None:
    with Server() as server, pawlock.connect(server.url, ttl=6) as client:
        pawlock.metrics.observe(client, _Quiet())
        lock = client.lock("a", unavailable_after=0.2)
        lock.acquire().release()
        with server.paused():
            # The first ones find out for how long to wait.
            for _ in range(2):
                with pytest.raises(pawlock.BackendUnavailable):
                    lock.acquire()
            began = time.monotonic()
            with pytest.raises(pawlock.BackendUnavailable, match="request not sent"):
                lock.acquire()
            assert time.monotonic() - began < 0.15 * pace()


def test_a_thread_with_connections_to_masters_does_not_ask_while_the_breaker_is_open() -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(Server()) for _ in range(3)]
        urls = [server.url for server in servers]
        client = stack.enter_context(pawlock.connect(urls, redlock=pawlock.RedlockOptions(fresh=True), ttl=6))
        other = stack.enter_context(ThreadPoolExecutor(1))
        lock = client.lock("a", unavailable_after=0.4)

        def acquire() -> None:
            with lock:
                pass

        acquire()
        other.submit(acquire).result(10)
        with servers[0].paused(), servers[1].paused():
            # The first ones find out: one or two, and more where the machine is busy.
            for _ in range(10):
                with pytest.raises(pawlock.QuorumNotReached) as refused:
                    acquire()
                if "request not sent" in str(refused.value):
                    break
            began = time.monotonic()
            with pytest.raises(pawlock.QuorumNotReached, match="request not sent"):
                other.submit(acquire).result(30)
            assert time.monotonic() - began < 0.2 * pace()
