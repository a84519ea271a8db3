"""Each metric moves as it should, on a real server, in both APIs; and says no name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import pawlock
from pawlock.metrics import observe
from pawlock.metrics.prometheus import instrument
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.apis import APIS, connect, done, nap, play
from tests.support.pace import pace
from tests.support.servers import Server

each_api = pytest.mark.parametrize("api", APIS)


@pytest.fixture
def registry() -> CollectorRegistry:
    """Metrics of this test alone."""
    return CollectorRegistry()


@pytest.fixture
def own() -> Iterator[Server]:
    """A server to be stopped."""
    with Server("valkey", persist=True) as server:
        yield server


def observed(api: str, url: str, registry: CollectorRegistry, **options: Any) -> Any:
    """A client whose doings are exported."""
    client = connect(api, url, **options)
    instrument(client, registry)
    return client


class Values:
    """The metrics as Prometheus would read them; 0 for what was never counted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def __call__(self, metric: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"pawlock_{metric}", labels) or 0.0

    def lock(self, metric: str, **labels: str) -> float:
        return self(metric, kind="lock", **labels)


@each_api
def test_a_grant_that_waited(valkey: Server, registry: CollectorRegistry, api: str) -> None:
    value = Values(registry)
    waiting: list[float] = []
    with pawlock.connect(valkey.url) as other:
        lease = other.lock("a").acquire()

        def let_go() -> None:
            eventually(lambda: value.lock("lock_waiters"), "somebody waits")
            waiting.append(value.lock("lock_waiters"))
            lease.release()

        async def scenario() -> None:
            client = observed(api, valkey.url, registry)
            threading.Timer(0.2, let_go).start()
            mine = await done(client.lock("a").acquire(timeout=5))
            assert value.lock("locks_held") == 1
            await nap(api, 0.05)
            await done(mine.release())
            assert value.lock("locks_held") == 0
            await done(client.close())

        play(api, scenario)
    assert waiting == [1]
    # No gap in the picture: what was seen once is 0 now, not gone.
    assert registry.get_sample_value("pawlock_locks_held", {"kind": "lock"}) == 0
    assert registry.get_sample_value("pawlock_lock_waiters", {"kind": "lock"}) == 0
    assert value.lock("lock_waiters") == 0
    assert value.lock("lock_acquisitions_total", outcome="acquired") == 1
    assert value.lock("lock_contended_total") == 1
    assert value.lock("lock_wait_seconds_count") == 1
    assert 0.15 < value.lock("lock_wait_seconds_sum") < 4
    assert value.lock("lock_queue_length_count") == 1
    assert value.lock("lock_queue_length_sum") == 1
    assert value.lock("lock_releases_total", outcome="released") == 1
    assert 0.05 <= value.lock("lock_hold_seconds_sum") < 4
    assert value("backend_request_duration_seconds_count", operation="acquire") >= 1
    assert value("backend_request_duration_seconds_count", operation="leave") == 1


@each_api
def test_a_free_name_is_no_contention(valkey: Server, registry: CollectorRegistry, api: str) -> None:
    value = Values(registry)

    async def scenario() -> None:
        client = observed(api, valkey.url, registry)
        for _ in range(3):
            await done((await done(client.lock("free").acquire())).release())
        assert value("backend_clients", state="up") == 1
        await done(client.close())

    play(api, scenario)
    assert value.lock("lock_acquisitions_total", outcome="acquired") == 3
    assert value.lock("lock_releases_total", outcome="released") == 3
    assert value.lock("lock_contended_total") == 0
    assert value.lock("lock_queue_length_count") == 0


@each_api
def test_a_wait_in_vain_and_a_busy_name(valkey: Server, registry: CollectorRegistry, api: str) -> None:
    value = Values(registry)
    with pawlock.connect(valkey.url) as other, other.lock("busy"):

        async def scenario() -> None:
            client = observed(api, valkey.url, registry)
            with pytest.raises(pawlock.AcquireTimeout):
                await done(client.lock("busy").acquire(timeout=0.5))
            assert await done(client.lock("busy").try_acquire()) is None
            mine: Any = client.lock("mine")
            if isinstance(client, pawlock.Client):
                with mine, pytest.raises(pawlock.DeadlockDetected):
                    mine.acquire()
            else:
                async with mine:
                    with pytest.raises(pawlock.DeadlockDetected):
                        await mine.acquire()
            await done(client.close())

        play(api, scenario)
    outcomes = {o: value.lock("lock_acquisitions_total", outcome=o) for o in ("timeout", "busy", "refused")}
    assert outcomes == {"timeout": 1, "busy": 1, "refused": 1}


@each_api
def test_a_loss_by_expiry(valkey: Server, registry: CollectorRegistry, api: str) -> None:
    value = Values(registry)

    async def scenario() -> None:
        client = observed(api, valkey.url, registry)
        lease = await done(client.lock("short", ttl=0.2, renew=False).acquire())
        assert await done(lease.lost.wait(5))
        assert value.lock("locks_held") == 0
        with pytest.raises(pawlock.NotHeld):
            await done(lease.release())
        await done(client.close())

    play(api, scenario)
    assert value.lock("lock_lost_total", reason="expired") == 1
    assert value.lock("lock_releases_total", outcome="lost") == 1
    assert value.lock("lock_hold_seconds_count") == 1
    assert 0.15 < value.lock("lock_hold_seconds_sum") < 0.5 * pace()


@pytest.mark.parametrize("api", ["threads", pytest.param("asyncio", marks=pytest.mark.slow)])
def test_renewals_and_a_server_that_falls_silent(own: Server, registry: CollectorRegistry, api: str) -> None:
    value = Values(registry)

    async def until(true: Callable[[], object], what: str) -> None:
        for _ in range(500):
            if true():
                return
            await nap(api, 0.02)
        raise AssertionError(what)

    async def scenario() -> None:
        client = observed(api, own.url, registry)
        lease = await done(client.lock("kept", ttl=0.9, unavailable_after=0.3).acquire())
        await until(lambda: value("lock_renewals_total", outcome="ok") >= 1, "renewed")
        own.kill()
        await until(lambda: value("lock_renewals_total", outcome="failed") >= 1, "a renewal failed")
        assert value("backend_clients", state="suspect") == 1
        with pytest.raises(pawlock.BackendUnavailable):
            await done(lease.release())
        assert value.lock("lock_releases_total", outcome="unknown") == 1
        assert value.lock("locks_held") == 0
        with pytest.raises(pawlock.BackendUnavailable):
            await done(client.lock("other", ttl=0.9, unavailable_after=0.3).acquire())
        assert value.lock("lock_acquisitions_total", outcome="error") == 1
        assert value("backend_clients", state="down") == 1
        assert value("backend_outages_total") == 1
        assert value("backend_faults_total", fault="unreachable") >= 1
        own.restart(keep_data=True)
        await until(lambda: value("backend_clients", state="up") == 1, "the client sees that it is back")
        await done(client.close(0.5))
        assert sum(value("backend_clients", state=s) for s in ("up", "suspect", "down")) == 0

    play(api, scenario)


@each_api
def test_a_degraded_grant(own: Server, registry: CollectorRegistry, api: str) -> None:
    value = Values(registry)

    async def scenario() -> None:
        client = observed(api, own.url, registry)
        own.kill()
        lease = await done(
            client.lock("alone", ttl=2, on_unavailable="local", unavailable_after=0.3).acquire()
        )
        assert lease.degraded == "local"
        assert value.lock("lock_degraded_total", policy="local") == 1
        assert value.lock("locks_held") == 1
        await done(lease.release())
        assert value.lock("locks_held") == 0
        assert value.lock("lock_releases_total", outcome="released") == 1
        await done(client.close(0.2))

    play(api, scenario)


@each_api
def test_grants_inside_a_client(valkey: Server, registry: CollectorRegistry, api: str) -> None:
    value = Values(registry)

    async def scenario() -> None:
        client = observed(api, valkey.url, registry)
        await crowd(api, client)
        await done(client.close())

    play(api, scenario)
    assert value.lock("lock_acquisitions_total", outcome="acquired") == 40
    assert value.lock("lock_releases_total", outcome="released") == 40
    assert value("lock_handovers_total") > 0
    assert value.lock("lock_contended_total") >= value("lock_handovers_total")
    assert value.lock("locks_held") == value.lock("lock_waiters") == 0


async def crowd(api: str, client: Any) -> None:
    """Four threads or tasks that take one name ten times each."""
    if api == "asyncio":
        import asyncio

        async def work() -> None:
            for _ in range(10):
                async with client.lock("crowd"):
                    await asyncio.sleep(0)

        await asyncio.gather(*(work() for _ in range(4)))
        return

    def toil() -> None:
        for _ in range(10):
            with client.lock("crowd"):
                pass

    threads = [threading.Thread(target=toil) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@each_api
def test_every_kind_of_lease_is_held_under_its_own(
    valkey: Server, registry: CollectorRegistry, api: str
) -> None:
    value = Values(registry)

    async def scenario() -> None:
        client = observed(api, valkey.url, registry)
        locks = [
            client.rlock("r"),
            client.fair_lock("f"),
            client.semaphore("s", permits=2),
            client.multi_lock(["m1", "m2"]),
        ]
        leases = [await done(lock.acquire()) for lock in locks]
        held = {kind: value("locks_held", kind=kind) for kind in ("rlock", "fair_lock", "semaphore", "lock")}
        assert held == {"rlock": 1, "fair_lock": 1, "semaphore": 1, "lock": 2}
        for lease in leases:
            await done(lease.release())
        assert sum(value("locks_held", kind=kind) for kind in held) == 0
        ticket = (await done(client.lock("d").acquire())).detach()
        ticket = await done(ticket)
        assert value.lock("lock_releases_total", outcome="detached") == 1
        await done((await done(client.adopt(ticket))).release())
        await done(client.close())

    play(api, scenario)
    assert value.lock("lock_acquisitions_total", outcome="acquired") == 4


@each_api
def test_no_name_is_told(valkey: Server, registry: CollectorRegistry, api: str) -> None:
    async def scenario() -> None:
        client = observed(api, valkey.url, registry)
        for number in range(20):
            await done((await done(client.lock(f"customer-{number}").acquire())).release())
        await done((await done(client.lock("customer-0").try_acquire())).release())
        assert b"customer" not in generate_latest(registry)
        await done(client.close())
        assert b"customer" not in generate_latest(registry)

    play(api, scenario)


def test_clients_share_the_metrics_of_a_registry(valkey: Server, registry: CollectorRegistry) -> None:
    value = Values(registry)
    with pawlock.connect(valkey.url) as one, pawlock.connect(valkey.url) as two:
        for client in (one, two, one):
            instrument(client, registry)
        with one.lock("one"), two.lock("two"):
            assert value.lock("locks_held") == 2
            assert value("backend_clients", state="up") == 2
    assert value.lock("lock_acquisitions_total", outcome="acquired") == 2
    assert value.lock("lock_releases_total", outcome="released") == 2


def test_an_observer_that_fails_harms_no_lock(valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("broken")

    with pawlock.connect(valkey.url) as client:
        observe(client, cast("Any", Broken()))
        with client.lock("a") as lease:
            lease.check()
        assert not client.lock("a").locked()
    assert "an observer raised an error" in caplog.text


@each_api
def test_several_masters(api: str, registry: CollectorRegistry) -> None:
    value = Values(registry)
    with Server("valkey") as a, Server("valkey") as b, Server("valkey") as c:

        async def scenario() -> None:
            client = connect(api, [a.url, b.url, c.url], redlock=pawlock.RedlockOptions(fresh=True))
            instrument(client, registry)
            lease = await done(client.lock("spread").acquire())
            assert value.lock("locks_held") == 1
            await done(lease.release())
            assert value.lock("locks_held") == 0
            await done(client.close())

        play(api, scenario)
    assert value.lock("lock_acquisitions_total", outcome="acquired") == 1
    assert value("backend_request_duration_seconds_count", operation="grant") >= 1
