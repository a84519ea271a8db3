"""More: fences for a holder that nobody waits for, while its client goes on handing over."""

from __future__ import annotations

from tests.scripts.rig import Rig, token

A, B = token("a"), token("b")


def test_more_reserves_the_next_block_for_the_holder(rig: Rig) -> None:
    _, cur, left, _ = rig.acquire(A, 700, block=17)
    assert rig.more(A, 16) == ("H", cur + 17)
    assert rig.more(A, 16) == ("H", cur + 33), "a second copy reserves others, which nobody uses"
    rig.advance(1)
    assert rig.renew(A, 1)[2] == left - 1, "it raises no lease"
    rig.leave(A)
    assert rig.acquire(B)[1] > cur + 33 + 15, "and who comes later is above them all"


def test_more_says_no_to_whom_others_wait_for(rig: Rig) -> None:
    rig.acquire(A, block=17)
    before = rig.raw([rig.key("fence")])
    rig.acquire(B)
    assert rig.more(A) == ("B",)
    assert rig.raw([rig.key("fence")]) == before


def test_more_says_no_to_whoever_does_not_hold(rig: Rig) -> None:
    assert rig.more(A) == ("B",)
    rig.acquire(B)
    before = rig.raw([rig.key("fence")])
    assert rig.more(A) == ("B",)
    assert rig.raw([rig.key("fence")]) == before
    rig.advance(1001)
    assert rig.more(B) == ("B",), "nor to one whose time is up"


def test_more_makes_no_fence_of_nothing(rig: Rig) -> None:
    rig.acquire(A)
    rig.redis.delete(rig.key("fence"))
    assert rig.more(A) == ("B",)
    assert not rig.redis.exists(rig.key("fence"))
