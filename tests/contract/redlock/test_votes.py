"""A lock kept by a majority of independent masters: grants, refusals, loss, and what is left behind."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

import pawlock
from tests.contract.edges.helpers import eventually, script_calls
from tests.contract.redlock.apis import APIS, connect, done, meanwhile, nap, play
from tests.contract.redlock.conftest import FRESH, PATIENT, Cluster
from tests.support.pace import pace

each_api = pytest.mark.parametrize("api", APIS)


@each_api
def test_a_majority_grants_and_a_release_frees_every_node(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, five.urls, redlock=PATIENT)
        lease = await done(client.lock("a").acquire())
        assert lease.remaining() == pytest.approx(30 * 0.99, abs=0.5)
        holders = [holder for holder in five.holders("a") if holder]
        assert len(holders) >= 3
        assert len(set(holders)) == 1
        assert lease.quorum.needed == 3
        assert sum(vote.granted for vote in lease.quorum.nodes) >= 3
        assert 0 < lease.quorum.validity < lease.ttl - lease.quorum.drift
        assert lease.fence_strength == "quorum"
        await done(lease.release())
        await meanwhile(api, lambda: not any(five.holders("a")), "no node has it")
        await done(client.close())

    play(api, scenario)
    assert five.keys() == {}


@each_api
def test_the_fence_rises_whatever_majority_grants(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, five.urls, redlock=FRESH)
        fences: list[int] = []
        dice = random.Random(7)
        for _ in range(40):
            # Two nodes are another's, so that a certain three must agree; one of them is far ahead of the others.
            away = dice.sample(range(5), 2)
            for index in away:
                five.servers[index].command("SET", "pawlock:f", "another@elsewhere:1/main", "PX", "5000")
            ahead = str((fences or [time.time_ns() // 1000])[-1] + dice.randrange(10**9))
            near = dice.choice([index for index in range(5) if index not in away])
            five.servers[near].command("HSET", "{pawlock:f}:fence", "last", ahead, "v", "1", "x", "0")
            lease = await done(client.lock("f").acquire(timeout=5))
            fences.append(lease.fence)
            await done(lease.release())
            for index in away:
                five.servers[index].command("DEL", "pawlock:f")
        assert fences == sorted(set(fences))
        await done(client.close())

    play(api, scenario)


@each_api
def test_who_holds_it_is_told_to_whom_it_is_refused(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        first, second = (connect(api, five.urls, redlock=FRESH) for _ in range(2))
        lease = await done(first.lock("busy").acquire())
        assert await done(second.lock("busy").try_acquire()) is None
        with pytest.raises(pawlock.AcquireTimeout) as caught:
            await done(second.lock("busy").acquire(timeout=0.2))
        assert caught.value.holder == lease.token.partition("@")[2]
        assert set(caught.value.outcomes) == set(five.urls)
        assert sum(word.startswith("held by") for word in caught.value.outcomes.values()) >= 3
        assert (await done(second.inspect("busy"))).holder == caught.value.holder
        await done(lease.release())
        assert not (await done(second.inspect("busy"))).held
        await done(first.close())
        await done(second.close())

    play(api, scenario)
    assert five.keys() == {}


@each_api
def test_each_try_has_a_token_of_its_own_and_leaves_it_everywhere(five: Cluster, api: str) -> None:
    """A token that was left may be taken back late, so a vote for it must never count again."""

    async def scenario() -> None:
        first, second = (connect(api, five.urls, redlock=PATIENT) for _ in range(2))
        lease = await done(first.lock("tries").acquire())
        with pytest.raises(pawlock.AcquireTimeout):
            await done(second.lock("tries").acquire(timeout=0.4 * pace()))
        await done(first.close())
        await done(second.close())
        del lease

    play(api, scenario)
    left = [set(server.command("KEYS", "*:dead:*")) for server in five.servers]  # type: ignore[arg-type]
    assert len(set.intersection(*left)) >= 3, "two tries at least, and the lease"


@each_api
def test_row_75_a_split_vote_leaves_nothing_and_somebody_wins(five: Cluster, api: str) -> None:
    # Two nodes belong to another: three are enough, two are not.
    for server in five.servers[:3]:
        server.command("SET", "pawlock:split", "another@elsewhere:1/main", "PX", "600")

    async def scenario() -> None:
        client = connect(api, five.urls, redlock=FRESH)
        assert await done(client.lock("split").try_acquire()) is None
        await meanwhile(api, lambda: not any(five.holders("split")[3:]), "what it got is undone")
        began = time.monotonic()
        lease = await done(client.lock("split").acquire(timeout=5))
        assert time.monotonic() - began < pace() * 2
        await done(lease.release())
        await done(client.close())

    play(api, scenario)


@each_api
def test_too_few_nodes_is_an_error_of_its_own_with_every_answer(own_five: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, own_five.urls, redlock=FRESH)
        await done((await done(client.lock("q").acquire())).release())
        for server in own_five.servers[:3]:
            server.kill()
        began, slow = time.monotonic(), pace()
        with pytest.raises(pawlock.QuorumNotReached) as caught:
            await done(client.lock("q").acquire(timeout=0.5 * slow))
        assert time.monotonic() - began < slow * 2
        assert set(caught.value.outcomes) == set(own_five.urls)
        assert sum(word == "granted" for word in caught.value.outcomes.values()) == 2
        assert "2 of 5" in str(caught.value)
        with pytest.raises(pawlock.QuorumNotReached):
            await done(client.lock("q").try_acquire())
        with pytest.raises(pawlock.QuorumNotReached):
            await done(client.lock("q", unavailable_after=0.3).acquire())
        await done(client.close())

    play(api, scenario)
    for server in own_five.servers[3:]:
        assert server.command("GET", "pawlock:q") is None


@each_api
def test_row_74_a_minority_that_is_down_or_hangs_costs_no_grant(own_five: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, own_five.urls, redlock=FRESH, ttl=5)
        await done((await done(client.lock("m").acquire())).release())
        own_five.servers[0].kill()
        own_five.servers[1].pause()
        try:
            for _ in range(30):
                lease = await done(client.lock("m").acquire(timeout=5))
                await done(lease.release())
        finally:
            own_five.servers[1].resume()
        await done(client.close())

    play(api, scenario)


@each_api
def test_a_node_that_hangs_costs_no_release_anything_once_that_is_known(own_five: Cluster, api: str) -> None:
    """What it did not answer it gets once it is back, and the maintenance does not go on about it."""

    async def scenario() -> None:
        client = connect(api, own_five.urls, redlock=FRESH)
        lock = client.lock("known")
        await done((await done(lock.acquire())).release())
        own_five.servers[1].pause()
        engine = client._engine if api == "threads" else next(iter(client._known_engines()))
        node = engine.runtime._nodes[1]
        end = time.monotonic() + pace() * 10
        while node.fault is None:
            assert time.monotonic() < end, "it is known"
            await done((await done(lock.acquire())).release())
        for _ in range(200):
            await done((await done(lock.acquire())).release())
        assert not engine.outbox
        own_five.servers[1].resume()
        await done(client.close())

    play(api, scenario)


@each_api
def test_a_client_that_first_meets_a_hung_node_goes_on_without_it(own_five: Cluster, api: str) -> None:
    async def scenario() -> None:
        with own_five.servers[2].paused():
            client = connect(api, own_five.urls, redlock=FRESH)
            began = time.monotonic()
            lease = await done(client.lock("m").acquire(timeout=5))
            assert time.monotonic() - began < pace() * 1.5
            await done(lease.release())
            await done(client.close())

    play(api, scenario)


@each_api
def test_row_76_a_node_that_restarted_empty_is_not_asked_for_max_ttl(own_three: Cluster, api: str) -> None:
    async def scenario() -> None:
        options = pawlock.RedlockOptions(fresh=True, max_ttl=3)
        client = connect(api, own_three.urls, redlock=options, ttl=3)
        held = await done(client.lock("r").acquire())
        own_three.servers[0].restart(keep_data=False)
        own_three.servers[1].restart(keep_data=False)
        # Two nodes forgot the lease: with their votes another could take the name at once.
        other = connect(api, own_three.urls, redlock=pawlock.RedlockOptions(max_ttl=3), ttl=3)
        with pytest.raises(pawlock.QuorumNotReached) as caught:
            await done(other.lock("r").try_acquire())
        assert "restarted" in str(caught.value)
        with pytest.raises(pawlock.QuorumNotReached):
            await done(client.lock("other").try_acquire())
        lease = await done(other.lock("r").acquire(timeout=10))
        # Only after the first one's time.
        assert held.state == "lost"
        assert lease.fence > held.fence
        await done(lease.release())
        await done(client.close())
        await done(other.close())

    play(api, scenario)


@each_api
def test_row_77_a_renewal_by_a_minority_ends_the_lease_at_its_old_deadline(
    own_three: Cluster, api: str
) -> None:
    async def scenario() -> None:
        client = connect(api, own_three.urls, redlock=FRESH, ttl=1.2)
        lease = await done(client.lock("x").acquire())
        for server in own_three.servers[:2]:
            server.pause()
        try:
            # Right after the last renewal that a majority answered.
            last = lease.valid_until
            await nap(api, 0.6)
            assert lease.state in ("held", "suspect")
            lease.check()
            eventually(lambda: lease.state == "lost", "it is lost", 3) if api == "threads" else None
            while lease.state != "lost":
                await nap(api, 0.02)
            assert lease.valid_until >= last
            with pytest.raises(pawlock.LeaseLost) as caught:
                lease.check()
            assert caught.value.reason == "quorum"
        finally:
            for server in own_three.servers[:2]:
                server.resume()
        await done(client.close())

    play(api, scenario)


@each_api
def test_a_lease_is_renewed_by_the_majority_and_lost_when_it_is_taken_there(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, five.urls, redlock=FRESH, ttl=0.6)
        lease = await done(client.lock("n").acquire())
        await nap(api, 1.5)
        lease.check()
        await done(lease.extend(5))
        assert lease.remaining() > 4
        for server in five.servers[:3]:
            server.command("DEL", "pawlock:n")
        with pytest.raises(pawlock.NotHeld):
            await done(lease.extend(6))
        assert lease.state == "lost"
        await done(client.close())

    play(api, scenario)


@each_api
def test_a_release_that_a_majority_answers_is_released_and_one_that_nobody_answers_is_unknown(
    own_three: Cluster, api: str
) -> None:
    async def scenario() -> None:
        client = connect(api, own_three.urls, redlock=FRESH, ttl=1)
        lease = await done(client.lock("u").acquire())
        own_three.servers[2].kill()
        await done(lease.release())
        lease = await done(client.lock("u").acquire())
        own_three.servers[1].kill()
        with pytest.raises(pawlock.BackendUnavailable):
            await done(lease.release())
        await done(client.close())

    play(api, scenario)


@each_api
def test_drift_that_eats_the_ttl_is_told_and_nothing_is_left(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        options = pawlock.RedlockOptions(fresh=True, drift_floor=1.0)
        client = connect(api, five.urls, redlock=options, ttl=0.5)
        with pytest.raises(pawlock.ClockDrift) as caught:
            await done(client.lock("d").acquire(timeout=2))
        assert len(caught.value.outcomes) == 5
        await done(client.close())

    play(api, scenario)
    assert five.keys() == {}


@each_api
def test_the_drift_that_was_set_counts_in_renewals_too(own_three: Cluster, api: str) -> None:
    async def scenario() -> None:
        options = pawlock.RedlockOptions(fresh=True, drift_factor=0.4)
        client = connect(api, own_three.urls, redlock=options, ttl=1.5)
        lease = await done(client.lock("d").acquire())
        granted = lease.valid_until
        while lease.valid_until == granted:
            await nap(api, 0.01)
        assert lease.remaining() <= 1.5 * 0.6
        await done(lease.extend(10))
        assert lease.remaining() <= 10 * 0.6
        await done(lease.extend(1.5))
        assert lease.remaining() <= 1.5 * 0.6
        await done(lease.release())
        await done(client.close())

    play(api, scenario)


@each_api
def test_re_entry_is_counted_in_the_client(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, five.urls, redlock=FRESH)
        outer = await done(client.rlock("re").acquire())
        calls = [script_calls(server) for server in five.servers]
        inner = await done(client.rlock("re").acquire())
        assert inner is outer
        assert inner.count == 2
        assert [script_calls(server) for server in five.servers] == calls
        await done(inner.release())
        assert any(five.holders("re"))
        await done(outer.release())
        plain = await done(client.lock("re").acquire())
        with pytest.raises(pawlock.AcquireTimeout, match="waits until another one releases it"):
            await done(client.lock("re").acquire(timeout=0.2))
        await done(plain.release())
        await done(client.close())

    play(api, scenario)


@each_api
def test_a_lease_is_never_extended_beyond_what_a_restarted_node_is_kept_out(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, five.urls, redlock=FRESH)
        lease = await done(client.lock("long").acquire())
        with pytest.raises(pawlock.ConfigurationError, match="max_ttl"):
            await done(lease.extend(61))
        lease.check()
        await done(lease.extend(60))
        await done(lease.release())
        await done(client.close())

    play(api, scenario)


@each_api
def test_min_hold_keeps_the_name_closed_on_a_majority(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, five.urls, redlock=FRESH)
        lease = await done(client.lock("job", min_hold=1.0).acquire())
        await done(lease.release())
        assert await done(client.lock("job").try_acquire()) is None
        await nap(api, 1.1)
        await done((await done(client.lock("job").acquire(timeout=1))).release())
        await done(client.close())

    play(api, scenario)


@pytest.mark.parametrize("nth", range(6))
def test_a_cancelled_acquire_leaves_nothing(five: Cluster, nth: int) -> None:
    async def scenario() -> None:
        async with five.aclient(ttl=60) as client:
            await (await client.lock("warm").acquire()).release()
            task = asyncio.create_task(client.lock("c").acquire())
            for _ in range(nth):
                await asyncio.sleep(0)
            task.cancel()
            try:
                lease = await task
            except asyncio.CancelledError:
                pass
            else:
                await lease.release()
            # The undo goes on without its caller; a thread asks, so that this loop can carry it out.
            await asyncio.to_thread(eventually, lambda: not any(five.holders("c")), "nothing is left", 1)

    asyncio.run(scenario())


def test_a_block_whose_lease_is_lost_is_cancelled(own_three: Cluster) -> None:
    async def body(client: pawlock.AsyncClient) -> None:
        async with client.lock("z"):
            for server in own_three.servers[:2]:
                server.kill()
            await asyncio.sleep(5)

    async def scenario() -> None:
        async with own_three.aclient(ttl=0.5) as client:
            with pytest.raises(pawlock.LeaseLost):
                await body(client)

    asyncio.run(scenario())


def test_threads_that_never_asked_before_leave_the_token_of_the_owner_before(five: Cluster) -> None:
    """A run of local grants ends in a thread without a connection: the name must not wait for its ttl."""
    with five.client(ttl=20) as client:
        lock = client.lock("turns", handover=1)

        def work() -> None:
            with lock.acquire(timeout=15):
                time.sleep(0.01)

        threads = [threading.Thread(target=work) for _ in range(8)]
        began = time.monotonic()
        with lock:
            for thread in threads:
                thread.start()
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < pace() * 10
    assert not any(five.holders("turns"))
