"""Circles through readers, writers and permits: told where a certain holder must leave, and only there."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import pawl
from pawl.testing.servers import Server
from tests.sessions.rig import AFTER

Take = Callable[[Any], Any]


def lock(name: str) -> Take:
    return lambda client: client.lock(name)


def read(name: str, *, upgradable: bool = False) -> Take:
    return lambda client: client.rwlock(name, upgradable=upgradable).read


def write(name: str, *, upgradable: bool = False) -> Take:
    return lambda client: client.rwlock(name, upgradable=upgradable).write


def permit(name: str, of: int, n: int = 1) -> Take:
    return lambda client: _Weighed(client.semaphore(name, permits=of), n)


class _Weighed:
    def __init__(self, semaphore: Any, n: int) -> None:  # noqa: ANN401 - of either colour
        self.semaphore, self.n = semaphore, n

    def acquire(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - a lease, or the promise of one
        return self.semaphore.acquire(self.n, timeout=timeout)


class Scene:
    """Parties of either colour: each takes all but its last, and a little later, one after the other, the last."""

    def __init__(self, url: str, colour: str) -> None:
        self.url, self.colour = url, colour
        self.told: list[tuple[int, pawl.DeadlockDetected]] = []
        self.done: list[int] = []
        self.late: list[int] = []

    def play(self, *plans: tuple[Take, ...], timeout: float = 20.0) -> None:
        if self.colour == "asyncio":
            asyncio.run(self._tasks(plans, timeout))
        else:
            self._threads(plans, timeout)

    def _note(self, number: int, error: pawl.PawlError | None) -> None:
        if isinstance(error, pawl.DeadlockDetected):
            self.told.append((number, error))
        elif isinstance(error, pawl.AcquireTimeout):
            self.late.append(number)
        elif error is None:
            self.done.append(number)
        else:
            raise error

    def _threads(self, plans: tuple[tuple[Take, ...], ...], timeout: float) -> None:
        ready = threading.Barrier(len(plans))

        def run(number: int, client: pawl.Client) -> None:
            with contextlib.ExitStack() as stack:
                for take in plans[number][:-1]:
                    stack.enter_context(take(client).acquire(timeout=10))
                ready.wait(10)
                time.sleep(0.06 * number)
                try:
                    stack.enter_context(plans[number][-1](client).acquire(timeout=timeout))
                    self._note(number, None)
                except pawl.PawlError as error:
                    self._note(number, error)

        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(pawl.connect(self.url, deadlock_after=AFTER)) for _ in range(2)]
            threads = [threading.Thread(target=run, args=(n, clients[n % 2])) for n in range(len(plans))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive()

    async def _tasks(self, plans: tuple[tuple[Take, ...], ...], timeout: float) -> None:
        ready = asyncio.Barrier(len(plans))

        async def run(number: int, client: pawl.AsyncClient) -> None:
            async with contextlib.AsyncExitStack() as stack:
                for take in plans[number][:-1]:
                    await stack.enter_async_context(await take(client).acquire(timeout=10))
                await ready.wait()
                await asyncio.sleep(0.06 * number)
                try:
                    await stack.enter_async_context(await plans[number][-1](client).acquire(timeout=timeout))
                    self._note(number, None)
                except pawl.PawlError as error:
                    self._note(number, error)

        async with (
            pawl.connect_async(self.url, deadlock_after=AFTER) as one,
            pawl.connect_async(self.url, deadlock_after=AFTER) as two,
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
    "an upgrade waits for a reader who waits for it": (
        (read("a", upgradable=True), lock("l"), write("a", upgradable=True)),
        (read("a"), lock("l")),
    ),
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


def test_a_holder_that_waits_for_something_else_is_no_circle(scene: Scene) -> None:
    """Two of three hold permits and wait; the third only holds, and gives back in time."""
    scene.play(
        (permit("s", 3), permit("s", 3), write("a")),
        (write("a"), permit("s", 3), lock("l")),
        (lock("l"), permit("s", 3)),
        timeout=1.0,
    )
    assert scene.told == [], "permits of two holders: none of them is a certain one"
