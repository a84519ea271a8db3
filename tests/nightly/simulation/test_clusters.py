"""Whole clients before a cluster: what its nodes say, who hears of what, and what must not be left behind."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest

from tests.simulator import Plan, draw, run
from tests.simulator.cluster import Cluster
from tests.simulator.forms import FAMILIES
from tests.simulator.mutants.of_cluster import counting_let_in, does_not_ask_to_be_let_in
from tests.simulator.plan import CLUSTER
from tests.simulator.simulation import quiet

SEEDS = 600
LET_IN = (9, 17, 20, 23, 24)
"""Seeds in which all keys of a script were there before the slot had arrived."""

WORDS = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")
"""Not CROSSSLOT: the keys of each script are of one slot."""


def _plan(seed: int, *faults: str, families: tuple[str, ...] = ()) -> Plan:
    return draw(seed, faults, families=families, topologies=("cluster",))


def test_a_release_is_retried_until_its_slot_has_arrived() -> None:
    """Also of a lease that lives shorter than its slot is on its way; the judge of the runs asks for it."""
    plans = [_plan(seed, "slot_half") for seed in range(SEEDS)]
    assert _said(plans)["TRYAGAIN"] > 10 * SEEDS


def _said(plans: list[Plan]) -> Counter[str]:
    """How often the nodes said what, in runs that break nothing."""
    said: Counter[str] = Counter()
    with quiet(), counting_let_in(said):
        for plan in plans:
            result = run(plan)
            assert not result.violation, plan.to_json()
            texts = [str(event[-1]).split(" ")[0] for event in result.trace]
            said.update(text for text in texts if text in WORDS)
    return said


def test_the_nodes_say_all_that_the_nodes_of_a_cluster_say() -> None:
    plans = [_plan(seed, kind) for kind in CLUSTER for seed in range(5)]
    plans += [_plan(seed, "slot_half") for seed in LET_IN]
    said = _said(plans)
    assert all(said[word] > 5 for word in WORDS), said
    assert said["let in"], "nobody asked to be let in to where a slot was moving"


def test_a_client_that_does_not_ask_to_be_let_in_is_found() -> None:
    """It breaks no promise, and waits for as long as the slot is on its way: only the count tells."""

    with does_not_ask_to_be_let_in():
        assert not _said([_plan(seed, "slot_half") for seed in LET_IN])["let in"]


def test_a_key_that_stays_behind_is_found() -> None:
    def forgets(self: Cluster, slot: int, share: float = 1.0, *, back: bool = False) -> None:
        carry(self, slot, share * 0.5, back=back)

    carry = Cluster.carry
    with quiet(), patch.object(Cluster, "carry", forgets):
        assert any(run(_plan(seed, "slot_move")).violation for seed in range(5))


def test_about_every_tenth_seed_has_a_cluster() -> None:
    plans = [draw(seed) for seed in range(400)]
    clusters = [plan for plan in plans if plan.topology == "cluster"]
    assert 25 <= len(clusters) <= 60
    assert all({fault.kind for fault in plan.faults} & {*CLUSTER} for plan in clusters)
    for plan in plans:
        if plan.topology != "cluster":
            assert not {fault.kind for fault in plan.faults} & {*CLUSTER}


@pytest.mark.parametrize("kind", CLUSTER)
def test_each_of_its_faults_strikes_every_primitive(kind: str) -> None:
    with quiet():
        for family in FAMILIES:
            result = run(_plan(1, kind, families=(family,)))
            assert not result.violation
            assert any(event[1:3] == ("fault", kind) for event in result.trace), family
