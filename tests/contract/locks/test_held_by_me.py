"""`lock.held_by_me()`: whether this thread or task holds it, by what this client knows, without a request."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pawlock
from tests.faults.rig import until
from tests.support.servers import Server


def commands(server: Server) -> int:
    """How many commands the server served."""
    text = bytes(server.command("INFO", "stats")).decode()  # type: ignore[arg-type]
    (line,) = (line for line in text.splitlines() if line.startswith("total_commands_processed"))
    return int(line.split(":")[1])


def test_each_thread_by_itself(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, pawlock.connect(valkey.url) as other:
        for lock in (client.lock("a"), client.rlock("b"), client.fair_lock("c"), client.rwlock("d").write):
            assert not lock.held_by_me()
            lease = lock.acquire()
            seen: list[bool] = []
            before = commands(valkey)
            thread = threading.Thread(target=lambda lock=lock, seen=seen: seen.append(lock.held_by_me()))
            thread.start()
            thread.join()
            assert lock.held_by_me()
            # The questions about it are the only ones.
            assert commands(valkey) - before == 1
            assert seen == [False]
            assert not other.lock(lock.name).held_by_me()
            lease.release()
            assert not lock.held_by_me()


def test_until_the_last_level_is_left(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        lock = client.rlock("n")
        with lock:
            with lock:
                assert lock.held_by_me()
            assert lock.held_by_me()
        assert not lock.held_by_me()


def test_a_reader_and_a_writer(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        rwlock = client.rwlock("n")
        with rwlock.read:
            assert (rwlock.read.held_by_me(), rwlock.write.held_by_me()) == (True, False)
        with rwlock.write as lease:
            # A writer may read.
            assert (rwlock.read.held_by_me(), rwlock.write.held_by_me()) == (True, True)
            lease.downgrade()
            assert (rwlock.read.held_by_me(), rwlock.write.held_by_me()) == (True, False)
        assert not rwlock.read.held_by_me()


def test_one_of_another_kind_by_the_same_name(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, client.rlock("n"):
        assert client.rlock("n").held_by_me()
        assert not client.lock("n").held_by_me()
        assert not client.lock("m").held_by_me()


def test_one_that_ended(valkey: Server) -> None:
    """Expired, lost, dropped, detached."""
    with pawlock.connect(valkey.url) as client:
        lock = client.lock("n", ttl=0.2, renew=False)
        kept = lock.acquire()
        assert lock.held_by_me()
        time.sleep(0.25)
        assert not lock.held_by_me()
        del kept
        renewed = client.lock("m", ttl=1.0)
        lease = renewed.acquire()
        valkey.command("SET", "pawlock:m", "other")
        until(lambda: lease.state == "lost", what="the loss")
        assert not renewed.held_by_me()
        detached = client.lock("o").acquire()
        ticket = detached.detach()
        assert not client.lock("o").held_by_me()
        adopted = client.adopt(ticket)
        assert client.lock("o").held_by_me()
        adopted.release()


def test_all_members(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        both = client.multi_lock(["a", "b"])
        with client.lock("a"):
            assert not both.held_by_me()
        with both:
            assert both.held_by_me()
            assert client.lock("a").held_by_me()
        assert not both.held_by_me()


def test_a_child_holds_nothing(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        lock = client.lock("n")
        with lock:
            child = os.fork()
            if child == 0:
                os._exit(1 if lock.held_by_me() else 0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert lock.held_by_me()


def test_each_task_by_itself(valkey: Server) -> None:
    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as client:
            lock = client.lock("n")

            async def other() -> bool:
                return lock.held_by_me()

            assert not lock.held_by_me()
            async with lock:
                assert lock.held_by_me()
                assert not await asyncio.create_task(other())
            assert not lock.held_by_me()
            both = client.multi_lock(["a", "b"])
            async with both:
                assert both.held_by_me()
            rwlock = client.rwlock("n")
            async with rwlock.read:
                assert (rwlock.read.held_by_me(), rwlock.write.held_by_me()) == (True, False)

    asyncio.run(main())
