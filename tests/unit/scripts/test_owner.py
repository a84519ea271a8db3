"""Names that several holds of one explicit owner share."""

from __future__ import annotations

import pytest

from tests.unit.scripts.model import CLOSED, Step, broken, take
from tests.unit.scripts.rig import Rig, owner, token

pytestmark = pytest.mark.slow

A, B, C, D = (token(text) for text in "abcd")
X, Y = owner("x"), owner("y with a space")


def test_holds_of_one_owner_share_the_name_and_its_fence(rig: Rig) -> None:
    kind, cur, pttl, now, count = rig.own_acquire(A, X)
    assert (kind, pttl, now, count) == ("H", 1000, rig.now, 1)
    rig.advance(10)
    assert rig.own_acquire(B, X, 2000) == ("H", cur, 2000, rig.now, 2)
    assert rig.value() == X
    assert rig.acquire(C, mode=0) == ("B", 2000, 0, "owner=x")
    assert rig.inspect()[7] == 2


def test_a_repeated_acquire_counts_once_and_raises_nothing(rig: Rig) -> None:
    cur = rig.own_acquire(A, X, 500)[1]
    rig.own_acquire(B, X, 2000)
    rig.advance(100)
    before = rig.raw()
    assert rig.own_acquire(A, X, 9000) == ("H", cur, 400, rig.now, 2)
    assert rig.raw() == before


def test_the_name_is_freed_with_the_last_live_hold(rig: Rig) -> None:
    rig.own_acquire(A, X)
    rig.own_acquire(B, X)
    rig.acquire(C)
    assert rig.own_leave(A, X) == ("R", 1)
    assert rig.own_leave(A, X) == ("A", "other", -1)
    assert rig.value() == X
    assert rig.own_leave(B, X) == ("R", 0)
    assert rig.value() == C
    assert rig.raw([rig.key("holds")])[rig.key("holds")][0] == "none"
    assert rig.own_leave(B, X) == ("A", "other", -1)


def test_the_name_lives_as_long_as_its_longest_hold(rig: Rig) -> None:
    rig.own_acquire(A, X, 3000)
    rig.own_acquire(B, X, 500)
    assert take(rig).expiry == rig.now + 3000
    assert rig.own_renew(B, X, 700)[2:] == (700, rig.now, 2)
    rig.advance(10)
    assert rig.own_renew(B, X, 100)[2] == 690, "a late renewal shortens nothing"
    rig.own_leave(A, X)
    assert take(rig).expiry == rig.now + 690
    rig.own_renew(B, X, 5000)
    assert take(rig).expiry == rig.now + 5000


def test_a_dead_hold_does_not_keep_the_name(rig: Rig) -> None:
    rig.own_acquire(A, X, 100)
    rig.own_acquire(B, X, 1000)
    rig.advance(101)
    assert rig.inspect()[7] == 1
    assert rig.own_renew(A, X) == ("U", "other")
    assert rig.own_leave(A, X) == ("A", "other", -1)
    assert rig.own_acquire(C, X)[4] == 2
    rig.own_leave(C, X)
    assert rig.own_leave(B, X) == ("R", 0)


def test_a_dead_hold_that_left_stays_dead_when_the_clock_is_set_back(rig: Rig) -> None:
    rig.own_acquire(A, X, 100)
    rig.own_acquire(B, X, 1000)
    rig.advance(101)
    rig.own_leave(A, X)
    rig.advance(-50)
    assert rig.inspect()[7] == 1
    assert rig.own_leave(B, X) == ("R", 0)


def test_the_owner_enters_again_whatever_the_queue(rig: Rig) -> None:
    rig.own_acquire(A, X)
    rig.acquire(C)
    rig.own_acquire(D, Y)
    assert rig.own_acquire(B, X, mode=0)[4] == 2
    assert rig.queue() == [C, D]


def test_a_waiting_hold_is_granted_by_any_script(rig: Rig) -> None:
    rig.acquire(C)
    expiry = rig.own_acquire(A, Y, channel="ch:a")[3]
    assert rig.tickets()[A].endswith(" ch:a " + Y)
    rig.leave(C)
    assert rig.value() == Y
    ((channel, words),) = rig.mail()
    assert (channel, words[0], int(words[2])) == ("ch:a", A, expiry)
    assert rig.own_renew(A, Y)[4] == 1
    assert rig.own_leave(A, Y) == ("R", 0)


def test_a_waiting_hold_whose_owner_holds_by_now_becomes_a_hold(rig: Rig) -> None:
    rig.acquire(C)
    rig.own_acquire(A, X, ticket_ttl=5000)
    rig.own_acquire(B, X, ticket_ttl=900)
    rig.leave(C)
    assert rig.queue() == [B]
    kind, cur, pttl, _, count = rig.own_renew(B, X, 500)
    assert (kind, pttl, count) == ("H", 900, 2), "no expiry falls"
    assert cur == take(rig).cur
    assert rig.queue() == []
    assert rig.tickets() == {}


def test_acquire_again_moves_a_ticket_too(rig: Rig) -> None:
    rig.acquire(C)
    rig.own_acquire(A, X)
    rig.own_acquire(B, X)
    rig.leave(C)
    assert rig.own_acquire(B, X)[4] == 2
    assert rig.queue() == []


def test_an_owner_granted_by_a_request_of_its_second_hold(rig: Rig) -> None:
    rig.acquire(C, 100)
    rig.own_acquire(A, X)
    rig.own_acquire(B, X)
    rig.advance(101)
    assert rig.own_renew(B, X)[4] == 2
    assert rig.mail()[0][1][0] == A
    rig.redis.flushall()
    rig.acquire(C, 100)
    rig.own_acquire(A, X)
    rig.advance(101)
    assert rig.own_acquire(B, X)[4] == 2
    assert rig.own_renew(A, X)[4] == 2


def test_tombstones_bar_holds(rig: Rig) -> None:
    rig.own_acquire(B, X)
    rig.own_acquire(A, X)
    rig.own_leave(A, X, tomb=500)
    assert rig.own_acquire(A, X) == ("X",)
    assert rig.own_renew(A, X) == ("U", "other")
    assert rig.inspect()[7] == 1


def test_only_the_last_hold_closes_the_name(rig: Rig) -> None:
    rig.own_acquire(A, X)
    rig.own_acquire(B, X)
    assert rig.own_leave(A, X, close=500) == ("R", 1)
    assert rig.own_leave(B, X, close=500) == ("R", 0)
    assert rig.value() == CLOSED


def test_withdrawing_a_waiting_hold(rig: Rig) -> None:
    rig.acquire(C)
    rig.own_acquire(A, X)
    assert rig.own_leave(A, X) == ("W",)
    assert rig.queue() == []
    assert rig.tickets() == {}


def test_plain_requests_never_touch_an_owners_holds(rig: Rig) -> None:
    rig.own_acquire(A, X)
    before = rig.raw()
    assert rig.renew(A) == ("U", "other")
    assert rig.leave(A) == ("A", "other", 0)
    assert rig.swap(A, A)[0] == "Q"
    assert rig.leave(A) == ("W",)
    assert rig.acquire(A, mode=0)[0] == "B"
    assert rig.raw() == before


def test_owned_requests_never_touch_a_plain_holder(rig: Rig) -> None:
    rig.acquire(A)
    before = rig.raw()
    assert rig.own_renew(A, X) == ("U", "other")
    assert rig.own_leave(A, X) == ("A", "other", -1)
    assert rig.own_acquire(A, X, mode=0)[0] == "B"
    assert rig.raw() == before


def test_holds_left_by_a_name_that_was_deleted_count_for_nobody(rig: Rig) -> None:
    rig.own_acquire(A, X, 5000)
    rig.redis.delete("n")
    assert rig.acquire(C)[0] == "H"
    assert rig.inspect()[7] == 1
    rig.leave(C)
    assert rig.own_acquire(B, X)[4] == 1
    assert rig.own_renew(A, X) == ("U", "other")
    assert rig.own_leave(B, X) == ("R", 0)


def test_holds_that_the_server_lost_shorten_no_name(rig: Rig) -> None:
    rig.own_acquire(A, X, 5000)
    rig.redis.delete(rig.key("holds"))
    assert rig.own_acquire(B, X, 100)[2:] == (100, rig.now, 1)
    assert rig.raw(["n"])["n"][1] >= rig.now + 5000
    assert rig.own_renew(A, X) == ("U", "other")


def test_the_model_sees_a_hold_that_vanished(rig: Rig) -> None:
    rig.own_acquire(A, X)
    rig.own_acquire(B, X)
    before = take(rig)
    rig.redis.hdel(rig.key("holds"), A)
    assert broken(before, take(rig), Step("renew", C, reply=("U", "other")))
