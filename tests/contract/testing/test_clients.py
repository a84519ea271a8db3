"""A client that a module made at its import, without an address, uses what the environment names when it is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import pawlock
from pawlock.testing import Server

pytest_plugins = ["pytester"]

SHOP = """
import pawlock

locks = pawlock.connect(namespace="shop")
tasks = pawlock.connect_async(namespace="shop")

@locks.lock("decorated")
def held_by_threads():
    return pawlock.connect(namespace="shop").lock("decorated").locked()

@tasks.lock("decorated")
async def held_by_tasks():
    async with pawlock.connect_async(namespace="shop") as other:
        return await other.lock("decorated").locked()
"""

TESTS = """
import asyncio, pytest, pawlock
from shop import locks, tasks, held_by_threads, held_by_tasks

made_in_a_test, left = [], []

@pytest.mark.parametrize("round", [1, 2])
@pytest.mark.parametrize("fixture", ["pawlock_server", "pawlock_sim", "pawlock_faults"])
def test_threads(request, fixture, round):
    url = request.getfixturevalue(fixture).url
    made_in_a_test[:] = made_in_a_test or [pawlock.connect(namespace="shop")]
    assert held_by_threads()
    with pawlock.connect(url, namespace="shop") as other:
        for client in (locks, *made_in_a_test):
            with client.lock("n"):
                assert other.lock("n").locked()
            assert not other.lock("n").locked()
        # A test that ends with it leaves nothing to the next.
        left.append(locks.lock("left").acquire(timeout=0))

@pytest.mark.parametrize("round", [1, 2])
@pytest.mark.parametrize("fixture", ["pawlock_server", "pawlock_sim"])
def test_tasks(request, fixture, round):
    url = request.getfixturevalue(fixture).url

    async def main():
        assert await held_by_tasks()
        async with tasks.lock("n"), pawlock.connect_async(url, namespace="shop") as other:
            assert await other.lock("n").locked()
        await tasks.close()

    asyncio.run(main())

@pytest.mark.asyncio
@pytest.mark.parametrize("round", [1, 2])
@pytest.mark.parametrize("fixture", ["pawlock_server", "pawlock_sim"])
async def test_tasks_that_close_nothing(request, fixture, round):
    url = request.getfixturevalue(fixture).url
    async with pawlock.connect_async(url, namespace="shop") as other:
        left.append(await tasks.lock("left").acquire(timeout=0))
        assert await other.lock("left").locked()

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
        assert b"evalsha" not in server.command("INFO", "commandstats"), "a script of a test ran there"


def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, shop: str, tests: str
) -> pytest.RunResult:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(shop=shop)
    pytester.makepyfile(tests)
    plugins = "-p", "pawlock.testing.plugin", "-p", "pytest_asyncio.plugin"
    return pytester.runpytest_subprocess(*plugins, "-W", "error", "-q", timeout=60)


def test_a_client_made_at_import_goes_to_the_server_of_the_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, developers: Server
) -> None:
    monkeypatch.setenv("PAWLOCK_URL", developers.url)
    run(pytester, monkeypatch, SHOP, TESTS).assert_outcomes(passed=16)


def test_where_no_server_may_be_taken_by_itself_the_modules_can_be_imported_all_the_same(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAWLOCK_URL", raising=False)
    monkeypatch.setenv("PAWLOCK_REQUIRE_URL", "1")
    without = """

def test_without_a_fixture():
    for use in (locks.lock("n").acquire, locks.lock("n").try_acquire, locks.locks):
        with pytest.raises(pawlock.ConfigurationError, match="set PAWLOCK_URL"):
            use()

    async def main():
        with pytest.raises(pawlock.ConfigurationError, match="set PAWLOCK_URL"):
            await tasks.lock("n").acquire()
    asyncio.run(main())
"""
    run(pytester, monkeypatch, SHOP, TESTS + without).assert_outcomes(passed=17)


def test_what_a_client_used_before_a_test_it_uses_again_afterwards(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = """
import pawlock
locks = pawlock.connect(namespace="shop")
lease = locks.lock("kept").acquire()
"""
    tests = """
import pawlock
from shop import lease, locks

def test_elsewhere(pawlock_sim):
    assert not locks.lock("kept").locked()
    lease.check()

def test_there():
    assert locks.lock("kept").locked()
    lease.release()
"""
    with Server() as server:
        monkeypatch.setenv("PAWLOCK_URL", server.url)
        run(pytester, monkeypatch, shop, tests).assert_outcomes(passed=2)


def test_a_program_that_sets_the_address_after_its_imports() -> None:
    """Without pytest: the first use decides, and what follows stays there."""
    program = """
import asyncio, os, sys, pawlock
os.environ["PAWLOCK_REQUIRE_URL"] = "1"
client, tasks = pawlock.connect(), pawlock.connect_async()
print(client, tasks)
with pawlock.connect():
    pass  # it was never used
closed = pawlock.connect()
closed.close()
for use in (client.lock("n").acquire, client.locks):
    try:
        use()
    except pawlock.ConfigurationError as error:
        assert "PAWLOCK_REQUIRE_URL is set" in str(error)
os.environ["PAWLOCK_URL"] = sys.argv[1]
lease = client.lock("n").acquire()
try:
    closed.lock("n").acquire()
except pawlock.ClientClosed:
    pass
os.environ["PAWLOCK_URL"] = "redis://127.0.0.1:1/0"
assert client.lock("n").locked()

async def main():
    assert await tasks.lock("n").locked()
    await tasks.close()

os.environ["PAWLOCK_URL"] = sys.argv[1]
asyncio.run(main())
lease.release()
late = pawlock.connect()
lock = late.lock("m")
os.environ["PAWLOCK_URL"] = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
try:
    lock.acquire()
except pawlock.ConfigurationError as error:
    assert "another kind of server" in str(error)
    print("done")
"""
    with Server() as server:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program, server.url],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr


def test_a_service_without_a_server_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAWLOCK_URL", raising=False)
    monkeypatch.setenv("PAWLOCK_REQUIRE_URL", "1")
    command = [sys.executable, "-m", "pawlock", "serve", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "set PAWLOCK_URL" in done.stderr) == (64, True), done.stderr


def test_a_mistake_in_the_environment_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("", "redis://h:port", "nonsense"):
        monkeypatch.setenv("PAWLOCK_URL", url)
        for connect in (pawlock.connect, pawlock.connect_async):
            with pytest.raises(pawlock.ConfigurationError, match="PAWLOCK_URL"):
                connect()


def test_a_fakeredis_client_is_refused_at_once() -> None:
    class FakeRedis:
        connection_pool = None

    FakeRedis.__module__ = "fakeredis._connection"
    for connect in (pawlock.connect, pawlock.connect_async):
        with pytest.raises(pawlock.ConfigurationError, match="use pawlock_sim"):
            connect(FakeRedis())
