"""The benchmarks themselves: what they count, what they refuse to overlook, and the page that is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import events, placement, runner, store
from benchmarks.model import Scenario, ViolationError
from benchmarks.peers import PEERS, installs
from benchmarks.scenarios import SCENARIOS

FAIR: list[events.Event] = [
    [0, 1.0, 1.1, 1.2, 1.3, 5],
    [1, 1.0, 1.25, 1.4, 1.5, 6],
    [0, 1.3, 1.45, 1.6, 1.7, 9],
    [0, 1.7, 1.8, 1.9, 2.0, 10],
]


def test_the_checker_passes_what_is_right_and_finds_what_is_wrong() -> None:
    events.judge("right", FAIR)
    overlapping = [*FAIR[:2], [0, 1.3, 1.35, 1.6, 1.7, 9]]
    with pytest.raises(ViolationError, match="two were sure of it"):
        events.judge("overlapping", overlapping)
    falling = [FAIR[0], [1, 1.0, 1.25, 1.4, 1.5, 4]]
    with pytest.raises(ViolationError, match="the fence falls from 5 to 4"):
        events.judge("falling", falling)


def test_grants_and_true_changes_of_owner_are_counted_apart() -> None:
    sample = events.counted(FAIR, workers=3, begin=1.0, end=3.0)
    assert (sample["grants"], sample["handoffs"], sample["window"]) == (4, 2, 2.0)
    assert sample["jain"] == pytest.approx(16 / (3 * 10))
    assert sample["most_to_least"] == float("inf")
    assert sample["section_s"] == pytest.approx((0.1 + 0.15 + 0.15 + 0.1) / 4)


def small(name: str, keys: Sequence[str], **changes: Any) -> Scenario:
    scenario = SCENARIOS[name]
    chosen = tuple(p for p in scenario.participants if p.key in keys)
    return replace(scenario, participants=chosen, **changes)


def test_a_run_gives_every_metric_of_every_participant(tmp_path: Path) -> None:
    scenarios = [
        small("P1", ["pawlock"], seconds=0.05, slices=1),
        small("P6", ["pawlock-asyncio-strict"], seconds=0.1, workers=2, processes=2),
        small("P10", ["pawlock-again-1ms"], seconds=0.05, slices=1),
    ]
    results = runner.run(scenarios, 1, lambda _line: None)
    assert (results.violation, results.failures, results.left_out) == (None, {}, {})
    for scenario in scenarios:
        for participant in scenario.participants:
            (sample,) = results.of(scenario.name, participant.key)
            assert {metric.key for metric in scenario.metrics} <= set(sample), participant.key
    assert results.of("P1", "pawlock")[0]["commands_per_grant"] == pytest.approx(2.0, abs=0.02)
    assert results.of("P10", "pawlock-again-1ms")[0]["commands_per_grant"] == 0
    assert 0 < results.of("P6", "pawlock-asyncio-strict")[0]["share_of_ceiling"] < 1

    path = tmp_path / "run.json"
    facts = {"revision": "a"}
    store.write(path, scenarios[:1], results, facts, add=False)
    store.write(path, scenarios[:1], results, facts, add=True)
    kept = store.results_of(store.load(path))
    assert [len(kept.of("P1", key)) for key in ("pawlock", "redis-py")] == [2, 0]


@pytest.mark.skipif(not placement.possible(), reason="this system gives a process no CPU of its own")
def test_what_is_for_one_cpu_keeps_the_server_there_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placed: list[frozenset[int]] = []

    def note(_pid: int, cpus: frozenset[int]) -> None:
        placed.append(cpus)

    monkeypatch.setattr(placement, "pin", note)
    runner.run([small("P1c", []), small("P1", [])], 1, lambda _line: None)
    assert placed == [placement.server(), placement.anywhere()]
    assert placement.clients(1) == placement.server()


def test_a_library_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installs, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for install in (installs.node.__wrapped__, installs.java.__wrapped__):
        assert "on PATH" in (install() or "")
    assert "no go on PATH" in (installs.go.__wrapped__("redsync") or "")


def test_every_participant_has_a_peer_and_every_bar_a_participant() -> None:
    for scenario in SCENARIOS.values():
        keys = {participant.key for participant in scenario.participants}
        assert {participant.peer for participant in scenario.participants} <= set(PEERS), scenario.name
        assert len(keys) == len(scenario.participants), scenario.name
        metrics = {metric.key for metric in scenario.metrics}
        for bar in scenario.bars:
            where, _, who = (bar.against or bar.subject).rpartition(":")
            others = {p.key for p in SCENARIOS[where or scenario.name].participants}
            assert bar.subject in keys, (scenario.name, bar)
            assert who in others, (scenario.name, bar)
            assert bar.metric in metrics, (scenario.name, bar)
