"""The same promises where a name is kept by more than one server, or behind TLS: a part of the matrix on each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pawlock.primitives.registry import REGISTRY
from tests.conformance import matrix
from tests.conformance.suite import APIS, Api
from tests.conformance.toy import broken
from tests.support.servers import Flavour, available

QUICK = {
    ("Sentinel", "rwlock_write"),
    ("cluster", "lock"),
    ("Redlock 3", "lock"),
    ("Redlock 3", "rwlock_read"),
    ("Redlock 3", "rwlock_write"),
}
"""What each run shows; the others run in the full suite, and all servers for the table."""

CASES = [
    pytest.param(topology, kind, marks=() if (topology, kind) in QUICK else pytest.mark.slow)
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


@pytest.mark.slow
@pytest.mark.flaky(reruns=1)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("topology", "kind"), CASES)
def test_a_topology_keeps_what_one_server_does(start: Start, topology: str, kind: str, api: Api) -> None:
    # Ten handshakes of TLS at once take longer than the shortest waits of these checks on a busy machine.
    parallel = 3 if topology == "TLS" else 10
    results = matrix.play(start(topology), [kind], (api,), parallel=parallel)
    assert results
    assert not broken(results), broken(results)


@pytest.mark.parametrize("topology", ["Redlock 3", "Redlock 5"])
def test_what_several_masters_cannot_keep_is_left_out(topology: str) -> None:
    assert set(matrix.kinds_of(topology)) == {kind for kind, entry in REGISTRY.items() if entry.redlock}
    assert {"lock", "rlock", "multi_lock", "rwlock_read", "rwlock_write"} <= set(matrix.kinds_of(topology))
