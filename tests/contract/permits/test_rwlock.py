"""The read-write lock in both APIs: who gets in beside whom, in which order, and what one owner may do."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

import pawlock
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.published import runs
from tests.support.refusal import refused
from tests.support.servers import Server


def until(true: Callable[[], bool]) -> None:
    """Wait for something, five seconds at most."""
    end = time.monotonic() + pace() * 5
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.002)


T = TypeVar("T")


class Elsewhere:
    """Acquisitions, each by a thread of its own, so that nothing is re-entered."""

    def __init__(self, pool: ThreadPoolExecutor, book: pawlock.RWLock) -> None:
        self._pool = pool
        self._book = book

    def read(self, timeout: float = 5) -> Future[pawlock.Lease]:
        return self._pool.submit(apart, lambda: self._book.read.acquire(timeout=timeout))

    def write(self, timeout: float = 5) -> Future[pawlock.WriteLease]:
        return self._pool.submit(apart, lambda: self._book.write.acquire(timeout=timeout))


def apart(what: Callable[[], T]) -> T:
    """Run something in a new thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(what).result()


def test_many_read_or_one_writes(client: pawlock.Client) -> None:
    book = client.rwlock("book", ttl=5)
    with ThreadPoolExecutor(8) as pool:
        there = Elsewhere(pool, book)
        readers = [there.read().result() for _ in range(5)]
        assert {one.mode for one in book.inspect().holders} == {"read"}
        assert apart(book.write.try_acquire) is None
        for lease in readers:
            lease.release()
        writer = there.write().result()
        assert writer.fence > max(lease.fence for lease in readers)
        assert [one.mode for one in book.inspect().holders] == ["write"]
        assert apart(book.read.try_acquire) is None
        assert apart(book.write.try_acquire) is None
        assert book.read.locked()
        writer.release()
    assert not book.inspect().held


def test_a_writer_that_waits_stops_later_readers_and_those_behind_it_enter_together(
    client: pawlock.Client,
) -> None:
    book = client.rwlock("book", ttl=5)
    with ThreadPoolExecutor(8) as pool:
        there = Elsewhere(pool, book)
        first = there.read().result()
        writer = there.write()
        until(lambda: book.inspect().queue_length == 1)
        assert apart(book.read.try_acquire) is None
        later = [there.read() for _ in range(4)]
        until(lambda: book.inspect().queue_length == 5)
        last = there.write()
        until(lambda: book.inspect().queue_length == 6)
        first.release()
        lease = writer.result(timeout=1)
        assert not any(one.done() for one in later)
        lease.release()
        leases = [one.result(timeout=1) for one in later]
        assert book.inspect().count == 4
        assert not last.done()
        for reader in leases:
            reader.release()
        last.result(timeout=1).release()


def test_a_dead_reader_frees_only_itself(client: pawlock.Client) -> None:
    book, dying = client.rwlock("book", ttl=1.0), client.rwlock("book", ttl=0.4, renew=False)
    with ThreadPoolExecutor(4) as pool:
        living = Elsewhere(pool, book).read().result()
        dead = Elsewhere(pool, dying).read().result()
        began = time.monotonic()
        writer = Elsewhere(pool, book).write()
        time.sleep(0.6)
        living.check()
        info = book.inspect()
        assert (info.count, info.queue_length) == (1, 1)
        assert not writer.done()
        living.release()
        writer.result(timeout=1).release()
        assert time.monotonic() - began < pace() * 1.5
        assert dead.state is pawlock.LeaseState.LOST


def test_downgrade_lets_readers_in_and_nobody_between(client: pawlock.Client) -> None:
    book = client.rwlock("book", ttl=5)
    with ThreadPoolExecutor(4) as pool:
        there = Elsewhere(pool, book)
        writer = there.write().result()
        fence = writer.fence
        assert writer.writing
        readers = [there.read(), there.read()]
        until(lambda: book.inspect().queue_length == 2)
        behind = there.write()
        until(lambda: book.inspect().queue_length == 3)
        began = time.monotonic()
        writer.downgrade()
        leases = [one.result(timeout=1) for one in readers]
        assert time.monotonic() - began < pace() * 0.5
        assert (writer.writing, writer.fence, writer.state) == (False, fence, pawlock.LeaseState.HELD)
        assert sorted(one.mode for one in book.inspect().holders) == ["read"] * 3
        refused(writer.downgrade, "not held for writing", pawlock.NotHeld)
        writer.extend(5)
        assert not behind.done()
        for lease in [*leases, writer]:
            lease.release()
        refused(writer.downgrade, "released", pawlock.NotHeld)
        behind.result(timeout=1).release()


def test_a_reader_is_told_that_it_has_nothing_to_downgrade(client: pawlock.Client) -> None:
    with client.rwlock("book").read as reader, pytest.raises(AttributeError, match="not a write lease"):
        reader.downgrade()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    with client.rwlock("book").read as reader:
        assert not hasattr(reader, "downgrade")


def test_a_writer_may_read_and_each_side_may_be_taken_again(client: pawlock.Client) -> None:
    book = client.rwlock("book")
    with book.write as writer:
        with book.read as inner, book.write as again:
            assert inner is writer
            assert again is writer
            assert writer.count == 3
            refused(writer.downgrade, "held 3 times", pawlock.NotHeld)
        writer.downgrade()
        with book.read as inner:
            assert inner is writer
        refused(book.write.acquire, "release the read lease first", pawlock.DeadlockDetected)
    assert not book.inspect().held
    with book.read as outer:
        with book.read as inner:
            assert inner is outer
            assert book.inspect().count == 1
        outer.check()
    assert not book.inspect().held


def test_a_reader_reads_again_although_a_writer_waits(client: pawlock.Client) -> None:
    book = client.rwlock("book", ttl=5)
    with ThreadPoolExecutor(1) as pool:
        with book.read:
            writer = Elsewhere(pool, book).write()
            until(lambda: book.inspect().queue_length == 1)
            with book.read.acquire(timeout=1):
                assert not writer.done()
        writer.result(timeout=1).release()


def test_an_upgrade_is_refused_at_once(client: pawlock.Client) -> None:
    book = client.rwlock("book")
    with book.read as lease:
        began = time.monotonic()
        refused(
            lambda: book.write.acquire(timeout=5), "release the read lease first", pawlock.DeadlockDetected
        )
        assert time.monotonic() - began < pace() * 0.5
        assert book.write.try_acquire() is None
        lease.check()


def test_tasks_too(valkey: Server) -> None:
    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as client:
            book = client.rwlock("tasks", ttl=5)
            inside: list[str] = []
            overlaps = 0

            async def work(number: int) -> None:
                nonlocal overlaps
                side = book.write if number % 4 == 0 else book.read
                async with side:
                    mode = "w" if number % 4 == 0 else "r"
                    overlaps += bool("w" in inside or (mode == "w" and inside))
                    inside.append(mode)
                    await asyncio.sleep(0.003)
                    inside.remove(mode)

            await asyncio.gather(*[work(number) for number in range(80)])
            assert overlaps == 0
            async with book.write as writer:
                async with book.read as inner:
                    assert inner is writer
                task = asyncio.ensure_future(_read(book))
                while not (await book.inspect()).queue_length:  # noqa: ASYNC110 - the server is asked
                    await asyncio.sleep(0.002)
                await writer.downgrade()
                await asyncio.wait_for(task, 1)
                with pytest.raises(pawlock.NotHeld):
                    await writer.downgrade()
                with pytest.raises(pawlock.DeadlockDetected):
                    await book.write.acquire()
            async with book.read as lease:
                with pytest.raises(pawlock.DeadlockDetected, match="release the read lease first"):
                    await book.write.acquire(timeout=5)
                assert await book.write.try_acquire() is None
                lease.check()
            assert not (await book.inspect()).held

    async def _read(book: pawlock.AsyncRWLock) -> None:
        async with book.read:
            pass

    asyncio.run(main())


def test_it_travels(client: pawlock.Client) -> None:
    book = client.rwlock("book", ttl=7)
    for made in (book, book.read, book.write):
        copy = pickle.loads(pickle.dumps(made))
        assert (type(copy), repr(copy), copy.name) == (type(made), repr(made), "book")
        copy._client.close()


def test_as_decorators(client: pawlock.Client) -> None:
    @client.rwlock("page:{number}").write
    def change(number: int) -> list[str]:
        assert pawlock.current_lease().name == f"page:{number}"
        return [one.mode for one in client.rwlock(f"page:{number}").inspect().holders]

    @client.rwlock("page:{number}").read
    def show(number: int) -> list[str]:
        return [one.mode for one in client.rwlock(f"page:{number}").inspect().holders]

    assert (change(7), show(7)) == (["write"], ["read"])


def test_a_downgrade_that_got_no_answer_comes_true_with_the_next_renewal(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    with (
        Proxy(valkey) as proxy,
        pawlock.connect(proxy.url) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        book = client.rwlock("book", ttl=1.5, unavailable_after=0.0)
        with book.write as writer:
            lost = proxy.drop_request(runs("permits/renew"), times=None)
            with pytest.raises(pawlock.BackendUnavailable):
                writer.downgrade()
            assert not writer.writing
            assert [one.mode for one in book.inspect().holders] == ["write"]
            lost.remove()
            # The server has not heard of it; the renewal of the lease tells it.
            Elsewhere(pool, book).read(3).result().release()
            writer.check()
