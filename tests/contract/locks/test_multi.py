"""Several names as one lock: all or nothing, in one order, and what is left when it fails: nothing."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import pawlock
from tests.faults.rig import Api, Client, in_thread, remains, script, teach, until
from tests.faults.test_ambiguity import FAULTS, QUICK
from tests.faults.test_cancel_sweep import TTL, _release_late, clean, struck
from tests.support.proxy import Proxy, Rule
from tests.support.servers import Server

NAMES = ["a", "b", "c"]
SOME_FAULTS = {"reply swallowed", "request doubled late"}


class Multi:
    """A multi-lock of either API."""

    def __init__(self, api: Api, client: Client, members: Any = NAMES, **options: Any) -> None:
        self.api = api
        self.raw = client.raw.multi_lock(members, **options)

    def acquire(self, timeout: float | None = 10.0, **more: Any) -> Any:
        return self.api.run(lambda: self.raw.acquire(timeout, **more))

    def try_acquire(self) -> Any:
        return self.api.run(self.raw.try_acquire)

    def locked(self) -> bool:
        return bool(self.api.run(self.raw.locked))


def held(client: Client) -> list[str]:
    return [name for name in "abcd" if client.inspect(name).held]


def release(api: Api, lease: Any) -> None:
    api.run(lease.release)


def calls(server: Server) -> int:
    """Scripts run so far."""
    stats = server.command("INFO", "commandstats")
    assert isinstance(stats, bytes)
    lines = [line for line in stats.decode().splitlines() if line.startswith("cmdstat_evalsha:")]
    return int(lines[0].split("calls=")[1].split(",")[0]) if lines else 0


# Taking and giving back -----------------------------------------------------------------------------------------------


def test_all_are_taken_and_all_are_given_back(api: Api, pair: list[Client], valkey: Server) -> None:
    mine, other = pair
    multi = Multi(api, mine, ["c", "a", "b"])
    assert (multi.raw.names, multi.raw.name) == (("a", "b", "c"), "a, b, c")
    assert not multi.locked()
    lease = multi.acquire()
    assert held(other) == ["a", "b", "c"]
    assert multi.locked()
    assert lease.names == ("a", "b", "c")
    assert set(lease.fences) == {"a", "b", "c"}
    assert lease.fences == {name: other.inspect(name).fence for name in "abc"}
    assert (lease.state, lease.ttl, lease.fence_strength) == ("held", 30.0, "server")
    assert 28 < lease.remaining() < 30
    assert not lease.lost
    lease.check()
    lease.beat()
    assert Multi(api, other, ["c", "d"]).try_acquire() is None
    assert other.lock("b").try_acquire() is None
    assert held(other) == ["a", "b", "c"], "nothing is left of a try that failed"
    release(api, lease)
    assert held(other) == []
    assert lease.state == "released"
    assert lease.remaining() == 0.0
    with pytest.raises(pawlock.LeaseLost):
        lease.check()
    with pytest.raises(pawlock.NotHeld):
        release(api, lease)
    release(api, Multi(api, other, ["c", "d"]).try_acquire())
    assert remains(valkey) == []


def test_each_name_costs_a_round_trip_and_a_try_stops_at_the_first_that_is_held(
    api: Api, pair: list[Client], valkey: Server
) -> None:
    multi = Multi(api, pair[0], [f"n{number}" for number in range(20)])
    release(api, multi.acquire())
    before = calls(valkey)
    release(api, multi.acquire())
    assert calls(valkey) - before == 40
    rival = pair[1].lock("n1").acquire()
    before = calls(valkey)
    assert multi.try_acquire() is None
    assert calls(valkey) - before == 3, "n0, n1, and the release of n0"
    rival.release()


def test_waiting_takes_them_in_order_and_leaves_nothing(api: Api, pair: list[Client], valkey: Server) -> None:
    mine, other = pair
    rival = other.lock("b").acquire()
    multi = Multi(api, mine)
    began = time.monotonic()
    with pytest.raises(pawlock.AcquireTimeout) as caught:
        multi.acquire(0.3)
    assert 0.3 <= caught.value.waited < time.monotonic() - began + 0.01
    assert caught.value.name == "b"
    assert "'b' was still held" in str(caught.value)
    assert caught.value.holder
    assert held(other) == ["b"], "a was given back before the caller was told"
    with pytest.raises(pawlock.AcquireTimeout):
        multi.acquire(0)
    waiting = in_thread(lambda: multi.acquire(10))
    until(lambda: other.inspect("a").held and other.inspect("b").queue_length == 1)
    assert not other.inspect("c").held, "in the order of the keys"
    rival.release()
    lease = waiting.result(10)
    assert held(other) == ["a", "b", "c"]
    release(api, lease)
    assert remains(valkey) == []


def test_one_order_for_all_knows_no_deadlock(api: Api, pair: list[Client], valkey: Server) -> None:
    """Many take overlapping sets, given in any order; each passes, and no two hold one name."""
    dice = random.Random(5)
    inside: dict[str, int] = dict.fromkeys("abcd", 0)
    wrong: list[str] = []

    def work(client: Client, sets: list[list[str]]) -> None:
        for names in sets:
            lease = Multi(api, client, names).acquire(30)
            for name in names:
                inside[name] += 1
                if inside[name] != 1:
                    wrong.append(name)
            time.sleep(0.0005)
            for name in names:
                inside[name] -= 1
            release(api, lease)

    works = [
        (client, [dice.sample("abcd", dice.randrange(1, 5)) for _ in range(12)])
        for client in pair
        for _ in range(4)
    ]
    if api.is_async:
        works = works[::4]
    done = [in_thread(lambda client=client, sets=sets: work(client, sets)) for client, sets in works]  # type: ignore[misc]
    for one in done:
        one.result(60)
    assert wrong == []
    until(lambda: remains(valkey) == [])


def test_locks_of_all_kinds(api: Api, pair: list[Client]) -> None:
    mine, other = pair
    raw = mine.raw
    multi = Multi(api, mine, ["a", raw.rlock("b"), raw.fair_lock("c", ttl=20), raw.rlock("d")], ttl=40)
    lease = multi.acquire()
    assert held(other) == ["a", "b", "c", "d"]
    assert lease.ttl == 20.0
    release(api, lease)
    assert held(other) == []


def test_permits_beside_mutexes(api: Api, pair: list[Client]) -> None:
    mine, other = pair
    multi = Multi(
        api,
        mine,
        ["a", mine.raw.semaphore("pool", permits=2), mine.raw.rwlock("x").write, mine.raw.rwlock("y").read],
    )
    lease = multi.acquire()
    assert set(lease.fences) == {"a", "pool", "x", "y"}
    theirs = [
        other.raw.semaphore("pool", permits=2).try_acquire,
        other.raw.semaphore("pool", permits=2).try_acquire,
        other.raw.rwlock("x").read.try_acquire,
        other.raw.rwlock("y").write.try_acquire,
        other.raw.rwlock("y").read.try_acquire,
    ]
    got = [api.run(take) for take in theirs]
    assert [one is not None for one in got] == [True, False, False, False, True]
    release(api, lease)
    writer = api.run(other.raw.rwlock("x").write.try_acquire)
    assert writer is not None
    assert multi.try_acquire() is None, "two permits are taken again, the writer is in"
    assert not other.inspect("a").held
    for one in (*got, writer):
        if one is not None:
            api.run(one.release)
    release(api, multi.acquire(5))


def test_re_entered_members_are_counted(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url) as client:
        multi = client.multi_lock([client.rlock("a"), "b"])
        with client.rlock("a") as outer:
            with multi as lease:
                assert outer.count == 2
                assert lease.fences["a"] == outer.fence
                assert client.inspect("b").held
            assert outer.count == 1
            assert not client.inspect("b").held
            with client.lock("b"):
                with pytest.raises(pawlock.DeadlockDetected):
                    multi.acquire()
                assert multi.try_acquire() is None
                assert outer.count == 1, "given back"
        assert not client.inspect("a").held


def test_a_stop_event_ends_the_wait(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, pawlock.connect(valkey.url) as other, other.lock("b"):
        stop = threading.Event()
        threading.Timer(0.1, stop.set).start()
        with pytest.raises(pawlock.NotAcquired, match="stopped"):
            client.multi_lock(NAMES).acquire(stop=stop)
        assert not other.inspect("a").held


def test_a_full_queue(api: Api, pair: list[Client], valkey: Server) -> None:
    mine, other = pair
    rival = other.lock("b").acquire()
    waiting = api.connect(valkey.url).lock("b").start(timeout=20)
    until(lambda: other.inspect("b").queue_length == 1)
    with pytest.raises(pawlock.QueueFull):
        Multi(api, mine, max_waiters=1).acquire(5)
    assert not other.inspect("a").held
    rival.release()
    waiting.result(10).release()


def test_a_closed_client(api: Api, pair: list[Client]) -> None:
    mine, other = pair
    multi = Multi(api, mine)
    lease = multi.acquire()
    mine.close()
    assert lease.state == "lost"
    with pytest.raises(pawlock.ClientClosed):
        multi.acquire()
    assert held(other) == []


def test_pickle_and_copy(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        multi = client.multi_lock(["b", client.rlock("a{{}}", ttl=9)], timeout=3)
        again = pickle.loads(pickle.dumps(multi))
        assert again.names == ("a{}", "b")
        assert again._plan.options.timeout == 3
        assert [member.options.ttl for member in again._plan.members] == [9, 30]
        with again as lease:
            assert client.inspect("b").held
            for spoil in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError):
                    spoil(lease)
        again._client.close()
        assert copy.deepcopy(multi) is multi


# Loss -----------------------------------------------------------------------------------------------------------------


def test_losing_one_is_losing_all(api: Api, pair: list[Client], valkey: Server) -> None:
    mine, other = pair
    told: list[Any] = []
    multi = Multi(api, mine, ttl=0.6, on_lost=told.append)
    lease = multi.acquire()
    valkey.command("DEL", "pawlock:b")
    assert api.run(lambda: lease.lost.wait(5)) is True
    assert lease.state == "lost"
    with pytest.raises(pawlock.LeaseLost) as caught:
        lease.check()
    assert caught.value.name == "b"
    until(lambda: told == [lease], what="on_lost is called once, with the lease of the whole")
    assert lease.remaining() == 0.0
    assert other.inspect("a").held, "its owner may still be at work: the others stay closed until it lets go"
    with pytest.raises(pawlock.NotHeld) as not_held:
        release(api, lease)
    assert not_held.value.name == "b"
    assert held(other) == [], "the others were given back all the same"
    time.sleep(0.1)
    assert len(told) == 1


def test_a_block_that_lost_one(valkey: Server) -> None:
    with pawlock.connect(valkey.url, ttl=1.0) as client:
        with pytest.raises(pawlock.LeaseLost) as caught, client.multi_lock(NAMES) as lease:  # noqa: PT012
            valkey.command("DEL", "pawlock:c")
            lease.lost.wait(5)
        assert caught.value.name == "c"
        with pytest.raises(KeyError) as body, client.multi_lock(NAMES) as lease:  # noqa: PT012
            valkey.command("DEL", "pawlock:c")
            lease.lost.wait(5)
            raise KeyError(1)
        assert "is lost" in body.value.__notes__[0]
        with client.multi_lock(NAMES, on_exit="warn") as lease:
            valkey.command("DEL", "pawlock:c")
            lease.lost.wait(5)
        assert not any(client.inspect(name).held for name in NAMES)


async def test_a_task_is_cancelled_once(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    async with pawlock.connect_async(valkey.url, ttl=1.0) as client:
        with pytest.raises(pawlock.LeaseLost):  # noqa: PT012
            async with client.multi_lock(NAMES):
                valkey.command("DEL", "pawlock:b", "pawlock:a")
                await asyncio.sleep(10)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), client.multi_lock(NAMES):
                await asyncio.sleep(10)
        async with client.multi_lock(NAMES).acquire(timeout=1) as lease:
            lease.check()
        assert not (await client.inspect("a")).held


def test_renewal_and_extension(api: Api, pair: list[Client]) -> None:
    mine, other = pair
    lease = Multi(api, mine, ttl=1.0).acquire()
    time.sleep(1.3)
    lease.check()
    assert held(other) == ["a", "b", "c"]
    api.run(lambda: lease.extend(5))
    assert lease.ttl == 5
    assert 4 < lease.remaining() <= 5
    assert all(other.inspect(name).ttl_left > 4 for name in NAMES)
    release(api, lease)


def test_without_renewal_all_end_at_the_ttl(api: Api, pair: list[Client]) -> None:
    lease = Multi(api, pair[0], ttl=0.2, renew=False).acquire()
    assert api.run(lambda: lease.lost.wait(2)) is True
    assert lease.state == "lost"
    with pytest.raises(pawlock.NotHeld):
        release(api, lease)


def test_one_that_is_lost_while_others_are_waited_for(api: Api, pair: list[Client], valkey: Server) -> None:
    mine, other = pair
    rival = other.lock("b").acquire()
    waiting = in_thread(lambda: Multi(api, mine, ttl=1.0).acquire(20))
    until(lambda: other.inspect("a").held)
    valkey.command("DEL", "pawlock:a")
    time.sleep(0.6)
    rival.release()
    with pytest.raises(pawlock.NotAcquired, match="'a' was lost while"):
        waiting.result(10)
    assert held(other) == []


def test_one_that_is_dropped_is_not_renewed_for_ever(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url) as client:
        lease = client.multi_lock(NAMES, ttl=0.4).acquire()
        with pytest.warns(ResourceWarning) as warned:  # noqa: PT031
            del lease
            gc.collect()
        assert len(warned) == 3
        until(lambda: not any(client.inspect(name).held for name in NAMES), timeout=3)


# Faults ---------------------------------------------------------------------------------------------------------------


@pytest.mark.fault
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(make, id=what, marks=[] if what in SOME_FAULTS else [pytest.mark.slow])
        for what, make in FAULTS.items()
    ],
)
def test_requests_and_replies_that_get_lost(fault: Callable[..., Rule], api: Api, valkey: Server) -> None:
    valkey.command("FLUSHALL")
    teach(valkey)
    with Proxy(valkey) as proxy:
        client, other = api.connect(proxy.url), api.connect(valkey.url)
        client.inspect("warm")
        rule = fault(proxy, script("acquire"))
        lease = Multi(api, client, **QUICK).acquire(5)
        rule.wait()
        assert lease.fences == {name: other.inspect(name).fence for name in NAMES}
        sent = {request.args[3 + int(request.args[2])] for request in proxy.requests(script("acquire"))}
        assert len(sent) == len(NAMES), "a resend carries the same token"
        release(api, lease)
        until(lambda: remains(valkey) == [], what="free names")
        time.sleep(0.4)
        assert remains(valkey) == [], "a late copy took nothing"
        client.close()
        other.close()


@pytest.mark.fault
def test_a_copy_later_than_the_caller_finds_its_tokens_dead(api: Api, valkey: Server) -> None:
    valkey.command("FLUSHALL")
    teach(valkey)
    with Proxy(valkey) as proxy:
        client = api.connect(proxy.url)
        client.inspect("warm")
        rule = proxy.hold_request(script("acquire"), seconds=0.8, times=None)
        with pytest.raises(pawlock.BackendUnavailable):
            Multi(api, client, **QUICK).acquire(0.2)
        rule.wait()
        proxy.clear()
        time.sleep(1.2)
        until(lambda: remains(valkey) == [], what="the copy that came late took nothing")
        client.close()


@pytest.mark.fault
@pytest.mark.parametrize(
    ("instant", "busy"),
    [
        pytest.param(True, True, id="in the instant-one is held"),
        pytest.param(False, True, id="asleep-one is held", marks=pytest.mark.slow),
        pytest.param(True, False, id="in the instant-free", marks=pytest.mark.slow),
        pytest.param(False, False, id="asleep-free", marks=pytest.mark.slow),
    ],
)
async def test_a_cancel_at_every_await_leaves_nothing(valkey: Server, *, instant: bool, busy: bool) -> None:
    async with pawlock.connect_async(valkey.url) as client, pawlock.connect_async(valkey.url) as rival:
        valkey.command("FLUSHALL")
        teach(valkey)
        await client.inspect("warm")
        reached = True
        at = 0
        while reached and at < 60:
            at += 1
            lease = await rival.lock("b", ttl=TTL).acquire() if busy else None
            leaving = asyncio.create_task(_release_late(lease)) if lease is not None else None

            async def both() -> None:
                async with client.multi_lock(NAMES, ttl=TTL):
                    pass

            reached, _ = await struck(both, at, instant=instant)
            if leaving is not None:
                await leaving
            await clean(valkey, at)
        assert at > 3
        assert not reached, "to the last await"
