"""Greenlets in the place of threads: with everything patched, pawlock works as with threads."""

from __future__ import annotations

import importlib.util

import pytest

from tests.contract.edges.helpers import free, run_script
from tests.support.servers import Server

pytestmark = pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed")

GREENLETS = """
    import time, gevent, redis
    client = pawlock.connect(sys.argv[1])
    plain = redis.Redis.from_url(sys.argv[1])
    plain.delete("n")
    lock = client.lock("greenlets", timeout=60)
    began = time.monotonic()

    def work():
        for _ in range(5):
            with lock as lease:
                n = int(plain.get("n") or 0)
                gevent.sleep(0)
                plain.set("n", n + 1)
                lease.check()

    ticks = []
    def tick():
        while True:
            ticks.append(1)
            gevent.sleep(0.01)
    ticker = gevent.spawn(tick)
    gevent.joinall([gevent.spawn(work) for _ in range(100)], raise_error=True)
    assert int(plain.get("n")) == 500, plain.get("n")

    # A wait in pawlock lets the other greenlets run, a renewal goes on beside them, and close() wakes waiters.
    lease = client.lock("held", ttl=0.9).acquire()
    before = len(ticks)
    try:
        pawlock.connect(sys.argv[1]).lock("held").acquire(timeout=1.5)
    except pawlock.AcquireTimeout:
        pass
    assert len(ticks) - before > 20, f"the other greenlets stood still: {len(ticks) - before}"
    lease.check()
    plain.delete("pawlock:held")
    assert lease.lost.wait(5)
    gevent.kill(ticker)

    # Closing wakes a greenlet that waits.
    other = pawlock.connect(sys.argv[1])
    blocker = other.lock("blocked").acquire()
    ends = []
    def wait():
        try:
            client.lock("blocked").acquire()
        except pawlock.ClientClosed:
            ends.append("closed")
    waiter = gevent.spawn(wait)
    gevent.sleep(0.3)
    client.close()
    waiter.join(5)
    assert ends == ["closed"], ends
    other.close()
    print("done")
"""


@pytest.mark.parametrize("order", ["patched first", pytest.param("pawlock first", marks=pytest.mark.slow)])
def test_greenlets(valkey: Server, order: str) -> None:
    valkey.command("FLUSHALL")
    patch = "    from gevent import monkey; monkey.patch_all()\n"
    load = "    import sys, pawlock\n"
    text = patch + load + GREENLETS if order == "patched first" else load + patch + GREENLETS
    for url in (valkey.url,) if order == "patched first" else (valkey.url, valkey.unix_url):
        # gevent itself warns that it was late; what it patches late works for pawlock all the same.
        assert run_script(text, url, timeout=60, PYTHONWARNINGS="ignore::RuntimeWarning").endswith("done")
    assert free(valkey, "greenlets")


SIGNALS = """
    import os, signal, subprocess, time, gevent
    client = pawlock.connect(sys.argv[1])

    def lost(lease):
        gevent.sleep(0)
    with client.lock("signals", on_lost=lost):
        time.sleep(0.2)
    lease = client.lock("signals", ttl=0.3, renew=False, on_lost=lost).acquire()
    assert lease.lost.wait(5)
    gevent.sleep(0.1)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert not blocked, blocked
    # gevent hears of the end of a child by a signal.
    subprocess.run(["true"], check=True, timeout=10)
    caught = []
    signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    os.kill(os.getpid(), signal.SIGTERM)
    gevent.sleep(0.1)
    assert caught == [signal.SIGTERM], caught
    print("done")
"""


@pytest.mark.slow
def test_greenlets_leave_the_signals_of_the_process_alone(valkey: Server) -> None:
    """The background service is a greenlet of the main thread: what it blocks is blocked for all."""
    text = "    from gevent import monkey; monkey.patch_all()\n    import sys, pawlock\n" + SIGNALS
    assert run_script(text, valkey.url, timeout=60).endswith("done")
