"""Nothing is imported once a client is made: what a signal handler raises in an import gets lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.servers import Server

_SYNC = """
client = pawlock.connect(url)
before = set(sys.modules)
with client.lock("a"), client.rlock("b"), client.semaphore("c", permits=1), client.fair_lock("d"):
    pass
found = set(sys.modules) - before
client.close()
"""
_ASYNC = """
async def main():
    async with pawlock.connect_async(url) as client:
        before = set(sys.modules)
        async with client.lock("a"), client.rlock("b"), client.semaphore("c", permits=1), client.fair_lock("d"):
            pass
        return set(sys.modules) - before
found = asyncio.run(main())
"""


@pytest.mark.parametrize(
    "program", [pytest.param(_SYNC, id="sync", marks=pytest.mark.slow), pytest.param(_ASYNC, id="async")]
)
def test_the_first_lock_imports_nothing(valkey: Server, program: str) -> None:
    text = f"import asyncio, sys, pawlock\nurl = {valkey.url!r}\n{program}\nprint(sorted(found))"
    done = subprocess.run(
        [sys.executable, "-c", text], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
