"""What is read of a name: one server's answer, and what the answers of several masters come to together."""

from __future__ import annotations

from math import inf

import pytest

from pawlock.core.inspect import read_info
from pawlock.core.outcomes import ENDLESS_MS, NOBODY_MS, Holder, Look, Ticket
from pawlock.primitives.mutex import Mutex
from pawlock.redlock.votes import merge_inspect
from tests.unit.scripted import NOW_MS

MUTEX = Mutex("lock", "x", "pawlock:x")


def look(holder: str = "h:1/a", left: int = 900, fence: int = 5, last: int = 5, now: int = NOW_MS) -> Look:
    return Look(holder, left, fence, last, now, holds=0 if left == NOBODY_MS else 1)


def test_whom_a_majority_lists_holds_it_for_as_long_as_a_majority_says() -> None:
    looks = [
        look(left=900),
        look(left=1000, now=7),
        look(left=800),
        look("h:1/b", 5000),
        look("", NOBODY_MS, 0, 9),
    ]
    assert merge_inspect(looks, 3) == look("h:1/a", 800, 5, 9)
    assert merge_inspect(looks, 2).left_ms == 900
    assert merge_inspect(looks, 4) == look("", NOBODY_MS, 5, 9)


def test_the_fence_of_a_late_vote_is_nobodys() -> None:
    assert merge_inspect([look(fence=9), look(), look()], 2).fence == 5


def test_a_name_that_is_free_everywhere() -> None:
    assert merge_inspect([look("", NOBODY_MS, 0, 0)] * 3, 2) == look("", NOBODY_MS, 0, 0)


def test_times_of_an_answer_are_seconds() -> None:
    waiter = Ticket("h:1/w", (NOW_MS - 2500) * 1000, NOW_MS + 1500)
    fence = (NOW_MS - 4000) * 1000
    info = read_info(
        MUTEX, Look("h:1/a", 2500, fence, fence, NOW_MS, queue_length=1, waiters=[waiter], holds=1)
    )
    assert (info.host, info.pid, info.ttl_left) == ("h", 1, 2.5)
    assert info.since == pytest.approx((NOW_MS - 4000) / 1000)
    assert (info.waiters[0].position, info.waiters[0].ttl_left) == (0, 1.5)
    assert info.waiters[0].age == pytest.approx(2.5)
    assert read_info(MUTEX, look("foreign", ENDLESS_MS)).ttl_left == inf
    assert not read_info(MUTEX, look("", NOBODY_MS)).held


def test_holders_of_permits_have_their_time_left() -> None:
    found = look()._replace(limit=3, used=2, holders=[Holder("2", "h:1/a", NOW_MS + 1500)])
    info = read_info(MUTEX, found)
    assert (info.limit, info.used) == (3, 2)
    [holder] = info.holders
    assert (holder.permits, holder.ttl_left) == (2, 1.5)
