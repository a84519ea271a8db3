"""A lease goes to another process by its ticket: once, whole, in time, in the same namespace."""

from __future__ import annotations

import threading

import pytest

import pawlock
from tests.contract.edges.helpers import (
    Script,
    eventually,
    free,
    holder_of,
    outcome,
    run_script,
    wait_for_renewal,
)
from tests.support.proxy import Proxy
from tests.support.scripts import published
from tests.support.servers import Server


def test_another_process_goes_on(client: pawlock.Client, valkey: Server) -> None:
    lease = client.lock("passed", ttl=30).acquire()
    fence = lease.fence
    ticket = lease.detach()
    assert lease.state == "released"
    assert outcome(lease.release) == "NotHeld"
    assert outcome(lease.check) == "LeaseLost:closed"
    text = """
        import sys, time, pawlock
        client = pawlock.connect(sys.argv[1])
        with client.adopt(sys.argv[2], renew=0.2) as lease:
            print(lease.name, lease.fence, lease.ttl, flush=True)
            sys.stdin.readline()
            lease.check()
    """
    with Script(text, valkey.url, ticket) as script:
        assert script.line() == f"passed {fence} 30.0"
        assert client.lock("passed").try_acquire() is None, "the thread that gave it away has it no more"
        for _ in range(3):
            wait_for_renewal(valkey, "passed")
        script.say()
        assert script.end() == (0, "", "")
    assert free(valkey, "passed")


def test_the_threads_of_one_client_wait_on(client: pawlock.Client, other: pawlock.Client) -> None:
    """Waiters behind the lease queue on the server now; the giver itself may wait as well."""
    lock = client.lock("passed", timeout=10)
    ticket = lock.acquire().detach()
    adopted = other.adopt(ticket)
    with pytest.raises(pawlock.AcquireTimeout):
        lock.acquire(timeout=0.05)
    adopted.release()
    with lock as lease:
        assert lease.fence > adopted.fence


def test_a_ticket_serves_once(client: pawlock.Client, other: pawlock.Client) -> None:
    """Two owners of one lease would each believe that they are alone."""
    lease = client.lock("once").acquire()
    ticket = lease.detach()
    first = other.adopt(ticket)
    assert outcome(lambda: client.adopt(ticket)) == "NotHeld"
    assert outcome(lambda: other.adopt(ticket)) == "NotHeld"
    first.check()
    first.extend(50)
    assert lease.token != first.token
    first.release()
    assert outcome(lambda: client.adopt(ticket)) == "NotHeld"


def test_a_ticket_that_comes_too_late(client: pawlock.Client, other: pawlock.Client, valkey: Server) -> None:
    ticket = client.lock("late", ttl=0.4).acquire().detach()
    eventually(lambda: free(valkey, "late"), "it runs out unrenewed", 5)
    with pytest.raises(pawlock.NotHeld, match="adopt 'late'"):
        other.adopt(ticket)
    with client.lock("late") as lease:
        with pytest.raises(pawlock.NotHeld):
            other.adopt(ticket)
        lease.check()


def test_another_namespace(client: pawlock.Client, valkey: Server) -> None:
    ticket = client.lock("spaced").acquire().detach()
    with (
        pawlock.connect(valkey.url, namespace="elsewhere") as stranger,
        pytest.raises(pawlock.ConfigurationError, match="namespace"),
    ):
        stranger.adopt(ticket)
    client.adopt(ticket).release()


def test_damaged_tickets(client: pawlock.Client) -> None:
    ticket = client.lock("damaged").acquire().detach()
    secret = ticket[6:]
    damaged: list[object] = [
        "", "x", None, 7, ticket.encode(), ticket[:-3], ticket[:20], ticket + "A", "pawlock9." + ticket[6:],
        "pawlock1.", "pawlock1.!!!!", "pawlock1.bnVsbA", "pawlock1.WzEsMl0", "pawlock1.W251bGwsbnVsbCxudWxsLG51bGwsbnVsbF0",
        "pawlock1.eyJhIjoxfQ",
    ]  # fmt: skip
    for text in damaged:
        with pytest.raises(pawlock.ConfigurationError) as caught:
            client.adopt(text)  # type: ignore[arg-type]
        assert secret[:12] not in str(caught.value), "the secret is in the text"
    client.adopt(ticket).release()


def test_detaching_what_cannot_be_given_away(client: pawlock.Client) -> None:
    lock = client.rlock("twice")
    with lock as lease, lock, pytest.raises(pawlock.NotHeld, match="2 times"):
        lease.detach()
    assert outcome(lease.detach) == "NotHeld"
    with client.semaphore("permits", permits=2) as held:
        with pytest.raises(pawlock.NotSupported, match="semaphore"):
            held.detach()
        held.check()


def test_an_adoption_whose_reply_is_lost_is_asked_again(client: pawlock.Client, valkey: Server) -> None:
    ticket = client.lock("resent").acquire().detach()
    with Proxy(valkey) as proxy, pawlock.connect(proxy.url) as there:
        proxy.swallow_reply(published("mutex/adopt").sha)
        with there.adopt(ticket) as lease:
            assert holder_of(valkey, "resent") == lease.token
    assert free(valkey, "resent")


def test_an_adoption_that_fails_leaves_the_name_to_nobody(client: pawlock.Client, valkey: Server) -> None:
    """Its late copy finds its token dead, and the name runs out by the life it had."""
    lease = client.lock("failed", ttl=1.5).acquire()
    ticket = lease.detach()
    with Proxy(valkey) as proxy, pawlock.connect(proxy.url) as there:
        with there.lock("warm"):
            pass
        rule = proxy.swallow_reply(published("mutex/adopt").sha, times=None)
        with pytest.raises(pawlock.BackendUnavailable):
            there.adopt(ticket, unavailable_after=0.3)
        assert rule.hits >= 1
        eventually(lambda: free(valkey, "failed"), "the adopted token is left", 1.2)


@pytest.mark.slow
def test_close_waits_for_an_adoption_and_nobody_gets_the_lease(
    client: pawlock.Client, valkey: Server
) -> None:
    ticket = client.lock("closed").acquire().detach()
    with Proxy(valkey) as proxy:
        there = pawlock.connect(proxy.url)
        with there.lock("warm"):
            pass
        proxy.delay(requests=0.3)
        found: list[str] = []
        adopting = threading.Thread(target=lambda: found.append(outcome(lambda: there.adopt(ticket))))
        adopting.start()
        eventually(lambda: there._engine.calls, "it is under way")
        there.close()
        # What it was given meanwhile was given back before the close was over.
        assert free(valkey, "closed")
        adopting.join()
        assert found == ["ClientClosed"]


def test_options_of_the_adopted_lease(client: pawlock.Client, other: pawlock.Client) -> None:
    ticket = client.lock("options", ttl=20).acquire().detach()
    lease = other.adopt(ticket, ttl=3, max_hold=0.5)
    assert lease.ttl == 3
    assert lease.lost.wait(5)
    assert outcome(lease.check) == "LeaseLost:max_hold"
    assert outcome(lease.release) == "NotHeld"


def test_a_receiver_that_dies_frees_it_after_its_own_ttl(client: pawlock.Client, valkey: Server) -> None:
    """The long life was for the way: a lease of an hour that is adopted for half a second ends with its holder."""
    ticket = client.lock("way", ttl=3600).acquire().detach()
    text = """
        import os, sys, pawlock
        lease = pawlock.connect(sys.argv[1]).adopt(sys.argv[2], ttl=0.5)
        assert lease.remaining() <= 0.5, lease
        print("held", flush=True)
        os.kill(os.getpid(), 9)
    """
    with Script(text, valkey.url, ticket) as script:
        assert script.line() == "held"
        with client.lock("way").acquire(timeout=20):
            pass
        assert script.end()[0] == -9


def test_an_adopted_lease_is_this_threads(client: pawlock.Client) -> None:
    ticket = client.lock("mine").acquire().detach()
    with client.adopt(ticket):
        assert outcome(lambda: client.lock("mine").acquire()) == "DeadlockDetected"
    with client.lock("mine"):
        pass


async def test_from_threads_to_a_task_and_back(
    client: pawlock.Client, aclient: pawlock.AsyncClient, valkey: Server
) -> None:
    with pytest.warns(RuntimeWarning, match="blocks this event loop"):
        lease = client.lock("apis", ttl=1.2).acquire()
    fence = lease.fence
    async with await aclient.adopt(lease.detach()) as adopted:
        assert adopted.fence == fence
        ticket = adopted.detach()
    again = client.adopt(ticket)
    assert again.fence == fence
    again.release()
    assert free(valkey, "apis")


def test_a_process_that_ends_after_detaching_keeps_the_name_held(
    client: pawlock.Client, valkey: Server
) -> None:
    """Not released at its exit: the lease is nobody's of that process any more."""
    text = """
        import sys, pawlock
        print(pawlock.connect(sys.argv[1], ttl=20).lock("bequeathed").acquire().detach())
    """
    ticket = run_script(text, valkey.url)
    assert holder_of(valkey, "bequeathed") is not None
    client.adopt(ticket).release()
    assert free(valkey, "bequeathed")
