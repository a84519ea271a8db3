"""What is read of a name: one server's answer, and what the answers of several masters come to together."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from pawl.core.observe.inspect import read_info
from pawl.core.quorum.votes import merge_holders, merge_inspect
from pawl.primitives.mutex import Mutex
from tests.unit.scripted import NOW_MS

MUTEX = Mutex("lock", "x", "pawl:x")


def look(
    holder: bytes = b"h:1/a", left: int = 900, fence: int = 5, last: int = 5, now: int = NOW_MS
) -> list[Any]:
    return ["I", b"", holder, left, fence, last, now, 0, 0 if left == -2 else 1, 0, []]


def test_whom_a_majority_lists_holds_it_for_as_long_as_a_majority_says() -> None:
    looks = [
        look(left=900),
        look(left=1000, now=7),
        look(left=800),
        look(b"h:1/b", 5000),
        look(b"", -2, 0, 9),
    ]
    assert merge_inspect(looks, 3) == ["I", b"", b"h:1/a", 800, 5, 9, NOW_MS, 0, 1, 0, []]
    assert merge_inspect(looks, 2)[3] == 900
    assert merge_inspect(looks, 4) == ["I", b"", b"", -2, 5, 9, NOW_MS, 0, 0, 0, []]


def test_the_fence_of_a_late_vote_is_nobodys() -> None:
    assert merge_inspect([look(fence=9), look(), look()], 2)[4] == 5


def test_a_name_that_is_free_everywhere() -> None:
    assert merge_inspect([look(b"", -2, 0, 0)] * 3, 2) == ["I", b"", b"", -2, 0, 0, NOW_MS, 0, 0, 0, []]


def many(*holders: tuple[bytes, bytes, int], fence: int = 3, now: int = NOW_MS) -> list[Any]:
    listed = [word for mode, who, left in holders for word in (mode, who, now + left)]
    return ["I", b"", b"", 0, fence, fence + 1, now, 0, len(holders), 0, [], 0, 0, listed]


def test_of_many_holders_those_hold_it_that_a_majority_lists() -> None:
    one, two = (b"1", b"h:1/a", 500), (b"1", b"h:1/b", 700)
    looks = [
        many(one, two),
        many((b"1", b"h:1/a", 400), fence=8),
        many((b"1", b"h:1/b", 900), now=NOW_MS + 50),
    ]
    found = [b"1", b"h:1/a", NOW_MS + 400, b"1", b"h:1/b", NOW_MS + 700]
    assert merge_holders(looks, 2) == ["I", b"", b"h:1/a", 700, 8, 9, NOW_MS, 0, 2, 0, [], 0, 0, found]
    assert merge_holders(looks, 3)[2:4] == [b"", -2]


def test_two_leases_that_show_the_same_words_are_two() -> None:
    looks = [
        many((b"1", b"h:1/a", 500), (b"1", b"h:1/a", 300)),
        many((b"1", b"h:1/a", 450), (b"1", b"h:1/a", 200)),
    ]
    assert merge_holders(looks, 2)[8:] == [
        *(2, 0, [], 0, 0),
        [b"1", b"h:1/a", NOW_MS + 200, b"1", b"h:1/a", NOW_MS + 450],
    ]


def test_times_of_an_answer_are_seconds() -> None:
    waiter = [b"h:1/w", (NOW_MS - 2500) * 1000, NOW_MS + 1500]
    fence = (NOW_MS - 4000) * 1000
    reply: list[Any] = ["I", b"", b"h:1/a", 2500, fence, fence, NOW_MS, 0, 1, 1, waiter]
    info = read_info(MUTEX, reply)
    assert (info.host, info.pid, info.ttl_left) == ("h", 1, 2.5)
    assert info.since == pytest.approx((NOW_MS - 4000) / 1000)
    assert (info.waiters[0].position, info.waiters[0].ttl_left) == (0, 1.5)
    assert info.waiters[0].age == pytest.approx(2.5)
    assert read_info(MUTEX, look(b"foreign", -1)).ttl_left == inf
    assert not read_info(MUTEX, look(b"", -2)).held


def test_holders_of_permits_have_their_time_left() -> None:
    reply = [*look()[:11], 3, 2, [b"2", b"h:1/a", NOW_MS + 1500]]
    info = read_info(MUTEX, reply)
    assert (info.limit, info.used) == (3, 2)
    [holder] = info.holders
    assert (holder.permits, holder.ttl_left) == (2, 1.5)
