"""A server in memory with a time of its own: both APIs, all primitives, all that a test can do to it."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator

import pytest

import pawlock
from pawlock.testing import Sim
from tests.support.pace import pace
from tests.support.servers import Server


@pytest.fixture
def sim() -> Iterator[Sim]:
    with Sim() as sim:
        yield sim


def use_everything(client: pawlock.Client) -> None:
    with client.lock("a") as lease:
        assert client.inspect("a").fence == lease.fence
    with client.rlock("a") as outer, client.rlock("a") as inner:
        assert inner.fence == outer.fence
    with client.fair_lock("a"):
        pass
    with client.semaphore("s", permits=2), client.semaphore("s", permits=2):
        assert client.semaphore("s", permits=2).try_acquire() is None
    with client.rwlock("r").read:
        assert client.rwlock("r").write.try_acquire() is None
    with client.rwlock("r").write as writing:
        writing.check()
    with client.multi_lock(["b", "a", "c"]):
        assert client.lock("c").locked()
    latch = client.latch("l", 2)
    latch.count_down()
    latch.count_down()
    latch.wait(timeout=1)
    election = client.election("e")
    with election.campaign():
        assert election.leading
    identifier = client.service().acquire("v")
    client.service().release("v", identifier)
    ticket = client.lock("t").acquire().detach()
    client.adopt(ticket).release()


def test_every_primitive_of_threads(sim: Sim) -> None:
    with pawlock.connect(sim.url) as client, pawlock.connect(sim.url) as other:
        use_everything(client)
        lease = other.lock("e", ttl=1).acquire()
        client.force_release("e", reason="a test")
        assert lease.lost.wait(5)
        assert ["a test" in str(entry) for entry in client.audit()] == [True]


async def test_every_primitive_of_asyncio(sim: Sim) -> None:
    async with pawlock.connect_async(sim.url) as client, pawlock.connect_async(sim.url) as other:
        async with client.lock("a") as lease:
            assert await other.lock("a").try_acquire() is None
            assert (await other.inspect("a")).fence == lease.fence
        async with client.semaphore("s", permits=1), client.rwlock("r").read:
            assert await other.rwlock("r").write.try_acquire() is None
        async with client.multi_lock(["b", "a"]), client.rlock("c"), client.fair_lock("d"):
            pass
        latch = client.latch("l", 1)
        waiting = asyncio.create_task(other.latch("l", 1).wait(timeout=5))
        await latch.count_down()
        await waiting
        barrier = [one.barrier("b", 2, timeout=5).wait() for one in (client, other)]
        await asyncio.gather(*barrier)


def test_a_waiter_is_woken_by_the_release(sim: Sim) -> None:
    with pawlock.connect(sim.url) as client, pawlock.connect(sim.url) as other:
        lease = client.lock("a").acquire()
        fences: list[int] = []

        def wait() -> None:
            with other.lock("a", timeout=5) as next_one:
                fences.append(next_one.fence)

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not client.inspect("a").queue_length:
            time.sleep(0.001)
        began = sim.now
        lease.release()
        waiting.join(5)
        assert fences > [lease.fence]
        assert lease.state is pawlock.LeaseState.RELEASED
        assert sim.now - began < 0.5


def test_it_stands_in_for_the_sleep_of_the_program(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page says: the waits of the simulation itself are not replaced."""
    monkeypatch.setattr("time.sleep", sim.sleep)
    began = sim.now
    with pawlock.connect(sim.url) as client, pawlock.connect(sim.url) as other, client.lock("a") as lease:
        time.sleep(3600)
        lease.check()
        with pytest.raises(pawlock.AcquireTimeout):
            other.lock("a").acquire(timeout=5)
    assert sim.now - began >= 3605


def test_it_says_the_same_as_a_real_server(sim: Sim, valkey: Server) -> None:
    """Step by step, every primitive; what differs is only what no two servers share: times, tokens, fences."""
    told: list[list[object]] = []
    for url in (valkey.url, sim.url):
        with (
            pawlock.connect(url, namespace="same") as client,
            pawlock.connect(url, namespace="same") as other,
        ):
            use_everything(client)
            first = client.rwlock("x").read.acquire()
            second = other.semaphore("x", permits=3).acquire()
            info = client.inspect("e")
            told.append([info.held, info.queue_length, client.inspect("free").held])
            told[-1] += [(one.name, one.kind, one.used, one.holder, one.count) for one in other.locks()]
            told[-1] += [other.lock("b").locked(), client.rwlock("x").write.try_acquire(), first.ttl]
            first.release()
            second.release()
    assert told[0] == told[1]


def test_its_address_is_good_while_it_is_open_and_in_this_process(sim: Sim) -> None:
    with pytest.raises(pawlock.ConfigurationError, match=r"pawlock\.testing\.Sim"):
        pawlock.connect("memory://nowhere")
    client = pawlock.connect(sim.url, namespace="fork")
    lease = client.lock("a").acquire()
    pid = os.fork()
    if pid == 0:
        try:
            client.lock("b").acquire(timeout=0.1)
        except pawlock.BackendUnavailable as error:
            os._exit(7 if "another process" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    lease.release()
    client.close()


def test_the_server_goes_down_and_freezes(sim: Sim) -> None:
    with pawlock.connect(sim.url) as client:
        with sim.down(), pytest.raises(pawlock.BackendUnavailable):
            client.lock("a", unavailable_after=0.2).acquire()
        with client.lock("a") as lease:
            sim.assert_held(lease)
            with sim.down(0.1) as outage:
                assert outage.wait(5)
            lease.check()
        with sim.frozen(), pytest.raises(pawlock.BackendUnavailable):
            client.lock("a", unavailable_after=0.2).acquire()
        client.lock("a").acquire(timeout=5).release()
        with sim.down(keep_data=False), pytest.raises(RuntimeError):
            sim.frozen()


def test_a_lease_is_lost_now(sim: Sim) -> None:
    with pawlock.connect(sim.url) as client:
        lease = client.lock("a").acquire()
        sim.lose("a")
        assert lease.lost
        sim.assert_free("a")
        with pytest.raises(AssertionError):
            sim.assert_held(lease)
        with pytest.raises(pawlock.NotHeld):
            lease.release()


# Virtual time ---------------------------------------------------------------------------------------------------


def test_an_hour_passes_in_a_moment(sim: Sim) -> None:
    began = time.monotonic()
    with pawlock.connect(sim.url) as client, client.lock("a") as lease:
        kept = client.lock("b", renew=False).acquire()
        sim.sleep(29)
        kept.check()
        sim.sleep(600)
        lease.check()
        sim.assert_held(lease)
        assert kept.lost
        sim.assert_free("b")
    assert time.monotonic() - began < pace() * 5


def test_time_sleep_may_be_the_simulated_one(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/how-to/test-your-code.md says: for code that sleeps by itself, in any thread."""
    began = time.monotonic()
    monkeypatch.setattr("time.sleep", sim.sleep)
    slept: list[bool] = []

    def work() -> None:
        with pawlock.connect(sim.url) as other, other.lock("y", ttl=30) as lease:
            time.sleep(1800)
            slept.append(bool(lease))

    with pawlock.connect(sim.url) as client, client.lock("x", ttl=30) as lease:
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(3600)
        lease.check()
        thread.join()
    assert slept == [True]
    assert time.monotonic() - began < 10 * pace()


def test_time_stands_while_code_runs(sim: Sim) -> None:
    with pawlock.connect(sim.url) as client, client.lock("a", ttl=0.1, renew=False) as lease:
        now = sim.now
        time.sleep(0.3)
        assert sim.now == now
        lease.check()


def test_a_wait_passes_the_time_it_waits_for(sim: Sim) -> None:
    with pawlock.connect(sim.url) as client, pawlock.connect(sim.url) as other:
        with client.lock("a"):
            now = sim.now
            with pytest.raises(pawlock.AcquireTimeout):
                other.lock("a", timeout=60).acquire()
            assert sim.now - now == pytest.approx(60, abs=0.1)
        first = client.lock("b", ttl=20, renew=False).acquire()
        now = sim.now
        with other.lock("b"):
            assert sim.now - now == pytest.approx(20, abs=2)
            assert first.lost


def test_a_paused_holder_loses_and_learns_it_late(sim: Sim) -> None:
    with pawlock.connect(sim.url) as client, pawlock.connect(sim.url) as other:
        lease = client.lock("a").acquire()
        with sim.paused(client):
            sim.sleep(10)
            with other.lock("a", timeout=60) as next_one:
                assert next_one.fence > lease.fence
            assert lease.lost, "its own clock says so, whoever is paused"
        with pytest.raises(pawlock.LeaseLost):
            lease.check()
        again = client.lock("a").acquire()
        with sim.paused(again, 5):
            sim.sleep(6)
        sim.sleep(100)
        again.check()


def test_the_server_is_down_for_five_seconds(sim: Sim) -> None:
    with pawlock.connect(sim.url) as client:
        lease = client.lock("a").acquire()
        sim.down(5)
        now = sim.now
        with client.lock("b", timeout=20):
            assert 4.9 < sim.now - now < 8
        sim.sleep(60)
        lease.check()
        outage = sim.down()
        sim.sleep(31)
        assert lease.lost
        outage.end()
        with sim.frozen(3) as frozen:
            assert frozen.wait(4)


def test_threads_share_the_time(sim: Sim) -> None:
    with pawlock.connect(sim.url) as client:
        order: list[int] = []

        def work(number: int) -> None:
            with client.fair_lock("a"):
                order.append(number)
                sim.sleep(10)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        now = sim.now
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(order) == [0, 1, 2, 3]
        assert 40 <= sim.now - now < 60


async def test_a_loop_goes_by_that_time(sim: Sim) -> None:
    began = time.monotonic()
    async with pawlock.connect_async(sim.url) as client, pawlock.connect_async(sim.url) as other:
        async with client.lock("a") as lease:
            await asyncio.sleep(600)
            lease.check()
            sim.assert_held(lease)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(100):
                    await other.lock("a").acquire()

        async def overtaken() -> None:
            async with client.lock("a"):
                with sim.paused("a"):
                    async with other.lock("a", timeout=60):
                        pass
                await asyncio.sleep(1)

        with pytest.raises(pawlock.LeaseLost):
            await overtaken()
        sim.down(5)
        now = sim.now
        async with client.lock("b", timeout=30):
            assert 4.9 < sim.now - now < 8
        await asyncio.to_thread(time.sleep, 0.05)
    assert time.monotonic() - began < pace() * 5


def test_a_loop_gets_its_time_back() -> None:
    loop = asyncio.new_event_loop()

    async def use(sim: Sim) -> None:
        async with pawlock.connect_async(sim.url) as client, client.lock("a"):
            await asyncio.sleep(60)

    with Sim() as sim:
        loop.run_until_complete(use(sim))
    began = time.monotonic()
    loop.run_until_complete(asyncio.sleep(0.05))
    assert 0.04 < time.monotonic() - began < pace() * 5
    assert abs(loop.time() - time.monotonic()) < 1
    loop.close()


def test_a_run_repeats_itself() -> None:
    """One thread, several clients: the same calls at the same times."""

    def story() -> list[float]:
        with Sim() as sim, pawlock.connect(sim.url) as client, pawlock.connect(sim.url) as other:
            times: list[float] = []
            lease = client.lock("a", ttl=3).acquire()
            with sim.paused(client, 10), other.lock("a"):
                times.append(round(sim.now, 2))
            sim.sleep(5)
            times.append(round(lease.valid_until, 2))
            return times

    assert story() == story()
