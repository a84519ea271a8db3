"""A thread that stands still at any of its steps while another thread closes the client, and goes on in the middle.

The interpreter may stop a thread between any two of its steps, for longer than a whole close takes. So a thread stands
still at its n-th step until the close waits for nothing more, and goes on before the connections are closed: what it
sends then still arrives. The same for the maintenance. When `close` has returned and the thread has ended, nothing of
the client is on the server. Tasks of one loop need no such sweep: they are not interrupted between two steps.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

import pawlock
from tests.faults.rig import in_thread, remains, until
from tests.faults.steps import Paused
from tests.support.servers import Server

pytestmark = pytest.mark.fault

TTL = 60.0
STANDS = 0.02
"""Seconds that a thread stands still if the close waits for it, and that the close waits before it ends connections."""
ENDS = (pawlock.ClientClosed, pawlock.LeaseLost, pawlock.NotHeld)


class Scene:
    """One trial: a client that is closed while one of its threads stands still at its n-th step."""

    def __init__(self, server: Server, at: int) -> None:
        self.client = pawlock.connect(server.url, ttl=TTL)
        self.runtime = cast("Any", self.client._runtime)
        self.ready, self.closing, self.stands, self.done = (threading.Event() for _ in range(4))
        self.kept: list[pawlock.Lease] = []
        self.striking = Paused(at, self._stand)
        # Between the end of the maintenance and that of the connections.
        self.runtime._drain_replies = lambda: self.done.wait(2 * STANDS)

    def _stand(self) -> None:
        self.stands.set()
        self.closing.wait(5)
        end = time.monotonic() + STANDS
        while not self.runtime._ending and time.monotonic() < end:
            time.sleep(0.0005)

    def strike(self, operation: Callable[[], object]) -> None:
        """Do what is stopped at the n-th step of it."""
        try:
            with contextlib.suppress(*ENDS), self.striking:
                operation()
        finally:
            self.stands.set()
            self.done.set()

    def take(self, *, passes: bool = True) -> pawlock.Lease:
        lease = self.client.lock("n", handover=4).acquire(timeout=4)
        if not passes:
            # As after a renewal without an answer: whoever is next queues on the server.
            lease._record.server_lease.failures = 1
        return lease

    def visit(self) -> None:
        with contextlib.suppress(*ENDS):
            self.take().release()

    def asleep(self) -> int:
        return sum(
            len(place.local_waiters) for place in list(self.client._engine.queues.local.by_key.values())
        )


def visit(scene: Scene) -> None:
    def work() -> None:
        scene.client.inspect("n")
        scene.strike(scene.visit)

    in_thread(work)
    scene.stands.wait(5)


def release(scene: Scene) -> None:
    in_thread(lambda: scene.strike(scene.take().release))
    scene.stands.wait(5)


def release_to_another(scene: Scene, *, passes: bool) -> None:
    def work() -> None:
        lease = scene.take(passes=passes)
        in_thread(scene.visit)
        until(lambda: scene.asleep() == 1)
        scene.strike(lease.release)

    in_thread(work)
    scene.stands.wait(5)


def wait_for_another(scene: Scene, *, passes: bool) -> None:
    lease = scene.take(passes=passes)

    def work() -> None:
        scene.client.inspect("n")
        scene.strike(scene.visit)

    in_thread(work)
    until(lambda: scene.asleep() or scene.stands.is_set())

    def give_back() -> None:
        with contextlib.suppress(*ENDS):
            lease.release()

    released = in_thread(give_back)
    # A thread that stands still may be in a guarded step, and then the release waits for it.
    with contextlib.suppress(TimeoutError):
        released.result(STANDS)
    scene.stands.wait(STANDS)


def maintenance(scene: Scene) -> None:
    serve = scene.runtime._serve
    scene.runtime._serve = lambda work: scene.strike(lambda: serve(work))
    scene.kept.append(scene.take())
    scene.stands.wait(STANDS)


SITUATIONS: dict[str, Callable[[Scene], None]] = {
    "visit": visit,
    "release": release,
    "release to another": lambda scene: release_to_another(scene, passes=True),
    "release that another leaves": lambda scene: release_to_another(scene, passes=False),
    "wait for another": lambda scene: wait_for_another(scene, passes=True),
    "wait for another and leave": lambda scene: wait_for_another(scene, passes=False),
    "maintenance": maintenance,
}


def trial(server: Server, situation: str, at: int) -> tuple[str, list[str]]:
    scene = Scene(server, at)
    SITUATIONS[situation](scene)
    scene.closing.set()
    scene.client.close()
    ended = scene.done.wait(5)
    wrong = [] if ended else ["the thread did not end"]
    if left := remains(server):
        wrong.append(f"left: {left}")
        server.command("FLUSHALL")
    return scene.striking.where, wrong


def sweep(server: Server, situation: str, *, first: int = 1, stride: int = 1) -> int:
    """Stand still at each step, or each `stride`-th, until the call runs through."""
    at, bad = first, []
    while True:
        where, wrong = trial(server, situation, at)
        if wrong:
            bad.append(f"step {at}, {where or 'not struck'}: {'; '.join(wrong)}")
        if not where:
            break
        at += stride
    assert not bad, f"wrong at {len(bad)} of the steps up to {at}:\n" + "\n".join(bad)
    return at - 1


@pytest.mark.parametrize("situation", SITUATIONS)
def test_row_12_close_while_a_thread_stands_still(situation: str, server: Server) -> None:
    """At a few steps; where it begins differs from case to case, and does not from run to run."""
    sweep(server, situation, first=1 + sum(situation.encode()) % 29, stride=29)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_row_12_close_while_a_thread_stands_still_at_every_step(situation: str, server: Server) -> None:
    assert sweep(server, situation) > 3
