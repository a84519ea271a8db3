"""The same promises where a name is kept by more than one server: Sentinel, a cluster, a majority of masters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import pawl
from pawl.primitives.registry import REGISTRY
from pawl.testing import ClusterGroup, SentinelGroup, Server
from pawl.testing.conformance import CHECKS, COLOURS, Colour, run
from pawl.testing.servers import available
from tests.conformance.toy import broken

QUORUM = {"fifo": False, "adopt": False, "handover": False}
"""What a majority of masters does not promise, though one server does."""
ELSEWHERE = {
    "its_family_keeps_it_out": "a hold of an owner is refused there",
    "inspect_tells_the_truth": "nobody queues, so nobody is shown waiting",
    "too_many_waiters_are_refused": "nobody queues",
    "one_who_gives_up_costs_the_others_nothing": "nobody has a place to lose",
}
"""Checks that ask for what several masters refuse, and why."""
KINDS = [kind for kind, entry in REGISTRY.items() if entry.leases]


@pytest.fixture(scope="module", autouse=True)
def servers_are_there() -> None:
    """Skip where this machine has none."""
    if reason := available("valkey"):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelGroup]:
    """A master, a replica, three Sentinels."""
    with SentinelGroup() as group:
        yield group


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterGroup]:
    """Three masters that share the slots."""
    with ClusterGroup() as group:
        yield group


@pytest.fixture(scope="module")
def masters() -> Iterator[list[str]]:
    """Three masters that share nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(Server("valkey", unix=False)).url for _ in range(3)]


def kinds(quick: tuple[str, ...]) -> list[object]:
    """Every kind; those that are not quick's run in the full suite."""
    return [kind if kind in quick else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


@pytest.mark.flaky(reruns=1)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("kind", kinds(("rwlock_write",)))
def test_behind_sentinels(sentinels: SentinelGroup, kind: str, colour: Colour) -> None:
    results = run(sentinels.url, [kind], [colour], parallel=10, nodes=[sentinels.master.url])
    assert len(results) > 10
    assert not broken(results), broken(results)


@pytest.mark.flaky(reruns=1)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("kind", kinds(("lock",)))
def test_in_a_cluster(cluster: ClusterGroup, kind: str, colour: Colour) -> None:
    nodes = [node.url for node in cluster.nodes]
    results = run(cluster.url, [kind], [colour], parallel=10, nodes=nodes)
    assert len(results) > 10
    assert not broken(results), broken(results)


@pytest.mark.flaky(reruns=1)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if REGISTRY[kind].redlock])
def test_on_a_majority_of_masters(masters: list[str], kind: str, colour: Colour) -> None:
    url = "redlock://" + ",".join(node.removeprefix("redis://").removesuffix("/0") for node in masters)
    checks = [name for name in CHECKS if name not in ELSEWHERE]
    options = {"redlock": pawl.RedlockOptions(fresh=True)}
    results = run(
        url, [kind], [colour], parallel=6, nodes=masters, options=options, traits=QUORUM, only=checks
    )
    assert len(results) > 10
    assert not broken(results), broken(results)
