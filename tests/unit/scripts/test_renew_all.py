"""Several holders renewed by one script: each as by itself, and nothing of what is more than that."""

from __future__ import annotations

import pytest
import redis

from tests.unit.scripts.rig import Rig, token

A, B, C = (token(text) for text in "abc")
NAMES = ("a", "b", "c")


def renew(rig: Rig, tokens: dict[str, str], ttl: int = 1000) -> list[int]:
    keys = [rig.key(part, name) for name in tokens for part in ("name", "fence")]
    words = [word for tok in tokens.values() for word in (tok, ttl, rig.fence_ttl)]
    status, lefts, _ = rig.run_on("renew_all", keys, tuple(words))
    assert status == "H"
    return list(lefts)


def test_every_holder_is_renewed_as_by_itself(rig: Rig) -> None:
    for name, tok in zip(NAMES, (A, B, C), strict=True):
        rig.acquire(tok, 400, name=name)
    rig.advance(300)
    assert renew(rig, {"a": A, "b": B, "c": C}) == [1000, 1000, 1000]
    rig.advance(999)
    assert [rig.value(name) for name in NAMES] == [A, B, C]


def test_no_expiry_falls(rig: Rig) -> None:
    rig.acquire(A, 5000, name="a")
    rig.acquire(B, 100, name="b")
    assert renew(rig, {"a": A, "b": B}) == [5000, 1000]
    rig.advance(1001)
    assert rig.value("a") == A
    assert rig.value("b") is None


def test_who_does_not_hold_is_left_alone(rig: Rig) -> None:
    rig.acquire(A, name="a")
    rig.acquire(C, name="b")
    rig.acquire(B, name="b")
    before = rig.raw([rig.key("name", "b"), rig.key("tickets", "b"), rig.key("queue", "b")])
    assert renew(rig, {"a": A, "b": B, "c": C}) == [1000, 0, 0]
    assert rig.raw([rig.key("name", "b"), rig.key("tickets", "b"), rig.key("queue", "b")]) == before
    assert rig.value("c") is None


def test_a_fence_record_that_needs_care_is_left_to_the_other_script(rig: Rig) -> None:
    for name in NAMES:
        rig.acquire(A, 400, name=name)
    rig.redis.hset(rig.key("fence", "a"), "v", "2")
    rig.redis.delete(rig.key("fence", "b"))
    rig.redis.hset(rig.key("fence", "c"), "x", str(rig.now))
    before = rig.raw()
    assert renew(rig, dict.fromkeys(NAMES, A)) == [0, 0, 0]
    assert rig.raw() == before


def test_a_key_of_a_wrong_type_stops_it_before_it_writes(rig: Rig) -> None:
    rig.acquire(A, 400, name="a")
    rig.redis.rpush(rig.key("name", "b"), "of somebody else")
    before = rig.raw()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        renew(rig, {"a": A, "b": B})
    assert rig.raw() == before
