"""A client that nobody observes does the very same as without the metrics: counted in Python calls, not in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[3]
COUNT = """
import asyncio, sys
import pawlock
url, with_metrics = sys.argv[1], sys.argv[2] == "with"
calls = 0
def count(frame, event, arg):
    global calls
    calls += event in ("call", "c_call")
if with_metrics:
    import pawlock.metrics.otel, pawlock.metrics.prometheus
def threads():
    global calls
    other = pawlock.connect(url)
    client = pawlock.connect(url)
    if with_metrics:
        pawlock.metrics.prometheus.instrument(other)
        pawlock.metrics.otel.instrument(other)
    other.lock("other").acquire().release()
    lock = client.lock("same")
    for _ in range(20):
        lock.acquire().release()
    found = []
    for _ in range(200):
        calls = 0
        sys.setprofile(count)
        lock.acquire().release()
        sys.setprofile(None)
        found.append(calls)
    observed = 0
    if with_metrics:
        pawlock.metrics.prometheus.instrument(client)
        calls = 0
        sys.setprofile(count)
        lock.acquire().release()
        sys.setprofile(None)
        observed = calls
    other.close(); client.close()
    # An answer that is waited for takes some more, which on a busy machine most are.
    return min(found), observed
async def tasks():
    global calls
    async with pawlock.connect_async(url) as other, pawlock.connect_async(url) as client:
        if with_metrics:
            pawlock.metrics.prometheus.instrument(other)
            pawlock.metrics.otel.instrument(other)
        await (await other.lock("other").acquire()).release()
        lock = client.lock("same")
        for _ in range(20):
            await (await lock.acquire()).release()
        found = []
        for _ in range(200):
            calls = 0
            sys.setprofile(count)
            await (await lock.acquire()).release()
            sys.setprofile(None)
            found.append(calls)
        return min(found)
print(*threads(), asyncio.run(tasks()))
"""


def counted(url: str, how: str) -> tuple[int, int, int]:
    """Calls of a pair in threads; of one that is observed; of a pair in asyncio."""
    command = [sys.executable, "-c", COUNT, url, how]
    done = subprocess.run(
        command,
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    threads, observed, tasks = map(int, done.stdout.split())
    return threads, observed, tasks


@pytest.mark.usefixtures("valkey")
def test_what_nobody_observes_makes_no_call_more(valkey: Server) -> None:
    threads, _, tasks = counted(valkey.url, "without")
    threads_with, observed, tasks_with = counted(valkey.url, "with")
    assert threads_with == threads
    assert tasks_with == tasks
    # The count sees a difference where there is one.
    assert observed > threads
