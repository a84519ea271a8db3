"""The benchmarks themselves: what they count, what they refuse to overlook, and the page that is made of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import events, page, report, runner, store
from benchmarks.model import Bar, Scenario, ViolationError
from benchmarks.peers import PEERS
from benchmarks.peers.installed import ready
from benchmarks.scenarios import SCENARIOS
from tests.support.pace import pace

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


def test_two_at_once_are_found_among_all_grants() -> None:
    with pytest.raises(ViolationError, match="worker 1 had it while worker 0 held it"):
        events.counted([FAIR[0], [1, 1.0, 1.15, 1.3, 1.4, 6]], workers=2, begin=1.0, end=3.0)


def test_every_participant_has_a_peer_and_every_bar_a_participant() -> None:
    for scenario in SCENARIOS.values():
        keys = {participant.key for participant in scenario.participants}
        assert {participant.peer for participant in scenario.participants} <= set(PEERS), scenario.name
        assert len(keys) == len(scenario.participants), scenario.name
        metrics = {metric.key for metric in scenario.metrics}
        for bar in scenario.bars:
            where, _, who = bar.against.rpartition(":")
            others = {p.key for p in SCENARIOS[where or scenario.name].participants}
            assert bar.subject in keys, (scenario.name, bar)
            assert not who or who in others, (scenario.name, bar)
            assert bar.metric in metrics, (scenario.name, bar)


def test_a_library_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("benchmarks.peers.installed.CACHE", tmp_path)
    assert ready("one", (), ("there-is-no-such-program",)) == "no there-is-no-such-program on PATH"
    assert "failed" in str(ready("two", (), (sys.executable, "-c", "raise SystemExit('no')")))
    assert ready("three", ("go/main.go",), (sys.executable, "-c", "open('main.go')")) is None


def small(name: str, keys: Sequence[str], **changes: Any) -> Scenario:
    scenario = SCENARIOS[name]
    chosen = tuple(p for p in scenario.participants if p.key in keys)
    return replace(scenario, participants=chosen, **changes)


@pytest.mark.slow
def test_a_run_gives_every_metric_of_every_participant(tmp_path: Path) -> None:
    scenarios = [
        small("P1", ["pawlock", "floor-scripts"], seconds=0.05, slices=1),
        small("P2", ["pawlock", "redis-py"], seconds=0.05, slices=1),
        small("P6", ["pawlock-asyncio-strict", "pawlock"], seconds=0.1, workers=2, processes=2),
        small("P7", ["pawlock"], seconds=2),
        small("P8h", ["pawlock"], seconds=0.1, slices=1),
        small("P9", ["pawlock-1000"], seconds=0.5),
        small("P9w", ["pawlock-100"]),
    ]
    results = runner.run(scenarios, 1, lambda _line: None)
    assert (results.violation, results.failures, results.left_out) == (None, {}, {})
    for scenario in scenarios:
        for participant in scenario.participants:
            (sample,) = results.of(scenario.name, participant.key)
            assert {metric.key for metric in scenario.metrics} <= set(sample), participant.key
    assert results.of("P1", "pawlock")[0]["commands_per_grant"] == pytest.approx(2.0, abs=0.02)
    assert 0 < results.of("P6", "pawlock-asyncio-strict")[0]["share_of_ceiling"] < 1
    store.write(tmp_path / "run.json", scenarios[:1], results, {"revision": "a"})
    kept = store.results_of(store.load(tmp_path / "run.json"))
    assert [len(kept.of("P1", key)) for key in ("pawlock", "redis-py")] == [1, 0]


def test_a_bar_is_judged_by_the_medians() -> None:
    scenario = small("P1", ["pawlock", "redis-py"], bars=(Bar("pairs_per_s", "pawlock", 1.8, "redis-py"),))
    results = runner.Results()
    for ours, theirs in ((10.0, 5.0), (30.0, 10.0), (19.0, 11.0)):
        results.of("P1", "pawlock").append({"pairs_per_s": ours})
        results.of("P1", "redis-py").append({"pairs_per_s": theirs})
    (verdict,) = report.verdicts(scenario, results)
    assert (verdict.value, verdict.ok) == (1.9, True)
    assert report.said(scenario, verdict) == "pairs/s: pawlock / redis-py Lock = 1.90×, ≥ 1.8× wanted"


def test_the_page_is_of_the_stored_run() -> None:
    document, text = store.load(), page.PAGE.read_text()
    assert text == page.render(text, document), "run: python -m benchmarks.page"
    for sample in document["P1"]["samples"]["pawlock"]:
        sample["cpu_us_per_pair"] *= 1.5
    assert text != page.render(text, document)


def processes(parent: int) -> list[int]:
    """The children of a process."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in found]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("word", [signal.SIGKILL, signal.SIGTERM])
def test_a_runner_that_ends_early_leaves_nobody_behind(word: signal.Signals, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    runs = [sys.executable, "-m", "benchmarks", "P4", "--only", "pawlock-strict,pawlock", "--json", str(kept)]
    with subprocess.Popen(runs, stdout=subprocess.PIPE) as started:
        until = time.monotonic() + 60 * pace()
        # Two participants and the server.
        while len(theirs := processes(started.pid)) < 3:
            assert time.monotonic() < until
            time.sleep(0.05)
        started.send_signal(word)
        told = started.communicate(timeout=60 * pace())[0].decode()
    if word is signal.SIGTERM:
        assert started.returncode == 130
        assert "P4" in told
        assert "P4" in json.loads(kept.read_text())
    for pid in theirs:
        while True:
            assert time.monotonic() < until + 30
            with suppress(ProcessLookupError):
                os.kill(pid, 0)
                time.sleep(0.01)
                continue
            break
