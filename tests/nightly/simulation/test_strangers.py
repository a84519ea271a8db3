"""Keys that are shared with programs that are not pawlock: seeds of both wires, and scripts that are wrong there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulator.mutants.of_one import edit
from tests.simulator.plan import Client, Operation, Plan, Visitor
from tests.simulator.shared import draw_plain, draw_redisson
from tests.simulator.simulation import run

DRAWN: dict[str, Callable[[int], Plan]] = {"plain": draw_plain, "redisson": draw_redisson}
SEEDS = 40
MOST = 400


@pytest.mark.parametrize("wire", DRAWN)
def test_strangers_and_pawlock_share_a_key(wire: str) -> None:
    taken = 0
    for seed in range(SEEDS):
        result = run(DRAWN[wire](seed))
        assert not result.violation, f"{wire}, seed {seed}: {result.violation}"
        taken += result.counts.get("stranger", 0)
    assert taken > 3 * SEEDS


def test_a_plan_with_strangers_is_text_and_back() -> None:
    plan = draw_redisson(7)
    assert plan.visitors
    assert Plan.from_json(plan.to_json()) == plan
    assert any(len(smaller.visitors) < len(plan.visitors) for smaller in plan.smaller())


MUTANTS: dict[str, tuple[str, str, str]] = {
    "a holder is added, and the one before stays": (
        "redisson", "redis.call('HDEL', NAME, field)", "redis.call('HEXISTS', NAME, field)"
    ),
    "a field of another program is taken for none": (
        "redisson", "  return found[1]\n", "  return string.find(found[1], '@') and found[1] or false\n"
    ),
    "the waiters of Redisson are not told": ("redisson", "    publish(where)\n", ""),
    "they are told of what is not given back": ("redisson", "if reply[1] == 'R' then", "if reply[1] ~= 'R' then"),
    "a renewal lowers the life": (
        "redisson", "redis.call('PEXPIREAT', NAME, expiry)", "redis.call('PEXPIREAT', NAME, expiry - 40)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_script_of_a_shared_key_is_found(name: str) -> None:
    wire, old, new = MUTANTS[name]
    change = edit(old, new)
    for seed in range(MOST):
        if violation := run(DRAWN[wire](seed), change).violation:
            print(name, "-> seed", seed, violation)
            return
    pytest.fail(f"nothing was wrong in {MOST} seeds")


def crowded(wire: str) -> Plan:
    """Clients of pawlock that want a key all the time, and somebody else who polls for it."""
    options = {"ttl": 3.0, "wire": wire}
    step = Operation(0, "acquire", None, 0.005)
    client = Client("threads", 1.0, False, ((step,) * 120, (step,) * 120))
    visitor = Visitor("a", wire, 0.1, 0.05, 0.001, 0.0, 5, 1.0)
    return Plan(
        3, (("lock", "a", options),), (client,) * 3, (), 0.0002, 0.0, visitors=(visitor,), primitive="key"
    )


@pytest.mark.parametrize("wire", DRAWN)
def test_a_stranger_gets_turns_between_clients_of_pawlock_that_never_rest(wire: str) -> None:
    result = run(crowded(wire))
    assert not result.violation
    assert result.counts["stranger"] == 5
