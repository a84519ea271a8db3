"""Crowds: an operator's word and a circle of waiters at every place of a local run, and single lost replies."""

from __future__ import annotations

import pytest

from tests.simulator import Plan, run, simulate
from tests.simulator.command import story
from tests.simulator.crowd import draw_crowd, draw_tangle
from tests.simulator.mutants.of_crowds import CLIENTS
from tests.simulator.mutants.of_one import wrong
from tests.simulator.simulation import quiet

SEEDS = 120
TANGLES_IN_ALL = 400


def test_no_crowd_breaks_a_promise() -> None:
    report = simulate(range(SEEDS), drawn=draw_crowd)
    for finding in report.findings:
        print(story(finding.result.trace, 60))
        pytest.fail(f"crowd {finding.seed}: {finding.result.violation}\n{finding.smallest.to_json()}")
    assert report.counts["taken by an operator"] >= SEEDS / 2
    assert report.counts["circle found"] >= SEEDS / 3
    assert report.counts["one_reply", "maintenance"] >= SEEDS / 3


def test_a_crowd_is_the_same_each_time_and_as_text() -> None:
    plan = draw_crowd(1)
    assert plan == draw_crowd(1)
    assert Plan.from_json(plan.to_json()) == plan
    with quiet():
        first, second = run(plan), run(plan)
    assert (first.seconds, first.counts) == (second.seconds, second.counts)


def test_a_lease_that_is_known_by_another_fence_after_many_owners_is_noticed() -> None:
    with wrong(CLIENTS["after ten owners a lease is known by another fence"]()):
        report = simulate(range(50, 90), drawn=draw_crowd, smallest=False, most_findings=30)
    found = {finding.result.violation.split(" ")[2] for finding in report.findings}
    assert "deadlock:" in found


def test_a_wait_that_leaves_no_time_for_other_renewals_is_noticed() -> None:
    with wrong(CLIENTS["a wait leaves no time for other renewals"]()):
        report = simulate(range(SEEDS), drawn=draw_crowd, smallest=False, most_findings=1)
    assert [finding for finding in report.findings if "lone:" in finding.result.violation]


def test_no_lease_is_lost_to_a_deadlock_nearby() -> None:
    """Workers take locks of every kind in any order: many are refused at once, and each refusal serves others."""
    report = simulate(range(TANGLES_IN_ALL), drawn=draw_tangle)
    for finding in report.findings:
        print(story(finding.result.trace, 60))
        pytest.fail(f"tangle {finding.seed}: {finding.result.violation}\n{finding.smallest.to_json()}")
    assert report.counts["circle found"] >= 5 * TANGLES_IN_ALL
