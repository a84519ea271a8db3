"""What can never work is refused where it is given, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

from tests.contract.test_bad_input import (
    BAD_NAMES,
    BAD_TIMEOUTS,
    NO_DURATION,
    Client,
    Listener,
    clients,
    listener,
    refused_by_both,
)
from tests.support.refusal import case, refused

__all__ = ["clients", "listener"]

BAD_NUMBERS: list[tuple[Any, str]] = [
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


def test_names(clients: list[Client]) -> None:
    names: list[tuple[Any, str]] = [*BAD_NAMES, ("a{b}", "has a field, and nothing fills it")]
    for client in clients:
        for name, word in names:
            with case(name):
                refused(lambda: client.latch(name, 1), word)
                refused(lambda: client.barrier(name, 1), word)
                refused(lambda: client.election(name), word)


def test_counts_and_parties(clients: list[Client]) -> None:
    for client in clients:
        for number, word in BAD_NUMBERS:
            with case(number):
                assert "count" in refused(lambda: client.latch("x", number), word)
                assert "parties" in refused(lambda: client.barrier("x", number), word)
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


BARRIER_OPTIONS: list[tuple[dict[str, Any], str]] = [({"max_waiters": 3}, "unknown option max_waiters")]
ELECTION_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"handover": 3}, "no local hand-off"),
    ({"on_unavailable": "local"}, "no degraded mode"),
    ({"on_unavailable": "open"}, "no degraded mode"),
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
]


def test_options(clients: list[Client]) -> None:
    for client in clients:
        for make, table in (
            (lambda options: client.latch("x", 1, **options), [*BAD_OPTIONS, *LATCH_OPTIONS]),
            (lambda options: client.barrier("x", 1, **options), [*BAD_OPTIONS, *BARRIER_OPTIONS]),
            (lambda options: client.election("x", **options), ELECTION_OPTIONS),
        ):
            for options, word in table:
                with case(options):
                    refused(lambda: make(options), word)


def test_steps_and_parts_of_a_count(listener: Listener) -> None:
    for number, word in BAD_NUMBERS:
        with case(number):
            refused_by_both(listener.url, lambda client: client.latch("x", 1).count_down(number), word)
    for part in ("", b"a", 7, "x" * 201, "\ud800", ["a"]):
        with case(part):
            refused_by_both(listener.url, lambda client: client.latch("x", 1).count_down(part=part), "part")


def test_timeouts(listener: Listener) -> None:
    for timeout, word in BAD_TIMEOUTS:
        with case(timeout):
            refused_by_both(listener.url, lambda client: client.latch("x", 1).wait(timeout), word)
            refused_by_both(listener.url, lambda client: client.barrier("x", 1).wait(timeout), word)
            refused_by_both(listener.url, lambda client: client.election("x").campaign(timeout), word)


def test_what_only_the_leader_may_do(clients: list[Client]) -> None:
    def generator() -> Iterator[int]:
        yield 1

    for client in clients:
        election: Any = client.election("x")
        refused(lambda: election.leader_only(7), "not int")
        refused(lambda: election.leader_only(int), "not type")
        refused(lambda: election.leader_only(staticmethod(print)), "below @staticmethod")
        refused(lambda: election.leader_only(generator), "generator")
        refused(
            lambda: election.leader_only(on_follower="wait"),
            "on_follower must be 'raise' or 'skip', got 'wait'",
        )
