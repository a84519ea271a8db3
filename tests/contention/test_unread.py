"""Who comes while a run is on sleeps with the answer to its request unread, and misses nothing by that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, cast

import pytest

import pawl
from pawl.core.acquire.unread import UNREAD_FOR
from pawl.testing.servers import Server
from tests.contention.test_runs import until
from tests.faults.rig import in_thread, remains, waiters

RUN = 3
"""Grants of a run here, so that few threads make a row."""
PATIENCE = 30.0


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pawl.core.protocol.options.RUN", RUN)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by itself: whoever is to read its answer must be woken."""
    monkeypatch.setattr("pawl.core.acquire.acquire.UNREAD_FOR", 2 * PATIENCE)


class _Row:
    """A run whose first owner holds until it is told, with as many behind it as its message could name."""

    def __init__(self, server: Server, client: pawl.Client, rival: pawl.Client) -> None:
        self.server, self.client = server, client
        self.lock = client.fair_lock("n", ttl=600.0, ticket_ttl=580.0)
        self.grants: list[tuple[str, int]] = []
        self.go = threading.Event()
        held = rival.fair_lock("n").acquire(5)
        # The message to whoever is served by another client names nobody: the row begins with the one behind it.
        self.done = [self.come("first")]
        until(lambda: len(client._engine.queues.waits) == 1)
        self.done.append(self.come("a0", self.go.wait))
        for number in range(1, RUN + 1):
            self.done.append(self.come(f"a{number}"))
        # The first may be among those that a run could serve: the second may come before it has gone to sleep.
        until(lambda: len(client._engine.queues.waits) == RUN + 2)
        _, *others = cast("dict[Any, object]", client._engine.queues.waits)
        until(lambda: all(waiter.token in client._engine.queues.followers for waiter in others))
        held.release()
        until(lambda: len(self.grants) == 2)
        del self.grants[0]
        assert client._engine.queues.unread_behind

    def come(
        self, who: str, hold: Callable[[], object] = lambda: None, timeout: float = 100.0
    ) -> Future[None]:
        """Have a thread take the name once, and wait until the server has it in its queue."""
        before = waiters(self.server, "n")
        done = in_thread(lambda: self._take(who, hold, timeout))
        until(lambda: waiters(self.server, "n") == before + 1)
        return done

    def _take(self, who: str, hold: Callable[[], object], timeout: float) -> None:
        # A thread without a connection has none to leave an answer on.
        self.client.inspect("n")
        with self.lock.acquire(timeout=timeout) as lease:
            self.grants.append((who, lease.fence))
            hold()

    def asleep(self) -> int:
        return sum(
            bool(waiter.strict.unread_key) for waiter in tuple(self.client._engine.queues.followers.values())
        )

    def end(self) -> list[str]:
        self.go.set()
        for done in self.done:
            done.result(PATIENCE)
        until(lambda: not remains(self.server))
        fences = [fence for _, fence in self.grants]
        assert fences == sorted(set(fences))
        return [who for who, _ in self.grants]


@contextmanager
def _woken() -> Iterator[None]:
    """In less than half of the time after which anybody would look by itself."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < PATIENCE


@pytest.fixture
def row(valkey: Server, clients: list[pawl.Client], short_runs: None) -> _Row:
    return _Row(valkey, clients[0], clients[1])


@pytest.mark.usefixtures("patient")
def test_who_comes_during_a_run_is_served_in_turn_with_its_answer_unread(row: _Row) -> None:
    row.done += [row.come(f"b{number}") for number in range(2 * RUN)]
    assert row.asleep() == 2 * RUN
    until(lambda: sum(link._owed is not None for link in row.client._runtime._links.all()) == 2 * RUN)
    with _woken():
        assert row.end() == [f"a{n}" for n in range(RUN + 1)] + [f"b{n}" for n in range(2 * RUN)]


@pytest.mark.usefixtures("patient")
def test_a_row_of_one_more_is_woken_when_the_last_who_stood_before_it_is_done(row: _Row) -> None:
    # The message to the next run names fewer than it could, and none behind them: nobody is known to be next.
    row.done.append(row.come("b0"))
    with _woken():
        assert row.end() == ["a0", "a1", "a2", "a3", "b0"]


@pytest.mark.usefixtures("patient")
def test_another_client_between_them_ends_the_run_and_wakes_who_sleeps(
    row: _Row, clients: list[pawl.Client], valkey: Server
) -> None:
    order: list[str] = []

    def foreign() -> None:
        with clients[1].fair_lock("n").acquire(20):
            order.extend(who for who, _ in row.grants)

    row.done.append(row.come("b0"))
    assert row.asleep() == 1
    row.done.append(in_thread(foreign))
    until(lambda: waiters(valkey, "n") == RUN + 2)
    row.done.append(row.come("b1"))
    row.done.append(row.come("b2"))
    with _woken():
        assert row.end() == ["a0", "a1", "a2", "a3", "b0", "b1", "b2"]
    assert order == ["a0", "a1", "a2", "a3", "b0"]


@pytest.mark.usefixtures("patient")
def test_a_lock_with_other_options_wakes_who_sleeps_as_well(row: _Row, clients: list[pawl.Client]) -> None:
    row.done.append(row.come("b0"))
    row.lock = clients[0].fair_lock("n", ttl=599.0)
    row.done.append(row.come("c0"))
    row.lock = clients[0].fair_lock("n", ttl=600.0, ticket_ttl=580.0)
    row.done.append(row.come("b1"))
    with _woken():
        assert row.end() == ["a0", "a1", "a2", "a3", "b0", "c0", "b1"]


def test_a_grant_in_an_unread_answer_is_noticed(row: _Row, valkey: Server) -> None:
    # The server forgets all: who comes next is granted the name at once, though its client thinks that it must wait.
    valkey.command("FLUSHALL")
    got: list[bytes] = []

    def come() -> None:
        row.client.inspect("n")
        with row.lock.acquire(5) as lease:
            got.append(lease.token.encode())
            assert valkey.command("GET", "pawl:n") == got[0]

    in_thread(come).result(5)
    assert got
    # Those of before lost what the server forgot, and are told when they ask.
    row.go.set()
    row.done[1].exception(5)


def test_an_unread_refusal_for_want_of_the_script_is_answered(row: _Row, valkey: Server) -> None:
    valkey.command("SCRIPT", "FLUSH", "SYNC")
    row.done.append(row.come("b0"))
    assert row.end() == ["a0", "a1", "a2", "a3", "b0"]


def test_a_connection_that_dies_with_an_unread_answer_is_replaced(row: _Row, valkey: Server) -> None:
    row.done.append(row.come("b0"))
    valkey.command("CLIENT", "KILL", "TYPE", "pubsub")
    assert row.end() == ["a0", "a1", "a2", "a3", "b0"]


def test_a_time_that_is_up_before_the_answer_is_read(row: _Row, valkey: Server) -> None:
    row.done.append(row.come("b0"))
    row.client.inspect("n")
    with pytest.raises(pawl.AcquireTimeout):
        row.lock.acquire(timeout=UNREAD_FOR / 4)
    assert waiters(valkey, "n") == RUN + 1
    assert row.end() == ["a0", "a1", "a2", "a3", "b0"]


def test_a_client_that_closes_wakes_who_sleeps_so(row: _Row, valkey: Server) -> None:
    late = row.come("b0")
    row.go.set()
    row.client.close()
    with pytest.raises(pawl.ClientClosed):
        late.result(5)
    until(lambda: not remains(valkey))


def test_a_thread_asks_again_on_a_connection_with_an_unread_answer(
    row: _Row, clients: list[pawl.Client]
) -> None:
    def twice() -> None:
        row._take("b0", lambda: None, 20.0)
        with clients[0].lock("other").acquire(5) as lease:
            assert lease.fence > 0
        assert clients[0].inspect("other").held is False

    row.done.append(in_thread(twice))
    until(lambda: row.asleep() == 1)
    assert row.end() == ["a0", "a1", "a2", "a3", "b0"]
