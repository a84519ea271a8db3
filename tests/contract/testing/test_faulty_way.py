"""A way to a server in this process on which things go wrong: each fault does what its name says, and only that."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import pawlock
from pawlock.testing import Memory
from pawlock.testing.in_process.door import Door
from tests.support.pace import pace


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory() as memory:
        yield memory


@pytest.fixture
def way(memory: Memory) -> Door:
    return memory.faulty()


@pytest.fixture
def client(way: Door) -> Iterator[pawlock.Client]:
    with pawlock.connect(way.url, ttl=6, ticket_ttl=0.6) as client:
        client.lock("warm").acquire().release()
        yield client


def of_n(request: pawlock.testing.Request) -> bool:
    return request.contains("pawlock:n")


def test_what_is_sent_there_is_known(way: Door, client: pawlock.Client) -> None:
    client.lock("n").acquire().release()
    assert [request.args[0] for request in way.requests(of_n)] == [b"acquire", b"leave"]
    assert way.requests("leave")


def test_a_lost_request_is_sent_again(way: Door, client: pawlock.Client) -> None:
    rule = way.drop_request(of_n)
    client.lock("n").acquire().release()
    assert rule.hits == 1
    assert len(way.requests("acquire")) == 3


def test_a_lost_answer_leaves_what_was_done(way: Door, client: pawlock.Client, memory: Memory) -> None:
    way.swallow_reply(of_n, times=None)
    with pytest.raises(pawlock.BackendUnavailable):
        client.lock("n", unavailable_after=0.3).acquire()
    memory.assert_free("other")
    way.clear()
    client.lock("n").acquire(timeout=5).release()


def test_a_connection_dies_on_the_answer(way: Door, client: pawlock.Client) -> None:
    rule = way.kill_on_reply(of_n)
    began = time.monotonic()
    with client.lock("n") as lease:
        assert rule.hits == 1
        # At once and not after the patience with a silent server.
        assert time.monotonic() - began < 0.15 * pace()
        lease.check()


def test_a_doubled_request_is_served_twice_and_answered_once(way: Door, client: pawlock.Client) -> None:
    rule = way.duplicate_request(of_n)
    with client.lock("n") as lease:
        assert rule.hits == 1
        assert client.inspect("n").fence == lease.fence


def test_a_late_answer_shortens_what_is_left(way: Door, client: pawlock.Client) -> None:
    rule = way.hold_reply(of_n, seconds=0.1)
    with client.lock("n", ttl=9) as lease:
        assert rule.hits == 1
        assert lease.remaining() < 8.9


def test_a_late_request_finds_its_token_dead(way: Door, client: pawlock.Client, memory: Memory) -> None:
    rule = way.hold_request(of_n, seconds=0.4)
    client.lock("n").acquire().release()
    assert rule.hits == 1
    assert len(way.requests("acquire")) == 3
    time.sleep(0.5)
    memory.assert_free("n")


def test_everything_takes_its_time_in_order(way: Door, client: pawlock.Client) -> None:
    way.delay(requests=0.03, replies=0.02)
    began = time.monotonic()
    client.lock("n").acquire().release()
    assert time.monotonic() - began >= 0.1


def test_in_a_black_hole_nothing_is_lost(way: Door, client: pawlock.Client) -> None:
    lease = client.lock("n", ttl=6).acquire()
    threading.Timer(0.1, lambda: way.blackhole(on=False)).start()
    way.blackhole()
    began = time.monotonic()
    lease.release()
    assert time.monotonic() - began >= 0.09


def test_a_wake_up_that_is_lost_costs_a_third_of_the_ticket(
    way: Door, client: pawlock.Client, memory: Memory
) -> None:
    with pawlock.connect(memory.url) as other:
        held = other.lock("n").acquire()
        rule = way.cut_push()
        threading.Timer(0.1, held.release).start()
        client.lock("n", ticket_ttl=0.9, ttl=6).acquire(timeout=5).release()
    assert rule.hits == 1


def test_it_ends_with_its_server_and_says_what_went_wrong(memory: Memory) -> None:
    way = memory.faulty()
    way.stop()
    way.stop()
    with pytest.raises(pawlock.ConfigurationError):
        pawlock.connect(way.url)
    way = memory.faulty()
    client = pawlock.connect(way.url)
    way.drop_request(lambda request: request.args[17] == b"never there")
    with pytest.raises(IndexError):
        client.lock("n").acquire()
    way.clear()
    client.close()
