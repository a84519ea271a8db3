"""What an error says of a value that another program put under a key."""

from pawlock.primitives.probe.foreign_values import describe

REDISSON = b"6f1e0a52-3f8c-4b3a-9a7d-0c2b1f6f2a11:45"


def test_what_only_resembles_redisson_is_not_called_so() -> None:
    for fields in ([b"mode"], [b"mode", b"owner"], [b"x:1"], [REDISSON, b"other"], []):
        assert ("Redisson" in describe(b"k", "hash", fields)) == (fields == [b"mode"]), fields


def test_a_lock_of_pawlock_on_the_other_wire_is_called_so() -> None:
    for field, ours in {
        b"Y5ecfby5M6ev8XlaM9pZmijU6@vm:26682/MainThread": True,
        b"someone@example.org": False,
        b"owner": False,
    }.items():
        told = describe(b"k", "hash", [field])
        assert ("use pawlock.Key.redisson('k')" in told) == ours, field
        assert field.decode() not in told


def test_a_key_without_a_strange_value_is_not_described() -> None:
    assert describe(b"k", "string", []) == describe(b"k", "none", []) == ""
