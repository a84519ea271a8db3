"""Seeds: two thousand, and what a run of many must have met. Two hundred of each make test: tests/unit/simulation."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pawlock.testing.memory.lua import Interpreter
from pawlock.testing.memory.store import Store
from tests.simulator import Fault, Plan, Result, draw, run, shrink, simulate, snapshots, watch
from tests.simulator.command import main, story
from tests.simulator.invariants import Snapshot
from tests.simulator.jobs import add_to_file, simulate_in_parts
from tests.simulator.mutants.of_one import edit
from tests.simulator.permit_rules import PermitState
from tests.simulator.plan import CLUSTER, FAULTS, OPERATIONS
from tests.simulator.shrink import kind_of
from tests.simulator.simulation import quiet

SEEDS = 2000
PARTS = 4

_DIGESTS = """
from tests.simulator import draw, run
from tests.simulator.shrink import kind_of
from tests.simulator.simulation import quiet
from pawlock.testing.memory.store import Store
with quiet():
    print([run(draw(seed)).digest for seed in range(40)])
"""


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_a_promise(part: int) -> None:
    size = SEEDS // PARTS
    report = simulate(range(part * size, (part + 1) * size))
    for finding in report.findings:
        print(story(finding.result.trace, 60))
        pytest.fail(f"seed {finding.seed}: {finding.result.violation}\n{finding.smallest.to_json()}")
    assert report.seeds == size
    assert report.second_owners >= size / 7, "too seldom did somebody take over after a loss"
    struck = {fault for fault in FAULTS if any(report.counts[fault, what] for what in OPERATIONS)}
    # Masters that all become slow are drawn three times in a thousand: `test_late_masters` has them always.
    assert struck >= {*FAULTS} - {"all_slow"}


def test_each_seed_has_enough_in_it() -> None:
    plans = [draw(seed) for seed in range(300)]
    assert min(len(plan.clients) for plan in plans) >= 3
    assert min(plan.operations for plan in plans) >= 40
    assert min(len(plan.faults) for plan in plans) >= 1


def test_what_is_not_read_again_is_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each script only the keys that it changed are read; each time all are read here as well."""
    looks = {Snapshot: 0, PermitState: 0}

    def next_mutex(store: Store, keys: tuple[bytes, ...], known: Snapshot) -> Snapshot:
        found = snapshots.next_mutex(store, keys, known)
        looks[Snapshot] += 1
        assert found == snapshots.take_mutex(store, keys)
        return found

    def next_permits(store: Store, keys: tuple[bytes, ...], known: PermitState) -> PermitState:
        found = snapshots.next_permits(store, keys, known)
        looks[PermitState] += 1
        assert found == snapshots.take_permits(store, keys)
        return found

    monkeypatch.setattr(watch, "next_mutex", next_mutex)
    monkeypatch.setattr(watch, "next_permits", next_permits)
    with quiet():
        for seed in range(40):
            assert not run(draw(seed)).violation
    assert min(looks.values()) > 200


def test_a_seed_decides_everything() -> None:
    """Also in another process, where the hashes of text differ."""
    digests = [
        subprocess.run(
            [sys.executable, "-c", _DIGESTS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert digests[0].count(",") == 39


def test_either_lua_gives_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the Lua that Redis embeds, and by LuaJIT, which takes half the time."""
    found: list[list[str]] = []
    for fast in (False, True):
        interpreter = Interpreter(fast=fast)
        monkeypatch.setattr(Interpreter, "shared", lambda interpreter=interpreter: interpreter)
        with quiet():
            found.append([run(draw(seed)).digest for seed in range(40)])
    assert found[0] == found[1]


def test_another_seed_is_another_run() -> None:
    with quiet():
        assert len({run(draw(seed)).digest for seed in range(20)}) == 20


def test_a_plan_survives_as_text() -> None:
    with quiet():
        for seed in range(20):
            plan = draw(seed)
            again = Plan.from_json(plan.to_json())
            assert again == plan
            assert run(again).digest == run(plan).digest


def test_every_kind_of_fault_can_be_done() -> None:
    with quiet():
        for kind in FAULTS:
            fault = Fault(kind, at=0.05, last=0.2, client=1, amount=0.3)
            base = draw(3, topologies=("cluster",)) if kind in CLUSTER else draw(3)
            plan = replace(base, faults=(fault,))
            result = run(plan)
            assert not result.violation
            assert any(event[1:3] == ("fault", kind) for event in result.trace)


def test_several_processes_give_what_one_gives(tmp_path: Path) -> None:
    alone, together = simulate(range(60)), simulate_in_parts(range(60), 2)
    assert not alone.findings
    assert together.table() == alone.table()
    assert together.summary().split(";")[1:] == alone.summary().split(";")[1:]
    assert (together.seeds, together.second_owners) == (60, alone.second_owners)
    kept = tmp_path / "results.json"
    add_to_file(kept, range(20, 60), simulate(range(20, 60)))
    add_to_file(kept, range(20), simulate(range(20)))
    found = json.loads(kept.read_text())
    assert found["ranges"] == [[0, 60]]
    met = {f"{one} {other}": alone.counts[one, other] for one in FAULTS for other in OPERATIONS}
    assert found["met"] == {pair: count for pair, count in met.items() if count}
    with pytest.raises(ValueError, match="already"):
        add_to_file(kept, range(59, 61), alone)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "30"]) == 0
    assert "30 seeds" in capsys.readouterr().out
    assert main(["--trace", "--start", "7"]) == 0
    assert "trace " + _digest(7) in capsys.readouterr().out


def _digest(seed: int) -> str:
    with quiet():
        return run(draw(seed)).digest


def test_a_failing_plan_is_made_smaller() -> None:
    wrong = edit("if left < ttl_ms then", "if true then")

    def runs(plan: Plan) -> Result:
        return run(plan, wrong)

    with quiet():
        plan = next(plan for plan in map(draw, range(300)) if runs(plan).violation)
        smallest = shrink(plan, runs, most=300)
        assert kind_of(runs(smallest).violation) == kind_of(runs(plan).violation)
    assert smallest.operations < plan.operations / 2
    assert len(smallest.faults) <= len(plan.faults)
