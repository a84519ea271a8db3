"""Keys that are shared with programs that are not pawlock: seeds of both wires, and scripts that are wrong there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pawlock.core.protocol.runtime import Call
from pawlock.primitives.key import KeyMutex, redisson_word, shared_word
from pawlock.testing.memory.lua import Interpreter
from tests.simulator.node import Node
from tests.simulator.plan import Client, Operation, Plan, Visitor
from tests.simulator.shared import draw_plain, draw_redisson
from tests.simulator.simulation import run
from tests.simulator.world import World

DRAWN: dict[str, Callable[[int], Plan]] = {"plain": draw_plain, "redisson": draw_redisson}
SEEDS = 40
MOST = 400
Edit = Callable[[str, bytes], bytes]


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


def wrong(old: str, new: str) -> Edit:
    """Changes a line of the scripts that have it."""

    def edit(_: str, source: bytes) -> bytes:
        return source.replace(old.encode(), new.encode())

    return edit


MUTANTS: dict[str, tuple[str, str, str]] = {
    "a holder is added, and the one before stays": (
        "redisson", "redis.call('HDEL', NAME, field)", "redis.call('HEXISTS', NAME, field)"
    ),
    "a field of another program is taken for none": (
        "redisson",
        "    holder = read_holder()\n",
        "    holder = read_holder()\n    holder = holder and string.find(holder, '@') and holder or false\n",
    ),
    "a value of another program is taken for none": (
        "plain",
        "    holder = redis.call('GET', NAME)\n",
        "    holder = redis.call('GET', NAME)\n    holder = holder and string.find(holder, '@') and holder or false\n",
    ),
    "the waiters of Redisson are not told": ("redisson", "  tell(CHANNEL)\n", ""),
    "they are told of hand-offs alone": (
        "redisson", "if not freed and not closed or not WAKE then", "if freed or closed or not WAKE then"
    ),
    "a renewal lowers the life": (
        "redisson", "redis.call('PEXPIREAT', NAME, expiry)", "redis.call('PEXPIREAT', NAME, expiry - 40)"
    ),
    "pawlock itself takes what it left free (redisson)": (
        "redisson", "return holder or (window_ms and OPEN)", "return holder"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_script_of_a_shared_key_is_found(name: str) -> None:
    wire, old, new = MUTANTS[name]
    edit = wrong(old, new)
    for seed in range(MOST):
        if violation := run(DRAWN[wire](seed), edit).violation:
            print(name, "-> seed", seed, violation)
            return
    pytest.fail(f"nothing was wrong in {MOST} seeds")


def crowded(wire: str) -> Plan:
    """Clients of pawlock that want a key all the time, and somebody else who polls for it."""
    options = {"ttl": 3.0, "wire": wire, "yield_after": 0.25, "yield_for": 0.06}
    step = Operation(0, "acquire", None, 0.005)
    client = Client("threads", 1.0, False, ((step,) * 120, (step,) * 120))
    visitor = Visitor("a", wire, 0.1, 0.02, 0.001, 0.0, 5, 1.0)
    return Plan(
        3, (("lock", "a", options),), (client,) * 3, (), 0.0002, 0.0, visitors=(visitor,), primitive="key"
    )


@pytest.mark.parametrize("wire", DRAWN)
def test_a_stranger_gets_turns_between_clients_of_pawlock_that_never_rest(wire: str) -> None:
    result = run(crowded(wire))
    assert not result.violation
    assert result.counts["stranger"] == 5
    never = wrong("  return noted[1] and (passed_ms", "  return false and (passed_ms")
    assert "starved" in run(crowded(wire), never).violation


# Shapes that no well-behaved stranger writes ------------------------------------------------------------------------


def acquire(wire: str, token: str) -> Call:
    redisson = redisson_word(sharded=False, fenced=False, unheard=False)
    word = shared_word(250, 60, redisson if wire == "redisson" else "-")
    mutex = KeyMutex("lock", "key:k", "k", wire=wire, shared=word)
    return mutex.acquire(token, 5000, 3000, wait=True, block=4, channel="c", max_waiters=9)


def node_with(edit: Edit | None, *commands: tuple[bytes, ...]) -> Node:
    node = Node(World(1), "n")
    node.edit = edit
    node.store.begin(node.us_at(0.0))
    for command in commands:
        Interpreter.shared().command(node.store, *command)
    return node


TWO = (b"HSET", b"k", b"java:1", b"1", b"java:2", b"1")


def test_a_hash_of_two_fields_is_nobody_s_lock() -> None:
    assert "WRONGTYPE" in str(node_with(None, TWO).execute("c", acquire("redisson", "t@h"), 1, by_text=True))
    taken = node_with(wrong("if #found > 2 or", "if false or"), TWO)
    assert isinstance(taken.execute("c", acquire("redisson", "t@h"), 1, by_text=True), list), (
        "it was no mutant"
    )


def test_who_waits_on_one_wire_is_not_passed_on_the_other() -> None:
    def race(edit: Edit | None) -> object:
        node = node_with(edit)
        assert isinstance(node.execute("a", acquire("plain", "a@h"), 1, by_text=True), list)
        assert isinstance(node.execute("b", acquire("plain", "b@h"), 2, by_text=True), list)
        # Its holder's key is deleted by hand, and its waiter stands in the queue.
        node.forget(b"k")
        return node.execute("c", acquire("redisson", "c@h"), 3, by_text=True)

    assert "two wires on one name" in str(race(None))
    ignored = wrong("found[at] = redis.call('ZCARD', QUEUE) > 0 and CLASH or '1'", "found[at] = '1'")
    assert isinstance(race(ignored), list), "it was no mutant"
