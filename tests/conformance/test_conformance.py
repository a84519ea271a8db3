"""Every primitive keeps what its entry promises: in each API, on each server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from pawlock.primitives.registry import REGISTRY
from tests.conformance.suite import APIS, CHECKS, Api, Result, checks_of, run
from tests.conformance.toy import broken, play_calmly
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
    def play(only: Iterable[str] | None, parallel: int) -> list[Result]:
        return run(any_server.url, [kind], [api], only=only, parallel=parallel)

    results = play_calmly(play, 10)
    assert {one.check for one in results} == {one.name for one in checks_of(REGISTRY[kind])}
    assert not broken(results), broken(results)


@pytest.mark.parametrize("broken_always", [set[str](), {"first_come_first_served"}, {"renewal_keeps_it"}])
def test_what_is_broken_is_so_also_alone(broken_always: set[str]) -> None:
    played: list[int] = []

    def play(only: Iterable[str] | None, parallel: int) -> list[Result]:
        played.append(parallel)
        bad = broken_always | ({"renewal_keeps_it"} if len(played) == 1 else set())
        names = CHECKS if only is None else only
        return [Result("lock", "threads", one, AssertionError(one) if one in bad else None) for one in names]

    results = play_calmly(play, 10)
    assert {one.check for one in results if one.error is not None} == broken_always
    assert sorted(one.check for one in results) == sorted(CHECKS)
    assert played[0] == 10
    assert set(played[1:]) == {1}


def test_every_primitive_and_every_check_has_work() -> None:
    for entry in REGISTRY.values():
        assert checks_of(entry), f"no check applies to {entry.kind}"
    reader = replace(REGISTRY["semaphore"], capacity=None)
    for check in CHECKS.values():
        assert any(check.applies(entry) for entry in (*REGISTRY.values(), reader)), (
            f"{check.name} is never used"
        )
        assert check.promise.endswith(".")
