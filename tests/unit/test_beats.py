"""Waiters that speak for each other: who is taken along, and what the one answer means for each."""

from __future__ import annotations

import gc
from math import inf
from typing import Any

import pytest

from pawl.core.acquire.ticket_batch import TOGETHER, _company, learn, lie_down
from pawl.core.state.records import Claim
from tests.unit.scripted import NOW_MS, START, Rig


def line(rig: Rig, count: int) -> list[Claim]:
    """Claims of one client that sleep in the queue of one name."""
    claims: list[Claim] = []
    for number in range(count):
        claim = Claim(f"w{number}")
        claim.kin, claim.rank = "x", number + 1
        lie_down(rig.engine, claim, START + 1.0, None)
        rig.engine.lined[claim.token] = claim
        claims.append(claim)
    return claims


def speaker(rig: Rig) -> Claim:
    claim = Claim("me")
    claim.kin, claim.rank, claim.channel = "x", 1, rig.runtime.channel()
    return claim


def queued_with(*ranks: int) -> list[Any]:
    return [b"Q", b"", 1, 20_000, NOW_MS + 3000, NOW_MS, 0, list(ranks)]


@pytest.mark.parametrize(
    ("until", "latest"), [(None, inf), (START + 5.0, START + 5.0)], ids=["for ever", "for a while"]
)
def test_a_sleeper_says_until_when_it_waits(until: float | None, latest: float) -> None:
    claim = Claim("w")
    claim.rank = 1
    lie_down(Rig().engine, claim, START + 1.0, until)
    assert (claim.beat_at, claim.latest) == (START + 1.0, latest)
    claim.rank = 0
    lie_down(Rig().engine, claim, START + 1.0, until)
    assert claim.beat_at == 0.0, "the first in the queue asks in any case"


def test_no_more_are_taken_along_than_fit_into_one_question() -> None:
    rig = Rig()
    claims = line(rig, TOGETHER + 5)
    found = _company(rig.engine, speaker(rig), 0.5)
    assert [token for token, _ in found] == [claim.token for claim in claims[:TOGETHER]]
    assert all(claim.unsettled for claim in claims[:TOGETHER])
    assert next(iter(rig.engine.lined)) == claims[TOGETHER].token, (
        "who was taken along is due after all others"
    )
    assert [token for token, _ in _company(rig.engine, speaker(rig), 0.5)] == [
        c.token for c in claims[TOGETHER:]
    ]


def test_who_comes_in_the_middle_of_a_garbage_collection_does_no_harm() -> None:
    rig = Rig()
    claims = line(rig, 50)
    me, lined = speaker(rig), rig.engine.lined
    come = (f"n{number}" for number in range(10_000))

    def another_comes(_phase: str, _info: dict[str, int]) -> None:
        lined.setdefault(next(come), Claim("n"))

    usual = gc.get_threshold()
    gc.callbacks.append(another_comes)
    try:
        gc.set_threshold(1)
        found = _company(rig.engine, me, 0.5)
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(another_comes)
    assert [token for token, _ in found] == [claim.token for claim in claims]


def test_the_answer_tells_each_its_place_and_keeps_it_asleep() -> None:
    rig = Rig()
    first, gone, third = line(rig, 3)
    me = speaker(rig)
    me.company = _company(rig.engine, me, 0.5)
    before = gone.valid_until
    del rig.engine.lined[gone.token]
    learn(rig.engine, me, rig.options, queued_with(4, 5, 6), START)
    assert [claim.rank for claim in (first, gone, third)] == [4, 2, 6], "who woke up asks by itself"
    assert gone.unsettled
    assert gone.valid_until == before
    for claim in (first, third):
        assert not claim.unsettled
        assert claim.beat_at == pytest.approx(START + 1.2)
        assert claim.expires_ms == NOW_MS + 3000


def test_an_answer_without_places_settles_and_tells_nothing() -> None:
    rig = Rig()
    [first] = line(rig, 1)
    me = speaker(rig)
    me.company = _company(rig.engine, me, 0.5)
    learn(rig.engine, me, rig.options, queued_with()[:7], START)
    assert (first.rank, first.unsettled) == (1, False)
