"""Closing a client: leases are given back at once, waiters are told, and nothing of it works afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import pawlock
from tests.contract.edges.helpers import eventually, free, local_waiters, outcome, started_threads
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.servers import Server

SOON = 2.0
"""Seconds within which a waiter hears of the closing: one, and one more for a busy machine."""


def test_leases_are_given_back_and_told(valkey: Server) -> None:
    told: list[str] = []
    client = pawlock.connect(valkey.url, ttl=60, on_lost=lambda lease: told.append(lease.name))
    leases = [client.lock(f"held {n}").acquire() for n in range(20)]
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < pace() * SOON
    assert all(free(valkey, f"held {n}") for n in range(20))
    assert {lease.state for lease in leases} == {"lost"}
    assert {outcome(lease.check) for lease in leases} == {"LeaseLost:closed"}
    assert {outcome(lease.release) for lease in leases} == {"NotHeld"}
    eventually(lambda: len(told) == 20, "on_lost is called")


def test_a_refusal_that_cannot_pass_does_not_hold_up_the_end(valkey: Server) -> None:
    valkey.command("LPUSH", "pawlock:wrong", "x")
    valkey.command("ACL", "SETUSER", "few", "on", ">secret", "~elsewhere*", "+@all")
    few = pawlock.connect(f"redis://few:secret@127.0.0.1:{valkey.port}")
    for client, error in ((pawlock.connect(valkey.url), pawlock.WrongKey), (few, pawlock.BackendDenied)):
        with pytest.raises(error):
            client.lock("wrong").acquire()
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < pace() * SOON
    valkey.command("ACL", "DELUSER", "few")


def test_waiters_hear_of_it(valkey: Server, other: pawlock.Client) -> None:
    """In the server's queue, in the local queue behind another, and behind a lease of the client itself."""
    client = pawlock.connect(valkey.url)
    ends: list[tuple[str, float]] = []

    def wait(name: str) -> None:
        result = outcome(lambda: client.lock(name).acquire())
        ends.append((result, time.monotonic()))

    with other.lock("theirs"):
        own = client.lock("own").acquire()
        with started_threads(*[lambda: wait("theirs")] * 3, *[lambda: wait("own")] * 2):
            eventually(lambda: other.inspect("theirs").queue_length == 1, "the speaker queues")
            eventually(lambda: local_waiters(client) == 4, "four sleep")
            began = time.monotonic()
            client.close()
        assert [end[0] for end in ends] == ["ClientClosed"] * 5
        assert max(end[1] for end in ends) - began < SOON
        assert other.inspect("theirs").queue_length == 0
    assert free(valkey, "theirs")
    assert free(valkey, "own")
    assert own.state == "lost"


def test_a_waiter_for_an_unreachable_server_hears_of_it(own_server: Server) -> None:
    with Proxy(own_server) as proxy:
        client = pawlock.connect(proxy.url)
        with client.lock("warm"):
            pass
        proxy.refuse()
        proxy.reset_all()
        results: list[str] = []
        with started_threads(
            lambda: results.append(outcome(lambda: client.lock("down", unavailable_after=60).acquire())),
            lambda: results.append(outcome(lambda: client.inspect("down"))),
        ):
            time.sleep(0.3)  # both try, and fail, and try again
            began = time.monotonic()
            client.close(0.5)
        assert results == ["ClientClosed"] * 2
        assert time.monotonic() - began < pace() * (SOON + 1)


def test_a_second_close_and_every_use_afterwards(valkey: Server) -> None:
    client = pawlock.connect(valkey.url)
    lock = client.lock("later")
    ticket = client.lock("given").acquire().detach()
    client.close()
    client.close()
    for use in (
        lock.acquire,
        lock.try_acquire,
        lock.locked,
        lock.__enter__,
        client.rlock("later").acquire,
        lambda: client.inspect("later"),
        lambda: client.adopt(ticket),
    ):
        with pytest.raises(pawlock.ClientClosed, match="closed"):
            use()
    assert "closed" in repr(client)
    unused = pawlock.connect(valkey.url)
    unused.close()
    assert outcome(unused.lock("x").acquire) == "ClientClosed"


def test_leaving_a_block_after_the_close_tells_the_loss(valkey: Server) -> None:
    client = pawlock.connect(valkey.url)
    with pytest.raises(pawlock.LeaseLost) as caught, client.lock("inside"):
        client.close()
    assert caught.value.reason == "closed"
    assert free(valkey, "inside")


def still_there(server: Server, name: str) -> list[object]:
    """What keeps a name from being free: its keys and what they hold."""
    if free(server, name):
        return []
    key, queue = f"pawlock:{name}", f"{{pawlock:{name}}}:1:queue"
    return [name, server.command("GET", key), server.command("ZRANGE", queue, "0", "-1", "WITHSCORES")]


def test_close_against_threads_in_the_middle_of_it(valkey: Server) -> None:
    """Whatever instant it comes at: afterwards every name is free and every thread has ended."""
    valkey.command("FLUSHALL")
    for round_ in range(25):
        client = pawlock.connect(valkey.url, ttl=60)
        started = threading.Event()
        names = [f"race {round_} {n % 2}" for n in range(4)]

        def work(name: str, client: pawlock.Client = client, started: threading.Event = started) -> str:
            try:
                while True:
                    with client.lock(name, handover=len(name) % 2):
                        started.set()
            except pawlock.ClientClosed:
                return "closed"
            except pawlock.LeaseLost as error:
                return error.reason

        with started_threads(*[lambda name=name: work(name) for name in names]) as results:
            started.wait(10)
            time.sleep(0.001 * (round_ % 5))
            client.close()
            left = [key for name in names for key in still_there(valkey, name)]
            assert not left, "a name is not free after close()"
        assert set(results) == {"closed"}, results


def test_close_waits_for_a_release_that_another_call_repeats(valkey: Server) -> None:
    """The second release of a lease is refused while the first one is on its way, which close waits for."""
    with Proxy(valkey) as proxy:
        client = pawlock.connect(proxy.url, ttl=60)
        lease = client.lock("twice").acquire()
        request = proxy.hold_request(lambda request: request.contains("pawlock:twice"))
        with started_threads(lease.release):
            proxy.wait_hit(request)
            with pytest.raises(pawlock.NotHeld):
                lease.release()
            with started_threads(client.close) as closing:
                time.sleep(0.2)
                assert not closing, "the first release is under way"
                request.release()
        assert free(valkey, "twice")


async def test_aclose_waits_for_a_release_that_another_call_repeats(valkey: Server) -> None:
    with Proxy(valkey) as proxy:
        client = pawlock.connect_async(proxy.url, ttl=60)
        lease = await client.lock("twice").acquire()
        request = proxy.hold_request(lambda request: request.contains("pawlock:twice"))
        first = asyncio.create_task(lease.release())
        await asyncio.to_thread(proxy.wait_hit, request)
        with pytest.raises(pawlock.NotHeld):
            await lease.release()
        closing = asyncio.create_task(client.close())
        await asyncio.wait([closing], timeout=0.2)
        assert not closing.done(), "the first release is under way"
        request.release()
        await first
        await closing
        assert free(valkey, "twice")


def test_close_does_not_wait_for_a_server_that_is_gone(own_server: Server) -> None:
    client = pawlock.connect(own_server.url, ttl=60)
    lease = client.lock("gone").acquire()
    with own_server.paused():
        began = time.monotonic()
        client.close(0.5)
        assert time.monotonic() - began < pace() * (SOON + 1)
    assert lease.state == "lost"


async def test_leases_and_waiters_of_tasks(valkey: Server, aother: pawlock.AsyncClient) -> None:
    client = pawlock.connect_async(valkey.url, ttl=60)
    leases = [await client.lock(f"held {n}").acquire() for n in range(20)]
    async with aother.lock("theirs"):
        waiters = [asyncio.create_task(_wait(client, "theirs")) for _ in range(3)]
        waiters += [asyncio.create_task(_wait(client, "held 3")) for _ in range(3)]
        await asyncio.to_thread(eventually, lambda: not free_queue(valkey), "a waiter queues")
        began = time.monotonic()
        await client.close()
        assert await asyncio.gather(*waiters) == ["ClientClosed"] * 6
        assert time.monotonic() - began < pace() * SOON
        assert (await aother.inspect("theirs")).queue_length == 0
    assert all(free(valkey, f"held {n}") for n in range(20))
    assert {lease.state for lease in leases} == {"lost"}
    await client.close()
    assert await _wait(client, "later") == "ClientClosed"
    for use in (client.lock("x").try_acquire(), client.lock("x").locked(), client.inspect("x")):
        with pytest.raises(pawlock.ClientClosed):
            await use


def free_queue(server: Server) -> bool:
    return server.command("EXISTS", "{pawlock:theirs}:1:queue") == 0


async def _wait(client: pawlock.AsyncClient, name: str) -> str:
    try:
        await client.lock(name).acquire()
    except pawlock.PawlockError as error:
        return type(error).__name__
    return "held"


async def test_closing_inside_a_block_of_the_client_is_carried_through(valkey: Server) -> None:
    """The task that closes is cancelled for the loss of its own lease; the closing is not."""
    client = pawlock.connect_async(valkey.url, ttl=60)
    other_lease = await client.lock("another").acquire()
    with pytest.raises(pawlock.LeaseLost) as caught:  # noqa: PT012
        async with client.lock("inside"):
            await client.close()
            await asyncio.sleep(10)
    assert caught.value.reason == "closed"
    assert free(valkey, "inside")
    assert free(valkey, "another")
    assert other_lease.state == "lost"
    assert [t.get_name() for t in asyncio.all_tasks() if t.get_name().startswith("pawlock")] == []
    await client.close()


async def test_close_against_tasks_in_the_middle_of_it(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    for round_ in range(25):
        client = pawlock.connect_async(valkey.url, ttl=60)
        names = [f"race {round_} {n % 2}" for n in range(6)]

        async def work(name: str, client: pawlock.AsyncClient = client) -> str:
            try:
                while True:
                    lease = await client.lock(name).acquire()
                    await lease.release()
            except pawlock.ClientClosed:
                return "closed"
            except pawlock.NotHeld:
                return "closed"

        tasks = [asyncio.create_task(work(name)) for name in names]
        await asyncio.sleep(0.001 * (round_ % 10))
        await client.close()
        assert set(await asyncio.gather(*tasks)) == {"closed"}
        assert all(free(valkey, name) for name in names), "a name is not free after close()"


async def test_a_close_that_is_cancelled_while_it_ends_an_attempt_to_connect_is_cancelled(
    valkey: Server,
) -> None:
    """The attempt is cancelled as well: its end is not taken for the caller's."""
    client = pawlock.connect_async(valkey.url)
    await (await client.lock("n").acquire()).release()
    runtime: Any = client._engine().runtime
    asked, may_end = asyncio.Event(), asyncio.Event()

    async def slow_attempt() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            asked.set()
            await may_end.wait()

    attempt = asyncio.create_task(slow_attempt())
    runtime._opening = {None: attempt}
    await asyncio.sleep(0)
    closing = asyncio.create_task(runtime.shut_down())
    await asked.wait()
    closing.cancel()
    await asyncio.wait([closing], timeout=5)
    may_end.set()
    await asyncio.wait([attempt], timeout=5)
    assert closing.cancelled()
    await client.close()
