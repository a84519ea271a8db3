"""Turns passed inside a client: own fences, own tokens, and never for long while another client waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import pawlock
from pawlock.model import LossReason
from tests.contract.contention.rig import (
    PATIENCE,
    aeventually,
    all_at_rest,
    at_rest,
    eventually,
    run_threads,
)
from tests.support.servers import Server

LOCAL = 8
"""Threads or tasks of the one client."""

MANY = 16
"""So many that a run ends only because its block of fences is used up."""


class Record:
    """The grants of a name in their order, noted by whoever holds it."""

    def __init__(self) -> None:
        self.grants: list[tuple[str, int, str]] = []
        self.inside = 0

    def enter(self, who: str, lease: pawlock.Lease | pawlock.AsyncLease) -> None:
        assert self.inside == 0, "two owners at once"
        self.inside += 1
        self.grants.append((who, lease.fence, lease._record.label))

    def leave(self) -> None:
        self.inside -= 1

    def check(self) -> None:
        fences = [fence for _, fence, _ in self.grants]
        assert fences == sorted(set(fences)), "each grant has its own, higher fence"
        tokens = Counter(token for _, _, token in self.grants)
        assert max(tokens.values()) == 1, "each grant has its own token"


def test_each_thread_gets_a_fence_and_a_token_of_its_own(server: Server) -> None:
    record = Record()
    with pawlock.connect(server.url) as client:
        lock = client.lock("x")

        def serve(number: int) -> None:
            for _ in range(50):
                with lock as lease:
                    record.enter(str(number), lease)
                    record.leave()

        run_threads([partial(serve, number) for number in range(LOCAL)])
        record.check()
        assert len(record.grants) == LOCAL * 50
        assert client._engine.reports.counters["handed_over"] > 0
        all_at_rest(server, [client._engine], "x")


async def test_each_task_gets_a_fence_and_a_token_of_its_own(server: Server) -> None:
    record = Record()
    async with pawlock.connect_async(server.url) as client:
        lock = client.lock("x")

        async def serve(number: int) -> None:
            for _ in range(50):
                async with lock as lease:
                    record.enter(str(number), lease)
                    await asyncio.sleep(0)
                    record.leave()

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(serve(number) for number in range(LOCAL)))
        record.check()
        assert len(record.grants) == LOCAL * 50
        assert client._engine().reports.counters["handed_over"] > LOCAL * 40
        all_at_rest(server, [client._engine()], "x")


def longest_run(record: Record) -> int:
    """How many owners the longest-lived token of the server had."""
    return max(Counter(token.partition(".")[0] for _, _, token in record.grants).values())


def test_a_run_of_threads_has_no_more_owners_than_its_grant_has_fences(server: Server) -> None:
    record = Record()
    with pawlock.connect(server.url) as client:
        lock = client.lock("x")

        def serve() -> None:
            for _ in range(40):
                with lock as lease:
                    record.enter("", lease)
                    record.leave()

        run_threads([serve] * MANY)
        record.check()
        assert 1 < longest_run(record) <= 65
        all_at_rest(server, [client._engine], "x")


async def test_a_run_of_tasks_has_no_more_owners_than_its_grant_has_fences(server: Server) -> None:
    record = Record()
    async with pawlock.connect_async(server.url) as client:
        lock = client.lock("x")

        async def serve() -> None:
            for _ in range(40):
                async with lock as lease:
                    record.enter("", lease)
                    await asyncio.sleep(0)
                    record.leave()

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(serve() for _ in range(MANY)))
        record.check()
        assert 1 < longest_run(record) <= 65
        all_at_rest(server, [client._engine()], "x")


# (handover, seconds of each hold, most grants that may still come before the other client's turn)
BOUNDS = [
    # The last of a run may hold, not noted yet, with the ticket of the client's next run already in the queue.
    pytest.param(16, 0.0, 18, id="count-16"),
    pytest.param(3, 0.0005, 5, id="count-3"),
    # Four holds of 5 ms fill the 20 ms; one more is under way at their beginning, one begins at their end.
    pytest.param(64, 0.005, 7, id="time"),
]


@pytest.mark.parametrize(("handover", "hold", "most"), BOUNDS)
def test_threads_pass_it_on_only_so_often(
    valkey: Server, clients: list[pawlock.Client], handover: int, hold: float, most: int
) -> None:
    greedy, other = clients
    record = Record()
    ended = threading.Event()
    lock = greedy.lock("x", handover=handover)

    def crowd() -> None:
        while not ended.is_set():
            with lock as lease:
                record.enter("greedy", lease)
                if hold:
                    time.sleep(hold)
                record.leave()

    def turn() -> None:
        with other.lock("x") as lease:
            record.enter("other", lease)
            record.leave()

    def measure() -> None:
        try:
            for _ in range(15):
                judge_one_wait(valkey, record, turn, most)
        finally:
            ended.set()

    run_threads([*[crowd] * LOCAL, measure])
    assert greedy._engine.reports.counters["handed_over"] > 0
    record.check()
    all_at_rest(valkey, [client._engine for client in clients], "x")


def judge_one_wait(server: Server, record: Record, turn: Callable[[], None], most: int) -> None:
    """One turn of the other client: from the moment in which it is queued, count the grants before its own."""
    waiter = threading.Thread(target=turn, name="other", daemon=True)
    waiter.start()
    while waiter.is_alive() and not queued(server, "/other"):
        pass
    before = len(record.grants)
    waiter.join(PATIENCE)
    assert not waiter.is_alive(), "the other client never had its turn"
    since = [who for who, _, _ in record.grants[before:]]
    if "other" in since:
        assert since.index("other") <= most


def queued(server: Server, who: str) -> bool:
    """Whether a waiter of this thread or task stands in the queue."""
    members = server.command("ZRANGE", "{pawlock:x}:1:queue", "0", "-1")
    assert isinstance(members, list)
    return any(bytes(member).decode().endswith(who) for member in members)  # type: ignore[arg-type]


@pytest.mark.parametrize(("handover", "hold", "most"), BOUNDS)
async def test_tasks_pass_it_on_only_so_often(
    valkey: Server, aclients: list[pawlock.AsyncClient], handover: int, hold: float, most: int
) -> None:
    greedy, other = aclients
    record = Record()
    ended = asyncio.Event()
    lock = greedy.lock("x", handover=handover)

    async def crowd() -> None:
        while not ended.is_set():
            async with lock as lease:
                record.enter("greedy", lease)
                await asyncio.sleep(hold)
                record.leave()

    async def turn() -> None:
        async with other.lock("x") as lease:
            record.enter("other", lease)
            record.leave()

    async def measure() -> None:
        looks = 0
        for _ in range(15):
            waiter = asyncio.create_task(turn(), name="other")
            # The look stops the loop, so nothing is granted during it.
            while not waiter.done() and not queued(valkey, "/other"):  # noqa: ASYNC110 - the server cannot tell
                await asyncio.sleep(0)
            before = len(record.grants)
            await waiter
            since = [who for who, _, _ in record.grants[before:]]
            if "other" in since:
                looks += 1
                assert since.index("other") <= most
        assert looks > 0, "the other client was never seen waiting"
        ended.set()

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*[crowd() for _ in range(LOCAL)], measure())
    assert greedy._engine().reports.counters["handed_over"] > 0
    record.check()
    engines = [client._engine() for client in aclients]
    await aeventually(lambda: all(map(at_rest, engines)), "the clients are at rest")


async def test_the_loss_of_the_next_owner_is_not_told_to_the_one_before(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    """The first owner releases inside its block and goes on; what it held is lost by the one who took over."""
    client = aclients[0]
    lock = client.lock("x", ttl=0.6)

    async def second() -> None:
        async with lock:
            await asyncio.sleep(10.0)

    async with lock.acquire() as lease:
        waiter = asyncio.create_task(second())
        await aeventually(lambda: len(client._engine().local_queues), "it waits")
        await asyncio.sleep(0)
        await lease.release()
        await aeventually(lambda: client._engine().reports.counters["handed_over"], "it took over")
        valkey.command("SET", "pawlock:x", "somebody-else", "PX", "500")
        with pytest.raises(pawlock.LeaseLost):
            await waiter
        await asyncio.sleep(0.01)


async def test_max_hold_counts_from_the_grant_of_each_owner(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    lock = aclients[0].lock("x", ttl=1.0, max_hold=0.9)

    async def second() -> float:
        async with lock as lease:
            assert aclients[0]._engine().reports.counters["handed_over"] == 1
            began = time.monotonic()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(5.0)
            assert lease.lost
            return time.monotonic() - began

    lease = await lock.acquire()
    waiter = asyncio.create_task(second())
    await asyncio.sleep(0.3)
    released_at = time.monotonic()
    await lease.release()
    with pytest.raises(pawlock.LeaseLost) as caught:
        await waiter
    assert caught.value.reason == "max_hold"
    assert time.monotonic() - released_at >= 0.85


async def test_a_lock_handed_to_an_rlock_is_re_entered(aclients: list[pawlock.AsyncClient]) -> None:
    client = aclients[0]
    lease = await client.lock("x").acquire()

    async def second() -> int:
        async with client.rlock("x"), client.rlock("x") as inner:
            assert client._engine().reports.counters["handed_over"] == 1
            return inner.count

    waiter = asyncio.create_task(second())
    await asyncio.sleep(0.01)
    await lease.release()
    assert await waiter == 2


async def test_a_lease_given_back_to_a_local_waiter_is_renewed_no_more(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    """A turn that may not be handed over goes through the server, and its old lease ends there."""
    client = aclients[0]
    engine = client._engine()
    lock = client.lock("x", ttl=0.5, handover=1)

    async def serve() -> None:
        for _ in range(20):
            async with lock:
                await asyncio.sleep(0.001)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(serve() for _ in range(4)))
    assert engine.schedule.all() == []
    await asyncio.sleep(0.3)
    assert not [what for what in engine.reports.counters if what.startswith("lost")]


def test_a_tenure_lost_on_its_way_is_not_owned(valkey: Server, clients: list[pawlock.Client]) -> None:
    """Lost between the hand-over and the waiter's waking: it stands in line again, and is granted anew."""
    client, lock = clients[0], clients[0].lock("x", ttl=2.0)
    engine = client._engine
    lost: list[str] = []

    def lose_it(hold: Any) -> None:
        lost.append(hold.token)
        engine.lose(hold, LossReason.TAKEN)

    lease = lock.acquire()
    first_token = lease._record.hold.token
    granted: list[tuple[str, str]] = []

    def second() -> None:
        with lock as mine:
            granted.append((mine._record.label, str(mine.state)))

    waiter = threading.Thread(target=second, daemon=True)
    waiter.start()
    queue = next(iter(engine.local_queues.values()))
    eventually(lambda: queue.sleepers, "it waits")
    sleeper = queue.sleepers[0]
    assert sleeper.parker is not None
    unpark = sleeper.parker.unpark

    class Late:
        """Wakes the sleeper only after the loss; it went to sleep on the parker that it has."""

        @staticmethod
        def unpark() -> None:
            lose_it(sleeper.given)
            unpark()

    sleeper.parker = Late()  # type: ignore[assignment]
    lease.release()
    waiter.join(PATIENCE)
    assert lost == [first_token]
    assert granted
    assert granted[0][1] == "held"
    assert first_token not in granted[0][0]
    all_at_rest(valkey, [engine], "x")
