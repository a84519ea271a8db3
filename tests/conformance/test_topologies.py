"""The same promises where a name is kept by more than one server, or behind TLS: a part of the matrix on each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pawlock.primitives.registry import REGISTRY
from tests.conformance import matrix
from tests.conformance.suite import APIS, Api, broken
from tests.support.servers import Flavour, available

SMOKE = ("grant_and_release", "fences_rise", "a_release_hands_it_on", "every_key_has_a_ttl")
"""What each run shows on a topology; all the rest in the full suite, and on all servers for the table."""

CASES = [
    (topology, kind)
    for topology in ("TLS", "Sentinel", "cluster", "Redlock 3", "Redlock 5")
    for kind in matrix.kinds_of(topology)
    if topology in ("Sentinel", "cluster") or kind in ("lock", "multi_lock", "rwlock_read", "rwlock_write")
]

Start = Callable[[str], matrix.Place]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Each topology once for all tests."""
    places: dict[str, Any] = {}
    with ExitStack() as stack:

        def place(topology: str) -> matrix.Place:
            flavour: Flavour = "redis" if topology == "TLS" else "valkey"
            if reason := available(flavour) or matrix.why_not(topology, flavour):
                pytest.skip(reason)
            if topology not in places:
                places[topology] = stack.enter_context(matrix.TOPOLOGIES[topology](flavour))
            found: matrix.Place = places[topology]
            return found

        yield place


@pytest.mark.parametrize(
    ("topology", "api"), [("Sentinel", "threads"), ("cluster", "asyncio"), ("Redlock 3", "threads")]
)
def test_the_first_promises_on_a_topology(start: Start, topology: str, api: Api) -> None:
    results = matrix.play(start(topology), ["lock"], (api,), only=SMOKE)
    assert {one.check for one in results} == {*SMOKE}
    assert not broken(results), broken(results)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("topology", "kind"), CASES)
def test_a_topology_keeps_what_one_server_does(start: Start, topology: str, kind: str, api: Api) -> None:
    # Ten handshakes of TLS at once take longer than the shortest waits of these checks on a busy machine.
    parallel = 3 if topology == "TLS" else 6
    results = matrix.play(start(topology), [kind], (api,), parallel=parallel)
    assert results
    assert not broken(results), broken(results)


def test_what_several_masters_cannot_keep_is_left_out() -> None:
    for topology in ("Redlock 3", "Redlock 5"):
        kinds = set(matrix.kinds_of(topology))
        assert kinds == {kind for kind, entry in REGISTRY.items() if entry.redlock}
        assert kinds == {"lock", "rlock", "multi_lock"}
