"""A minute of everything at once; and what a soak says of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workloads.soak import Soak

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(200)
def test_a_minute_of_everything(tmp_path: Path) -> None:
    with Soak(tmp_path, 60.0, seed=1) as soak:
        soak.run()
        assert not soak.wrong(), soak.summary()
        assert len(soak.nemesis.done) >= 12
        assert {"mutex", "owner", "rwlock", "semaphore", "election", "a", "b", "c"} <= set(soak.grants)
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
        [sys.executable, "-m", "tests.workloads.soak", "--minutes", "10", "--seed", "3"],
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
    assert "interrupted" in out
    assert re.search(r"grants: [1-9]", out)
    assert "nothing is wrong" in out
