"""Slots, the map of them, redirections: pure."""

from __future__ import annotations

import pytest

from pawlock.core.names import helper_key, key_of
from pawlock.primitives.mutex import Mutex
from pawlock.topology.cluster import (
    SLOTS,
    Range,
    SlotMap,
    first_key,
    read_ranges,
    read_redirect,
    slot_of,
)
from tests.support.refusal import case

# The numbers are those of CLUSTER KEYSLOT; the first is the specification's own example of the checksum.
KNOWN = [
    (b"123456789", 12739), (b"foo", 12182), (b"{foo}", 12182), (b"bar{foo}baz", 12182), (b"", 0),
    (b"{user1000}.following", 3443), (b"{user1000}.followers", 3443), (b"foo{{bar}}zap", 4015),
    (b"foo{bar}{zap}", 5061),
]  # fmt: skip


def test_slots() -> None:
    for key, slot in KNOWN:
        with case(key, slot):
            assert slot_of(key) == slot


def test_braces_around_nothing_are_part_of_the_key() -> None:
    assert slot_of(b"foo{}{bar}") == 8363
    assert slot_of(b"foo{}{bar}") != slot_of(b"bar")


def test_all_keys_of_a_name_are_in_the_slot_of_its_first() -> None:
    cases: list[tuple[str, str]] = [
        ("pawlock", "order"),
        ("pawlock", "a{b}c"),
        ("", "order"),
        ("", "a{b}c"),
    ]
    for namespace, name in cases:
        with case(namespace, name):
            key = key_of(namespace, name)
            mutex = Mutex("lock", name, key)
            calls = [
                mutex.acquire("t", 1, 1, wait=True, block=1, channel="c", max_queue=1),
                mutex.renew("t", 1, 1, ""),
                mutex.leave("t", 0, 0),
                mutex.inspect(0),
            ]
            for call in calls:
                assert first_key(call.body) == key.encode()
                assert {slot_of(word) for word in call.words()[: call.script.numkeys]} == {
                    slot_of(key.encode())
                }
            assert slot_of(helper_key(key, "fence").encode()) == slot_of(key.encode())


def test_a_map_is_loaded_and_corrected() -> None:
    slots = SlotMap()
    assert (bool(slots.masters), slots.stale, slots.owner(7)) == (False, True, None)
    assert not slots.load([Range(0, 99, ("a", 1)), Range(100, SLOTS - 1, ("b", 1))], 5.0)
    assert (bool(slots.masters), slots.stale, slots.loaded_at) == (True, False, 5.0)
    assert (slots.owner(0), slots.owner(99), slots.owner(100), slots.owner(SLOTS - 1)) == (
        ("a", 1), ("a", 1), ("b", 1), ("b", 1),
    )  # fmt: skip
    slots.assign(7, ("b", 1))
    assert (slots.owner(7), slots.owner(8), slots.stale) == (("b", 1), ("a", 1), True)
    assert not slots.load([Range(0, 99, ("a", 1)), Range(101, 200, ("b", 1))], 6.0), "nobody is gone"
    assert slots.owner(100) is None, "nobody serves it"
    assert slots.load([Range(0, SLOTS - 1, ("b", 1))], 7.0), "one master is gone"
    assert slots.masters == (("b", 1),)


def test_what_nodes_say_of_the_slots() -> None:
    reply = [
        [0, 5460, [b"10.0.0.1", 7000, b"id", []], [b"10.0.0.4", 7003, b"id", []]],
        [5461, 5461, [b"", 7001, b"id"]],
        [5462, 16382, [None, 7002, b"id"]],
        [16383, 16383, [b"?", 7002, b"id"]],
    ]
    assert read_ranges(reply, "seed") == [
        Range(0, 5460, ("10.0.0.1", 7000)),
        Range(5461, 5461, ("seed", 7001)),
        Range(5462, 16382, ("seed", 7002)),
    ]


def test_nonsense_is_no_map() -> None:
    for reply in (None, 7, [[1]], [[0, 1, []]], [[b"x", 1, [b"h", 1]]]):
        with case(reply), pytest.raises(ValueError, match="not an answer"):
            read_ranges(reply, "seed")


def test_redirections() -> None:
    assert read_redirect("MOVED 3999 127.0.0.1:6381", "seed") == (False, 3999, ("127.0.0.1", 6381))
    assert read_redirect("ASK 3999 ::1:6381", "seed") == (True, 3999, ("::1", 6381))
    assert read_redirect("MOVED 3999 :6381", "seed") == (False, 3999, ("seed", 6381))
    for wrong in ("MOVED", "MOVED x y", "TRYAGAIN 1 a:1", "MOVED 1 a:b"):
        with pytest.raises(ValueError, match=r".*"):
            read_redirect(wrong, "seed")
