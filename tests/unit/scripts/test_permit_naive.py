"""What the naive designs get wrong, and that the same tests pass with pawlock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.refusal import case
from tests.support.servers import Server
from tests.unit.scripts.permit_naive import (
    Counter,
    NobodyIsWaitedFor,
    Pawlock,
    Scheme,
    SharedTtl,
    TwoSteps,
    WriterIsANumber,
)
from tests.unit.scripts.permit_rig import PermitRig
from tests.unit.scripts.rig import token

A, B, C, D = (token(letter) for letter in "ABCD")


@pytest.fixture
def rig(valkey: Server) -> Iterator[PermitRig]:
    found = PermitRig(valkey.socket_path)
    found.redis.flushall()
    yield found
    found.close()


def a_dead_holder_frees_its_permit_though_others_live(scheme: Scheme) -> None:
    for tok in (A, B, C):
        assert scheme.take(tok, "1")
    for _ in range(5):
        scheme.rig.advance(400)
        assert scheme.again(A, "1")
        assert scheme.again(B, "1")
    assert scheme.take(D, "1"), "C is dead for a second"


def a_release_that_is_sent_again_frees_nothing_twice(scheme: Scheme) -> None:
    for tok in (A, B, C):
        assert scheme.take(tok, "1")
    scheme.give(A, "1")
    scheme.give(A, "1")
    assert scheme.used() == 2
    assert scheme.take(D, "1")
    assert not scheme.take(token("E"), "1")


def a_request_that_is_sent_again_counts_once(scheme: Scheme) -> None:
    for tok in (A, A, A, B):
        assert scheme.take(tok, "1")
    assert scheme.used() == 2


def a_dead_reader_frees_only_itself(scheme: Scheme) -> None:
    assert scheme.take(A, "1")
    assert scheme.take(B, "1")
    for _ in range(5):
        scheme.rig.advance(400)
        assert scheme.again(A, "1")
    assert scheme.used() == 1


def a_writer_is_alone_whatever_the_limit(scheme: Any) -> None:
    assert scheme.take(A, "x")
    if scheme.permits:
        scheme.permits = 8
    assert not scheme.take(B, "1")


def readers_do_not_pass_a_writer_that_waits(scheme: Scheme) -> None:
    assert scheme.take(A, "1")
    assert not scheme.take(B, "x")
    for number in range(5):
        assert not scheme.take(token(f"r{number}"), "1")
    scheme.give(A, "1")
    assert scheme.again(B, "x")


def nobody_comes_between_the_look_and_the_grant(scheme: Any) -> None:
    got: list[bool] = []

    def reader() -> None:
        got.append(scheme.take(B, "1"))

    if hasattr(scheme, "between"):
        scheme.between = reader
    writer = scheme.take(A, "x")
    if not got:
        reader()
    assert not (writer and got[0]), "a writer beside a reader"


CASES: list[tuple[Callable[[Any], None], type, int]] = [
    (a_dead_holder_frees_its_permit_though_others_live, Counter, 3),
    (a_release_that_is_sent_again_frees_nothing_twice, Counter, 3),
    (a_request_that_is_sent_again_counts_once, Counter, 3),
    (a_dead_reader_frees_only_itself, SharedTtl, 0),
    (a_writer_is_alone_whatever_the_limit, WriterIsANumber, 0),
    (readers_do_not_pass_a_writer_that_waits, NobodyIsWaitedFor, 0),
    (nobody_comes_between_the_look_and_the_grant, TwoSteps, 0),
]


def test_pawlock_gets_it_right(rig: PermitRig) -> None:
    for what, _, permits in CASES:
        rig.redis.flushall()
        with case(what.__name__):
            what(Pawlock(rig, permits))


def test_a_naive_design_does_not(rig: PermitRig) -> None:
    for what, naive, permits in CASES:
        rig.redis.flushall()
        with case(what.__name__), pytest.raises(AssertionError):
            what(naive(rig, permits or 3))
