"""The scripts of permits, one request after the other: what they refuse, what repeats, what memory allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from tests.support.refusal import case
from tests.support.servers import Server
from tests.unit.scripts.permit_rig import PermitRig
from tests.unit.scripts.rig import DAY, Reply, token

A, B, C, D = (token(letter) for letter in "ABCD")


@pytest.fixture
def rig(server: Server) -> Iterator[PermitRig]:
    found = PermitRig(server.socket_path)
    yield found
    found.close()


@pytest.fixture
def own(own_server: Server) -> Iterator[PermitRig]:
    found = PermitRig(own_server.socket_path, own_clock=False)
    yield found
    found.close()


def left(found: list[str]) -> list[str]:
    return [key for key in found if not key.endswith(":fence")]


def test_a_resend_answers_the_same_and_counts_once(rig: PermitRig) -> None:
    first = rig.take(A, "2", permits=3)
    assert (first[0], first[-1]) == ("H", "2")
    rig.advance(10)
    again = rig.take(A, "2", permits=3)
    assert again[:2] == first[:2]
    assert rig.state().weight() == 2
    assert rig.take(B, "1", permits=3)[0] == "H"
    assert rig.take(C, "1", permits=3)[0] == "Q"
    assert rig.give(A, "2", permits=3) == ("R",)
    assert rig.give(A, "2", permits=3) == ("A", "held", 0)
    state = rig.state()
    assert (state.weight(), set(state.holders)) == (2, {B, C})


def test_a_late_acquire_of_a_writer_finds_the_reader_it_became(rig: PermitRig) -> None:
    writer = rig.take(A, "x")
    assert writer[-1] == "x"
    assert rig.take(B, "1")[0] == "Q"
    lowered = rig.again(A, "1")
    assert (lowered[0], lowered[1], lowered[-1]) == ("H", writer[1], "1")
    assert set(rig.state().holders) == {A, B}
    assert rig.take(A, "x")[-1] == "1", "the answer carries the mode"
    assert rig.again(A, "x")[-1] == "1", "a late renewal undoes no downgrade"
    assert {mode for mode, _ in rig.state().holders.values()} == {"1"}
    assert rig.give(A, "x") == ("R",), "a leave that was sent as a writer ends the reader"


def test_a_writer_is_no_number(rig: PermitRig) -> None:
    assert rig.take(A, "x")[0] == "H"
    for reader in (B, C, D):
        assert rig.take(reader, "1", wait=0)[0] == "B"
    assert rig.take(D, "x", wait=0)[0] == "B"


def test_one_release_serves_at_most_64_and_each_confirmation_goes_on(rig: PermitRig) -> None:
    rig.take(A, "x")
    readers = [token(f"r{number}") for number in range(150)]
    for reader in readers:
        assert rig.take(reader, "1", room=1000)[0] == "Q"
    rig.give(A, "x")
    assert set(rig.state().holders) == set(readers[:64])
    rig.again(readers[0])
    assert len(rig.state().holders) == 128
    rig.again(readers[1])
    state = rig.state()
    assert (len(state.holders), len(state.queue)) == (150, 0)
    assert [state.fences[reader] for reader in readers] == sorted(state.fences.values())


def test_the_limit_and_who_may_disagree(rig: PermitRig) -> None:
    rig.take(A, "1", permits=3)
    assert rig.take(B, "1", permits=4) == ("N", "limit", 3, 3)
    assert rig.limit(5, 3) == ("L", 3)
    assert rig.take(B, "4", permits=3)[0] == "H", "the one who declares the old number"
    assert rig.take(C, "1", permits=5)[0] == "Q", "the one who declares the new number"
    assert rig.take(D, "1", permits=4) == ("N", "limit", 5, 3)
    assert rig.take(D, "6", permits=5) == ("N", "weight", 5, 3)
    shown = rig.show(5)
    assert shown[10:12] == (5, 5)
    assert shown[12] == ["1", "host:1/A", shown[12][2], "4", "host:1/B", shown[12][5]]


def test_whoever_can_never_be_served_is_taken_out_and_told(rig: PermitRig) -> None:
    rig.take(A, "3", permits=4)
    rig.take(B, "4", permits=4, channel="b")
    rig.take(C, "1", permits=4, channel="c")
    rig.mail()
    rig.limit(3, 4)
    assert rig.mail() == [("b", [B, "0", "1", str(rig.now)])]
    assert rig.again(B, "4", permits=4) == ("U", "none")
    assert rig.take(B, "4", permits=4) == ("N", "weight", 3, 4)
    rig.give(A, "3", permits=4)
    assert set(rig.state().holders) == {C}


def test_a_channel_with_white_space_is_none(rig: PermitRig) -> None:
    """In the ticket it would stop every script that reads the queue."""
    rig.take(A, permits=1)
    rig.take(C, permits=1)
    for ask, tok in ((rig.take, B), (rig.again, C)):
        assert ask(tok, permits=1, channel="a b")[0] == "Q"
    assert rig.again(A, permits=1)[0] == "H"
    assert rig.give(A, permits=1)[0] == "R"


def test_dead_holders_make_room_and_dead_waiters_none(rig: PermitRig) -> None:
    rig.take(A, "1", permits=1, ttl=200)
    rig.take(B, "1", permits=1, ticket_ttl=100)
    rig.take(C, "1", permits=1, ticket_ttl=1000)
    rig.advance(300)
    assert rig.again(C, "1", permits=1)[0] == "H"
    state = rig.state()
    assert (set(state.holders), set(state.queue)) == ({C}, set())
    assert set(state.fences) == {C}


def test_nothing_is_left_but_the_fence_and_everything_has_an_end(rig: PermitRig) -> None:
    rig.take(A, "1", permits=2)
    rig.take(B, "1", permits=2)
    rig.take(C, "1", permits=2)
    rig.give(C, permits=2, tomb=500)
    assert all(expiry > 0 for _, expiry, _ in rig.raw().values())
    for tok in (A, B):
        rig.give(tok, permits=2)
    dead = rig.key("dead", dead=C)
    assert left(list(rig.raw())) == [dead]
    assert rig.take(C, "1", permits=2) == ("X",)
    kind, expiry, content = rig.raw([rig.key("fence")])[rig.key("fence")]
    assert kind == "hash"
    assert rig.now + DAY * 23 / 24 <= expiry <= rig.now + DAY
    assert "limit" in content


REQUESTS: dict[str, Callable[[PermitRig], Reply]] = {
    "acquire": lambda rig: rig.take(D, "1", permits=2),
    "acquire again": lambda rig: rig.take(A, "1", permits=2),
    "renew": lambda rig: rig.again(A, "1", permits=2),
    "renew a ticket": lambda rig: rig.again(C, "1", permits=2),
    "leave": lambda rig: rig.give(A, "1", permits=2, tomb=100),
    "withdraw": lambda rig: rig.give(C, "1", permits=2),
    "limit": lambda rig: rig.limit(3, 2),
    "inspect": lambda rig: rig.show(2),
}


def free(_: PermitRig) -> None:
    """Nothing is there."""


def held(rig: PermitRig) -> None:
    rig.take(A, "1", permits=2)


def full(rig: PermitRig) -> None:
    held(rig)
    rig.take(B, "1", permits=2)
    rig.take(C, "1", permits=2)


def due(rig: PermitRig) -> None:
    full(rig)
    rig.take(B, "1", permits=2, ttl=1)
    rig.redis.zadd(rig.key("permits"), {f"1:{B}": rig.now - 1})


SCENES = [free, held, full, due]


def refusal(rig: PermitRig, request_: str) -> str:
    """The server's error; empty when there was none."""
    try:
        REQUESTS[request_](rig)
    except redis.ResponseError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("part", ["permits", "fence", "queue", "tickets", "holds"])
def test_a_key_of_a_wrong_type_stops_a_script_before_it_writes(rig: PermitRig, part: str) -> None:
    for request_ in REQUESTS:
        refused = 0
        for scene in SCENES:
            rig.redis.flushall()
            scene(rig)
            key = rig.key(part)
            rig.redis.delete(key)
            rig.redis.rpush(key, "of somebody else")
            before = rig.raw()
            with case(request_, scene.__name__):
                if error := refusal(rig, request_):
                    assert "WRONGTYPE" in error
                    assert rig.raw() == before
                    refused += 1
                else:
                    assert rig.raw([key])[key] == before[key]
        assert refused or (part, request_) == ("holds", "inspect"), request_


def test_another_wire_version_is_left_alone(rig: PermitRig) -> None:
    for request_ in REQUESTS:
        for scene in SCENES[1:]:
            rig.redis.flushall()
            scene(rig)
            rig.redis.hset(rig.key("fence"), "v", "2")
            before = rig.raw()
            with case(request_, scene.__name__):
                if error := refusal(rig, request_):
                    assert "PAWLOCKWIRE this name is used by pawlock wire version 2" in error
                    assert rig.raw() == before
                else:
                    # Only what takes away nothing but its own token gets by.
                    assert request_ in {"leave", "withdraw"}
                    assert scene is held


def test_a_full_server_refuses_new_holders_and_nothing_else(own: PermitRig) -> None:
    own.take(A, "x", ttl=60_000)
    own.take(B, "1", ttl=60_000, ticket_ttl=60_000)
    own.redis.config_set("maxmemory", "1")
    with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
        own.take(C, "1", wait=1)
    assert own.again(A, "x", ttl=90_000)[0] == "H"
    assert own.again(B, "1", ttl=60_000, ticket_ttl=90_000)[0] == "Q"
    assert own.again(A, "1", ttl=90_000)[-1] == "1", "a downgrade works too"
    assert set(own.state().holders) == {A, B}
    assert own.give(A, "1", tomb=1000) == ("R",)
    assert own.give(B, "1") == ("R",)


def test_what_is_shown_of_a_token_is_not_its_secret(rig: PermitRig) -> None:
    rig.take(A, "x")
    rig.take(B, "1")
    assert "xxxx" not in str(rig.show())
    assert "xxxx" not in str(rig.take(C, "1", wait=0))
