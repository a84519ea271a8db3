"""Every primitive keeps what its entry promises: in each colour, on each server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pawl.primitives.registry import REGISTRY
from pawl.testing import Server
from pawl.testing.conformance import CHECKS, COLOURS, Colour, checks_of, run
from pawl.testing.servers import EVERY_FLAVOUR
from tests.conformance.toy import broken
from tests.conftest import started


@pytest.fixture(scope="module", params=[*EVERY_FLAVOUR, pytest.param("valkey-8", marks=pytest.mark.slow)])
def any_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each flavour, down to the oldest that pawl runs on."""
    with started(request.param) as server:
        yield server


# On a machine that is busy elsewhere a lease of 0.4 s can truly be lost: one more try, which the closing line counts.
@pytest.mark.flaky(reruns=1)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("kind", REGISTRY)
def test_a_primitive_keeps_its_promises(any_server: Server, kind: str, colour: Colour) -> None:
    results = run(any_server.url, [kind], [colour], parallel=10)
    assert not broken(results), broken(results)


def test_every_primitive_and_every_check_has_work() -> None:
    for entry in REGISTRY.values():
        assert checks_of(entry), f"no check applies to {entry.kind}"
    reader = replace(REGISTRY["semaphore"], capacity=None)
    for check in CHECKS.values():
        assert any(check.applies(entry) for entry in (*REGISTRY.values(), reader)), (
            f"{check.name} is never used"
        )
        assert check.promise.endswith(".")
