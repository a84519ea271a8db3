"""Holders that die, stop, or pass their lease on."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import pytest

import pawlock
from tests.contract.edges.blocking import block
from tests.contract.edges.helpers import in_child, outcome
from tests.etcd.rig import AGREED, Start, guard, order, queue, slow, stand, written
from tests.faults.rig import Api, Client, until
from tests.support.etcd import Etcd

TTL = 3.0


@pytest.mark.fault
def test_the_next_is_granted_within_the_ttl_and_two_seconds_of_a_kill(
    etcd: Etcd, client: Client, other: Start
) -> None:
    holder = other(etcd.url, ttl=TTL).held()
    waiting = client.lock(ttl=TTL).start(30)
    stand(etcd, 2)
    holder.send(signal.SIGKILL)
    killed = time.monotonic()
    lease = waiting.result(30)
    assert time.monotonic() - killed < slow(TTL + AGREED)
    assert lease.fence > holder.fence


@pytest.mark.fault
@pytest.mark.slow
def test_waiters_that_were_killed_delay_by_one_ticket(etcd: Etcd, client: Client, other: Start) -> None:
    held = client.lock(ttl=20).acquire()
    dead = [other(etcd.url, ttl=20) for _ in range(3)]
    stand(etcd, 4)
    waiting = client.lock("n", ttl=20, handover=0).start(30)
    stand(etcd, 5)
    for one in dead:
        one.send(signal.SIGKILL)
    held.release()
    began = time.monotonic()
    waiting.result(30)
    # The ticket of a lock of 20 s lives 3 s; all three end at one time.
    assert time.monotonic() - began < slow(3 + AGREED)


@pytest.mark.fault
def test_a_stopped_holder_is_fenced_off(etcd: Etcd, client: Client, other: Start, tmp_path: Path) -> None:
    database = guard(tmp_path)
    holder = other(etcd.url, ttl=2.0, database=database).held()
    assert holder.ask("write") == {"rows": 1, "state": "held"}
    holder.send(signal.SIGSTOP)
    lease = client.lock(ttl=20).acquire(slow(2 + AGREED) + 5)
    assert lease.fence > holder.fence
    assert written(database, lease.fence) == 1
    holder.send(signal.SIGCONT)
    assert holder.ask("write")["rows"] == 0, "what it still writes is refused"
    until(lambda: holder.ask()["state"] == "lost", what="it is told")
    lease.check()


def test_another_process_gives_its_lease_away(
    etcd: Etcd, client: Client, rival: Client, other: Start
) -> None:
    holder = other(etcd.url, ttl=20.0).held()
    ticket = holder.ask("detach")["ticket"]
    adopted = client._api.run(lambda: client.raw.adopt(ticket))
    assert adopted.fence == holder.fence
    with pytest.raises(pawlock.NotHeld):
        rival._api.run(lambda: rival.raw.adopt(ticket))
    assert rival.lock().try_acquire() is None
    holder.send(signal.SIGKILL)
    client._api.run(adopted.release)
    assert rival.lock().try_acquire() is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork(etcd: Etcd) -> None:
    """The child inherits no lease and no connection; its client works; the parent goes on."""
    with pawlock.connect(etcd.url) as client:
        lease = client.lock("n", ttl=2).acquire()

        def child() -> tuple[str, bool, bool]:
            with client.lock("of the child", ttl=2) as own:
                time.sleep(2.5)
                own.check()
            return outcome(lease.check), client.lock("n").try_acquire() is None, bool(lease.lost)

        assert in_child(child, 20) == ("LeaseLost:closed", True, True)
        lease.check()
        lease.extend(20)
        lease.release()
        assert not queue(etcd)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_beside_a_waiter(etcd: Etcd) -> None:
    """The thread that talks to etcd is the parent's: neither side waits for what the other one hears."""
    with pawlock.connect(etcd.url) as client, pawlock.connect(etcd.url) as other:
        held = other.lock("n", ttl=20).acquire()
        got: list[int] = []

        def wait() -> None:
            with client.lock("n", ttl=20).acquire(30) as lease:
                got.append(lease.fence)

        thread = threading.Thread(target=wait)
        thread.start()
        stand(etcd, 2)
        assert in_child(lambda: client.lock("m").try_acquire() is not None, 20)
        held.release()
        thread.join(slow(5))
        assert got
        assert got[0] > held.fence


def test_a_blocked_event_loop_keeps_its_lease(etcd: Etcd) -> None:
    async def main() -> None:
        async with pawlock.connect_async(etcd.url) as client, client.lock("n", ttl=2) as lease:
            await asyncio.to_thread(time.sleep, 0)
            block(lease, 3)
            assert order(etcd)[0].key.endswith(lease.token.encode())

    asyncio.run(main())


@pytest.mark.slow
def test_a_lease_that_is_dropped_ends(etcd: Etcd, api: Api) -> None:
    """A program that ends without a release: nothing is renewed for a client that is gone."""
    gone = api.connect(etcd.url)
    gone.lock(ttl=2.0, renew=False).acquire()
    lease = api.connect(etcd.url).lock(ttl=20).acquire(slow(2 + AGREED))
    lease.check()
