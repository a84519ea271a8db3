"""Whole clients before a cluster: what its nodes say, who hears of what, and what must not be left behind."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from pawlock.core.protocol.runtime import Call, Fault, FaultKind
from pawlock.topology.cluster import Address, Range, SlotMap, slot_of
from pawlock.topology.endpoint import ClusterNodes, Endpoint
from pawlock.transport.routing import Asking, Router
from tests.simulator import Plan, draw, run
from tests.simulator.cluster import Cluster
from tests.simulator.forms import FAMILIES
from tests.simulator.plan import CLUSTER
from tests.simulator.simulation import quiet

LET_IN = (9, 17, 20, 23, 24)
"""Seeds in which all keys of a script were there before the slot had arrived."""

WORDS = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT")


def _plan(seed: int, *faults: str, families: tuple[str, ...] = ()) -> Plan:
    return draw(seed, faults, families=families, topologies=("cluster",))


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(600), marks=pytest.mark.slow)])
def test_a_release_is_retried_until_its_slot_has_arrived(seeds: range) -> None:
    """Also of a lease that lives shorter than its slot is on its way; the judge of the runs asks for it."""
    plans = [_plan(seed, "slot_half") for seed in seeds]
    assert _said(plans)["TRYAGAIN"] > 10 * len(seeds)


def _said(plans: list[Plan]) -> Counter[str]:
    """How often the nodes said what, in runs that break nothing."""
    said: Counter[str] = Counter()
    let_in = _count_let_in(said)
    with quiet(), patch.object(Cluster, "refusal", let_in):
        for plan in plans:
            result = run(plan)
            assert not result.violation, plan.to_json()
            texts = [str(event[-1]).split(" ")[0] for event in result.trace]
            said.update(text for text in texts if text in WORDS)
    return said


def _count_let_in(said: Counter[str]) -> Any:
    refusal = Cluster.refusal

    def counted(self: Cluster, node: Any, call: Call) -> str:
        found = refusal(self, node, call)
        said["let in"] += not found and isinstance(call, Asking) and slot_of(call.words()[0]) in self.moving
        return found

    return counted


def test_the_nodes_say_all_that_the_nodes_of_a_cluster_say() -> None:
    plans = [_plan(seed, kind) for kind in CLUSTER for seed in range(5)]
    plans += [_plan(seed, "slot_move", families=("multi_lock",)) for seed in range(2)]
    plans += [_plan(seed, "slot_half") for seed in LET_IN]
    said = _said(plans)
    assert all(said[word] > 5 for word in WORDS), said
    assert said["let in"], "nobody asked to be let in to where a slot was moving"


def test_a_client_that_does_not_ask_to_be_let_in_is_found() -> None:
    """It breaks no promise, and waits for as long as the slot is on its way: only the count tells."""

    def follows(self: Router, call: Call, asked: Address, fault: Fault) -> tuple[Address, Call]:
        return follow(self, call, asked, fault)[0], call

    follow = Router._follow
    with patch.object(Router, "_follow", follows):
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


# The router ----------------------------------------------------------------------------------------------------------


class _Deaf(Router):
    """Before nodes that never answer, each of which is waited for as long as it is allowed to take."""

    def __init__(self, nodes: int) -> None:
        model = Endpoint("redis", "", {}, "cluster", fixed=False)
        target = ClusterNodes(tuple(model.at(f"n{number}", 6379) for number in range(nodes)), "sim")
        self.time = 1000.0
        self.asked: list[str] = []
        super().__init__(target, lambda: self.time, self._wait)

    async def _wait(self, endpoint: Endpoint, _: tuple[str, ...], timeout: float) -> Any:
        self.asked.append(endpoint.settings["host"])
        self.time += timeout
        raise Fault(FaultKind.UNREACHABLE, "timed out")

    async def send(self, address: Address, call: Call, timeout: float) -> Any:
        raise AssertionError(address, call, timeout)

    async def send_groups(self, groups: dict[Address, list[Call]], timeout: float) -> Any:
        raise AssertionError(groups, timeout)

    def moved(self) -> None:
        raise AssertionError


def _finish(operation: Any) -> None:
    with pytest.raises(StopIteration):
        operation.send(None)


@pytest.mark.parametrize("timeout", [0.05, 0.1, 0.5])
def test_nodes_that_say_nothing_take_no_longer_than_who_asks_has(timeout: float) -> None:
    """All of them together: behind them a maintenance thread has the end of a lease to tell."""
    router = _Deaf(5)
    router.slots.load([Range(0, 16383, ("n0", 6379))], router.time)
    asked: set[str] = set()
    for _ in range(5):
        router.slots.stale, router.asked = True, []
        router.time += 1
        began = router.time
        _finish(router.refresh(timeout))
        assert router.time - began <= timeout + 1e-9
        asked.update(router.asked)
    assert len(asked) == 5, "each has its turn"


def test_a_map_that_says_what_it_said_is_not_made_again() -> None:
    slots, ranges = SlotMap(), [Range(0, 8000, ("a", 1)), Range(8001, 16383, ("b", 1))]
    assert not slots.load(ranges, 1.0)
    slots.stale = True
    assert not slots.load(iter(ranges), 2.0)
    assert (slots.stale, slots.loaded_at) == (False, 2.0)
    slots.assign(5, ("b", 1))
    assert slots.owner(5) == ("b", 1)
    assert not slots.load(ranges, 3.0)
    assert slots.owner(5) == ("a", 1)
    assert slots.load([Range(0, 16383, ("b", 1))], 4.0), "a master of before serves nothing any more"
