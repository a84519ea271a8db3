"""The same promises on etcd: one member and three, each in both APIs; and what there is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pawlock
from pawlock.primitives.registry import REGISTRY
from tests.conformance.suite import APIS, Api, broken, checks_of, run
from tests.conformance.suite.etcd import EtcdBackend
from tests.support.etcd import Etcd

NOT_THERE = ("latch", "barrier", "once")
KINDS = [kind for kind in REGISTRY if kind not in NOT_THERE]
SMOKE = ("grant_and_release", "fences_rise", "a_release_hands_it_on", "every_key_has_a_ttl")
"""What each run shows; all the rest in the full one."""


@pytest.fixture(scope="module", params=[1, pytest.param(3, marks=pytest.mark.slow)])
def etcd(request: pytest.FixtureRequest) -> Iterator[Etcd]:
    with Etcd(request.param) as started:
        yield started


@pytest.mark.parametrize(("kind", "api"), [("lock", "threads"), ("semaphore", "asyncio")])
def test_the_first_promises_on_etcd(etcd: Etcd, kind: str, api: Api) -> None:
    results = run(etcd.url, [kind], [api], only=SMOKE, backend=EtcdBackend(etcd))
    assert {one.check for one in results} == {*SMOKE}
    assert not broken(results), broken(results)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_primitive_keeps_its_promises_on_etcd(etcd: Etcd, kind: str, api: Api) -> None:
    results = run(etcd.url, [kind], [api], backend=EtcdBackend(etcd))
    shown = {one.name for one in checks_of(REGISTRY[kind])} - {"a_server_that_forgot_the_scripts"}
    assert {one.check for one in results} == shown
    assert not broken(results), broken(results)


@pytest.mark.parametrize("kind", NOT_THERE)
def test_what_etcd_does_not_carry_is_refused_by_name(etcd: Etcd, kind: str) -> None:
    with (
        pawlock.connect(etcd.url) as client,
        pytest.raises(pawlock.NotSupported, match=kind),
    ):
        REGISTRY[kind].make(client, "n")
