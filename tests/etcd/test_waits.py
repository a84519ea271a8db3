"""Waiters on etcd: what ends a wait, what a wait outlives, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from functools import partial
from typing import Any

import pytest

import pawlock
from tests.contract.operate.rig import AFTER, Party, run_tasks, run_threads
from tests.etcd.rig import order, queue, slow, stand
from tests.faults.rig import Api, Client, in_thread, until
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import EtcdProxy
from tests.support.etcd_wire import EtcdWire

SOON = 0.6
"""Seconds within which a watch brings a hand-off: less than a waiter lets pass before it asks by itself."""


def crowd(wire: EtcdWire, keys: int = 50) -> None:
    """Changes of other keys, so that there is something to compact."""
    for number in range(keys):
        wire.put(f"other:{number % 3}", "x" * 100)


def begun(proxy: EtcdProxy, watches: int) -> bool:
    return len(proxy.requests("watch")) >= watches


@pytest.mark.parametrize("cut", [False, True])
def test_a_compaction_under_a_waiting_watch(
    etcd: Etcd, wire: EtcdWire, api: Api, rival: Client, proxy: EtcdProxy, *, cut: bool
) -> None:
    """What a watch was to begin at is no more; where its connection broke as well, it cannot go on from there."""
    client = api.connect(proxy.url)
    held = rival.lock(ttl=20).acquire()
    waiting = client.lock(ttl=20).start(30)
    stand(etcd, 2)
    until(lambda: proxy.requests("watch"), what="its watch")
    crowd(wire)
    wire.compact(wire.revision())
    if cut:
        proxy.reset_all()
        crowd(wire)
        wire.compact(wire.revision())
        time.sleep(1)
    held.release()
    assert waiting.result(slow(SOON if not cut else 2)).fence > held.fence


def test_a_compaction_before_a_watch_begins(
    etcd: Etcd, wire: EtcdWire, api: Api, rival: Client, proxy: EtcdProxy
) -> None:
    client = api.connect(proxy.url)
    held = rival.lock(ttl=20).acquire()
    rule = proxy.hold_request("watch", seconds=1.0)
    waiting = client.lock(ttl=20).start(30)
    rule.wait(10)
    crowd(wire)
    wire.compact(wire.revision())
    time.sleep(1)
    held.release()
    waiting.result(slow(2))


def test_a_lost_watch_begins_anew(etcd: Etcd, api: Api, rival: Client, proxy: EtcdProxy) -> None:
    client = api.connect(proxy.url)
    held = rival.lock(ttl=20).acquire()
    waiting = client.lock(ttl=60, ticket_ttl=30).start(60)
    until(lambda: proxy.requests("watch"), what="its watch")
    for times in (2, 3):
        proxy.reset_all()
        until(partial(begun, proxy, times), what="another watch")
    held.release()
    # A third of its ticket's life is 10 s.
    waiting.result(slow(SOON))


def test_a_hand_off_while_the_watch_is_away(etcd: Etcd, api: Api, rival: Client, proxy: EtcdProxy) -> None:
    client = api.connect(proxy.url)
    held = rival.lock(ttl=20).acquire()
    waiting = client.lock(ttl=60, ticket_ttl=30).start(60)
    until(lambda: proxy.requests("watch"), what="its watch")
    proxy.refuse()
    proxy.reset_all()
    held.release()
    time.sleep(0.5)
    proxy.refuse(on=False)
    waiting.result(slow(3))


def test_each_waiter_watches_only_the_one_before_it(
    etcd: Etcd, api: Api, rival: Client, proxy: EtcdProxy
) -> None:
    """No herd: a release wakes one of them, and the others ask nothing."""
    held = rival.lock(ttl=60).acquire()
    waiting = []
    for number in range(4):
        waiting.append(api.connect(proxy.url).lock(ttl=60, ticket_ttl=30).start(60))
        stand(etcd, number + 2)
    until(lambda: len(proxy.requests("watch")) >= 4, what="four watches")
    time.sleep(0.5)
    before = len(proxy.requests())
    held.release()
    first = waiting[0].result(slow(SOON))
    time.sleep(0.5)
    # It looks, binds its row to a lease of its own, and is granted one for that; renewals are far.
    assert len(proxy.requests()) - before < 8
    assert not any(one.done() for one in waiting[1:])
    first.release()
    for one in waiting[1:]:
        one.result(slow(2)).release()


def test_stop_ends_a_wait(etcd: Etcd, client: Client, rival: Client) -> None:
    held = rival.lock(ttl=20).acquire()
    stop: Any = asyncio.Event() if client._api.is_async else threading.Event()
    waiting = in_thread(lambda: client._api.run(lambda: client.raw.lock("n", ttl=20).acquire(stop=stop)))
    stand(etcd, 2)
    client._api.run(stop.set)
    with pytest.raises(pawlock.NotAcquired):
        waiting.result(slow(2))
    until(lambda: queue(etcd) == 1, slow(2), "it leaves")
    held.release()


def test_close_wakes_waiters_and_releases(etcd: Etcd, client: Client, rival: Client) -> None:
    held = rival.lock(ttl=20).acquire()
    mine = client.lock("mine", ttl=20).acquire()
    waiting = client.lock(ttl=20).start(60)
    stand(etcd, 2)
    client.close()
    with pytest.raises(pawlock.ClientClosed):
        waiting.result(slow(2))
    assert (queue(etcd), queue(etcd, "mine")) == (1, 0)
    held.release()
    assert mine.state != "held"


@pytest.mark.parametrize("after", [0.0, 0.002, 0.005, 0.01, 0.02, 0.3])
async def test_a_cancelled_wait_leaves_nothing(etcd: Etcd, after: float) -> None:
    async with pawlock.connect_async(etcd.url) as client, pawlock.connect_async(etcd.url) as rival:
        held = await rival.lock("n", ttl=20).acquire()
        waiting = asyncio.create_task(client.lock("n", ttl=20).acquire())
        await asyncio.sleep(after)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(stand, etcd, 1)
        await held.release()
        async with rival.lock("n", ttl=20).acquire(timeout=slow(1)):
            pass


async def test_a_cancelled_acquire_of_a_free_lock_leaves_nothing(etcd: Etcd) -> None:
    async with pawlock.connect_async(etcd.url) as client, pawlock.connect_async(etcd.url) as rival:
        for number in range(15):
            taking = asyncio.create_task(client.lock("n", ttl=20).acquire())
            await asyncio.sleep(0.0005 * number)
            taking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await taking).release()
            await (await rival.lock("n", ttl=20).acquire(timeout=slow(2))).release()


def test_a_deadlock_is_told_to_the_youngest(etcd: Etcd) -> None:
    with (
        pawlock.connect(etcd.url, deadlock_after=AFTER) as one,
        pawlock.connect(etcd.url, deadlock_after=AFTER) as two,
    ):
        parties = [Party(one, ("a", "b")), Party(two, ("b", "a"), after=0.3)]
        run_threads(*parties)
    assert [party.done for party in parties] == [True, False]
    assert parties[1].error is not None
    assert set(parties[1].error.cycle) == {"a", "b"}


async def test_a_deadlock_of_tasks(etcd: Etcd) -> None:
    async with (
        pawlock.connect_async(etcd.url, deadlock_after=AFTER) as one,
        pawlock.connect_async(etcd.url, deadlock_after=AFTER) as two,
    ):
        parties = [Party(one, ("a", "b")), Party(two, ("b", "a"), after=0.3)]
        await run_tasks(*parties)
    assert [party.done for party in parties] == [True, False]


def test_fifo_over_clients(etcd: Etcd, api: Api) -> None:
    held = api.connect(etcd.url).lock(ttl=20).acquire()
    waiting = []
    for number in range(6):
        waiting.append(api.connect(etcd.url).lock(ttl=20).start(60))
        stand(etcd, number + 2)
    standing = [pair.key for pair in order(etcd)]
    served = []
    held.release()
    for one in waiting:
        lease = one.result(slow(2))
        served.append(lease.token)
        assert sum(other.done() for other in waiting) == len(served)
        lease.release()
    assert [key.partition(b"\0")[2].decode() for key in standing[1:]] == served


def test_followers_of_an_election_hear_of_a_new_leader(etcd: Etcd, client: Client, rival: Client) -> None:
    def leader(one: Client) -> Any:
        return one._api.run(one.raw.election("boss").leader)

    lead = client._api.run(lambda: client.raw.election("boss", identity="first").campaign(timeout=5))
    assert leader(rival).identity == "first"
    client._api.run(lead.release)
    assert leader(rival) is None


def test_the_number_of_watches_does_not_grow(etcd: Etcd, api: Api, rival: Client, proxy: EtcdProxy) -> None:
    """Waits that end by their time leave no connection open."""
    client = api.connect(proxy.url)
    held = rival.lock(ttl=60).acquire()
    for _ in range(5):
        with pytest.raises(pawlock.AcquireTimeout):
            client.lock(ttl=60, ticket_ttl=30).acquire(0.2)
    until(lambda: proxy.connections <= 3, slow(3), "watches of waits that are over are closed")
    held.release()


def test_a_stuck_watch_costs_a_third_of_a_ticket(
    etcd: Etcd, api: Api, rival: Client, proxy: EtcdProxy
) -> None:
    client = api.connect(proxy.url)
    held = rival.lock(ttl=60).acquire()
    waiting = client.lock(ttl=60, ticket_ttl=3).start(60)
    until(lambda: proxy.requests("watch"), what="its watch")
    proxy.cut_push()
    held.release()
    waiting.result(slow(1 + SOON))
