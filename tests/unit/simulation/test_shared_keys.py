"""Shapes of a shared key that no well-behaved stranger writes, as the scripts find them."""

from __future__ import annotations

from pawlock.core.key import Key
from pawlock.core.runtime import Call
from pawlock.primitives.key import KeyMutex
from pawlock.testing.memory.lua import Interpreter
from tests.simulator.mutants.of_one import Edit, edit
from tests.simulator.node import Node
from tests.simulator.world import World


def acquire(token: str) -> Call:
    mutex = KeyMutex("lock", Key.redisson("k"))
    return mutex.acquire(token, 5000, 3000, wait=True, block=4, channel="c", max_queue=9)


def node_with(change: Edit | None, *commands: tuple[bytes, ...]) -> Node:
    node = Node(World(1), "n")
    node.edit = change
    node.store.begin(node.us_at(0.0))
    for command in commands:
        Interpreter.shared().command(node.store, *command)
    return node


TWO = (b"HSET", b"k", b"java:1", b"1", b"java:2", b"1")


def test_a_hash_of_two_fields_is_nobody_s_lock() -> None:
    assert "WRONGTYPE" in str(node_with(None, TWO).execute("c", acquire("t@h"), 1, by_text=True))
    taken = node_with(edit("if #found > 2 or", "if false or"), TWO)
    assert isinstance(taken.execute("c", acquire("t@h"), 1, by_text=True), list), "it was no mutant"
