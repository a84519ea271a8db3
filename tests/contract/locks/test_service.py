"""The lock service in process: identifiers instead of leases, counted, renewed, and told apart by their errors."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import Any

import pytest

import pawlock
from tests.faults.rig import Api, Client, in_thread, remains, until, waiters
from tests.support.pace import pace
from tests.support.refusal import case, refused
from tests.support.servers import Server


class Service:
    """A service of either API."""

    def __init__(self, api: Api, client: Client) -> None:
        self.api = api
        self.raw = client.raw.service()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.raw, name)
        return lambda *args, **more: self.api.run(lambda: method(*args, **more))


@pytest.fixture
def services(api: Api, pair: list[Client]) -> list[Service]:
    return [Service(api, client) for client in pair]


def test_acquire_renew_release(services: list[Service], valkey: Server) -> None:
    mine, other = services
    identifier = mine.acquire("job")
    assert len(identifier) > 20
    assert mine.acquire("other") != identifier
    with pytest.raises(pawlock.AcquireTimeout) as caught:
        other.acquire("job", {"wait": 0.1})
    assert caught.value.code == "LOCK_TIMEOUT"
    assert caught.value.holder == mine.metrics("job").holder
    mine.renew("job", identifier, 60)
    assert 59 < mine.metrics("job").ttl_left <= 60
    mine.release("job", identifier)
    for wrong in (identifier, "somebody"):
        with pytest.raises(pawlock.NotHeld) as not_held:
            mine.release("job", wrong)
        assert not_held.value.code == "UNLOCK_FAILED"
        with pytest.raises(pawlock.NotHeld):
            mine.renew("job", wrong)
    other.release("job", other.acquire("job", {"wait": 0}))
    assert remains(valkey) != [], "the other name is still held"


def test_an_identifier_is_counted_in_this_process(services: list[Service], valkey: Server) -> None:
    """Two clients are two processes for the server."""
    mine, other = services
    assert mine.acquire("job", identifier="team-7") == "team-7"
    mine.acquire("job", identifier="team-7")
    assert mine.metrics("job").count == 2
    with pytest.raises(pawlock.AcquireTimeout):
        other.acquire("job", pawlock.ServiceOptions(wait=0), identifier="team-7")
    with pytest.raises(pawlock.NotHeld):
        other.release("job", "team-7")
    mine.release("job", "team-7")
    assert mine.metrics("job").count == 1
    with pytest.raises(pawlock.AcquireTimeout):
        mine.acquire("job", {"wait": 0}, identifier="team-8")
    mine.release("job", "team-7")
    with pytest.raises(pawlock.NotHeld):
        mine.release("job", "team-7")
    mine.release("job", mine.acquire("job", {"wait": 0}, identifier="team-8"))
    assert remains(valkey) == []


def test_those_that_wait_with_one_identifier_enter_together(services: list[Service]) -> None:
    mine, other = services
    holder = other.acquire("job")
    waiting = [in_thread(lambda: mine.acquire("job", {"wait": 20}, identifier="team-7")) for _ in range(3)]
    until(lambda: other.metrics("job").queue_length == 3)
    other.release("job", holder)
    assert {one.result(10) for one in waiting} == {"team-7"}
    assert mine.metrics("job").count == 3
    # Two of them give their tickets back in the background.
    until(lambda: other.metrics("job").queue_length == 0)
    for left in (2, 1, 0):
        mine.release("job", "team-7")
        assert mine.metrics("job").count == left


def test_a_hold_that_was_lost_is_entered_anew(services: list[Service], valkey: Server) -> None:
    mine, _ = services
    mine.acquire("job", {"ttl": 1.0}, identifier="team-7")
    mine.acquire("job", identifier="team-7")
    valkey.command("FLUSHALL")
    time.sleep(0.5)
    mine.acquire("job", identifier="team-7")
    assert mine.metrics("job").count == 1
    mine.release("job", "team-7")
    for _ in range(2):
        with pytest.raises(pawlock.NotHeld):
            mine.release("job", "team-7")


def test_retries_are_one_wait_in_the_queue(services: list[Service]) -> None:
    mine, other = services
    identifier = mine.acquire("job")
    began = time.monotonic()
    with pytest.raises(pawlock.AcquireTimeout):
        other.acquire("job", {"retry_count": 2, "retry_delay": 0.15})
    assert 0.3 <= time.monotonic() - began < pace() * 2
    with pytest.raises(pawlock.AcquireTimeout):
        other.acquire("job", {"retry_count": 0})
    waiting = in_thread(lambda: other.acquire("job", {"wait": 20}))
    until(lambda: mine.metrics("job").queue_length == 1)
    assert other.metrics("job").waiting == 1
    mine.release("job", identifier)
    other.release("job", waiting.result(10))


def test_holds_are_renewed_until_they_are_lost(services: list[Service], valkey: Server) -> None:
    mine, _ = services
    identifier = mine.acquire("job", {"ttl": 1.0})
    time.sleep(1.3)
    mine.renew("job", identifier)
    valkey.command("FLUSHALL")
    time.sleep(0.5)
    with pytest.raises(pawlock.NotHeld):
        mine.renew("job", identifier)
    with pytest.raises(pawlock.NotHeld):
        mine.release("job", identifier)
    limited = mine.acquire("job", {"max_hold": 0.2})
    time.sleep(0.4)
    with pytest.raises(pawlock.NotHeld):
        mine.release("job", limited)


def test_metrics(services: list[Service]) -> None:
    mine, other = services
    free = mine.metrics("job")
    assert free == pawlock.ServiceMetrics("job", "", 0.0, 0, 0, 0, 0, 0, 0)
    identifier = mine.acquire("job")
    with pytest.raises(pawlock.AcquireTimeout):
        mine.acquire("job", {"wait": 0})
    held = mine.metrics("job")
    assert 29 < held.ttl_left <= 30
    assert (held.holder.startswith("service:"), held.count, held.queue_length) == (True, 1, 0)
    assert (held.acquired, held.waits, held.waiting, held.failures) == (1, 2, 0, 1)
    assert other.metrics("job").acquired == 0, "counted by client"
    mine.release("job", identifier)


def test_nothing_that_is_shown_of_an_identifier_lets_anybody_in(
    services: list[Service], pair: list[Client], api: Api, valkey: Server
) -> None:
    mine, other = services
    identifier = mine.acquire("job", {"ttl": 60})
    shown: list[object] = []
    for ask in (
        lambda: other.acquire("job", {"wait": 0.1}),
        lambda: other.release("job", identifier),
        lambda: other.renew("job", identifier),
    ):
        with pytest.raises(pawlock.PawlockError) as caught:
            ask()
        shown += [str(caught.value), repr(caught.value), vars(caught.value)]
    raw = pair[1].raw
    deadline = time.monotonic() + 20
    while not (listed := api.run(raw.locks)) and time.monotonic() < deadline:
        time.sleep(0.1)  # a session is told of after a second
    shown += [listed, api.run(lambda: raw.inspect("job")), other.metrics("job"), other.stats()]
    shown.append(valkey.command("GET", "pawlock:job"))
    text = " ".join(map(str, shown))
    assert listed
    assert "service:" in text
    assert identifier not in text
    pieces = set(re.findall(r"[^\s'\"(),;]+", text)) | set(re.findall(r"[\w.-]{6,}", text))
    for piece in {
        one for whole in pieces for one in (whole, whole.partition("@")[0], whole.partition("=")[2])
    }:
        for enter in (lambda piece=piece: other.acquire("job", {"wait": 0}, identifier=piece),):
            with pytest.raises(pawlock.PawlockError):
                enter()
    assert mine.metrics("job").count == 1
    mine.release("job", identifier)


def test_stats_are_over_all_names_and_ask_no_server(services: list[Service]) -> None:
    mine, other = services
    assert mine.raw.stats() == pawlock.ServiceStats(0, 0, 0, 0, 0, 0, 0)
    identifier = mine.acquire("job")
    mine.acquire("job", identifier=identifier)
    second = mine.acquire("other")
    with pytest.raises(pawlock.AcquireTimeout):
        mine.acquire("job", {"wait": 0})
    with pytest.raises(pawlock.NotHeld):
        mine.release("job", "somebody")
    stats = mine.raw.stats()
    assert stats == pawlock.ServiceStats(
        names=2, holds=3, acquired=3, released=0, waits=4, waiting=0, failures=2
    )
    waiting = in_thread(lambda: other.acquire("job", {"wait": 10}))
    until(lambda: other.raw.stats().waiting == 1)
    mine.release("job", identifier)
    mine.release("job", identifier)
    waiting.result(10)
    mine.release("other", second)
    assert mine.raw.stats() == pawlock.ServiceStats(0, 0, 3, 3, 4, 0, 2)
    assert other.raw.stats() == pawlock.ServiceStats(1, 1, 1, 0, 1, 0, 0), "counted by client"


def test_the_same_service_at_every_call(api: Api, pair: list[Client]) -> None:
    identifier = Service(api, pair[0]).acquire("job")
    Service(api, pair[0]).release("job", identifier)


def test_closing_gives_everything_back(api: Api, pair: list[Client], valkey: Server) -> None:
    service = Service(api, pair[0])
    for name in "abc":
        service.acquire(name)
    pair[0].close()
    until(lambda: remains(valkey) == [])


BAD: list[tuple[Any, str]] = [
    ({"ttl": 0}, "ttl must be at least 0.05 s, got 0"),
    ({"wait": -1}, "wait must be >= 0, or None to wait indefinitely, got -1"),
    ({"retry_count": -1}, "retry_count must be"),
    ({"retry_count": 1.5}, "retry_count must be an int"),
    ({"retry_delay": -1}, "retry_delay must be"),
    ({"renewal_interval": True}, "renewal_interval must be a number"),
    ({"renewal_interval": False}, "renewal_interval must be a number"),
    ({"max_hold": 0}, "max_hold must be a finite number of seconds, more than 0, got 0"),
    ({"timeout": 3}, "unknown option timeout"),
    (7, "ServiceOptions or a mapping"),
    ([], "ServiceOptions or a mapping"),
]


def test_bad_options_and_identifiers(services: list[Service]) -> None:
    for options, word in BAD:
        with case(options):
            refused(lambda: services[0].acquire("job", options), word)
    for identifier in ("", "a b", 7):
        with case(identifier):
            refused(lambda: services[0].acquire("job", identifier=identifier), "identifier")


def test_a_set_event_ends_the_wait(services: list[Service], api: Api, valkey: Server) -> None:
    mine, other = services
    identifier = mine.acquire("job")
    stop = api.run(asyncio.Event if api.is_async else threading.Event)
    waiting = in_thread(lambda: other.acquire("job", {"wait": None, "retry_count": 1000}, stop=stop))
    until(lambda: waiters(valkey, "job") == 1, what="a waiter")
    api.run(stop.set)
    refused(lambda: waiting.result(10), "stop", pawlock.NotAcquired)
    until(lambda: waiters(valkey, "job") == 0, what="the end of its ticket")
    mine.release("job", identifier)


@pytest.mark.slow
def test_the_rhythm_of_renewals(services: list[Service]) -> None:
    mine, _ = services
    identifier = mine.acquire("job", {"ttl": 30, "renewal_interval": 2.5})
    (lease,) = mine.raw._book.holds("job", identifier)
    assert lease.hold.rhythm.every == 2.5
    mine.release("job", identifier)
    refused(lambda: mine.acquire("job", {"ttl": 3, "renewal_interval": 2}), "renew")
    refused(lambda: mine.acquire("job", {"renewal_interval": -1}), "renew")
