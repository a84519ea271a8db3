"""`multi_lock` and KeyboardInterrupt."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from typing import Any

import pytest

import pawlock
from tests.faults.rig import remains, teach, until
from tests.faults.test_cancel_sweep import TTL
from tests.faults.test_interrupt_sweep import struck as interrupted
from tests.support.servers import Server

pytestmark = pytest.mark.slow

NAMES = ["a", "b", "c"]


@pytest.mark.fault
# Interrupted in the middle of redis-py's connect, a socket is closed by the collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    ("what", "steps"), [("acquire", 9), ("acquire", 1), ("acquire, one is held", 5), ("release", 1)]
)
def test_an_interrupt_at_every_step_leaves_nothing(valkey: Server, what: str, steps: int) -> None:
    """KeyboardInterrupt wherever a signal handler may run; of those that take long, not at every place."""
    with pawlock.connect(valkey.url) as client, pawlock.connect(valkey.url) as rival:
        valkey.command("FLUSHALL")
        teach(valkey)
        multi = client.multi_lock(NAMES, ttl=TTL, ticket_ttl=0.5)
        multi.acquire().release()
        at, bad, where = 1, [], "?"
        while where:
            lease = rival.lock("b", ttl=TTL).acquire() if "held" in what else None
            timer = threading.Timer(0.005, lease.release if lease is not None else int)
            timer.start()
            mine = multi.acquire() if what == "release" else None
            step: Any = multi.acquire if mine is None else mine.release
            where, got = interrupted(step, at)
            timer.join()
            got = mine if got is None else got
            if got is not None:
                # Interrupted before its first step, a release has not begun.
                with contextlib.suppress(pawlock.NotHeld):
                    got.release()
            del got, mine
            end = time.monotonic() + 1.5
            while (left := remains(valkey)) and time.monotonic() < end:
                time.sleep(0.002)
            if left:
                bad.append(f"{where}: {left}")
                valkey.command("FLUSHALL")
            at += steps
        # Here, and not in whatever test comes next.
        gc.collect()
        assert at > 50
        assert bad == []


@pytest.mark.fault
@pytest.mark.parametrize("what", ["release", "acquire, one is held"])
def test_an_interrupt_at_any_step_ends_no_level_around_it(valkey: Server, what: str) -> None:
    """The thread holds a member already: the section around the multi-lock goes on, and is protected still."""
    with pawlock.connect(valkey.url) as client, pawlock.connect(valkey.url) as rival:
        valkey.command("FLUSHALL")
        teach(valkey)
        outer_lock = client.rlock("a", ttl=TTL)
        multi = client.multi_lock([outer_lock, "b"], ttl=TTL, ticket_ttl=0.5)
        at, bad, missed = 0, [], 0
        # A wait may take a few steps less than the one before.
        while missed < 5:
            at += 1
            outer = outer_lock.acquire(5)
            held = rival.lock("b", ttl=TTL).acquire(5) if "held" in what else None
            mine = multi.acquire(5) if what == "release" else None

            def fail() -> None:
                with contextlib.suppress(pawlock.AcquireTimeout):
                    multi.acquire(timeout=0.01)

            where, _ = interrupted(fail if mine is None else mine.release, at)
            if mine is not None:
                # Interrupted before its first step, a release has not begun.
                with contextlib.suppress(pawlock.NotHeld):
                    mine.release()
            missed += not where
            if (outer.state, outer.count) != ("held", 1) or not valkey.command("EXISTS", "pawlock:a"):
                bad.append(f"{where}: {outer.state}, held {outer.count} times")
            with contextlib.suppress(pawlock.NotHeld):
                while True:
                    outer.release()
            if held is not None:
                held.release()
            del mine
            until(lambda: not remains(valkey), what="all is given back")
        assert at > 50
        assert bad == []
