"""Many clients of five real masters, and everything that breaks, for some seconds; judged by a checker of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.workloads.masters import TTL, Masters, Trouble, check
from tests.support.servers import available


@pytest.fixture(autouse=True)
def _there_are_servers() -> None:
    if reason := available("valkey"):
        pytest.skip(reason)


def play(folder: Path, seconds: float, processes: int, least: int) -> None:
    masters = Masters(folder, processes, 4, 2, seed=1)
    try:
        masters.play(seconds)
    finally:
        masters.close()
    lines = masters.lines()
    assert not check(lines, masters.troubles)
    assert sum(line["step"] == "in" for line in lines) >= least


@pytest.mark.fault
def test_five_masters_keep_their_promises_for_some_seconds(tmp_path: Path) -> None:
    play(tmp_path, 8.0, 2, 20)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(900)
def test_five_masters_keep_their_promises_for_minutes(tmp_path: Path) -> None:
    play(tmp_path, 300.0, 4, 1000)


def line(at: float, step: str, who: str, **more: object) -> dict[str, object]:
    return {"at": at, "step": step, "pid": int(who), "who": who, "name": "a", **more}


def test_the_checker_sees_each_kind_of_mistake() -> None:
    right = [
        line(0.0, "ask", "1"), line(0.1, "in", "1", fence=1), line(0.2, "sure", "1"), line(0.3, "out", "1"),
        line(0.1, "ask", "2"), line(0.4, "in", "2", fence=2), line(0.5, "sure", "2"), line(0.6, "out", "2"),
    ]  # fmt: skip
    assert not check(right, [])
    assert "overlap" in check([*right, line(0.15, "in", "3", fence=9), line(0.18, "sure", "3")], [])[0]
    assert "fence" in check([*right, line(0.7, "in", "3", fence=2)], [])[0]
    waited = [line(1.0, "ask", "4"), line(4.0, "none", "4", error="AcquireTimeout")]
    assert "closed" in check([*right, *waited], [])[0]
    often = [
        line(1.0 + number / 50 + late, step, str(number), error="QuorumNotReached")
        for number in range(10, 170)
        for late, step in ((0.0, "ask"), (0.001, "none"))
    ]
    assert "closed" in check([*right, *often], [])[0], "refused at once, again and again"
    killed = [line(0.9, "ask", "7"), *waited]
    assert not check([*right, *killed], [Trouble(7, 0.95, 0.95 + TTL)]), "who was killed may have left votes"
