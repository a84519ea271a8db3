"""What is told of waiters, to the second: on a clock that the test moves. And local turns while the server is down."""

import threading
import time
from collections.abc import Iterator

import pytest

import pawlock
from pawlock.testing import Sim


@pytest.fixture
def sim() -> Iterator[Sim]:
    with Sim() as sim:
        yield sim


def test_who_waits_for_how_long_and_until_when(sim: Sim) -> None:
    with (
        pawlock.connect(sim.url) as client,
        pawlock.connect(sim.url) as first,
        pawlock.connect(sim.url) as second,
    ):
        lease = client.lock("a", ttl=30).acquire()
        drawn = sim.now

        def wait(other: pawlock.Client) -> None:
            with other.lock("a", ttl=30, ticket_ttl=3):
                pass

        threads = [
            threading.Thread(target=wait, args=(other,), name=f"w{n}")
            for n, other in enumerate((first, second))
        ]
        for number, thread in enumerate(threads):
            thread.start()
            while client.inspect("a").queue_length <= number:
                time.sleep(0.001)
        while sim.now < drawn + 5:
            sim.sleep(0.5)
        info = client.inspect("a")
        assert [waiter.position for waiter in info.waiters] == [0, 1]
        assert [waiter.holder.rpartition("/")[2] for waiter in info.waiters] == ["w0", "w1"]
        for waiter in info.waiters:
            assert 4.0 <= waiter.age <= sim.now - drawn + 0.1
            assert 0 < waiter.ttl_left <= 3.0
        lease.release()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()


def test_local_turns_exclude_each_other_while_the_server_is_down(sim: Sim) -> None:
    inside, most, turns = 0, 0, 0
    with pawlock.connect(sim.url) as client:
        lock = client.lock("a", on_unavailable="local", unavailable_after=0.05)

        def work() -> None:
            nonlocal inside, most, turns
            for _ in range(4):
                with lock:
                    inside += 1
                    most = max(most, inside)
                    turns += 1
                    time.sleep(0.002)
                    inside -= 1

        with sim.down():
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
        assert (most, turns) == (1, 16)
