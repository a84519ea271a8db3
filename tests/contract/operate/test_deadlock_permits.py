"""Circles through readers, writers and permits: told where the one holder must leave, and only there."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import pawlock
from tests.contract.operate.rig import AFTER, eventually
from tests.support.servers import Server

Take = Callable[[Any], Any]


def lock(name: str) -> Take:
    return lambda client: client.lock(name)


def read(name: str) -> Take:
    return lambda client: client.rwlock(name).read


def write(name: str) -> Take:
    return lambda client: client.rwlock(name).write


def permit(name: str, of: int, n: int = 1) -> Take:
    return lambda client: _Weighed(client.semaphore(name, permits=of), n)


class _Weighed:
    def __init__(self, semaphore: Any, n: int) -> None:
        self.semaphore, self.n = semaphore, n

    def acquire(self, timeout: float | None = None) -> Any:
        return self.semaphore.acquire(self.n, timeout=timeout)


class Scene:
    """Parties of either API: each takes all but its last, and a little later, one after the other, the last."""

    def __init__(self, url: str, api: str) -> None:
        self.url, self.api = url, api
        self.told: list[tuple[int, pawlock.DeadlockDetected]] = []
        self.done: list[int] = []
        self.late: list[int] = []

    def play(self, *plans: tuple[Take, ...], timeout: float = 20.0) -> None:
        if self.api == "asyncio":
            asyncio.run(self._tasks(plans, timeout))
        else:
            self._threads(plans, timeout)

    def _note(self, number: int, error: pawlock.PawlockError | None) -> None:
        if isinstance(error, pawlock.DeadlockDetected):
            self.told.append((number, error))
        elif isinstance(error, pawlock.AcquireTimeout):
            self.late.append(number)
        elif error is None:
            self.done.append(number)
        else:
            raise error

    def _threads(self, plans: tuple[tuple[Take, ...], ...], timeout: float) -> None:
        ready = threading.Barrier(len(plans))

        def run(number: int, client: pawlock.Client) -> None:
            with contextlib.ExitStack() as stack:
                for take in plans[number][:-1]:
                    stack.enter_context(take(client).acquire(timeout=10))
                ready.wait(10)
                time.sleep(0.06 * number)
                try:
                    stack.enter_context(plans[number][-1](client).acquire(timeout=timeout))
                    self._note(number, None)
                except pawlock.PawlockError as error:
                    self._note(number, error)

        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(pawlock.connect(self.url, deadlock_after=AFTER)) for _ in range(2)]
            threads = [threading.Thread(target=run, args=(n, clients[n % 2])) for n in range(len(plans))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive()

    async def _tasks(self, plans: tuple[tuple[Take, ...], ...], timeout: float) -> None:
        ready = asyncio.Barrier(len(plans))

        async def run(number: int, client: pawlock.AsyncClient) -> None:
            async with contextlib.AsyncExitStack() as stack:
                for take in plans[number][:-1]:
                    await stack.enter_async_context(await take(client).acquire(timeout=10))
                await ready.wait()
                await asyncio.sleep(0.06 * number)
                try:
                    await stack.enter_async_context(await plans[number][-1](client).acquire(timeout=timeout))
                    self._note(number, None)
                except pawlock.PawlockError as error:
                    self._note(number, error)

        async with (
            pawlock.connect_async(self.url, deadlock_after=AFTER) as one,
            pawlock.connect_async(self.url, deadlock_after=AFTER) as two,
        ):
            await asyncio.gather(*(run(n, (one, two)[n % 2]) for n in range(len(plans))))


@pytest.fixture(params=["threads", "asyncio"])
def scene(request: pytest.FixtureRequest, valkey: Server) -> Scene:
    valkey.command("FLUSHALL")
    return Scene(valkey.url, request.param)


CIRCLES: dict[str, tuple[tuple[Take, ...], ...]] = {
    "writers": ((write("a"), write("b")), (write("b"), write("a"))),
    "readers that want to write what the other reads": ((read("a"), write("b")), (read("b"), write("a"))),
    "a writer and a reader": ((write("a"), read("b")), (write("b"), read("a"))),
    "a reader and a lock": ((read("a"), lock("l")), (lock("l"), write("a"))),
    "the only permit": ((permit("s", 1), lock("l")), (lock("l"), permit("s", 1))),
    "more than the others leave": ((permit("s", 3, 2), lock("l")), (lock("l"), permit("s", 3, 2))),
    "three kinds": ((lock("l"), permit("s", 1)), (permit("s", 1), write("a")), (read("a"), lock("l"))),
}


@pytest.mark.parametrize("circle", CIRCLES)
def test_the_last_of_a_circle_is_told(scene: Scene, circle: str) -> None:
    plans = CIRCLES[circle]
    scene.play(*plans)
    assert [number for number, _ in scene.told] == [len(plans) - 1], "the last to come, and nobody else"
    assert sorted(scene.done) == list(range(len(plans) - 1))
    error = scene.told[0][1]
    assert error.cycle[0] == error.cycle[-1]
    assert len(error.waiters) == len(plans)


NO_CIRCLES: dict[str, tuple[tuple[Take, ...], ...]] = {
    # Somebody else holds a permit too, and may give it back at any time.
    "a permit may come from another": (
        (permit("s", 2), lock("l")),
        (lock("l"), permit("s", 2)),
        (permit("s", 2), lock("other")),
    ),
    "a reader beside the reader that waits": ((read("a"), lock("l")), (lock("l"), read("a"))),
    "few enough permits": ((permit("s", 3, 1), lock("l")), (lock("l"), permit("s", 3, 2))),
}


@pytest.mark.parametrize("case", NO_CIRCLES)
def test_nobody_is_told_where_nobody_is_stuck(scene: Scene, case: str) -> None:
    plans = NO_CIRCLES[case]
    scene.play(*plans)
    assert scene.told == []
    assert sorted(scene.done) == list(range(len(plans)))


SEVERAL_HOLDERS: dict[str, tuple[tuple[Take, ...], ...]] = {
    "each has one permit of two and wants the other": (
        (permit("s", 2), permit("s", 2)),
        (permit("s", 2), permit("s", 2)),
    ),
    "the only permit twice": ((permit("s", 1), permit("s", 1)),),
}


@pytest.mark.parametrize("case", SEVERAL_HOLDERS)
def test_of_several_holders_any_may_let_go(scene: Scene, case: str) -> None:
    """Nobody is told: their own timeouts end it, as docs/concepts/deadlocks.md says."""
    scene.play(*SEVERAL_HOLDERS[case], timeout=1.5)
    assert scene.told == []
    assert scene.late


def test_permits_that_another_thread_gives_back_are_no_circle(valkey: Server) -> None:
    """One takes all permits for what others do: it waits for them, and not for itself."""
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url, deadlock_after=AFTER) as client:
        permits = client.semaphore("jobs", permits=2)
        taken = [permits.acquire(), permits.acquire()]
        late = threading.Timer(8 * AFTER, taken.pop().release)
        late.start()
        with permits.acquire(timeout=10):
            late.join()
        taken.pop().release()
        assert client._engine.reports.counters["cycle_looks"] > 0
        assert client._engine.reports.counters["deadlocks"] == 0


def test_permits_count_as_those_of_who_is_in_their_block(valkey: Server) -> None:
    """A lease that is taken here and entered there: the one who is in it waits, and has what the other waits for."""
    valkey.command("FLUSHALL")
    told: list[pawlock.PawlockError] = []

    def work(client: pawlock.Client, lease: pawlock.Lease) -> None:
        with lease:
            try:
                client.lock("l").acquire(timeout=10).release()
            except pawlock.DeadlockDetected as error:
                told.append(error)

    with pawlock.connect(valkey.url, deadlock_after=AFTER) as client:
        with client.lock("l"):
            permits = client.semaphore("jobs", permits=1)
            worker = threading.Thread(target=work, args=(client, permits.acquire()), name="worker")
            worker.start()
            eventually(lambda: client._engine.waits, "the worker waits")
            # Ages are told apart by ms, counted from when the server's clock was last heard.
            time.sleep(0.05)
            with pytest.raises(pawlock.DeadlockDetected) as error:
                permits.acquire(timeout=10)
        worker.join(10)
    assert told == [], "the one that came last is told, and nobody else"
    assert [who.rpartition("/")[2] for who, _, _ in error.value.waiters] == ["MainThread", "worker"]
