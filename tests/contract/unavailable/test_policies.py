"""What an acquisition does while the server is down: raises, locks in this process alone, goes on; and comes back."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import pawlock
import pawlock.metrics
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.apis import APIS, connect, done, meanwhile, play
from tests.faults.rig import in_thread
from tests.support.pace import pace
from tests.support.refusal import case
from tests.support.servers import Server

each_api = pytest.mark.parametrize("api", APIS)
QUICK: dict[str, Any] = {"unavailable_after": 0.4, "ttl": 2}


@pytest.fixture
def own() -> Iterator[Server]:
    """A server to be stopped."""
    with Server("valkey", persist=True) as server:
        yield server


@each_api
def test_raise_raises_within_the_deadline_and_then_after_one_try(own: Server, api: str) -> None:
    """However long a caller would wait: what is over is the time that the client gives a server that is down."""

    async def scenario() -> None:
        client = connect(api, own.url)
        lock = client.lock("a", **QUICK)
        await done((await done(lock.acquire())).release())
        for _ in range(2):
            own.kill()
            began = time.monotonic()
            with pytest.raises(pawlock.BackendUnavailable):
                await done(lock.acquire())
            assert 0.1 < time.monotonic() - began < pace() * 1.5
            await nap(api, 0.3)
            for call in (lock.acquire, lambda: lock.acquire(timeout=9), lock.try_acquire):
                spans = []
                for _ in range(10):
                    began = time.perf_counter()
                    with pytest.raises(pawlock.BackendUnavailable):
                        await done(call())
                    spans.append(time.perf_counter() - began)
                assert sorted(spans)[5] < pace() * 0.02
            own.restart(keep_data=True)
            # One try is enough for one who comes now, and then the server has all its time again.
            lease = await done(lock.acquire())
            await done(lease.release())
        assert counters(api, client)["outages"] == 2
        await done(client.close())

    play(api, scenario)


def counters(api: str, client: Any) -> Any:
    """What the client counted."""
    return engine_of(api, client).reports.counters


def engine_of(api: str, client: Any) -> Any:
    return client._engine() if api == "asyncio" else client._engine


async def nap(api: str, seconds: float = 0.02) -> None:
    if api == "asyncio":
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)  # noqa: ASYNC251 - this API blocks


@each_api
@pytest.mark.parametrize("policy", ["local", "open"])
def test_a_degraded_lease_says_so_and_leaves_nothing(
    own: Server, api: str, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pawlock.degraded")

    async def scenario() -> None:
        client = connect(api, own.url)
        lock = client.lock(f"d-{api}-{policy}", on_unavailable=policy, **QUICK)
        before = await done(lock.acquire())
        assert before.degraded is None
        await done(before.release())
        own.kill()
        for _ in range(3):
            lease = await done(lock.acquire())
            assert lease.degraded == policy
            assert (lease.fence, lease.fence_strength) == (0, "none")
            assert lock.held_by_me()
            lease.check()
            assert lease.state == "held"
            await done(lease.release())
            with pytest.raises(pawlock.NotHeld):
                await done(lease.release())
            assert not lock.held_by_me()
        told = [record for record in caplog.records if record.name == "pawlock.degraded"]
        assert len(told) == 1, "once per name"
        assert counters(api, client)[f"degraded_{policy}"] == 3
        own.restart(keep_data=True)
        after = await done(lock.acquire())
        assert after.degraded is None
        assert after.fence > before.fence
        await done(after.release())
        await done(client.close())

    play(api, scenario)
    eventually(lambda: own.command("EXISTS", f"pawlock:d-{api}-{policy}") == 0, "no key is left")


def test_a_thread_that_waits_for_the_loss_of_a_degraded_lease_wakes_at_its_end(own: Server) -> None:
    own.kill()
    with pawlock.connect(own.url) as client:
        held = client.lock("x", on_unavailable="local", **QUICK).acquire()
        assert held.degraded == "local"
        assert not held.lost.wait(0.05)
        watch = in_thread(held.lost.wait)
        time.sleep(0.1)
        assert not watch.done()
        held.release()
        assert watch.result(5) is False, "it was released, not lost"


async def test_a_task_that_waits_for_the_loss_of_a_degraded_lease_wakes_at_its_end(own: Server) -> None:
    own.kill()
    async with pawlock.connect_async(own.url) as client:
        held = await client.lock("x", on_unavailable="local", **QUICK).acquire()
        assert held.degraded == "local"
        assert not await held.lost.wait(0.05)
        watch = asyncio.create_task(held.lost.wait())
        await asyncio.sleep(0.1)
        assert not watch.done()
        await held.release()
        assert await asyncio.wait_for(watch, 5) is False, "it was released, not lost"


@each_api
def test_local_excludes_within_the_process_and_open_does_not(own: Server, api: str) -> None:
    async def scenario() -> None:
        own.kill()
        first, second = (connect(api, own.url) for _ in range(2))
        held = await done(first.lock("x", on_unavailable="local", **QUICK).acquire())
        assert held.degraded == "local"
        with pytest.raises(pawlock.AcquireTimeout):
            await done(second.lock("x", on_unavailable="local", **QUICK).acquire(timeout=0.5))
        assert await done(second.lock("x", on_unavailable="local", **QUICK).try_acquire()) is None
        other = await done(second.lock("x", on_unavailable="open", **QUICK).acquire())
        assert other.degraded == "open"
        await done(other.release())
        # The server is back: the holder of this process is still respected.
        own.restart(keep_data=True)
        assert await done(second.lock("x", on_unavailable="local", **QUICK).try_acquire()) is None
        await done(held.release())
        fresh = await done(second.lock("x", on_unavailable="local", **QUICK).acquire(timeout=5))
        assert fresh.degraded is None
        await done(fresh.release())
        await done(first.close())
        await done(second.close())

    play(api, scenario)


class Ends:
    """Counts the leases whose grant was reported, and not their end."""

    def __init__(self) -> None:
        self.held = 0

    def acquired(self, *_: object, **__: object) -> None:
        self.held += 1

    def released(self, *_: object, **__: object) -> None:
        self.held -= 1

    def _ignore(self, *_: object, **__: object) -> None:
        pass

    refused = queued = lost = counted = called = _ignore


@each_api
def test_whom_the_server_serves_as_it_returns_waits_for_who_went_on_without_it(own: Server, api: str) -> None:
    """One waits for the server for longer than the other: it is back only after that one went on alone."""

    async def scenario() -> None:
        patient, hasty = (connect(api, own.url) for _ in range(2))
        await done(patient.ping())
        seen = Ends()
        pawlock.metrics.observe(patient, seen)
        own.kill()
        lock = patient.lock("x", on_unavailable="local", ttl=2, unavailable_after=30)
        asked = in_thread(lock.acquire) if api == "threads" else asyncio.create_task(lock.acquire())
        await meanwhile(api, lambda: engine_of(api, patient).health.down_since, "a request failed")
        held = await done(hasty.lock("x", on_unavailable="local", **QUICK).acquire())
        assert held.degraded == "local"
        own.restart(keep_data=True)
        await meanwhile(api, lambda: not engine_of(api, patient).health.down_since, "the server answered")
        await nap(api, 0.2)
        assert not asked.done(), "granted beside a holder of the same process"
        await done(held.release())
        lease = asked.result(10) if isinstance(asked, Future) else await asked
        assert lease.degraded is None
        await done(lease.release())
        assert seen.held == 0, "each grant that was reported has an end"
        await done(patient.close())
        await done(hasty.close())

    play(api, scenario)


def test_threads_of_a_process_count_exactly_without_a_server(own: Server) -> None:
    own.kill()
    counter = [0]
    with pawlock.connect(own.url) as client:
        lock = client.lock("n", on_unavailable="local", **QUICK)

        def work() -> None:
            for _ in range(50):
                with lock:
                    seen = counter[0]
                    time.sleep(0)
                    counter[0] = seen + 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counter[0] == 200


@each_api
def test_a_degraded_lease_that_is_extended_keeps_the_others_out_and_ends_with_its_release(
    own: Server, api: str
) -> None:
    async def scenario() -> None:
        own.kill()
        client, other = connect(api, own.url), connect(api, own.url)
        lease = await done(client.lock("x", on_unavailable="local", **QUICK).acquire())
        await done(lease.extend(5))
        with pytest.raises(pawlock.NotSupported, match="cannot be detached"):
            await done(lease.detach())
        lease.check()
        assert await done(other.lock("x", on_unavailable="local", **QUICK).try_acquire()) is None
        await done(lease.release())
        await done((await done(other.lock("x", on_unavailable="local", **QUICK).acquire())).release())
        await done(client.close())
        await done(other.close())

    play(api, scenario)


@each_api
@pytest.mark.parametrize(
    ("policy", "back"),
    [
        pytest.param("local", False, id="local-the server is away"),
        pytest.param("open", True, id="open-the server is back"),
        pytest.param("local", True, id="local-the server is back", marks=pytest.mark.slow),
        pytest.param("open", False, id="open-the server is away", marks=pytest.mark.slow),
    ],
)
def test_a_beat_prolongs_a_degraded_lease_without_the_server(
    own: Server, api: str, policy: str, *, back: bool
) -> None:
    async def scenario() -> None:
        own.kill()
        client = connect(api, own.url)
        lease = await done(client.lock("r", on_unavailable=policy, max_hold=1.2, **QUICK).acquire())
        assert lease.degraded == policy
        if back:
            own.restart(keep_data=True)
        await nap(api, 0.7)
        lease.beat()
        await nap(api, 0.8)
        assert lease.state == "held", "the limit counts from the beat"
        end = time.monotonic() + 5
        while lease.state == "held" and time.monotonic() < end:
            await nap(api, 0.02)
        with pytest.raises(pawlock.LeaseLost) as caught:
            lease.check()
        assert caught.value.reason == "max_hold"
        await done(client.close())

    play(api, scenario)


@each_api
def test_re_entry_and_max_hold_of_a_degraded_lease(own: Server, api: str) -> None:
    async def scenario() -> None:
        own.kill()
        client = connect(api, own.url)
        outer = await done(client.rlock("r", on_unavailable="local", max_hold=0.8, **QUICK).acquire())
        inner = await done(client.rlock("r", on_unavailable="local", max_hold=0.8, **QUICK).acquire())
        assert inner is outer
        with pytest.raises(pawlock.AcquireTimeout):
            await done(client.lock("r", on_unavailable="local", **QUICK).acquire(timeout=0.05))
        await done(inner.release())
        end = time.monotonic() + 3
        while outer.state == "held" and time.monotonic() < end:
            await nap(api)
        with pytest.raises(pawlock.LeaseLost) as caught:
            outer.check()
        assert caught.value.reason == "max_hold"
        again = await done(client.lock("r", on_unavailable="local", **QUICK).acquire())
        await done(again.release())
        await done(client.close())

    play(api, scenario)


def test_policies_that_are_none() -> None:
    policies: list[Any] = ["", "Raise", "closed", None, True, 1]
    for policy in policies:
        with case(policy), pytest.raises(pawlock.ConfigurationError, match="on_unavailable"):
            pawlock.connect("redis://127.0.0.1:1").lock("x", on_unavailable=policy)
