"""What a lock promises it keeps on a key that is shared with other programs, too: on each wire, in each colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from pawl import Key
from pawl.primitives.registry import REGISTRY
from pawl.testing import Server
from pawl.testing.conformance import COLOURS, Colour, Result, checks_of, run
from tests.conformance.toy import broken, play_calmly

WIRES: dict[str, Callable[[str], Key]] = {
    "plain": Key,
    "redisson": Key.redisson,
    "fenced": lambda name: Key.redisson(name, fenced=True),
    "spring": lambda name: Key.spring("locks", name),
    "python-redis-lock": Key.python_redis_lock,
}
FAST = {("lock", "plain"), ("lock", "redisson"), ("rlock", "fenced"), ("multi_lock", "redisson")}
CASES = [
    pytest.param(kind, wire, marks=() if (kind, wire) in FAST else pytest.mark.slow)
    for kind in ("lock", "rlock", "multi_lock")
    for wire in WIRES
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(("kind", "wire"), CASES)
def test_a_lock_keeps_its_promises_on_a_shared_key(
    valkey: Server, kind: str, wire: str, colour: Colour
) -> None:
    # Its family are primitives that take no key.
    left_out = {"its_family_keeps_it_out"}
    if wire == "fenced":
        # Redisson's own counter has no expiry, and never goes.
        left_out |= {"every_key_has_a_ttl", "no_key_outlives_its_lease"}
    checks = {one.name for one in checks_of(REGISTRY[kind])} - left_out

    def play(only: Iterable[str] | None, parallel: int) -> list[Result]:
        traits, keys = {"family": ""}, WIRES[wire]
        return run(
            valkey.url, [kind], [colour], only=only or checks, parallel=parallel, traits=traits, keys=keys
        )

    results = play_calmly(play, 10)
    assert {one.check for one in results} == checks
    assert not broken(results), broken(results)
