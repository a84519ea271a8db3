"""A client that nobody observes does the very same as without the metrics: counted in Python calls, not in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[3]
COUNT = """
import asyncio, sys
import pawlock
url, with_metrics, calls = sys.argv[1], False, 0
def count(frame, event, arg):
    global calls
    calls += event in ("call", "c_call")
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
    for _ in range(60):
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
        for _ in range(60):
            calls = 0
            sys.setprofile(count)
            await (await lock.acquire()).release()
            sys.setprofile(None)
            found.append(calls)
        return min(found)
def all():
    print(*threads(), asyncio.run(tasks()))
all()
assert "pawlock.metrics" not in sys.modules
import pawlock.metrics.otel, pawlock.metrics.prometheus
with_metrics = True
all()
"""


def test_what_nobody_observes_makes_no_call_more(valkey: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, valkey.url], env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    without, with_metrics = (list(map(int, line.split())) for line in done.stdout.splitlines())
    (threads, _, tasks), (threads_with, observed, tasks_with) = without, with_metrics
    assert threads_with == threads
    assert tasks_with == tasks
    # The count sees a difference where there is one.
    assert observed > threads
