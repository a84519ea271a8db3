"""Runs redis-py's own lock tests, unmodified, against the drop-in.

``python -m tests.integrations.compat.redis_py 5.0.8 8.1.0``

Each version's source distribution is fetched from the package index and installed in an environment of its own,
with this checkout's pawlock. Only the fixtures around the tests are ours: a client for a server that is started here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = ("5.0.8", "5.3.1", "6.4.0", "7.4.0", "8.1.0")

LEFT_OUT = {
    "test_lock": "asks for a key without a TTL; pawlock renews a lock of 30 seconds instead, so that a crash frees it",
    "test_lock_token": "gives a token of its own; pawlock's are secrets that it makes itself",
    "test_lock_token_thread_local_false": "as above",
    "test_blocking_timeout": "counts the sleeps of redis-py's loop; pawlock is woken",
    "test_context_manager_blocking_timeout": "as above",
    "test_high_sleep_small_blocking_timeout": "does not wait where the sleep is longer than that; pawlock waits",
}
"""Tests of redis-py that the drop-in does not pass, each with its reason."""

CONFTEST = """
import os
import pytest
import pytest_asyncio
import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock

from pawlock.compat.redis import AsyncLock, Lock

redis.lock.Lock = Lock  # what the tests import
redis.asyncio.lock.Lock = AsyncLock
URL = os.environ["COMPAT_URL"]

def pytest_collection_modifyitems(config, items):
    names = os.environ["COMPAT_LEFT_OUT"].split()
    left_out = [item for item in items if item.originalname in names]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]

def _get_client(cls, request, **kwargs):
    client = cls.from_url(URL, **kwargs)
    request.addfinalizer(lambda: (client.flushdb(), client.close()))
    return client

@pytest.fixture()
def r(request):
    return _get_client(redis.Redis, request)

@pytest_asyncio.fixture(params=[True, False], ids=["single", "pool"])
async def create_redis(request):
    made = []
    async def make(**kwargs):
        client = redis.asyncio.Redis.from_url(URL, single_connection_client=request.param, **kwargs)
        await client.initialize()
        made.append(client)
        return client
    yield make
    for client in made:
        await client.flushdb()
        await client.aclose()
"""


CONFTEST_OF_TASKS = """
import pytest_asyncio

@pytest_asyncio.fixture()
async def r(create_redis):
    return await create_redis()
"""

TESTS = ("test_lock.py", "test_asyncio/test_lock.py")


def prepared(version: str, folder: Path) -> Path:
    """An environment with that redis-py, and its tests of locks beside our fixtures."""
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    wanted = (f"redis=={version}", "hiredis>=3", "pytest>=8.3", "pytest-asyncio>=1")
    subprocess.run([python, "-m", "pip", "install", *quiet, *wanted], check=True, timeout=300)
    source = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder))
    needed = ("hatchling", "setuptools", "wheel")
    subprocess.run([python, "-m", "pip", "install", *quiet, *needed], check=True, timeout=300)
    download = [str(python), "-m", "pip", "download", *quiet, *source, f"redis=={version}"]
    subprocess.run(download, check=True, timeout=300)
    tests = folder / "lock_tests"
    with tarfile.open(folder / f"redis-{version}.tar.gz") as archive:
        for path in TESTS:
            content = archive.extractfile(f"redis-{version}/tests/{path}")
            assert content is not None
            (tests / path).parent.mkdir(parents=True, exist_ok=True)
            (tests / path).write_bytes(content.read())
            (tests / path).parent.joinpath("__init__.py").touch()
            (tests / path).parent.joinpath("conftest.py").touch()
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "test_asyncio" / "conftest.py").write_text(CONFTEST_OF_TASKS)
    return python


def run(version: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run one version's tests."""
    with tempfile.TemporaryDirectory(prefix="pawlock-compat-") as made:
        folder = Path(made)
        python = prepared(version, folder)
        command = [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:pawlock",
            "-W",
            "ignore",
            "-rfE",
        ]
        command += ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
        environ = {
            **os.environ,
            "COMPAT_URL": url,
            "COMPAT_LEFT_OUT": " ".join(LEFT_OUT),
            "PYTHONPATH": str(ROOT / "src"),
        }
        return subprocess.run(
            [*map(str, command), "lock_tests"],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def main(versions: list[str]) -> int:
    """Run the tests of the versions that are named, or of all; 1 if any failed."""
    from tests.support.servers import Server

    failed = 0
    with Server("valkey") as server:
        for version in versions or VERSIONS:
            done = run(version, server.url)
            print(f"redis-py {version}: {done.stdout.strip().splitlines()[-1]}", flush=True)
            if done.returncode:
                failed = 1
                print(done.stdout[-4000:], done.stderr[-2000:])
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
