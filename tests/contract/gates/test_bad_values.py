"""What can never work is refused where it is given, before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import pytest

import pawlock
from tests.contract.test_bad_input import BAD_NAMES, BAD_TIMEOUTS, NO_DURATION, Listener, word_of
from tests.support.refusal import refused

Client = pawlock.Client | pawlock.AsyncClient

BAD_NUMBERS: list[tuple[object, str]] = [
    (0, "got 0"),
    (-1, "got -1"),
    (10**12, "must be 1 to"),
    (True, "must be an int, got bool"),
    (False, "must be an int, got bool"),
    (1.0, "must be an int, got float"),
    (inf, "must be an int"),
    ("3", "must be an int, got str"),
    (None, "must be an int, got NoneType"),
]


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    called = made.was_called()
    made.close()
    assert not called, "something reached the network"


@pytest.fixture(params=["threads", "asyncio"])
def client(request: pytest.FixtureRequest, listener: Listener) -> Client:
    door: Callable[[str], Client] = pawlock.connect if request.param == "threads" else pawlock.connect_async
    return door(listener.url)


@pytest.mark.parametrize(("name", "word"), BAD_NAMES, ids=word_of)
def test_names(client: Client, name: Any, word: str) -> None:
    refused(lambda: client.latch(name, 1), word)
    refused(lambda: client.barrier(name, 1), word)
    refused(lambda: client.election(name), word)


def test_a_field_that_nothing_fills(client: Client) -> None:
    for make in (
        lambda: client.latch("a{b}", 1),
        lambda: client.barrier("a{b}", 1),
        lambda: client.election("a{b}"),
    ):
        refused(make, "has a field, and nothing fills it")


@pytest.mark.parametrize(("number", "word"), BAD_NUMBERS, ids=word_of)
def test_counts_and_parties(client: Client, number: Any, word: str) -> None:
    assert "count" in refused(lambda: client.latch("x", number), word)
    assert "parties" in refused(lambda: client.barrier("x", number), word)


def test_the_largest(client: Client) -> None:
    assert client.latch("x", 10**9).count == 10**9
    refused(lambda: client.latch("x", 10**9 + 1), "1000000000")
    assert client.barrier("x", 1000).parties == 1000
    refused(lambda: client.barrier("x", 1001), "1000")


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    *[({"ticket_ttl": value}, "ticket_ttl must be a number of seconds") for value in NO_DURATION],
    ({"ticket_ttl": 0}, "ticket_ttl must be at least 0.05 s, got 0"),
    ({"ticket_ttl": nan}, "ticket_ttl must be a number of seconds, got NaN"),
    ({"timeout": -1}, "timeout must be >= 0, or None to wait indefinitely, got -1"),
    ({"timeout": "5"}, "timeout must be a number"),
    ({"unavailable_after": -1}, "unavailable_after must be a finite number of seconds, 0 or more, got -1"),
    ({"renew": False}, "unknown option renew"),
    ({"handover": 3}, "unknown option handover"),
    ({"tll": 3}, "unknown option tll"),
]
LATCH_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"ttl": 0}, "ttl must be at least 0.05 s, got 0"),
    ({"ttl": inf}, "at most 366 days"),
    ({"ttl": "1d"}, "ttl must be a number"),
    ({"ttl": 1, "ticket_ttl": 2}, "at most ttl"),
    ({"max_waiters": 0}, "max_waiters must be 1 to 10000000, got 0"),
    ({"max_waiters": True}, "max_waiters must be an int"),
]


@pytest.mark.parametrize(("options", "word"), [*BAD_OPTIONS, *LATCH_OPTIONS], ids=word_of)
def test_options_of_a_latch(client: Client, options: dict[str, Any], word: str) -> None:
    refused(lambda: client.latch("x", 1, **options), word)


@pytest.mark.parametrize(
    ("options", "word"), [*BAD_OPTIONS, ({"max_waiters": 3}, "unknown option max_waiters")], ids=word_of
)
def test_options_of_a_barrier(client: Client, options: dict[str, Any], word: str) -> None:
    refused(lambda: client.barrier("x", 1, **options), word)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"handover": 3}, "no local hand-off"),
        ({"ttl": 0}, "ttl must be at least 0.05 s, got 0"),
        ({"tll": 3}, "unknown option tll"),
        ({"identity": ""}, "identity must be text"),
        ({"identity": 7}, "identity must be text"),
        ({"identity": b"me"}, "identity must be text"),
        ({"identity": "me too"}, "white space"),
        ({"identity": "me\n"}, "white space or control"),
        ({"identity": "\ud800"}, "control characters"),
        ({"identity": "x" * 201}, "at most 200 bytes"),
        ({"identity": "é" * 101}, "at most 200 bytes"),
    ],
    ids=word_of,
)
def test_options_of_an_election(client: Client, options: dict[str, Any], word: str) -> None:
    refused(lambda: client.election("x", **options), word)


@pytest.mark.parametrize(("number", "word"), BAD_NUMBERS, ids=word_of)
def test_steps_of_a_count(listener: Listener, number: Any, word: str) -> None:
    refused(lambda: pawlock.connect(listener.url).latch("x", 1).count_down(number), word)
    refused(lambda: asyncio.run(_count_down(listener.url, number)), word)


async def _count_down(url: str, *args: Any, **kwargs: Any) -> None:
    await pawlock.connect_async(url).latch("x", 1).count_down(*args, **kwargs)


@pytest.mark.parametrize("part", ["", b"a", 7, "x" * 201, "\ud800", ["a"]], ids=word_of)
def test_parts(listener: Listener, part: Any) -> None:
    refused(lambda: pawlock.connect(listener.url).latch("x", 1).count_down(part=part), "part")
    refused(lambda: asyncio.run(_count_down(listener.url, part=part)), "part")


@pytest.mark.parametrize(("timeout", "word"), BAD_TIMEOUTS)
def test_timeouts(listener: Listener, timeout: Any, word: str) -> None:
    with pawlock.connect(listener.url) as client:
        refused(lambda: client.latch("x", 1).wait(timeout), word)
        refused(lambda: client.barrier("x", 1).wait(timeout), word)
        refused(lambda: client.election("x").campaign(timeout), word)

    async def wrong(kind: str) -> None:
        client = pawlock.connect_async(listener.url)
        if kind == "latch":
            await client.latch("x", 1).wait(timeout)
        elif kind == "barrier":
            await client.barrier("x", 1).wait(timeout)
        else:
            await client.election("x").campaign(timeout)

    for kind in ("latch", "barrier", "election"):
        refused(lambda kind=kind: asyncio.run(wrong(kind)), word)  # type: ignore[misc]


def test_what_only_the_leader_may_do(client: Client) -> None:
    election: Any = client.election("x")

    def generator() -> Iterator[int]:
        yield 1

    refused(lambda: election.leader_only(7), "not int")
    refused(lambda: election.leader_only(int), "not type")
    refused(lambda: election.leader_only(staticmethod(print)), "not staticmethod")
    refused(lambda: election.leader_only(generator), "generator")
    refused(
        lambda: election.leader_only(on_follower="wait"), "on_follower must be 'raise' or 'skip', got 'wait'"
    )
