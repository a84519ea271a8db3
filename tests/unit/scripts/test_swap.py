"""Swap: a client lets go of one token and asks with the next in one script."""

from __future__ import annotations

import pytest
import redis

from tests.unit.scripts.rig import Rig, token

A, B, C, D = (token(text) for text in "abcd")


def test_swap_takes_the_name_at_once_when_nobody_waits(rig: Rig) -> None:
    _, cur, _, _ = rig.acquire(A, block=16)
    assert rig.swap(A, B, 700)[:3] == ("H", cur + 16, 700)
    assert rig.swap(A, B, 700)[:3] == ("H", cur + 16, 700)
    assert rig.renew(A) == ("U", "other")


def test_swap_lets_the_head_of_the_queue_go_first(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(C)
    reply = rig.swap(A, B, tomb=400)
    assert reply[:2] == ("Q", 0)
    assert rig.value() == C
    assert rig.mail()[0][1][0] == C
    assert rig.swap(A, B, tomb=400) == reply
    assert rig.acquire(A) == ("X",)
    rig.leave(C)
    assert rig.value() == B


def test_swap_ignores_dead_waiters_and_its_old_ticket(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(C, ticket_ttl=50)
    rig.advance(51)
    assert rig.swap(A, B)[0] == "H"
    rig.acquire(C)
    assert rig.swap(C, D)[:2] == ("Q", 0)
    assert rig.queue() == [D]


def test_swap_after_the_old_token_lost_the_name(rig: Rig) -> None:
    rig.acquire(A, 100)
    rig.advance(101)
    rig.acquire(C)
    assert rig.swap(A, B)[0] == "Q"
    assert rig.value() == C


def test_swap_into_a_full_queue_still_leaves(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(C)
    rig.acquire(D)
    assert rig.swap(A, B, room=1) == ("F", 1)
    assert rig.value() == C


def test_a_barred_swap_still_leaves(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(C)
    rig.leave(B, tomb=500)
    assert rig.swap(A, B) == ("X",)
    assert rig.value() == C


def test_a_refused_swap_leaves_the_old_token_in_place(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(C)
    rig.redis.hset(rig.key("fence"), "v", "2")
    before = rig.raw()
    with pytest.raises(redis.ResponseError, match="PAWLOCKWIRE"):
        rig.swap(A, B)
    assert rig.raw() == before
