"""A process that can open no more files: errors of pawlock's own kind, and all is well once it can."""

import subprocess
import sys

import pytest

from tests.support.servers import Server

PROGRAM = """
import asyncio, contextlib, os, resource, sys
import pawlock

@contextlib.contextmanager
def full():
    junk = []
    try:
        while True:
            junk.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    try:
        yield
    finally:
        for one in junk:
            os.close(one)

@contextlib.contextmanager
def refused():
    with full():
        try:
            yield
        except pawlock.BackendUnavailable as error:
            assert "Too many open files" in str(error), error
        else:
            raise AssertionError("it connected")

async def tasks(policy):
    async with pawlock.connect_async(url, on_unavailable=policy, unavailable_after=0.2) as client:
        with refused():
            await client.lock("b").acquire()
    async with pawlock.connect_async(url) as client, client.lock("b"):
        pass

url = sys.argv[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
with pawlock.connect(url) as client, client.lock("a"):
    pass
with pawlock.connect(url, unavailable_after=0.2) as client:
    with refused():
        client.lock("a").acquire()
with pawlock.connect(url, ttl=1) as client, client.lock("a") as lease:
    with full():
        client.lock("c").acquire().release()
        lease.extend(5)
for policy in ("open", "local"):
    # The server is well: to go on without it would let two in.
    with pawlock.connect(url, on_unavailable=policy, unavailable_after=0.2) as client:
        with refused():
            client.lock("a").acquire()
    asyncio.run(tasks(policy))
asyncio.run(tasks("raise"))
"""


@pytest.mark.slow
def test_a_process_that_can_open_no_more_files_is_told_so_in_errors_of_pawlock(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
