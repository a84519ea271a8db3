"""A crowd behind a network that loses, doubles, delays and cuts: never more inside than may be, and nothing is left."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice, pairwise
from typing import Any, NamedTuple

import pytest

import pawlock
from tests.etcd.rig import slow
from tests.faults.rig import Api, Client, until
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import EtcdProxy

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SECONDS = 30.0
QUICK: dict[str, Any] = {"ttl": 3, "timeout": 15, "unavailable_after": 8}

MAKE: dict[str, Callable[[Any], Any]] = {
    "lock": lambda client: client.lock("lock", **QUICK),
    "fair": lambda client: client.fair_lock("lock", **QUICK),
    "permit": lambda client: client.semaphore("permits", permits=3, **QUICK),
    "reader": lambda client: client.rwlock("rw", **QUICK).read,
    "writer": lambda client: client.rwlock("rw", **QUICK).write,
}

ROOM: dict[str, dict[str, int]] = {
    "lock": {"lock": 100, "fair": 100},
    "permits": {"permit": 33},
    "rw": {"reader": 1, "writer": 100},
}
"""Of the hundred parts of a name, what each holder takes."""


class Span(NamedTuple):
    """The time for which a holder was sure of its lease."""

    kind: str
    begin: float
    end: float
    fence: int


def overfull(spans: list[Span]) -> list[str]:
    """What is wrong: more than may be inside at one time, and fences of exclusive holders that do not rise."""
    wrong: list[str] = []
    for name, parts in ROOM.items():
        steps = [(at, sign, span) for span in spans for at, sign in ((span.end, -1), (span.begin, 1))]
        inside = 0
        for _, sign, span in sorted(step for step in steps if step[2].kind in parts):
            inside += sign * parts[span.kind]
            if inside > 100:
                wrong.append(f"{name} is overfull: {span}")
    alone = [span for span in sorted(spans, key=lambda span: span.begin) if span.kind in ROOM["lock"]]
    wrong += [
        f"the fence does not rise: {after}"
        for before, after in pairwise(alone)
        if after.fence <= before.fence
    ]
    return wrong


def visit(client: Client, chance: random.Random, spans: list[Span], kind: str) -> None:
    """Be inside once, for a moment."""
    run = client._api.run
    try:
        lease = run(lambda: MAKE[kind](client.raw).acquire(), 60)
    except pawlock.PawlockError:
        return
    begin = end = time.monotonic()
    leaving = begin + chance.choice((0, 0.005, 0.05, 0.3))
    while True:
        # The clock before the lease: it was sure of it at that time.
        at = time.monotonic()
        if run(lease.remaining) <= 0:
            break
        end = at
        if at > leaving:
            break
        time.sleep(0.004)
    spans.append(Span(kind, begin, end, lease.fence))
    try:
        run(lease.release, 60)
    except pawlock.PawlockError:
        return


def serve(client: Client, seed: int, over: threading.Event, spans: list[Span]) -> None:
    """Be inside again and again."""
    chance = random.Random(seed)
    while not over.is_set():
        visit(client, chance, spans, chance.choice([*MAKE]))


def harm(proxy: EtcdProxy, chance: random.Random) -> None:
    """Do something to the network."""
    nth = chance.randint(1, 3)
    faults: list[Callable[[], object]] = [
        proxy.reset_all,
        partial(proxy.drop_request, "kv/txn", nth=nth),
        partial(proxy.swallow_reply, "kv/txn", nth=nth),
        partial(proxy.swallow_reply, "lease/"),
        partial(proxy.kill_on_reply, nth=nth),
        partial(proxy.duplicate_request, "kv/txn", nth=nth),
        partial(proxy.hold_request, "kv/txn", seconds=chance.choice((0.3, 1.5, 4.0))),
        partial(proxy.cut_push, times=nth),
        partial(away, proxy, chance.choice((0.2, 1.0, 3.5))),
    ]
    chance.choice(faults)()


def away(proxy: EtcdProxy, seconds: float) -> None:
    """Carry nothing for some time."""
    proxy.blackhole()
    time.sleep(seconds)
    proxy.blackhole(on=False)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_crowd_over_a_bad_network(api: Api, members: int, seed: int) -> None:
    spans: list[Span] = []
    over, chance = threading.Event(), random.Random(seed)
    with Etcd(members) as etcd, ExitStack() as stack:
        served = islice(cycle(etcd.members), 3)
        proxies = [stack.enter_context(EtcdProxy(member)) for member in served]
        clients = [api.connect(proxy.url) for proxy in proxies]
        with ThreadPoolExecutor(9) as pool:
            crowd = [pool.submit(serve, clients[n % 3], 10 * seed + n, over, spans) for n in range(9)]
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                time.sleep(chance.random())
                harm(chance.choice(proxies), chance)
            over.set()
            for proxy in proxies:
                proxy.clear()
            for one in crowd:
                one.result(slow(60))
        assert len(spans) > 50
        assert not overfull(spans)
        with etcd.wire() as wire:
            # A release that nobody answered ends with its lease.
            until(lambda: not [p for p in wire.range() if b"\x01" not in p.key], slow(10), "all is free")
        for client in clients:
            client.close()
