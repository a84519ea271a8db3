"""A minute of everything at once; and what a soak says of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly.workloads.soak import Soak, excused
from tests.support.history import History, Journal, Violation, fences

ROOT = Path(__file__).resolve().parents[3]


def falling(*fences_in_order: int) -> Violation:
    """What the checker says of two grants with these fences, known at 10 and at 12 s."""
    lines: list[str] = []
    journal = Journal(lines.append)
    for at, fence in zip((10.0, 12.0), fences_in_order, strict=True):
        operation = journal.invoke(at - 0.5, f"p{at}.0", "acquire", "n")
        journal.ok(at, operation, fence=fence, deadline=at + 1)
    found, *_ = fences(History.read(lines))
    return found


def test_a_fence_may_fall_only_while_nobody_could_know_that_the_server_forgot() -> None:
    """A client passed on inside what it had been granted before; no renewal had told it yet."""
    assert excused(falling(8, 7), [(11.9, 11.95)], ttl=1.0)
    assert not excused(falling(8, 7), [(11.0, 11.1)], ttl=1.0)
    assert not excused(falling(8, 7), [(12.1, 12.2)], ttl=1.0)
    assert not excused(falling(8, 7), [], ttl=1.0)
    # Two with one fence are excused by nothing.
    assert not excused(falling(8, 8), [(11.9, 11.95)], ttl=1.0)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(200)
def test_a_minute_of_everything(tmp_path: Path) -> None:
    with Soak(tmp_path, 60.0, seed=1) as soak:
        soak.run()
        assert not soak.wrong(), soak.summary()
        assert len(soak.nemesis.done) >= 12
        assert {"mutex", "rwlock", "semaphore", "election", "a", "b", "c"} <= set(soak.grants)
        assert {row[0].split()[0] for row in soak.growth()} == {"rss", "files", "threads", "connections"}


@pytest.mark.slow
@pytest.mark.fault
def test_locks_that_let_anybody_in_are_found_out(tmp_path: Path) -> None:
    with Soak(tmp_path, 8.0, seed=1, chapter=4.0, naive=True) as soak:
        soak.run()
        assert any("exclusion of 'naive" in line for line in soak.wrong()), soak.summary()


@pytest.mark.slow
@pytest.mark.fault
def test_ctrl_c_ends_it_with_the_summary() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.nightly.workloads.soak", "--minutes", "10", "--seed", "3"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert "seed 3" in process.stdout.readline()
    assert "grants judged" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=90)
    assert process.returncode == 0, out
    assert "ended by Ctrl-C" in out
    assert re.search(r"grants: [1-9]", out)
    assert "nothing is wrong" in out
