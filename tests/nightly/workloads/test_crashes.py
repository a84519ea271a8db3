"""Random workloads over processes that are killed and stopped while they hold or wait; the checker judges them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.workloads.director import Play
from tests.support.history import Mode, Rules, check, report
from tests.support.servers import Server

KINDS = ["lock", "fair_lock", "rwlock", "semaphore", "multi_lock"]
QUICK = {"lock", "fair_lock", "rwlock"}

# A lock hands over locally, so a waiter elsewhere is passed by; a multi_lock waits for one name at a time.
IN_ORDER = {"fair_lock", "rwlock", "semaphore"}


def rules(kind: str, scene: Play) -> Rules:
    """What is promised: above all free within the ttl and a second, or up to three where the machine is busy.

    The names of a multi_lock are taken one after the other, so the last is idle for as long as a dead holder keeps
    the one before it.
    """
    slack = min(scene.slow, 3.0) + 2 * scene.lag + (scene.ttl + 1.0 if kind == "multi_lock" else 0.0)
    return Rules(ttl=scene.ttl, slack=slack, overtakes=0 if kind in IN_ORDER else None, grace=0.3)


def play(server: Server, folder: Path, kind: str, seconds: float, seed: int) -> None:
    """Play, judge, and see that enough was played."""
    with Play(server, folder, kind, seconds, seed=seed, ttl=1.0) as scene:
        scene.run()
        history = scene.history()
        found = check(history, rules(kind, scene))
        assert not found, report(found)
        taken = [op for op in history.operations.values() if op.granted]
        # Who was killed keeps the others out for a second; a busy machine adds to that.
        assert len(taken) > 2 * seconds, f"only {len(taken)} grants in {seconds:g} s"
        assert scene.done.total() >= seconds / 3, f"too little was done to them: {dict(scene.done)}"
        assert len({op.process.partition(".")[0] for op in taken}) >= 2
        if kind in IN_ORDER:
            assert any(op.queued is not None for op in taken)
        if kind == "rwlock":
            assert {op.mode for op in taken} == {Mode.SHARED, Mode.EXCLUSIVE}


@pytest.mark.fault
@pytest.mark.parametrize(
    "kind",
    [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS],
)
def test_a_few_crashes_break_nothing(valkey: Server, tmp_path: Path, kind: str) -> None:
    valkey.command("FLUSHALL")
    play(valkey, tmp_path, kind, 2.0, seed=1)


@pytest.mark.fault
def test_a_lock_that_lets_anybody_in_is_found_out(valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    with Play(valkey, tmp_path, "lock", 2.0, seed=1, ttl=1.0, naive=True) as scene:
        scene.run()
        found = check(scene.history(), rules("lock", scene))
    assert "exclusion" in {violation.check for violation in found}, report(found)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_many_crashes_break_nothing(server: Server, tmp_path: Path, kind: str, seed: int) -> None:
    play(server, tmp_path, kind, 20.0, seed)
