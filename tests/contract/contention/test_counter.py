"""A counter that nothing but the lock protects, under many processes of many threads or tasks: exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.contention.rig import Crowd, Span, judge, left_over
from tests.support.servers import Server

PROCESSES, EACH, TURNS = 4, 8, 625

APIS = {
    "threads": ["threads"] * PROCESSES,
    "tasks": ["tasks"] * PROCESSES,
    "both": ["threads", "tasks"] * (PROCESSES // 2),
}


@pytest.mark.parametrize(
    ("apis", "turns"),
    [
        pytest.param(APIS["both"], 125, id="both"),
        *[
            pytest.param(apis, TURNS, id=f"{name} for long", marks=pytest.mark.slow)
            for name, apis in APIS.items()
        ],
    ],
)
def test_thousands_of_increments_are_exact(
    server: Server, tmp_path: Path, apis: list[str], turns: int
) -> None:
    with Crowd(server, tmp_path, apis, crowd=EACH, turns=turns) as crowd:
        crowd.go()
        assert crowd.finish(timeout=100.0) == [turns * EACH] * PROCESSES
        assert crowd.count == turns * EACH * PROCESSES
        spans = crowd.spans()
        assert len(spans) == crowd.count
        assert judge(spans) == []
    assert left_over(server, "crowd") == []


@pytest.mark.slow
@pytest.mark.parametrize("apis", APIS.values(), ids=APIS)
def test_in_strict_order_2000_increments_are_exact(valkey: Server, tmp_path: Path, apis: list[str]) -> None:
    valkey.command("FLUSHALL")
    with Crowd(valkey, tmp_path, apis, crowd=EACH, turns=62, options='{"handover": 0}') as crowd:
        crowd.go()
        crowd.finish(timeout=100.0)
        assert crowd.count == 62 * EACH * PROCESSES
        assert judge(crowd.spans()) == []
    assert left_over(valkey, "crowd") == []


def test_the_counter_would_tell(valkey: Server, tmp_path: Path) -> None:
    """Under names of their own, the processes overwrite each other, and the judge sees it."""
    names = ["crowd-0", "crowd-1"]
    with Crowd(valkey, tmp_path, ["threads"] * 2, names, crowd=EACH, turns=25, gap=0.001) as crowd:
        crowd.go()
        crowd.finish(timeout=100.0)
        assert crowd.count < 25 * EACH * 2
        assert judge(crowd.spans())


def test_the_judge() -> None:
    good = [Span(0, 5, 1.0, 2.0), Span(1, 6, 2.0, 3.0), Span(0, 9, 3.5, 3.5)]
    assert judge(good) == []
    assert "overlap" in judge([Span(0, 5, 1.0, 2.0), Span(1, 6, 1.9, 3.0)])[0]
    assert "does not rise" in judge([Span(0, 5, 1.0, 2.0), Span(1, 4, 2.5, 3.0)])[0]
    assert "does not rise" in judge([Span(0, 5, 1.0, 2.0), Span(1, 5, 2.5, 3.0)])[0]
