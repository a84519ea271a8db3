"""Waiters that speak for each other: who is taken along, and what the one answer means for each."""

from __future__ import annotations

import gc
from math import inf

import pytest

from pawlock.core.acquire.ticket_batch import TOGETHER, _take_along, apply_reply, begin_sleep
from pawlock.core.protocol.outcomes import Queued
from pawlock.core.state.records import Ticket, Waiter
from tests.unit.scripted import NOW_MS, START, Rig

pytestmark = pytest.mark.slow


def ticket_of(waiter: Waiter) -> Ticket:
    assert waiter.ticket is not None
    return waiter.ticket


def line(rig: Rig, count: int) -> list[Waiter]:
    """Claims of one client that sleep in the queue of one name."""
    waiters: list[Waiter] = []
    for number in range(count):
        waiter = Waiter(f"w{number}")
        waiter.set_keys("", "x")
        waiter.ticket = Ticket(number + 1, 0, 0.0)
        begin_sleep(rig.engine, waiter, START + 1.0, None)
        rig.engine.queues.followers[waiter.token] = waiter
        waiters.append(waiter)
    return waiters


def speaker(rig: Rig) -> Waiter:
    waiter = Waiter("me")
    waiter.set_keys("", "x")
    waiter.ticket, waiter.batch.channel = Ticket(1, 0, 0.0), rig.runtime.channel()
    return waiter


def queued_with(*ranks: int) -> Queued:
    return Queued(1, 20_000, NOW_MS + 3000, NOW_MS, foreign=False, ranks=ranks)


@pytest.mark.parametrize(
    ("until", "latest"), [(None, inf), (START + 5.0, START + 5.0)], ids=["for ever", "for a while"]
)
def test_a_sleeper_says_until_when_it_waits(until: float | None, latest: float) -> None:
    waiter = Waiter("w")
    waiter.set_keys("", "")
    waiter.ticket = Ticket(1, 0, 0.0)
    begin_sleep(Rig().engine, waiter, START + 1.0, until)
    assert (waiter.batch.beat_at, waiter.batch.latest) == (START + 1.0, latest)
    waiter.ticket = Ticket(0, 0, 0.0)
    begin_sleep(Rig().engine, waiter, START + 1.0, until)
    assert waiter.batch.beat_at == 0.0, "the first in the queue asks in any case"


def test_no_more_are_taken_along_than_fit_into_one_question() -> None:
    rig = Rig()
    waiters = line(rig, TOGETHER + 5)
    found = _take_along(rig.engine, speaker(rig), 0.5)
    assert [token for token, _ in found] == [waiter.token for waiter in waiters[:TOGETHER]]
    assert all(waiter.batch.unsettled for waiter in waiters[:TOGETHER])
    assert next(iter(rig.engine.queues.followers)) == waiters[TOGETHER].token, (
        "who was taken along is due after all others"
    )
    assert [token for token, _ in _take_along(rig.engine, speaker(rig), 0.5)] == [
        c.token for c in waiters[TOGETHER:]
    ]


def test_who_comes_in_the_middle_of_a_garbage_collection_does_no_harm() -> None:
    rig = Rig()
    waiters = line(rig, 50)
    me, followers = speaker(rig), rig.engine.queues.followers
    come = (f"n{number}" for number in range(10_000))

    def another_comes(_phase: str, _info: dict[str, int]) -> None:
        followers.setdefault(next(come), Waiter("n"))

    usual = gc.get_threshold()
    gc.callbacks.append(another_comes)
    try:
        gc.set_threshold(1)
        found = _take_along(rig.engine, me, 0.5)
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(another_comes)
    assert [token for token, _ in found] == [waiter.token for waiter in waiters]


def test_the_answer_tells_each_its_place_and_keeps_it_asleep() -> None:
    rig = Rig()
    first, gone, third = line(rig, 3)
    me = speaker(rig)
    me.batch.taken_along = _take_along(rig.engine, me, 0.5)
    before = ticket_of(gone).valid_until
    del rig.engine.queues.followers[gone.token]
    apply_reply(rig.engine, me, rig.options, queued_with(4, 5, 6), START)
    assert [waiter.rank for waiter in (first, gone, third)] == [4, 2, 6], "who woke up asks by itself"
    assert gone.batch.unsettled
    assert ticket_of(gone).valid_until == before
    for waiter in (first, third):
        assert not waiter.batch.unsettled
        assert waiter.batch.beat_at == pytest.approx(START + 1.2)
        assert ticket_of(waiter).expires_ms == NOW_MS + 3000


def test_an_answer_without_places_settles_and_tells_nothing() -> None:
    rig = Rig()
    [first] = line(rig, 1)
    me = speaker(rig)
    me.batch.taken_along = _take_along(rig.engine, me, 0.5)
    apply_reply(rig.engine, me, rig.options, queued_with()[:7], START)
    assert (first.rank, first.batch.unsettled) == (1, False)
