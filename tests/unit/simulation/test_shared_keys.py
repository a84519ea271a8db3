"""Shapes of a shared key that no well-behaved stranger writes, as the scripts find them."""

from __future__ import annotations

from pawlock.core.protocol.runtime import Call
from pawlock.primitives.key import KeyMutex, redisson_word, shared_word
from pawlock.testing.memory.lua import Interpreter
from tests.simulator.mutants.of_one import Edit, edit
from tests.simulator.node import Node
from tests.simulator.world import World


def acquire(wire: str, token: str) -> Call:
    redisson = redisson_word(sharded=False, fenced=False, unheard=False)
    word = shared_word(250, 60, redisson if wire == "redisson" else "-")
    mutex = KeyMutex("lock", "key:k", "k", wire=wire, shared=word)
    return mutex.acquire(token, 5000, 3000, wait=True, block=4, channel="c", max_waiters=9)


def node_with(change: Edit | None, *commands: tuple[bytes, ...]) -> Node:
    node = Node(World(1), "n")
    node.edit = change
    node.store.begin(node.us_at(0.0))
    for command in commands:
        Interpreter.shared().command(node.store, *command)
    return node


TWO = (b"HSET", b"k", b"java:1", b"1", b"java:2", b"1")


def test_a_hash_of_two_fields_is_nobody_s_lock() -> None:
    assert "WRONGTYPE" in str(node_with(None, TWO).execute("c", acquire("redisson", "t@h"), 1, by_text=True))
    taken = node_with(edit("if #found > 2 or", "if false or"), TWO)
    assert isinstance(taken.execute("c", acquire("redisson", "t@h"), 1, by_text=True), list), (
        "it was no mutant"
    )


def test_who_waits_on_one_wire_is_not_passed_on_the_other() -> None:
    def race(change: Edit | None) -> object:
        node = node_with(change)
        assert isinstance(node.execute("a", acquire("plain", "a@h"), 1, by_text=True), list)
        assert isinstance(node.execute("b", acquire("plain", "b@h"), 2, by_text=True), list)
        # Its holder's key is deleted by hand, and its waiter stands in the queue.
        node.forget(b"k")
        return node.execute("c", acquire("redisson", "c@h"), 3, by_text=True)

    assert "two wires on one name" in str(race(None))
    ignored = edit("found[at] = redis.call('ZCARD', QUEUE) > 0 and CLASH or '1'", "found[at] = '1'")
    assert isinstance(race(ignored), list), "it was no mutant"
