"""What a lock service knows of the identifiers that hold, and what it counts."""

from __future__ import annotations

import sys
from typing import Any

import pawlock
from pawlock._service import Book
from tests.faults.rig import in_thread


def test_counters_and_holds_do_not_pile_up() -> None:
    book: Any = Book()
    for number in range(10_100):
        book.count(str(number), "acquired")
    assert len(book._counts) == 10_000
    hold = object()
    book.put("job", "me", hold)
    assert book.take("job", "me") is hold
    assert not book._held


def test_who_waits_is_counted_right_beside_very_many_names() -> None:
    """The counters of a name are dropped for others after a while; who waits for it is not."""
    book: Any = Book()
    busy = pawlock.LockInfo(
        name="busy", held=True, holder="", foreign=False, ttl_left=1, fence=1, count=1, queue_length=2
    )
    with book.watching("busy"), book.watching("busy"):
        for number in range(10_001):
            book.count(f"n{number}", "acquired")
        assert book.stats().waiting == 2
        assert book.metrics(busy).waiting == 2
    assert book.stats().waiting == 0
    assert book.metrics(busy).waiting == 0


def test_threads_with_one_identifier_lose_no_hold() -> None:
    """One takes the last hold while another puts one: that one must not go with the empty row."""
    book: Any = Book()

    def work() -> None:
        for _ in range(20_000):
            book.put("job", "me", object())
            book.take("job", "me")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for done in [in_thread(work) for _ in range(4)]:
            done.result(60)
    finally:
        sys.setswitchinterval(before)
    stats = book.stats()
    assert (stats.holds, stats.failures) == (0, 0)
