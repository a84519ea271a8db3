"""A client that a module makes at its import never reaches the developer's server from a test that has its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pawlock
from tests.support.servers import Server

pytest_plugins = ["pytester"]

SHOP = """
import asyncio, functools
import pawlock

locks = pawlock.connect(namespace="shop")
tasks = pawlock.connect_async(namespace="shop")

@locks.lock("decorated")
def held_by_threads():
    return pawlock.connect(namespace="shop").lock("decorated").locked()

@tasks.lock("decorated")
async def held_by_tasks():
    return pawlock.connect(namespace="shop").lock("decorated").locked()
"""

TESTS = """
import asyncio, pytest, pawlock
from shop import locks, tasks, held_by_threads, held_by_tasks

@pytest.mark.parametrize("round", [1, 2])
@pytest.mark.parametrize("fixture", ["pawlock_server", "pawlock_memory", "pawlock_sim"])
def test_threads(request, fixture, round):
    url = request.getfixturevalue(fixture).url
    assert held_by_threads()
    with locks.lock("n"), pawlock.connect(url, namespace="shop") as other:
        assert other.lock("n").locked()
    assert not locks.lock("n").locked()

@pytest.mark.parametrize("round", [1, 2])
@pytest.mark.parametrize("fixture", ["pawlock_server", "pawlock_memory"])
def test_tasks(request, fixture, round):
    url = request.getfixturevalue(fixture).url

    async def main():
        assert await held_by_tasks()
        async with tasks.lock("n"):
            with pawlock.connect(url, namespace="shop") as other:
                assert await asyncio.to_thread(other.lock("n").locked)
        await tasks.close()

    asyncio.run(main())

def test_a_client_that_the_code_closes_is_open_in_the_next_test(pawlock_server):
    locks.close()
    with pytest.raises(pawlock.ClientClosed):
        locks.lock("n").acquire()

def test_the_next(pawlock_server, pawlock_faults):
    lease = locks.lock("n").acquire()
    pawlock_faults.lose(lease)
    assert lease.lost.wait(10)
"""


@pytest.fixture
def developers() -> Iterator[Server]:
    """A server that no test may touch."""
    with Server() as server:
        yield server
        assert server.command("DBSIZE") == 0
        info = server.command("INFO", "commandstats")
        assert isinstance(info, bytes)
        assert b"evalsha" not in info, "a script of a test ran there"


def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, shop: str, tests: str
) -> pytest.RunResult:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(shop=shop)
    pytester.makepyfile(tests)
    return pytester.runpytest_subprocess("-p", "pawlock.testing.plugin", "-q", timeout=60)


def test_a_client_made_at_import_goes_to_the_server_of_the_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, developers: Server
) -> None:
    monkeypatch.setenv("PAWLOCK_URL", developers.url)
    run(pytester, monkeypatch, SHOP, TESTS).assert_outcomes(passed=12)


def test_where_no_server_may_be_taken_by_itself_the_modules_can_be_imported_all_the_same(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAWLOCK_URL", raising=False)
    monkeypatch.setenv("PAWLOCK_REQUIRE_URL", "1")
    without = """

def test_without_a_fixture():
    for connect in (pawlock.connect, locks.lock("n").acquire):
        with pytest.raises(pawlock.PawlockError, match="set PAWLOCK_URL"):
            connect()
"""
    run(pytester, monkeypatch, SHOP, TESTS + without).assert_outcomes(passed=13)


def test_a_client_that_names_another_server_is_refused_with_its_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, developers: Server
) -> None:
    shop = f"""
import pawlock, redis

locks = pawlock.connect({developers.url!r})
handed = pawlock.connect(redis.Redis.from_url({developers.url!r}))
tasks = pawlock.connect_async({developers.url!r})
"""
    tests = """
import asyncio, pathlib, pytest, pawlock, shop
from tests.support.servers import Server

@pytest.fixture(scope="session")
def own():
    with Server() as server, pawlock.connect(server.url) as client:
        yield client

def test_refused(pawlock_server):
    line = f"{pathlib.Path('shop.py').absolute()}:"
    for number, work in ((3, lambda: shop.locks.lock("n").acquire()), (4, lambda: shop.handed.lock("n").try_acquire())):
        with pytest.raises(pawlock.ConfigurationError, match=f"{line}{number} made"):
            work()

    async def main():
        with pytest.raises(pawlock.ConfigurationError, match=f"{line}5 made"):
            await shop.tasks.lock("n").acquire()
    asyncio.run(main())

def test_another_server_of_the_tests_is_nobody_elses(own, pawlock_server):
    with own.lock("n"):
        assert not pawlock.connect().lock("n").locked()
"""
    run(pytester, monkeypatch, shop, tests).assert_outcomes(passed=2)


def test_a_fakeredis_client_is_refused_at_once() -> None:
    class FakeRedis:
        connection_pool = None

    FakeRedis.__module__ = "fakeredis._connection"
    for connect in (pawlock.connect, pawlock.connect_async):
        with pytest.raises(pawlock.ConfigurationError, match="use pawlock_memory"):
            connect(FakeRedis())
