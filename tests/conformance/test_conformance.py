"""Every primitive keeps what its entry promises: in each API, on each server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pawlock.primitives.registry import REGISTRY
from tests.conformance.suite import APIS, CHECKS, Api, broken, checks_of, run
from tests.conftest import started
from tests.support.servers import EVERY_FLAVOUR, Server


@pytest.fixture(scope="module", params=[*EVERY_FLAVOUR, pytest.param("valkey-8", marks=pytest.mark.slow)])
def any_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each flavour, down to the oldest that pawlock runs on."""
    with started(request.param) as server:
        yield server


@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", REGISTRY)
def test_a_primitive_keeps_its_promises(any_server: Server, kind: str, api: Api) -> None:
    results = run(any_server.url, [kind], [api])
    assert {one.check for one in results} == {one.name for one in checks_of(REGISTRY[kind])}
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
