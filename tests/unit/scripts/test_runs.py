"""Runs, rule by rule: tickets that a client served from the token of another of its waiters."""

from __future__ import annotations

import pytest

from tests.unit.scripts.rig import Rig, token

pytestmark = pytest.mark.slow

A, B, C, D = (token(text) for text in "abcd")


def _elsewhere(text: str) -> str:
    return f"{text:x<24}@host:2/{text}"


def test_a_hand_off_names_the_tickets_behind_of_the_same_process(rig: Rig) -> None:
    holder, others = _elsewhere("h"), [A, B, C, _elsewhere("x"), D]
    rig.acquire(holder, 5000)
    for tok in others:
        rig.acquire(tok, 5000, 900, block=4)
    rig.mail()
    assert rig.leave(holder, run="15") == ("R",)
    [(channel, words)] = rig.mail()
    assert channel == "ch"
    assert words[0] == A
    assert words[4:] == [B, C]
    assert rig.leave(A, run="1") == ("R",)
    assert rig.mail()[0][1][4:] == [C]
    assert rig.leave(B) == ("R",)
    assert len(rig.mail()[0][1]) == 4


def test_a_token_with_another_public_part_is_named_to_nobody(rig: Rig) -> None:
    rig.acquire(A, 5000)
    for text in ("b", "c"):
        rig.acquire(f"{text:x<24}@somebody", 5000, 900)
    rig.mail()
    rig.leave(A, run="15")
    assert len(rig.mail()[0][1]) == 4


def test_served_tickets_go_with_the_token_they_were_served_from(rig: Rig) -> None:
    rig.acquire(A, 5000)
    for tok in (B, C, D):
        rig.acquire(tok, 5000, 900, block=4)
    rig.leave(A, run="15")
    rig.mail()
    assert rig.leave(B, run=f"0 {C}") == ("R",)
    assert rig.mail()[0][1][0] == D
    assert set(rig.tickets()) == set()
    assert rig.renew(C)[0] == "U"
    assert rig.leave(D) == ("R",)


def test_the_last_of_a_run_leaves_nothing_behind(rig: Rig) -> None:
    rig.acquire(A, 5000)
    rig.acquire(B, 5000, 900)
    rig.acquire(C, 5000, 900)
    rig.leave(A)
    assert rig.leave(B, run=f"3 {C}") == ("R",)
    assert rig.acquire(D, mode=0)[0] == "H"
    assert rig.tickets() == {}


def test_a_served_ticket_that_was_granted_meanwhile_is_freed_too(rig: Rig) -> None:
    rig.acquire(A, 5000)
    for tok in (B, C, D):
        rig.acquire(tok, 5000, 900)
    rig.leave(A)
    # The lease of the run ran out, and the server passed the name to a ticket that it had served.
    rig.renew(C, 5000, 3000)
    rig.renew(D, 5000, 3000)
    rig.advance(1000)
    assert rig.renew(D, 5000, 3000)[0] == "Q"
    assert rig.leave(B, run=f"0 {C}") == ("R",)
    assert rig.renew(D)[0] == "H"


def test_a_run_that_is_over_takes_nobody_elses_name(rig: Rig) -> None:
    rig.acquire(A, 5000)
    for tok in (B, C, D):
        rig.acquire(tok, 5000, 900)
    assert rig.leave(B, run=f"2 {C}") == ("W",)
    assert rig.renew(A)[0] == "H"
    assert list(rig.tickets()) == [D]


def test_a_run_is_left_with_a_tombstone(rig: Rig) -> None:
    rig.acquire(A, 5000)
    for tok in (B, C, D):
        rig.acquire(tok, 5000, 900)
    rig.leave(A)
    assert rig.leave(B, tomb=500, run=f"2 {C}") == ("R",)
    assert rig.acquire(B)[0] == "X"
    assert rig.renew(D)[0] == "H"
    assert rig.tickets() == {}
