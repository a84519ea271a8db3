"""Races between threads that share one lease or its hold."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import pawlock
from pawlock.core import acquire
from pawlock.core.acquire import own_given
from pawlock.model import LeaseState, LossReason
from tests.faults.rig import in_thread
from tests.support.servers import Server
from tests.unit.regressions.rig import between, until


@pytest.mark.parametrize(("way", "state"), [("_end_here", LeaseState.HELD), ("pass_on", LeaseState.SUSPECT)])
def test_two_releases_at_once_do_not_hand_one_grant_to_two_waiters(
    client: pawlock.Client, way: str, state: LeaseState
) -> None:
    """Where the hold passes on, and where the last renewal had no answer, so that the name is given back."""
    lock = client.lock("n")
    lease = lock.acquire()
    held: list[pawlock.Lease] = []
    done = threading.Event()

    def wait() -> None:
        mine = lock.acquire()
        held.append(mine)
        done.wait(5)
        mine.release()

    waiters = [threading.Thread(target=wait) for _ in range(2)]
    for waiter in waiters:
        waiter.start()
    until(lambda: sum(len(queue.sleepers) for queue in client._engine.local_queues.values()) == 2)
    outcomes: list[BaseException | None] = []

    def release() -> None:
        try:
            lease.release()
        except pawlock.NotHeld as error:
            outcomes.append(error)
        else:
            outcomes.append(None)

    lease._record.hold.state = state
    with between(way, release):
        release()
    try:
        until(lambda: held)
        time.sleep(0.1)
        assert len(held) == 1
        assert sorted(outcome is None for outcome in outcomes) == [False, True]
    finally:
        done.set()
        for waiter in waiters:
            waiter.join()


@pytest.mark.parametrize("how", ["lost", "released"])
def test_a_renewal_under_way_does_not_revive_a_lease_that_ended_meanwhile(
    client: pawlock.Client, how: str
) -> None:
    lease = client.lock("n").acquire()
    engine, hold = client._engine, lease._record.hold
    sent_at = engine.runtime.now()

    def end() -> None:
        if how == "lost":
            engine.lose(hold, LossReason.TAKEN)
        else:
            lease.release()

    with between("valid_until", end):
        assert engine.apply_renewals([(hold, 30_000, 30_000)], sent_at) == [hold]
    assert hold.state is (LeaseState.LOST if how == "lost" else LeaseState.RELEASED)


def test_threads_that_leave_blocks_of_one_semaphore_at_once_end_each_its_own(client: pawlock.Client) -> None:
    lock = client.semaphore("n", permits=8)
    start, errors = threading.Barrier(8), []

    def enter() -> None:
        try:
            for _ in range(30):
                start.wait(10)
                with lock as lease:
                    start.wait(10)
                    lease.check()
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            errors.append(error)
            start.abort()

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_an_outer_block_is_told_of_a_loss_that_the_inner_one_caught(client: pawlock.Client) -> None:
    lock = client.rlock("n")
    seen: list[object] = []

    def body() -> None:
        with lock as outer:
            with pytest.raises(pawlock.LeaseLost), lock:
                client._engine.lose(outer._record.hold, LossReason.TAKEN)
            seen.append(bool(outer.lost))

    with pytest.raises(pawlock.LeaseLost):
        body()
    assert seen == [True]


def test_a_wait_counts_from_its_begin_where_a_hand_over_was_lost(
    client: pawlock.Client, valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[object] = []

    def lost_once(engine: Any, plan: Any, hold: Any, attempt: Any) -> Any:
        if not lost:
            lost.append(hold)
            engine.lose(hold, LossReason.EXPIRED)
            valkey.command("SET", "pawlock:n", "somebody@else:1/x", "PX", "60000")
        return own_given(engine, plan, hold, attempt)

    lease = client.lock("n").acquire()
    monkeypatch.setattr(acquire, "own_given", lost_once)
    waiter = in_thread(lambda: client.lock("n").acquire(timeout=1.0))
    time.sleep(0.5)
    lease.release()
    with pytest.raises(pawlock.AcquireTimeout) as caught:
        waiter.result(10)
    assert lost
    assert caught.value.waited is not None
    assert caught.value.waited >= 1.0
    valkey.command("DEL", "pawlock:n")
