"""The fixtures for users, in projects of their own: pytest runs in pytest."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]
APIS = """
import asyncio, contextlib, pytest, pawlock, redis, time
from concurrent.futures import ThreadPoolExecutor

@pytest.fixture(params=["threads", "asyncio"])
def work(request):
    def threads(name, body, **options):
        with pawlock.connect() as client:
            with client.lock(name, **options) as lease:
                body(lease)

    def tasks(name, body, **options):
        async def main():
            async with pawlock.connect_async() as client:
                async with client.lock(name, **options) as lease:
                    body(lease)
                    await asyncio.sleep(0)
        asyncio.run(main())

    return threads if request.param == "threads" else tasks
"""


def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *plugins: str, **files: str
) -> pytest.RunResult:
    """Run files of tests, with the fixtures as an installed pawlock brings them."""
    # An entry point is found only after an installation: the plugin is named instead, in every case once.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function" if plugins else "[pytest]")
    pytester.makepyfile(**{f"test_{name}": APIS + source for name, source in files.items()})
    arguments = [word for plugin in ("pawlock.testing.plugin", *plugins) for word in ("-p", plugin)]
    return pytester.runpytest_subprocess(*arguments, "-W", "error", "-q", timeout=60)


def test_an_installed_pawlock_brings_the_fixtures() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"pawlock": "pawlock.testing.plugin"}


def test_a_run_without_them_imports_next_to_nothing() -> None:
    code = "import sys, json, pytest, pawlock.testing.plugin; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(done.stdout)
    assert [name for name in modules if name.startswith("pawlock")] == [
        "pawlock",
        "pawlock.testing",
        "pawlock.testing.plugin",
    ]
    assert "redis" not in modules


EMPTY = """
import os
SEEN = []

@pytest.mark.parametrize("turn", [1, 2])
def test_empty(pawlock_server, work, turn):
    SEEN.append(pawlock_server.pid)
    assert len(set(SEEN)) == 1
    assert os.environ["PAWLOCK_URL"] == pawlock_server.url
    assert "of-the-developer" not in os.environ["PAWLOCK_STATE_DIR"]
    assert pawlock_server.command("DBSIZE") == 0
    work("job", lambda lease: lease.check())
    assert pawlock_server.command("DBSIZE") > 0

def test_embedded(pawlock_server, monkeypatch):
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", "1")
    with pawlock.connect("embedded://") as client, client.lock("job"):
        assert pawlock_server.command("DBSIZE") == 0

def test_as_before():
    assert os.environ["PAWLOCK_URL"] == "redis://127.0.0.1:1/0"
"""

LOST = """
def in_a_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()

def next_fence():
    with pawlock.connect() as client, client.lock("job", timeout=0) as lease:
        return lease.fence

def test_lost(pawlock_server, pawlock_faults, work):
    def body(lease):
        pawlock_faults.assert_held(lease)
        pawlock_faults.assert_held("job")
        began = time.monotonic()
        pawlock_faults.lose(lease)
        with pytest.raises(pawlock.LeaseLost) as told:
            lease.check()
        assert told.value.reason == "taken"
        assert lease.lost
        pawlock_faults.assert_free("job")
        with pytest.raises(AssertionError, match="is lost"):
            pawlock_faults.assert_held(lease)
        assert in_a_thread(next_fence) > lease.fence
        assert time.monotonic() - began < 30
        with pytest.raises(ValueError, match="not held"):
            pawlock_faults.lose(lease)
    with pytest.raises(BaseException) as ended:
        work("job", body, ttl=60)
    assert isinstance(ended.value, pawlock.LeaseLost), repr(ended.value)

def test_of_any_kind(pawlock_server, pawlock_faults):
    def locks(client):
        return (client.semaphore("s", permits=1), client.rwlock("rw").write, client.rlock("r"),
                client.fair_lock("f"), client.rwlock("rd").read)
    with pawlock.connect() as client, pawlock.connect() as other:
        for lock, next_lock in zip(locks(client), locks(other)):
            lease = lock.acquire()
            pawlock_faults.assert_held(lease)
            pawlock_faults.lose(lease)
            assert lease.lost
            next_lock.acquire(timeout=0).release()
        many = client.multi_lock(["a", "b"]).acquire()
        pawlock_faults.assert_held(many)
        pawlock_faults.lose(many)
        assert many.lost
        with pytest.raises(AssertionError, match="is lost"):
            pawlock_faults.assert_held(many)
        with pytest.raises(pawlock.NotHeld):
            many.release()

def test_by_name(pawlock_server, pawlock_faults, work):
    def body(lease):
        pawlock_faults.lose("job")
        assert lease.lost
        with pytest.raises(ValueError, match="no lease of this process"):
            pawlock_faults.lose("job")
    with pytest.raises(pawlock.LeaseLost):
        work("job", body, ttl=60)

def test_what_the_server_forgot_is_not_held(pawlock_server, pawlock_faults, work):
    def body(lease):
        pawlock_server.command("FLUSHALL")
        with pytest.raises(AssertionError, match="does not know"):
            pawlock_faults.assert_held(lease)
        with pytest.raises(AssertionError, match="nobody holds"):
            pawlock_faults.assert_held("job")
    with pytest.raises(BaseException):
        work("job", body, ttl=60)
"""

DOWN = """
def test_with_its_data(pawlock_server, pawlock_faults, work):
    def body(lease):
        before = pawlock_server.pid
        outage = pawlock_faults.down(0.5)
        with pytest.raises(redis.ConnectionError):
            pawlock_server.command("PING", timeout=0.2)
        with pytest.raises(RuntimeError, match="already"):
            pawlock_faults.frozen()
        assert outage.wait(5)
        assert pawlock_server.pid != before
        pawlock_faults.assert_held(lease)
    work("job", body, ttl=30)

def test_without_its_data(pawlock_server, pawlock_faults, work):
    def body(lease):
        with pawlock_faults.down(keep_data=False):
            lease.check()
        with pytest.raises(AssertionError, match="does not know"):
            pawlock_faults.assert_held(lease)
    # Whether the release is answered is a race with the connection that broke.
    with contextlib.suppress(pawlock.PawlockError):
        work("job", body, ttl=30)

def test_frozen_past_the_ttl(pawlock_server, pawlock_faults, work):
    def body(lease):
        with pawlock_faults.frozen():
            end = time.monotonic() + 5
            while not lease.lost and time.monotonic() < end:
                time.sleep(0.01)
        assert lease.lost
    with pytest.raises(BaseException):
        work("job", body, ttl=0.3)

@pytest.mark.parametrize("way", ["down", "frozen"])
def test_left_broken(pawlock_server, pawlock_faults, way):
    getattr(pawlock_faults, way)()

def test_mended_by_now(pawlock_server):
    assert pawlock_server.command("PING", timeout=1) == b"PONG"

def test_no_time_at_all(pawlock_faults):
    with pytest.raises(ValueError, match="more than 0"):
        pawlock_faults.down(0)
"""

PAUSED = '''
import os, subprocess, sys

HOLDER = """
import pawlock
with pawlock.connect() as client:
    lease = client.lock("job", ttl=0.5).acquire()
    print("held", flush=True)
    input()
    print("lost" if lease.lost else "held", flush=True)
    lease.release()
"""

def test_paused(pawlock_server, pawlock_faults):
    with subprocess.Popen([sys.executable, "-c", HOLDER], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == "held\\n"
        with pawlock_faults.paused(process), pawlock.connect() as client:
            client.lock("job", timeout=5).acquire().release()
        process.stdin.write("\\n"), process.stdin.flush()
        assert process.stdout.readline() == "lost\\n"

def test_not_the_test_itself(pawlock_faults):
    with pytest.raises(ValueError, match="not another process"):
        pawlock_faults.paused(os.getpid())
'''

ORDER = """
def both(client, first, second):
    with client.lock(first), client.lock(second):
        pass

def test_one_order(pawlock_server, lock_order):
    with pawlock.connect() as client:
        both(client, "a", "b")
        both(client, "a", "b")

def test_two_orders(pawlock_server, lock_order):
    with pawlock.connect() as client:
        both(client, "a", "b")
        both(client, "b", "a")

def test_two_orders_of_tasks(pawlock_server, lock_order):
    async def main():
        async with pawlock.connect_async() as client:
            for first, second in ("ab", "ba"):
                async with client.lock(first), client.lock(second):
                    pass
    asyncio.run(main())

def test_expected(pawlock_server, lock_order):
    with pawlock.connect() as client:
        both(client, "a", "b")
        both(client, "b", "a")
    assert lock_order.inversions
    lock_order.inversions.clear()
"""


def test_a_real_server(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty for each test and nobody else's; its leases are lost, it goes down, a holder is paused, orders are watched."""
    monkeypatch.setenv("PAWLOCK_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("PAWLOCK_STATE_DIR", str(pytester.path / "of-the-developer"))
    result = run(pytester, monkeypatch, empty=EMPTY, lost=LOST, down=DOWN, paused=PAUSED, order=ORDER)
    result.assert_outcomes(passed=6 + 7 + 10 + 2 + 4, errors=2)
    assert not (pytester.path / "of-the-developer").exists()
    result.stdout.fnmatch_lines(["*taken in different orders: pawlock:a -> pawlock:b -> pawlock:a*"])


SIM = """
import os, subprocess

@pytest.mark.parametrize("turn", [1, 2])
def test_faults(pawlock_sim, work, monkeypatch, turn):
    monkeypatch.setattr(subprocess, "Popen", None)
    assert os.environ["PAWLOCK_URL"] == pawlock_sim.url

    def body(lease):
        lease.check()
        pawlock_sim.assert_held(lease)
        pawlock_sim.assert_held("job")
        pawlock_sim.assert_free("other")
        pawlock_sim.lose(lease)
        with pytest.raises(pawlock.LeaseLost):
            lease.check()

    with pytest.raises(pawlock.LeaseLost):
        work("job", body)
    pawlock_sim.assert_free("job")

def test_sim(pawlock_sim):
    with pawlock.connect() as client, client.lock("job") as lease:
        pawlock_sim.sleep(3600)
        pawlock_sim.assert_held(lease)
        with pawlock_sim.paused(lease, 40):
            pawlock_sim.sleep(40)
        assert lease.lost
        pawlock_sim.down(5)
        began = pawlock_sim.now
        with client.lock("other", timeout=60):
            assert 4.9 < pawlock_sim.now - began < 10
        with pytest.raises(pawlock.NotHeld):
            lease.release()

def test_sim_in_asyncio(pawlock_sim):
    async def main():
        async with pawlock.connect_async() as client, client.lock("job") as lease:
            await asyncio.sleep(3600)
            pawlock_sim.assert_held(lease)
    asyncio.run(main())

KEPT = []

def test_what_is_left_broken_ends_with_the_test(pawlock_sim):
    KEPT.append(pawlock.connect().lock("job").acquire())
    pawlock_sim.down()
"""

LOOPS = """
@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.asyncio
@pytest.mark.parametrize("turn", [1, 2])
async def test_minutes_of_asyncio(pawlock_sim, turn):
    await ten_minutes(pawlock_sim)

@pytest.mark.anyio
async def test_minutes_of_anyio(pawlock_sim):
    await ten_minutes(pawlock_sim)

async def ten_minutes(pawlock_sim):
    async with pawlock.connect_async() as client, pawlock.connect_async() as other:
        async with client.lock("job") as lease:
            await asyncio.sleep(600)
            pawlock_sim.assert_held(lease)
        with pytest.raises(pawlock.LeaseLost):
            async with client.lock("job"):
                with pawlock_sim.paused(client):
                    async with other.lock("job"):
                        pass
                await asyncio.sleep(1)
"""


def test_no_server_and_a_time_of_its_own(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults, an hour in a moment, and the loops that plugins make."""
    monkeypatch.setenv("PAWLOCK_URL", "redis://127.0.0.1:1/0")
    plugins = "pytest_asyncio.plugin", "anyio.pytest_plugin"
    run(pytester, monkeypatch, *plugins, sim=SIM, loops=LOOPS).assert_outcomes(passed=7 + 3)


def test_what_is_missing_is_said(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(
        pytester,
        monkeypatch,
        missing="""
import sys
from pawlock.embedded import _places
sys.modules["lupa"] = None
_places._bundled = lambda: None

@pytest.fixture(autouse=True, scope="session")
def without_traceback(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path_factory.mktemp("bin")))
        yield

@pytest.mark.parametrize("fixture", ["pawlock_server", "pawlock_faults", "pawlock_sim"])
def test_it(request, fixture):
    request.getfixturevalue(fixture)
    raise AssertionError("it ran")
""",
    )
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines("*no server program found*pip install *pawlock?embedded?*")
    result.stdout.fnmatch_lines("*runs pawlock's own scripts by lupa*pip install 'pawlock?testing?'*")
    assert "it ran" not in result.stdout.str()
