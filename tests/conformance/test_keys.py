"""What a lock promises it keeps on a key that is shared with other programs, too: on each wire, in each API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pawlock import Key
from pawlock.primitives.registry import REGISTRY
from tests.conformance.suite import APIS, Api, broken, checks_of, run
from tests.support.servers import Server

WIRES: dict[str, Callable[[str], Key]] = {
    "plain": Key,
    "redisson": Key.redisson,
    "fenced": lambda name: Key.redisson(name, fenced=True),
    "spring": lambda name: Key.spring("locks", name),
    "python-redis-lock": Key.python_redis_lock,
}
TRAITS: dict[str, Any] = {"family": "", "fifo": False}
"""Its waiters poll: the first to ask is the next."""

FAST = {("lock", "plain", "threads"), ("lock", "redisson", "asyncio")}
CASES = [
    pytest.param(kind, wire, api, marks=() if (kind, wire, api) in FAST else pytest.mark.slow)
    for kind in ("lock", "rlock", "multi_lock")
    for wire in WIRES
    for api in APIS
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "wire", "api"), CASES)
def test_a_lock_keeps_its_promises_on_a_shared_key(valkey: Server, kind: str, wire: str, api: Api) -> None:
    assert played(valkey.url, kind, wire, api) == checks_on(kind, wire)


def checks_on(kind: str, wire: str) -> set[str]:
    # Its family are primitives that take no key; and nobody queues.
    left_out = {
        "its_family_keeps_it_out",
        "inspect_tells_the_truth",
        "one_who_gives_up_costs_the_others_nothing",
        "too_many_waiters_are_refused",
    }
    if wire == "fenced":
        # Redisson's own counter has no expiry, and never goes.
        left_out |= {"every_key_has_a_ttl", "no_key_outlives_its_lease"}
    return {one.name for one in checks_of(replace(REGISTRY[kind], **TRAITS))} - left_out


def played(at: str, kind: str, wire: str, api: Api) -> set[str]:
    """Carry out the checks; gives which ones were."""
    checks = checks_on(kind, wire)
    results = run(at, [kind], [api], only=checks, traits=TRAITS, keys=WIRES[wire])
    assert not broken(results), broken(results)
    return {one.check for one in results}
