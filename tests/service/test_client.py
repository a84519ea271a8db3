"""`pawlock.connect("http+pawlock://…")`: the same locks through the service, in both APIs."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pawlock
from tests.contract.edges.blocking import blocked
from tests.contract.edges.helpers import eventually
from tests.service.rig import Instance, Tokens
from tests.service.test_every_primitive import until
from tests.support.servers import Server

pytestmark = pytest.mark.slow


def url(service: Instance, token: str = "admin") -> str:
    return f"http+pawlock://{service.tokens.secrets[token]}@127.0.0.1:{service.port}"


def test_locks_of_threads(instance: Instance, server: Server) -> None:
    with pawlock.connect(url(instance), ttl=2) as client, pawlock.connect(server.url) as direct:
        with client.lock("a") as lease:
            assert lease.fence > 0
            assert direct.lock("a").try_acquire() is None
            assert direct.inspect("a").held
            time.sleep(2.5)  # renewed through the instance
            lease.check()
            assert client.inspect("a").held
        assert not direct.inspect("a").held
        with client.rlock("r") as outer, client.rlock("r") as inner:
            assert outer.fence == inner.fence
        with client.fair_lock("f"), client.semaphore("s", permits=2) as permit:
            assert permit.fence > 0
            client.semaphore("s", permits=2).acquire(timeout=1).release()
        with client.rwlock("w").read, client.rwlock("w").read:
            assert direct.rwlock("w").write.try_acquire() is None
        with direct.lock("b"), pytest.raises(pawlock.AcquireTimeout) as told:
            client.lock("b").acquire(timeout=0.3)
        assert told.value.holder


def test_a_waiting_thread_is_woken_by_the_release(instance: Instance, server: Server) -> None:
    got: list[float] = []
    with pawlock.connect(url(instance)) as client, pawlock.connect(server.url) as direct:
        held = direct.lock("a").acquire()

        def wait() -> None:
            with client.lock("a"):
                got.append(time.monotonic())

        waiter = threading.Thread(target=wait)
        waiter.start()
        while direct.inspect("a").queue_length == 0:
            time.sleep(0.01)
        time.sleep(0.2)
        at = time.monotonic()
        held.release()
        waiter.join(10)
    assert 0 <= got[0] - at < 0.3


async def test_locks_of_asyncio(instance: Instance, server: Server) -> None:
    counter = 0
    async with (
        pawlock.connect_async(url(instance), ttl=2) as client,
        pawlock.connect_async(server.url) as direct,
    ):

        async def work() -> None:
            nonlocal counter
            async with client.lock("n", handover=0):
                seen = counter
                await asyncio.sleep(0.001)
                counter = seen + 1

        await asyncio.gather(*(work() for _ in range(30)))
        assert counter == 30
        async with client.semaphore("s", permits=1):
            assert await direct.semaphore("s", permits=1).try_acquire() is None
        async with client.lock("long") as lease:
            await asyncio.sleep(2.5)
            lease.check()
        assert not (await direct.inspect("long")).held


async def test_a_lease_that_is_taken_away_cancels_the_body(instance: Instance, server: Server) -> None:
    async with (
        pawlock.connect_async(url(instance), ttl=1.5) as client,
        pawlock.connect_async(server.url) as direct,
    ):

        async def work() -> None:
            async with client.lock("a"):
                await direct.force_release("a", reason="test")
                await asyncio.sleep(10)

        with pytest.raises(pawlock.LeaseLost):
            await work()


def test_an_instance_that_ends_loses_no_lease(serve: Callable[..., Instance], server: Server) -> None:
    one = serve()
    with pawlock.connect(url(one)) as client, client.lock("a", renew_every=0.5) as lease:
        one.end(9)
        before = lease.valid_until
        again = serve(port=one.port)
        assert again.port == one.port
        eventually(lambda: lease.valid_until > before, "it is renewed by the new instance")
        lease.check()


def test_an_instance_that_is_told_to_end_sends_who_waits_away_without_noise(
    serve: Callable[..., Instance], server: Server
) -> None:
    one = serve()
    with pawlock.connect(url(one)) as client, pawlock.connect(server.url) as direct:
        held = direct.lock("a").acquire()
        waiter = threading.Thread(target=lambda: client.lock("a").acquire().release())
        waiter.start()
        eventually(lambda: direct.inspect("a").queue_length, "it waits")
        time.sleep(0.3)
        assert one.end() == 0
        serve(port=one.port)
        held.release()
        waiter.join(10)
        assert not waiter.is_alive()
    assert b"Traceback" not in one.said


def test_an_observed_client_asks_the_service_too(instance: Instance) -> None:
    from prometheus_client import CollectorRegistry

    from pawlock.metrics import prometheus

    with pawlock.connect(url(instance)) as client:
        prometheus.instrument(client, registry=CollectorRegistry())
        lease = client.lock("a").acquire()
        eventually(lambda: [one.name for one in client.locks()] == ["a"], "it is listed", 5)
        assert client.force_release("a", reason="test")
        with pytest.raises(pawlock.NotHeld):
            lease.release()
        assert client.audit(limit=1)[0].text.startswith("test")


def test_an_operator_sees_and_takes_away_through_the_service(instance: Instance, server: Server) -> None:
    with pawlock.connect(url(instance)) as client, pawlock.connect(server.url) as direct:
        with client.lock("a"), client.semaphore("s", permits=3), direct.lock("far/ü"):
            infos = {info.name: info for info in client.locks()}
            assert infos["a"] == dataclasses.replace(client.inspect("a"), ttl_left=infos["a"].ttl_left)
            assert infos["s"].limit == 3
            assert [one.permits for one in infos["s"].holders] == [1]
        held = direct.lock("far/ü").acquire()
        forced = client.force_release("far/ü", reason="stuck since noon")
        assert forced == pawlock.Forced("far/ü", True, held.token.partition("@")[2], forced.fence)
        assert forced.fence is not None
        assert forced.fence > held.fence
        assert not client.force_release("far/ü", reason="again")
        trail = client.audit()
        assert [(one.name, one.outcome, one.fence) for one in trail] == [
            ("far/ü", "free", None),
            ("far/ü", "released", forced.fence),
        ]
        assert trail[1].text == "stuck since noon [by token admin]"
        assert client.audit(limit=1) == trail[:1]
        with pytest.raises(pawlock.NotHeld):
            held.release()
        with pytest.raises(pawlock.ConfigurationError, match="400"):
            client.force_release("a", reason="x" * 401)


async def test_an_operator_of_asyncio_does_the_same(instance: Instance, server: Server) -> None:
    async with pawlock.connect_async(url(instance)) as client:
        lease = await client.lock("a").acquire()
        assert [info.name for info in await client.locks()] == ["a"]
        assert (await client.force_release("a", reason="x")).holder
        assert [one.name for one in await client.audit()] == ["a"]
        with pytest.raises(pawlock.NotHeld):
            await lease.release()


def test_what_a_token_may_not_is_denied_to_an_operator(instance: Instance, tokens: Tokens) -> None:
    tokens.add("reader", roles=["read"])
    time.sleep(1.1)
    with pawlock.connect(url(instance, "reader")) as client:
        assert client.locks() == []
        with pytest.raises(pawlock.BackendDenied, match="has no role force"):
            client.force_release("a", reason="x")


def test_a_wrong_token_and_a_foreign_namespace_are_denied(instance: Instance, tokens: Tokens) -> None:
    tokens.add("one", roles=["acquire", "read"])
    time.sleep(1.1)
    with (
        pawlock.connect(f"http+pawlock://pawlock_wrong@127.0.0.1:{instance.port}") as client,
        pytest.raises(pawlock.BackendDenied) as told,
    ):
        client.lock("a").acquire(timeout=1)
    assert "pawlock_wrong" not in str(told.value)
    with (
        pawlock.connect(url(instance, "one"), namespace="other") as client,
        pytest.raises(pawlock.BackendDenied),
    ):
        client.lock("a").acquire(timeout=1)


def test_a_blocked_event_loop_is_renewed_through_the_service(instance: Instance) -> None:
    blocked(url(instance), ttl=1, seconds=2.2)


def test_threads_through_the_service(instance: Instance, server: Server) -> None:
    with (
        pawlock.connect(url(instance)) as client,
        pawlock.connect(server.url) as direct,
        ThreadPoolExecutor(2) as pool,
    ):
        waiting = pool.submit(client.latch("l", 2).wait, 20)
        client.latch("l", 2).count_down(part="a b")
        assert client.latch("l", 2).remaining() == 1
        direct.latch("l", 2).count_down()
        waiting.result(5)
        client.latch("l", 2).reset()

        party = pool.submit(client.barrier("b", 2).wait, 20)
        until(lambda: direct.barrier("b", 2).arrived() == 1)
        assert client.barrier("b", 2).wait(5) + party.result(5) == 1

        election = client.election("e", identity="one")
        assert election.leader() is None
        with election.campaign(timeout=5):
            found = direct.election("e").leader()
            assert found is not None
            assert found.identity == "one"
        with client.multi_lock(["m1", "m2"]).acquire(timeout=5):
            assert direct.lock("m1").try_acquire() is None
            assert direct.lock("m2").try_acquire() is None
        with direct.lock("m4"), pytest.raises(pawlock.AcquireTimeout):
            client.multi_lock(["m3", "m4"]).acquire(timeout=0.2)
        assert not direct.inspect("m1").held
        assert not direct.inspect("m3").held


async def test_tasks_through_the_service(instance: Instance, server: Server) -> None:
    async with pawlock.connect_async(url(instance)) as client, pawlock.connect_async(server.url) as direct:
        waiting = asyncio.ensure_future(client.latch("l", 2).wait(20))
        await client.latch("l", 2).count_down()
        await direct.latch("l", 2).count_down()
        await asyncio.wait_for(waiting, 5)

        both = await asyncio.wait_for(asyncio.gather(*(client.barrier("b", 2).wait(20) for _ in range(2))), 5)
        assert sorted(both) == [0, 1]

        seen: list[Any] = []

        async def observe() -> None:
            async for leader in client.election("e").observe():
                seen.append(leader and leader.identity)
                if leader is not None:
                    return

        watching = asyncio.ensure_future(observe())
        await asyncio.sleep(0.2)
        async with await direct.election("e", identity="two").campaign(timeout=5):
            await asyncio.wait_for(watching, 5)
        assert seen[-1] == "two"
        async with client.multi_lock(["m1", "m2"]).acquire(timeout=5):
            assert await direct.lock("m1").try_acquire() is None
