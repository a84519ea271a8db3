"""How programs end that hold or wait for a lock on etcd: what they hold is given back, and the end is not held up."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from tests.contract.edges.helpers import Script
from tests.etcd.rig import queue, slow, stand
from tests.faults.rig import Client, until
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import EtcdProxy

HEAD = """
    import asyncio, os, signal, sys, threading, time
    import pawlock

    url = sys.argv[1]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    signal.signal(signal.SIGINT, signal.default_int_handler)
"""

HOLD = {
    "threads": """
    client = pawlock.connect(url)
    lease = client.lock("n", ttl=60).acquire(10)
    print("held", flush=True)
""",
    "asyncio": """
    async def main():
        client = pawlock.connect_async(url)
        async with client.lock("n", ttl=60):
            print("held", flush=True)
            await asyncio.sleep(wait)
""",
}

ENDS = {
    ("threads", "falls off its end"): "",
    ("threads", "exits"): "    sys.exit(3)",
    ("threads", "fails"): "    raise KeyError('its own')",
    ("threads", "is told to end"): "    time.sleep(60)",
    ("asyncio", "falls off its end"): "    wait = 0; asyncio.run(main())",
    ("asyncio", "is told to end"): "    wait = 60; asyncio.run(main())",
}


@pytest.mark.parametrize(("api", "how"), ENDS)
def test_what_is_held_is_given_back_at_the_end(etcd: Etcd, api: str, how: str) -> None:
    with Script(HEAD + HOLD[api] + ENDS[api, how] + "\n", etcd.url) as script:
        assert script.line() == "held"
        if how == "is told to end":
            script.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, _, err = script.end()
        assert time.monotonic() - began < slow(5)
    assert "Unclosed" not in err
    assert "never awaited" not in err
    assert not queue(etcd)


WAIT = """
    client = pawlock.connect(url)
    try:
        with client.lock("n", ttl=20).acquire():
            print("held", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""

AWAIT = """
    async def main():
        async with pawlock.connect_async(url) as client:
            async with client.lock("n", ttl=20).acquire():
                print("held", flush=True)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("text", [WAIT, AWAIT], ids=["threads", "asyncio"])
def test_an_interrupted_wait_leaves(etcd: Etcd, client: Client, text: str) -> None:
    held = client.lock(ttl=20).acquire()
    with Script(HEAD + text, etcd.url) as script:
        stand(etcd, 2)
        time.sleep(0.3)
        script.process.send_signal(signal.SIGINT)
        assert script.line() == "interrupted"
        code, _, err = script.end()
        assert (code, err) == (0, "")
    until(lambda: queue(etcd) == 1, slow(2), "it leaves")
    held.release()


BLOCKED = """
    client = pawlock.connect(url)
    lease = client.lock("n", ttl=20).acquire()
    print("held", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    try:
        client.close(1.0)
    except pawlock.PawlockError as error:
        print(type(error).__name__, flush=True)
    print(time.monotonic() - began < 8, flush=True)
"""


def test_an_end_while_the_network_is_away(etcd: Etcd, proxy: EtcdProxy) -> None:
    """Nothing can be given back; the program ends all the same."""
    with Script(HEAD + BLOCKED, proxy.url) as script:
        assert script.line() == "held"
        proxy.blackhole()
        script.say()
        code, out, _ = script.end(slow(20))
        assert (code, out.split()[-1]) == (0, "True")
        proxy.blackhole(on=False)


FORKED = """
    client = pawlock.connect(url)
    lease = client.lock("n", ttl=20).acquire()
    if os.fork() == 0:
        with client.lock("m", ttl=20):
            pass
        sys.exit(0)
    os.wait()
    lease.check()
    lease.release()
    print("released", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_end_of_a_child_takes_nothing_from_its_parent(etcd: Etcd) -> None:
    with Script(HEAD + FORKED, etcd.url, PYTHONWARNINGS="ignore::DeprecationWarning") as script:
        code, out, err = script.end()
    assert (code, out, err) == (0, "released\n", "")
    assert not queue(etcd)


LOOPS = """
    client = pawlock.connect_async(url)

    async def once(name):
        async with client.lock(name, ttl=20) as lease:
            await asyncio.sleep(0.2)
            return lease.fence

    fences = [asyncio.run(once("n")) for _ in range(2)]
    found = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(once("n")))) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(fences == sorted(fences), sorted(found)[0] > fences[-1], len(set(found)), flush=True)
"""


def test_a_client_of_several_loops(etcd: Etcd) -> None:
    with Script(HEAD + LOOPS, etcd.url) as script:
        code, out, err = script.end()
    assert (code, out, err) == (0, "True True 3\n", "")
    assert not queue(etcd)


GEVENT = """
    from gevent import monkey
    monkey.patch_all()
    import sys, time
    import gevent, pawlock
    client = pawlock.connect(sys.argv[1])
    order = []

    def serve(number):
        with client.lock("n", ttl=20):
            order.append(number)
            gevent.sleep(0.05)

    gevent.joinall([gevent.spawn(serve, number) for number in range(4)], timeout=20)
    print(sorted(order), flush=True)
    client.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="as the tests of gevent on Redis")
def test_gevent(etcd: Etcd) -> None:
    pytest.importorskip("gevent")
    with Script(GEVENT, etcd.url) as script:
        code, out, err = script.end(40)
    assert (code, out) == (0, "[0, 1, 2, 3]\n"), err
