"""Event loops: several in a row, several at once, uvloop; and the client of threads inside a running loop."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import pawlock
from tests.contract.edges.helpers import eventually, free, run_script, started_threads
from tests.support.pace import pace
from tests.support.servers import Server

FILES = Path("/proc/self/fd")


def open_files() -> int:
    return len(list(FILES.iterdir()))


# The connection of a loop that was closed under it: asyncio itself complains of it, rightly.
left_open = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning"
)


def test_one_client_in_several_runs_of_asyncio(valkey: Server) -> None:
    client = pawlock.connect_async(valkey.url)
    lock = client.lock("runs")

    async def work() -> int:
        async with lock as lease:
            await asyncio.sleep(0)
            return lease.fence

    fences = [asyncio.run(work()) for _ in range(3)]
    assert fences == sorted(set(fences))

    async def last() -> None:
        await work()
        await client.close()

    asyncio.run(last())
    gc.collect()


@pytest.mark.skipif(not FILES.is_dir(), reason="needs /proc")
def test_loops_that_ended_leave_nothing_in_the_client(valkey: Server) -> None:
    client = pawlock.connect_async(valkey.url)

    async def work() -> None:
        async with client.lock("runs"):
            pass

    for _ in range(3):
        asyncio.run(work())
    gc.collect()
    before = open_files()
    for _ in range(10):
        asyncio.run(work())
    gc.collect()
    assert open_files() <= before + 1
    assert len(client._engines) <= 1

    async def last() -> None:
        await client.close()

    asyncio.run(last())
    assert not client._engines
    gc.collect()


OWN_LOOPS = """
import asyncio, gc, os, unittest
import pytest
import pawlock

locks = pawlock.connect_async(os.environ["SHOP"].split() if " " in os.environ["SHOP"] else os.environ["SHOP"],
                              **({"redlock": pawlock.RedlockOptions(fresh=True)} if " " in os.environ["SHOP"] else {}))


@pytest.mark.parametrize("n", range(3))
@pytest.mark.asyncio
async def test_in_a_loop_of_its_own(n):
    async with locks.lock("order"):
        gc.collect()


def test_in_a_run():
    async def work():
        async with locks.lock("order"):
            gc.collect()

    for _ in range(3):
        asyncio.run(work())


class TestOfTheLibrary(unittest.IsolatedAsyncioTestCase):
    async def test_one(self):
        async with locks.lock("order"):
            gc.collect()

    async def test_another(self):
        async with locks.lock("order"):
            gc.collect()
"""


@pytest.mark.parametrize("servers", [1, 3])
def test_a_client_at_import_and_tests_in_loops_of_their_own_with_warnings_as_errors(
    valkey: Server, tmp_path: Path, servers: int
) -> None:
    more = [Server("valkey", unix=False).start() for _ in range(servers - 1)]
    (tmp_path / "test_shop.py").write_text(OWN_LOOPS)
    ini = "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings =\n    error\n"
    (tmp_path / "pytest.ini").write_text(ini)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "SHOP": " ".join([valkey.url, *(one.url for one in more)])},
            timeout=60,
            check=False,
        )
    finally:
        for one in more:
            one.stop()
    assert "6 passed" in done.stdout, done.stdout
    assert done.returncode == 0, done.stdout


def test_a_loop_that_ends_lets_its_generators_give_back_what_they_hold(valkey: Server) -> None:
    text = """
        import asyncio, sys, pawlock
        client = pawlock.connect_async(sys.argv[1], ttl=60)
        kept = []

        async def rows(name):
            try:
                async with client.lock(name):
                    yield 1
            finally:
                await asyncio.sleep(0)

        async def main():
            for name in ("a", "b"):
                kept.append(rows(name))
                await anext(kept[-1])

        asyncio.run(main())
    """
    valkey.command("FLUSHALL")
    assert not run_script(text, valkey.url, PYTHONWARNINGS="error")
    assert free(valkey, "a")
    assert free(valkey, "b")


@left_open
def test_one_client_in_two_loops_at_once(valkey: Server) -> None:
    client = pawlock.connect_async(valkey.url)
    inside = [0]

    async def work() -> None:
        for _ in range(40):
            async with client.lock("both loops", timeout=20):
                inside[0] += 1
                await asyncio.sleep(0)
                assert inside[0] == 1
                inside[0] -= 1

    async def main() -> None:
        await asyncio.gather(*[work() for _ in range(4)])

    with started_threads(lambda: asyncio.run(main()), lambda: asyncio.run(main())):
        pass
    asyncio.run(client.close())
    # Their loops ended with what they had open, which is said of them here, and of no later test.
    eventually(lambda: not any("pawlock" in one.name for one in threading.enumerate()), "their threads end")
    gc.collect()
    assert free(valkey, "both loops")


def test_closing_reaches_the_other_loops_of_the_client(valkey: Server) -> None:
    """A lease and a waiter in another thread's loop: both are ended, and the client is closed there as well."""
    client = pawlock.connect_async(valkey.url)
    holding, ready = threading.Event(), threading.Event()
    told: list[str] = []

    async def there() -> None:
        await asyncio.to_thread(holding.wait, 10)
        lease = await client.lock("held there").acquire()
        ready.set()
        try:
            await client.lock("waited for").acquire()
        except pawlock.ClientClosed:
            told.append("waiter")
        try:
            lease.check()
        except pawlock.LeaseLost as error:
            told.append(error.reason)
        try:
            await client.lock("after").acquire()
        except pawlock.ClientClosed:
            told.append("after")

    async def here() -> None:
        async with client.lock("waited for"):
            holding.set()
            await asyncio.to_thread(ready.wait, 10)
            eventually(
                lambda: valkey.command("EXISTS", "{pawlock:waited for}:1:queue") == 1, "the waiter queues"
            )
            await client.close()

    with started_threads(lambda: asyncio.run(there())), pytest.raises(pawlock.LeaseLost):
        asyncio.run(here())
    assert told == ["waiter", "closed", "after"]
    assert free(valkey, "held there")


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
def test_uvloop(valkey: Server) -> None:
    text = """
        import asyncio, sys, pawlock, uvloop
        n = 0

        async def main(url):
            global n
            assert "uvloop" in type(asyncio.get_running_loop()).__module__
            async with pawlock.connect_async(url) as client, pawlock.connect_async(url) as other:
                async def work(lock):
                    global n
                    for _ in range(25):
                        async with lock:
                            seen = n
                            await asyncio.sleep(0)
                            n = seen + 1
                locks = [client.lock("uv"), other.lock("uv")]
                await asyncio.gather(*[work(lock) for lock in locks for _ in range(10)])
                assert n == 500, n
                try:
                    async with client.lock("lost", ttl=0.6) as lease:
                        import redis.asyncio
                        async with redis.asyncio.Redis.from_url(sys.argv[1]) as plain:
                            await plain.delete("pawlock:lost")
                        await asyncio.sleep(10)
                except pawlock.LeaseLost as error:
                    print(error.reason)

        for url in sys.argv[1:]:
            n = 0
            uvloop.run(main(url))
    """
    assert run_script(text, valkey.url, valkey.unix_url).split() == ["expired", "expired"]


async def test_the_client_of_threads_in_a_running_loop_warns_once(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with client.lock("blocking"):
            pass
        client.lock("blocking").acquire().release()
        assert client.lock("blocking").try_acquire() is not None
    (warning,) = [w for w in caught if w.category is RuntimeWarning]
    assert "connect_async" in str(warning.message)
    assert warning.filename == __file__, "it points at pawlock instead of its caller"


def test_every_door_warns_at_its_caller(client: pawlock.Client) -> None:
    async def main(enter: str) -> None:
        lock = client.lock("door")
        if enter == "with":
            with lock:
                pass
        else:
            getattr(lock, enter)().release()

    for enter in ("acquire", "try_acquire", "with"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.run(main(enter))
        assert [w.filename for w in caught if w.category is RuntimeWarning] == [__file__], enter


async def test_an_acquisition_may_be_made_a_task(valkey: Server) -> None:
    async with pawlock.connect_async(valkey.url) as client:
        lock = client.lock("task")
        lease = await lock.acquire()
        waiting = [asyncio.create_task(lock.acquire()), asyncio.ensure_future(lock.acquire(timeout=5))]
        async with asyncio.TaskGroup() as group:
            cancelled = group.create_task(lock.acquire())
            await asyncio.sleep(0.05)
            cancelled.cancel()
        await lease.release()
        for task in waiting:
            async with await task:
                pass
        assert not await lock.locked()


@left_open
def test_the_end_of_a_loop_ends_whoever_waits_for_a_connection() -> None:
    """It cancels the attempt to connect and its callers at once, and each of them only that one time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"

        async def main() -> asyncio.Task[pawlock.AsyncLease]:
            client = pawlock.connect_async(url)
            waiting = asyncio.create_task(client.lock("n", unavailable_after=pace() * 30).acquire())
            await asyncio.sleep(0.1)
            assert any(task.get_name() == "pawlock-connect" for task in asyncio.all_tasks())
            return waiting

        began = time.monotonic()
        assert asyncio.run(main()).cancelled()
        assert time.monotonic() - began < pace() * 15


@pytest.mark.slow
@left_open
def test_a_loop_ends_after_its_server_has_gone() -> None:
    """The maintenance task of a client that nobody closed is at the release that could not arrive."""
    script = """
import asyncio, sys, pawlock
from tests.support.servers import Server

with Server("valkey") as server:
    client = pawlock.connect_async(server.url)

    async def main():
        try:
            async with client.lock("n", ttl=0.5, renew=False):
                server.stop()
        except pawlock.PawlockError:
            pass

    asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=pace() * 30, check=False)
    assert done.returncode == 0


def test_a_loop_that_is_not_asyncios_has_none(valkey: Server) -> None:
    """As under trio."""

    async def held() -> None:
        async with pawlock.connect_async(valkey.url).lock("other-loop"):
            raise AssertionError("it was held")

    with pytest.raises(RuntimeError, match="no running event loop"):
        held().send(None)
