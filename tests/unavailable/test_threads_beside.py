"""Threads with connections of their own beside a server that hangs: one of them finds it out for all."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import pawl
from pawl.testing import Server
from tests.pace import pace

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("policy", ["local", "open"])
def test_a_thread_with_a_connection_degrades_at_once_while_the_breaker_is_open(policy: str) -> None:
    with Server() as server, pawl.connect(server.url, ttl=6) as client, ThreadPoolExecutor(1) as other:

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
