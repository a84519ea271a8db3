"""The short way of a vote: a node that grants exactly what it was asked for, without its clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from pawlock.redlock.options import RedlockOptions
from pawlock.redlock.requests import RedlockMutex, Vote
from tests.support.servers import Server, available

_US = 1_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if reason := available("valkey"):
        pytest.skip(reason)
    with Server("valkey", unix=False) as node:
        yield node


class _Node:
    """Sends votes to one server as a candidate would."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.mutex = RedlockMutex("lock", name, name, RedlockOptions())
        self.now_us = int(time.time() * _US)

    def vote(self, token: str, proposal: int, *, block: int = 16) -> Any:
        return self._run(self.mutex.grant(Vote(self.mutex, token, 30_000, block), proposal))

    def leave(self, token: str) -> Any:
        return self._run(self.mutex.leave(token, 0, 0))

    def _run(self, call: Any) -> Any:
        words = call.words()
        return self.server.command("EVAL", call.script.source, str(call.script.numkeys), *words, "1000000007")

    def fence(self) -> tuple[int, int]:
        known: Any = self.server.command("HMGET", f"{{{self.mutex.name}}}:fence", "last", "cur")
        return int(known[0]), int(known[1])

    def lives_ms(self, key: str) -> int:
        left: Any = self.server.command("PTTL", key)
        return int(left)


def short(reply: Any) -> bool:
    """Whether a grant was given the short way: the clock was not read."""
    return bool(reply[0] == b"H" and reply[4] == 0)


def test_a_proposal_that_rises_is_granted_without_the_clock_and_kept(server: Server) -> None:
    node = _Node(server, "plain-rises")
    first = node.vote("a@h", 0)
    assert first[0] == b"H"
    assert len(first) == 5
    assert first[4] > 0
    node.leave("a@h")
    proposal = node.now_us + 5 * _US
    assert node.vote("b@h", proposal, block=16) == [b"H", b"1000000007", proposal, 30_000, 0]
    assert node.fence() == (proposal + 15, proposal)
    assert 29_000 < node.lives_ms("plain-rises") <= 30_000
    # A copy of it says the same, with the clock.
    again = node.vote("b@h", proposal, block=16)
    assert again[:3] == [b"H", b"1000000007", proposal]
    assert 0 < again[3] <= 30_000
    assert node.fence() == (proposal + 15, proposal)


def test_a_proposal_inside_the_last_block_or_far_ahead_is_not_granted_as_it_is(server: Server) -> None:
    node = _Node(server, "plain-inside")
    node.vote("a@h", 0)
    node.leave("a@h")
    proposal = node.now_us + 5 * _US
    assert short(node.vote("b@h", proposal, block=16))
    node.leave("b@h")
    inside = node.vote("c@h", proposal + 15, block=16)
    assert not short(inside)
    assert inside[2] == proposal + 16
    node.leave("c@h")
    ahead = node.vote("d@h", node.now_us + 4 * 3600 * _US)
    assert not short(ahead)
    assert proposal + 31 < ahead[2] < node.now_us + 3600 * _US


def test_a_proposal_is_not_granted_plainly_where_the_fence_may_be_forgotten_too_soon(server: Server) -> None:
    node = _Node(server, "plain-forgotten")
    node.vote("a@h", 0)
    node.leave("a@h")
    key = "{plain-forgotten}:fence"
    soon = int(time.time() * 1000) + 60_000
    server.command("HSET", key, "x", str(soon))
    server.command("PEXPIREAT", key, str(soon))
    told = node.vote("b@h", node.now_us + 5 * _US)
    assert not short(told)
    assert node.lives_ms(key) > 3_600_000 * 23 // 24
    server.command("DEL", key)
    node.leave("b@h")
    assert not short(node.vote("c@h", node.now_us + 9 * _US))
    assert node.lives_ms(key) > 3_600_000 * 23 // 24


def test_a_token_that_left_for_good_and_a_name_that_is_held_get_no_plain_yes(server: Server) -> None:
    node = _Node(server, "plain-dead")
    node.vote("a@h", 0)
    assert node.vote("b@h", node.now_us + 5 * _US)[0] == b"B"
    node.leave("a@h")
    node.leave("c@h")
    assert node.vote("c@h", node.now_us + 5 * _US)[0] == b"X"
    server.command("RPUSH", "plain-list", "x")
    with pytest.raises(Exception, match="WRONGTYPE"):
        _Node(server, "plain-list").vote("a@h", node.now_us)
