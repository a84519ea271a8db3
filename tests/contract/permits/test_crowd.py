"""Processes that share permits, read and write, die and stop: nobody too many is inside, nobody starves."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pawlock
from tests.contract.contention.rig import Crowd, aeventually, at_rest, eventually, send
from tests.contract.permits.worker import PERMITS, now
from tests.support.pace import pace
from tests.support.servers import Server

TTL = 1.0
WORKER = Path(__file__).with_name("worker.py")
Share = int | str


def left(server: Server, *, but: tuple[bytes, ...] = (b":fence",)) -> list[bytes]:
    """The keys of names that are left, besides the record of fences and limit."""
    found = server.command("KEYS", "{pawlock:*")
    assert isinstance(found, list)
    return [key for key in found if isinstance(key, bytes) and not any(word in key for word in but)]


def spans(crowd: Crowd) -> Iterator[tuple[float, float, Share]]:
    """Every lease: from its grant to the last check that said yes, and how much of the name it was."""
    for number in range(len(crowd.processes)):
        sure: dict[int, list[float]] = {}
        shares: dict[int, Share] = {}
        for entry in crowd.journal(number):
            if entry["event"] != "lost" and entry["at"] < entry["valid_until"]:
                sure.setdefault(entry["fence"], []).append(entry["at"])
                shares[entry["fence"]] = entry["share"]
        for fence, times in sure.items():
            yield times[0], times[-1], shares[fence]


def most_at_once(found: list[tuple[float, float, Share]]) -> tuple[int, bool]:
    """How many permits were out at most, and whether a writer was ever beside anybody."""
    edges = [edge for begin, end, share in found for edge in ((begin, 1, share), (end, -1, share))]
    edges.sort(key=lambda edge: edge[:2])
    permits = most = readers = writers = 0
    beside = False
    for _, step, share in edges:
        if isinstance(share, int):
            permits += step * share
        elif share == "write":
            writers += step
        else:
            readers += step
        most = max(most, permits)
        beside |= writers > 1 or (writers > 0 and readers > 0)
    return most, beside


def inside(crowd: Crowd, number: int) -> bool:
    """Whether a process stands in a turn just now."""
    entries = crowd.journal(number)
    return bool(entries) and entries[-1]["event"] != "lost" and now() - entries[-1]["at"] < 0.01


@pytest.mark.fault
@pytest.mark.parametrize(
    ("kind", "api"),
    [
        ("semaphore", "tasks"),
        pytest.param("rwlock", "threads", marks=pytest.mark.slow),
        pytest.param("semaphore", "threads", marks=pytest.mark.slow),
        pytest.param("rwlock", "tasks", marks=pytest.mark.slow),
    ],
)
def test_some_are_killed_and_one_is_stopped_past_its_ttl(
    valkey: Server, tmp_path: Path, api: str, kind: str
) -> None:
    valkey.command("FLUSHALL")
    orders: dict[str, Any] = {"crowd": 5, "turns": 15, "ttl": TTL, "hold": 0.01, "options": json.dumps({})}
    with Crowd(valkey, tmp_path, [api] * 4, [kind] * 4, worker=WORKER, **orders) as crowd:
        crowd.go()
        eventually(lambda: inside(crowd, 0), "the first one is inside")
        send(crowd.processes[0], signal.SIGSTOP)
        for number in (1, 2):
            # With its leases, and its tickets wherever they stand in the queue.
            eventually(partial(inside, crowd, number), "one to be killed is inside")
            send(crowd.processes[number], signal.SIGKILL)
        killed_at = now()
        eventually(
            lambda: any(e["at"] > killed_at + 0.02 for e in crowd.journal(3)),
            "the other one goes on",
            # The tickets of those that were killed cost one life of a ticket in all.
            timeout=TTL + 3.0 + 1.0,
        )
        time.sleep(TTL)
        send(crowd.processes[0], signal.SIGCONT)
        done = [_finish(crowd, number) for number in (0, 3)]
        assert done[1:] == [75]
        most, beside = most_at_once(list(spans(crowd)))
        assert most <= PERMITS
        assert not beside
        if kind == "semaphore":
            assert most == PERMITS, "as many as may were inside at once"
    with pawlock.connect(valkey.url) as client:
        began = time.monotonic()
        if kind == "semaphore":
            client.semaphore(kind, permits=PERMITS, ttl=TTL).acquire(PERMITS, timeout=TTL + 1).release()
        else:
            client.rwlock(kind, ttl=TTL).write.acquire(timeout=TTL + 1).release()
        print(f"free after {time.monotonic() - began:.2f} s")
    assert left(valkey, but=(b":fence", b":dead:")) == []


def _finish(crowd: Crowd, number: int) -> int:
    out, err = crowd.processes[number].communicate(timeout=60.0)
    assert crowd.processes[number].returncode == 0, err
    return int(json.loads(out.splitlines()[-1])["done"])


@pytest.mark.asyncio
async def test_a_writer_gets_in_past_a_hundred_readers(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    stop = False
    running: set[float] = set()  # when each read section that runs began
    ended: list[tuple[float, float]] = []
    async with pawlock.connect_async(valkey.url) as client, pawlock.connect_async(valkey.url) as other:
        book, mine = client.rwlock("book", ttl=10), other.rwlock("book", ttl=10)

        async def read() -> None:
            while not stop:
                async with book.read:
                    began = now()
                    running.add(began)
                    await asyncio.sleep(random.uniform(0, 0.04))
                    running.discard(began)
                    ended.append((began, now()))

        readers = [asyncio.ensure_future(read()) for _ in range(100)]
        await aeventually(lambda: len(ended) > 200, "readers read")
        late: list[float] = []
        for _ in range(20):
            asked = now()
            async with mine.write:
                got = now()
                assert not running
            # Read sections that ran when it asked, or were granted before it stood in the queue.
            last = max((end for begin, end in ended if begin < got and end > asked), default=asked)
            late.append(got - last)
            await asyncio.sleep(0.02)
        stop = True
        await asyncio.gather(*readers)
    behind = [begin for begin, end in ended if end - begin > 0.2 * pace()]
    assert not behind, "no section was longer than that"
    print(f"the writer was let in {max(late) * 1000:.1f} ms after the last reader at the latest")
    # Two wake-ups: of the last reader's release by the loop that ran its section, and of the writer. Without messages
    # every round would take a third of a ticket, a second; a single round may meet a pause of the machine.
    assert sorted(late)[len(late) // 2] < 0.1 * pace()
    assert max(late) < 3.0 * pace(), "the life of a ticket"
    assert left(valkey) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("writers", [10, 50])
async def test_nobody_starves_among_a_hundred(valkey: Server, writers: int) -> None:
    valkey.command("FLUSHALL")
    waits: dict[str, list[float]] = {"read": [], "write": []}
    async with pawlock.connect_async(valkey.url) as client, pawlock.connect_async(valkey.url) as other:
        books = [client.rwlock("book", ttl=10), other.rwlock("book", ttl=10)]

        async def work(number: int) -> None:
            book = books[number % 2]
            side, kind = (book.write, "write") if number < writers else (book.read, "read")
            for _ in range(6):
                asked = now()
                async with side:
                    waits[kind].append(now() - asked)
                    await asyncio.sleep(0.002)
                await asyncio.sleep(random.uniform(0, 0.005))

        began = now()
        await asyncio.gather(*(work(number) for number in range(100)))
        whole = now() - began
    worst = {kind: max(found) for kind, found in waits.items()}
    print(f"{writers} writers: {whole:.2f} s in all; worst wait {worst}")
    assert {kind: len(found) for kind, found in waits.items()} == {
        "write": writers * 6,
        "read": (100 - writers) * 6,
    }
    # Six rounds: in strict order nobody waits much longer than one of them.
    assert max(worst.values()) < 2.5 * whole / 6 + 0.2
    assert left(valkey) == []


@pytest.mark.asyncio
async def test_what_is_cancelled_leaves_nothing(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    async with pawlock.connect_async(valkey.url) as client:
        pool, book = client.semaphore("pool", permits=3, ttl=5), client.rwlock("book", ttl=5)
        cancelled = 0

        async def take(number: int) -> None:
            if number % 3 == 0:
                async with pool.acquire(1 + number % 2):
                    await asyncio.sleep(0.002)
            elif number % 3 == 1:
                async with book.write as lease:
                    await lease.downgrade()
                    await asyncio.sleep(0.001)
            else:
                async with book.read:
                    await asyncio.sleep(0.001)

        for _ in range(25):
            tasks = [asyncio.ensure_future(take(number)) for number in range(12)]
            for task in random.sample(tasks, 8):
                await asyncio.sleep(random.uniform(0, 0.002))
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, asyncio.CancelledError):
                    cancelled += 1
                elif result is not None:
                    raise result
        assert cancelled > 50
        await aeventually(lambda: at_rest(client._engine()), "the client is at rest")
        assert await pool.available() == 3
        assert not (await book.inspect()).held
    assert left(valkey, but=(b":fence", b":dead:")) == []


def test_what_times_out_leaves_nothing(client: pawlock.Client, valkey: Server) -> None:
    pool, book = client.semaphore("pool", permits=2, ttl=5), client.rwlock("book", ttl=5)
    with pawlock.connect(valkey.url) as other, pool.acquire(2), book.read:
        for timeout in (0.0, 0.01, 0.1):
            for take in (
                other.semaphore("pool", permits=2).acquire,
                other.rwlock("book").write.acquire,
            ):
                with pytest.raises(pawlock.AcquireTimeout):
                    take(timeout=timeout)
        eventually(lambda: at_rest(other._engine), "the client is at rest")
        assert pool.inspect().queue_length == book.inspect().queue_length == 0
        with other.rwlock("book").read:
            pass
    assert left(valkey) == []


def test_the_judge_sees_what_is_wrong() -> None:
    assert most_at_once([(0.0, 1.0, 2), (0.5, 2.0, 3)])[0] == 5
    assert most_at_once([(0.0, 1.0, 2), (1.0, 2.0, 3)])[0] == 3
    assert most_at_once([(0.0, 1.0, "read"), (0.5, 2.0, "write")])[1]
    assert most_at_once([(0.0, 1.0, "write"), (0.5, 2.0, "write")])[1]
    assert not most_at_once([(0.0, 1.0, "read"), (0.5, 1.5, "read"), (1.5, 2.0, "write")])[1]
