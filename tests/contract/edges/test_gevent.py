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


LATE = """
    import sys, pawlock
    client = pawlock.connect(sys.argv[1])
    if sys.argv[2] == "used":
        with client.lock("warm-up"):
            pass
    from gevent import monkey
    monkey.patch_all(thread=sys.argv[3] == "all")
    import gevent

    def work(make):
        try:
            with make():
                print("it is inside")
        except pawlock.NotSupported as error:
            print("monkey.patch_all()" in str(error))

    doors = [
        lambda: client.lock("n"),
        lambda: client.rlock("n"),
        lambda: client.semaphore("n", permits=2),
        lambda: client.rwlock("n").read,
        lambda: client.multi_lock(["n", "m"]),
        lambda: client.once("n"),
        lambda: pawlock.connect(sys.argv[1]).lock("n"),
    ]
    gevent.joinall([gevent.spawn(work, door) for door in doors for _ in range(2)], timeout=10)
"""


@pytest.mark.parametrize("what", ["all", "but threads"])
@pytest.mark.parametrize("used", ["used", "unused"])
def test_greenlets_that_would_be_one_thread_are_refused(valkey: Server, used: str, what: str) -> None:
    """As where a preloaded application is patched in its workers: with its client made before, all would be inside."""
    said = run_script(LATE, valkey.url, used, what, PYTHONWARNINGS="ignore")
    assert said.split() == ["True"] * 14, said


def test_a_task_that_is_defined_before_the_patch_is_no_use_of_pawlock(valkey: Server) -> None:
    text = """
        import sys, pawlock, pawlock.integrations.asgi, pawlock.integrations.django
        from pawlock.integrations.celery import Unique

        class Task(Unique):
            pass

        from gevent import monkey
        monkey.patch_all()
        with pawlock.connect(sys.argv[1]) as client, client.lock("n"):
            print("held")
    """
    assert run_script(text, valkey.url, PYTHONWARNINGS="ignore::RuntimeWarning") == "held"


def test_greenlets_without_threads_are_refused(valkey: Server) -> None:
    text = """
        from gevent import monkey
        monkey.patch_all(thread=False)
        import sys, pawlock
        try:
            pawlock.connect(sys.argv[1])
        except pawlock.NotSupported as error:
            print("not threads" in str(error))
    """
    assert run_script(text, valkey.url) == "True"


@pytest.mark.parametrize("patched", ["monkey_patch()", "monkey_patch(thread=False)"])
def test_eventlet_is_refused_by_name(valkey: Server, patched: str) -> None:
    text = f"""
        import eventlet
        eventlet.{patched}
        import sys, pawlock
        for connect in (pawlock.connect, pawlock.connect_async):
            try:
                connect(sys.argv[1])
            except pawlock.NotSupported as error:
                print("eventlet" in str(error))
        from pawlock.integrations.celery import Unique
        try:
            class Task(Unique):
                pass
        except pawlock.NotSupported as error:
            print("eventlet" in str(error))
    """
    said = run_script(text, valkey.url, PYTHONWARNINGS="ignore")
    assert said.split() == ["True"] * 3, said
