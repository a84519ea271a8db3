"""A waiter that says of others too that they wait: their tickets rise, and nothing else of them changes."""

from __future__ import annotations

import pytest

from tests.unit.scripts.model import take
from tests.unit.scripts.rig import Rig, token

pytestmark = pytest.mark.slow

A, B, C, D, GONE = (token(text) for text in "abcdg")


def queue(rig: Rig, *tokens: str, ticket_ttl: int = 300) -> None:
    """A holder, and these behind it."""
    rig.acquire(A, 5000)
    for number, tok in enumerate(tokens):
        assert rig.acquire(tok, 5000, ticket_ttl, block=4, channel=f"ch:{number}")[0] == "Q"


def expiries(rig: Rig) -> dict[str, int]:
    return {tok: int(ticket.partition(" ")[0]) for tok, ticket in rig.tickets().items()}


def test_the_others_live_as_long_as_the_one_that_asks(rig: Rig) -> None:
    queue(rig, B, C, D)
    before = rig.tickets()
    rig.advance(250)
    status, rank, _, expiry, now, foreign, ranks = rig.beat(B, C, D)
    assert (status, rank, expiry, foreign, ranks) == ("Q", 0, now + 300, 0, [1, 2])
    assert expiries(rig) == {B: expiry, C: expiry, D: expiry}
    # Their channels, their blocks and their ttl stay what they were.
    assert [rig.tickets()[tok].partition(" ")[2] for tok in (C, D)] == [
        before[tok].partition(" ")[2] for tok in (C, D)
    ]
    rig.advance(299)
    rig.leave(A)
    assert take(rig).value == B
    assert rig.queue() == [C, D]


def test_who_is_not_queued_is_not_made_to_wait(rig: Rig) -> None:
    queue(rig, B, C)
    rig.leave(C)
    assert rig.beat(B, C, GONE)[-1] == [-1, -1]
    assert set(rig.tickets()) == set(rig.queue()) == {B}


def test_an_entry_without_a_ticket_gets_none(rig: Rig) -> None:
    queue(rig, B, C)
    rig.redis.hdel(rig.key("tickets"), C)
    assert rig.beat(B, C)[-1] == [-1]
    assert set(rig.tickets()) == {B}


def test_a_ticket_without_an_entry_is_not_raised(rig: Rig) -> None:
    queue(rig, B, C)
    rig.redis.zrem(rig.key("queue"), C)
    before = expiries(rig)[C]
    rig.advance(100)
    assert rig.beat(B, C)[-1] == [-1]
    assert expiries(rig)[C] == before


def test_no_expiry_falls(rig: Rig) -> None:
    queue(rig, B, C)
    rig.renew(C, ticket_ttl=4000)
    before = expiries(rig)[C]
    assert rig.beat(B, C)[-1] == [-1]
    assert expiries(rig)[C] == before
    rig.now_us -= 60_000_000
    rig.beat(B, C)
    assert expiries(rig)[C] == before


def test_a_copy_that_comes_late_keeps_nobody_waiting(rig: Rig) -> None:
    queue(rig, B, C)
    rig.leave(A)
    rig.leave(B)
    rig.leave(C)
    assert rig.beat(B, C) == ("U", "none")
    assert rig.tickets() == {}
    assert rig.queue() == []


def test_the_keys_of_the_queue_outlive_the_others(rig: Rig) -> None:
    queue(rig, B, C, ticket_ttl=100)
    rig.advance(50)
    _, _, _, expiry, _, _, _ = rig.beat(B, C, ticket_ttl=50_000)
    kept = rig.raw([rig.key("queue"), rig.key("tickets")])
    assert all(until >= expiry for _, until, _ in kept.values())


def test_a_name_without_a_holder_is_given_to_the_first_and_it_is_told(rig: Rig) -> None:
    """The first was granted by the beat of another: it is no longer queued, and is to ask."""
    queue(rig, B, C, D)
    rig.redis.delete(rig.key("name"))
    rig.mail()
    status, rank, *_, ranks = rig.beat(C, B, D)
    assert (status, rank, ranks) == ("Q", 0, [-1, 1])
    assert take(rig).value == B
    assert rig.mail()[0][1][0] == B


def test_one_that_holds_by_now_says_nothing_of_others(rig: Rig) -> None:
    queue(rig, B, C)
    rig.leave(A)
    before = expiries(rig)[C]
    rig.advance(10)
    assert rig.beat(B, C)[0] == "H"
    assert len(rig.beat(B, C)) == 4
    assert expiries(rig)[C] == before


def test_a_resend_answers_alike(rig: Rig) -> None:
    queue(rig, B, C, D)
    first = rig.beat(B, C, D)
    assert rig.beat(B, C, D) == first
