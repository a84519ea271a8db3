"""Two hundred seeds; thousands more are in tests/nightly/simulation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulator import Plan, draw, run, simulate
from tests.simulator.command import story
from tests.simulator.crowd import draw_crowd, draw_tangle
from tests.simulator.drawing import draw_masters
from tests.simulator.shared import draw_plain, draw_redisson
from tests.simulator.simulation import quiet

MIXES: dict[str, tuple[Callable[[int], Plan], range]] = {
    "plain": (draw, range(120)),
    "masters": (draw_masters, range(20)),
    "crowds": (draw_crowd, range(30)),
    # Among them is a plan in which a waiter that is being refused is granted the name at the same time.
    "tangles": (draw_tangle, range(36, 46)),
    "strangers with a string": (draw_plain, range(10)),
    "strangers like Redisson": (draw_redisson, range(10)),
}


@pytest.mark.parametrize("mix", MIXES)
def test_no_seed_breaks_a_promise(mix: str) -> None:
    drawn, seeds = MIXES[mix]
    report = simulate(seeds, drawn=drawn)
    for finding in report.findings:
        print(story(finding.result.trace, 60))
        pytest.fail(f"seed {finding.seed}: {finding.result.violation}\n{finding.smallest.to_json()}")
    assert report.seeds == len(seeds)
    if mix == "plain":
        assert report.second_owners >= len(seeds) / 7, "too seldom did somebody take over after a loss"
    if mix in ("crowds", "tangles"):
        assert report.counts["circle found"] >= len(seeds) / 3
    if mix.startswith("strangers"):
        assert report.counts["stranger"] > 3 * len(seeds)


def test_a_seed_decides_everything_and_a_plan_survives_as_text() -> None:
    with quiet():
        digests = []
        for seed in range(5):
            plan = draw(seed)
            again = Plan.from_json(plan.to_json())
            assert again == plan
            digests.append(run(plan).digest)
            assert run(again).digest == digests[-1]
    assert len({*digests}) == 5
