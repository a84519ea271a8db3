"""What a lock promises it keeps on a key that is shared with other programs, too: on each wire, in each API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pawlock import Key
from pawlock.primitives.registry import REGISTRY
from tests.conformance.suite import APIS, Api, broken, checks_of, run
from tests.service.rig import Instance, Tokens
from tests.service.test_client import url
from tests.support.servers import Server

WIRES: dict[str, Callable[[str], Key]] = {
    "plain": Key,
    "redisson": Key.redisson,
    "fenced": lambda name: Key.redisson(name, fenced=True),
    "spring": lambda name: Key.spring("locks", name),
    "python-redis-lock": Key.python_redis_lock,
}
FAST = {("lock", "plain", "threads"), ("lock", "redisson", "asyncio")}
CASES = [
    pytest.param(kind, wire, api, marks=() if (kind, wire, api) in FAST else pytest.mark.slow)
    for kind in ("lock", "rlock", "multi_lock")
    for wire in WIRES
    for api in APIS
]
OVER_HTTP = [
    ("lock", "redisson"),
    ("lock", "spring"),
    ("lock", "python-redis-lock"),
    ("rlock", "plain"),
    ("rlock", "fenced"),
    ("multi_lock", "redisson"),
]
CUT_OR_KILLED = {
    "a_crowd_is_never_inside_together", "a_dead_holder_frees_it", "a_late_copy_revives_nothing",
    "a_lost_wake_up_costs_little", "a_repeated_acquire_counts_once", "a_repeated_release_counts_once",
    "an_unknown_acquire_is_undone", "dead_waiters_delay_by_one_ticket", "life_counts_from_the_question",
}  # fmt: skip
"""What needs a connection to the server itself, to cut it, or a process that is killed."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "wire", "api"), CASES)
def test_a_lock_keeps_its_promises_on_a_shared_key(valkey: Server, kind: str, wire: str, api: Api) -> None:
    assert played(valkey.url, kind, wire, api) == checks_on(kind, wire)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("kind", "wire"), OVER_HTTP)
def test_it_keeps_them_through_the_service(
    valkey: Server, tmp_path: Path, kind: str, wire: str, api: Api
) -> None:
    tokens = Tokens(tmp_path)
    # Each check has a namespace of its own.
    tokens.add("crowd", roles=["admin"], namespaces=["*"], keys=["*"], limits={"rate": 0, "namespaces": 200})
    service = Instance(valkey.url, tokens)
    try:
        found = played(url(service, "crowd"), kind, wire, api, nodes=[valkey.url])
    finally:
        service.end(9)
    assert found == checks_on(kind, wire) - CUT_OR_KILLED


def checks_on(kind: str, wire: str) -> set[str]:
    # Its family are primitives that take no key.
    left_out = {"its_family_keeps_it_out"}
    if wire == "fenced":
        # Redisson's own counter has no expiry, and never goes.
        left_out |= {"every_key_has_a_ttl", "no_key_outlives_its_lease"}
    return {one.name for one in checks_of(REGISTRY[kind])} - left_out


def played(at: str, kind: str, wire: str, api: Api, nodes: Sequence[str] | None = None) -> set[str]:
    """Carry out the checks; gives which ones were."""
    checks, traits, keys = checks_on(kind, wire), {"family": ""}, WIRES[wire]
    results = run(at, [kind], [api], only=checks, nodes=nodes, traits=traits, keys=keys)
    assert not broken(results), broken(results)
    return {one.check for one in results}
