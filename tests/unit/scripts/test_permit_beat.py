"""A waiter for permits that says of others too that they wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import Server
from tests.unit.scripts.permit_rig import PermitRig
from tests.unit.scripts.rig import token

pytestmark = pytest.mark.slow

A, B, C, D = (token(text) for text in "abcd")


@pytest.fixture
def rig(server: Server) -> Iterator[PermitRig]:
    found = PermitRig(server.socket_path)
    yield found
    found.close()


def beat(rig: PermitRig, tok: str, mode: str, *others: str) -> tuple[object, ...]:
    return rig.run("beat", (tok, mode, 0, 1000, 300, "", " ".join(others), rig.fence_ttl))


def test_readers_and_writers_are_kept_in_one_queue(rig: PermitRig) -> None:
    rig.take(A, "x", ttl=5000)
    rig.take(B, "x")
    rig.take(C, "1")
    rig.take(D, "1")
    rig.advance(250)
    status, rank, *_, ranks = beat(rig, B, "x", C, D)
    assert (status, rank, ranks) == ("Q", 0, [1, 2])
    rig.advance(299)
    rig.give(A, "x")
    assert set(rig.redis.hgetall(rig.key("tickets"))) == {C, D}
    rig.give(B, "x")
    assert rig.redis.hgetall(rig.key("tickets")) == {}


def test_who_is_let_in_by_the_beat_of_another_is_to_ask(rig: PermitRig) -> None:
    rig.take(A, "x", ttl=100)
    rig.take(B, "1")
    rig.take(C, "x")
    rig.take(D, "1")
    rig.advance(150)
    status, rank, *_, ranks = beat(rig, C, "x", B, D)
    assert (status, rank, ranks) == ("Q", 0, [-1, 1])
