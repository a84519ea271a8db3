"""A signal handler that uses the client and returns, on top of every step of acquire, release, extend and close.

What a handler finds is a client in the middle of something, and what it leaves is one that the interrupted call goes
on with. Whatever it does: nobody holds a name beside somebody else, nobody who waits is forgotten, no call ends with
anything but what its documentation names, and nothing stays on the server. The same for a process that ends there.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

import pawlock
from tests.faults.rig import in_thread, key, remains, until
from tests.faults.steps import Struck
from tests.support.resp import texts
from tests.support.servers import Server

pytestmark = pytest.mark.fault

TTL = 60.0
TICKET = 0.9
LATE = 0.01
FREE_WITHIN = 1.6
"""Seconds within which a name is free that nobody holds: a ticket's life, and some room."""
NEVER = 1000.0


class Record:
    """Who held the name, by what the holders themselves see."""

    def __init__(self, server: Server, *, reentrant: bool) -> None:
        self.server = server
        self.reentrant = reentrant
        self.faults: list[str] = []
        self.fences: list[int] = []
        self._guard = threading.Lock()
        self._inside: list[Any] = []

    def enter(self, lease: Any) -> None:
        with self._guard:
            beside = [other for other in self._inside if other.state == "held"]
            if beside and lease.state == "held":
                self.faults.append(f"fence {lease.fence} beside fence {beside[0].fence}")
            # Taken again by its own thread, it is the same grant.
            again = self.fences and lease.fence == self.fences[-1] and self.reentrant
            if self.fences and lease.fence <= self.fences[-1] and not again:
                self.faults.append(f"fence {lease.fence} after {self.fences[-1]}")
            self.fences.append(lease.fence)
            self._inside.append(lease)

    def leave(self, lease: Any) -> None:
        with self._guard:
            self._inside.remove(lease)


@dataclass
class Scene:
    """One trial: a client in some situation, and the call that is interrupted."""

    server: Server
    client: pawlock.Client
    rival: pawlock.Client
    kind: str
    record: Record
    options: dict[str, Any] = field(default_factory=dict)
    lease: Any = None
    operation: Callable[[], Any] = print
    waiting: list[Future[None]] = field(default_factory=list)

    def lock(self, client: pawlock.Client | None = None) -> Any:
        client = client or self.client
        options = {"ttl": TTL, "ticket_ttl": TICKET, **self.options}
        if self.kind == "semaphore":
            return client.semaphore("n", permits=1, **options)
        if self.kind == "rwlock":
            return client.rwlock("n", **options).write
        return getattr(client, self.kind)("n", **options)

    def visit(self, client: pawlock.Client | None = None) -> None:
        """Take the name, be there for a moment, and give it back; a client that is closed meanwhile is an end."""
        try:
            lease = self.lock(client).acquire(timeout=4)
        except pawlock.ClientClosed:
            return
        self.record.enter(lease)
        time.sleep(0.001)
        self.record.leave(lease)
        with contextlib.suppress(pawlock.NotHeld):
            lease.release()

    def queue(self, number: int, client: pawlock.Client | None = None) -> None:
        """So many more come, one after the other."""
        for _ in range(number):
            before = self.waiters()
            self.waiting.append(in_thread(lambda: self.visit(client)))
            until(lambda seen=before: self.waiters() > seen)  # type: ignore[misc]

    def waiters(self) -> int:
        places = list(self.client._engine.queues.local.by_key.values())
        queues = [name for name in texts(self.server.command("KEYS", "*")) if name.endswith("queue")]
        queued = sum(int(str(self.server.command("ZCARD", name))) for name in queues)
        return queued + sum(len(place.local_waiters) for place in places)

    def take(self) -> None:
        """The thread that is interrupted holds the name."""
        self.lease = self.lock().acquire(timeout=4)
        self.operation = self.lease.release


Situation = Callable[[Scene], AbstractContextManager[None]]


@contextlib.contextmanager
def acquire_free(scene: Scene) -> Iterator[None]:
    scene.operation = lambda: scene.lock().acquire(timeout=4)
    yield


@contextlib.contextmanager
def try_free(scene: Scene) -> Iterator[None]:
    scene.operation = lambda: scene.lock().try_acquire()
    yield


@contextlib.contextmanager
def acquire_from_a_rival(scene: Scene) -> Iterator[None]:
    held = scene.lock(scene.rival).acquire(timeout=4)
    scene.operation = lambda: scene.lock().acquire(timeout=4)
    timer = threading.Timer(LATE, held.release)
    timer.start()
    yield
    timer.join()


@contextlib.contextmanager
def acquire_from_a_thread(scene: Scene) -> Iterator[None]:
    ready = threading.Event()

    def hold() -> None:
        lease = scene.lock().acquire(timeout=4)
        ready.set()
        time.sleep(LATE)
        with contextlib.suppress(pawlock.NotHeld):
            lease.release()

    scene.waiting.append(in_thread(hold))
    assert ready.wait(5)
    scene.operation = lambda: scene.lock().acquire(timeout=4)
    yield


@contextlib.contextmanager
def release_alone(scene: Scene) -> Iterator[None]:
    scene.take()
    yield


@contextlib.contextmanager
def release_to_threads(scene: Scene) -> Iterator[None]:
    """Local hand-off for a lock; each by the server for a fair lock or permits."""
    scene.take()
    scene.queue(3)
    yield


@contextlib.contextmanager
def release_at_the_end_of_a_run(scene: Scene) -> Iterator[None]:
    """Somebody else waited as well: the next but one here is to queue on the server by itself."""
    scene.options = {"handover": 1} if scene.kind == "lock" else {}
    scene.take()
    scene.queue(3)
    yield


@contextlib.contextmanager
def release_to_a_rival(scene: Scene) -> Iterator[None]:
    scene.take()
    scene.queue(1, scene.rival)
    yield


@contextlib.contextmanager
def release_that_must_not_be_handed_over(scene: Scene) -> Iterator[None]:
    """A renewal failed: the next one gives the name back and queues anew, in one script."""
    scene.take()
    scene.queue(2)
    scene.lease._record.server_lease.failures = 1
    yield


@contextlib.contextmanager
def leave_a_block(scene: Scene) -> Iterator[None]:
    lock = scene.lock()
    scene.lease = lock.__enter__()
    scene.queue(2)
    scene.operation = lambda: lock.__exit__(None, None, None)
    yield


@contextlib.contextmanager
def leave_an_inner_block(scene: Scene) -> Iterator[None]:
    """Of a lock that is held twice."""
    scene.kind = "rlock"
    scene.take()
    # The handler ends one level, the interrupted call another.
    scene.operation = scene.lock().acquire(timeout=4).release
    yield


@contextlib.contextmanager
def extend(scene: Scene) -> Iterator[None]:
    scene.take()
    scene.queue(2)
    scene.operation = lambda: scene.lease.extend(TTL + 5)
    yield


@contextlib.contextmanager
def shorten(scene: Scene) -> Iterator[None]:
    scene.take()
    scene.queue(2)
    scene.operation = lambda: scene.lease.extend(TTL - 5)
    yield


@contextlib.contextmanager
def close(scene: Scene) -> Iterator[None]:
    scene.take()
    scene.queue(2)
    scene.operation = scene.client.close
    yield


SITUATIONS: dict[str, Situation] = {
    "acquire, free": acquire_free,
    "try_acquire": try_free,
    "acquire from another client": acquire_from_a_rival,
    "acquire from another thread": acquire_from_a_thread,
    "release, alone": release_alone,
    "release to threads": release_to_threads,
    "release at the end of a run": release_at_the_end_of_a_run,
    "release to another client": release_to_a_rival,
    "release after a failed renewal": release_that_must_not_be_handed_over,
    "leave a block": leave_a_block,
    "leave an inner block": leave_an_inner_block,
    "extend": extend,
    "shorten": shorten,
    "close": close,
}


# What a handler does -------------------------------------------------------------------------------------------------


def same_name(scene: Scene) -> None:
    """Give back what the thread has, or else try to take it."""
    if scene.lease is not None:
        with contextlib.suppress(pawlock.NotHeld):
            scene.lease.release()
        return
    lease = scene.lock().try_acquire()
    if lease is not None:
        scene.record.enter(lease)
        scene.record.leave(lease)
        lease.release()


def other_name(scene: Scene) -> None:
    with scene.client.lock("other", ttl=TTL).acquire(timeout=2) as lease:
        lease.check()


def close_client(scene: Scene) -> None:
    scene.client.close()


def end_process(_: Scene) -> None:
    raise SystemExit(0)


def close_and_end_process(scene: Scene) -> None:
    scene.client.close()
    raise SystemExit(0)


HANDLERS: dict[str, Callable[[Scene], None]] = {
    "same name": same_name,
    "another name": other_name,
    "close": close_client,
    "exit": end_process,
    "close and exit": close_and_end_process,
}
ENDING = {"close", "exit", "close and exit"}


def struck(scene: Scene, handler: str, at: int) -> tuple[str, list[str]]:  # noqa: C901 - one case for each end
    """Run the scene's call, interrupted at a step; where that was, and what was wrong."""
    wrong: list[str] = []
    happened: list[str] = []

    def act() -> None:
        happened.append(handler)
        try:
            HANDLERS[handler](scene)
        except pawlock.ClientClosed as error:
            if scene.operation != scene.client.close:
                wrong.append(f"the handler: {error!r}")
        except Exception as error:  # noqa: BLE001 - told with the place
            wrong.append(f"the handler: {error!r}")

    striking = Struck(at, act)
    result: Any = None
    # What a finaliser raises, Python itself drops.
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with striking:
            result = scene.operation()
    except (pawlock.ClientClosed, pawlock.NotHeld, pawlock.LeaseLost) as error:
        if not happened or (isinstance(error, pawlock.ClientClosed) and handler not in ENDING):
            wrong.append(f"the call: {error!r}")
    except SystemExit:
        pass
    except Exception as error:  # noqa: BLE001 - told with the place
        wrong.append(f"the call: {error!r}")
    finally:
        sys.unraisablehook = hook
    if handler in {"close", "close and exit"} and happened and isinstance(result, pawlock.Lease):
        wrong.append("a lease of a client that was closed by then")
    if isinstance(result, pawlock.Lease):
        scene.record.enter(result)
        scene.record.leave(result)
        with contextlib.suppress(pawlock.NotHeld):
            result.release()
    return striking.where, wrong


@contextlib.contextmanager
def stage(server: Server, kind: str) -> Generator[Scene]:
    with pawlock.connect(server.url) as rival, pawlock.connect(server.url) as client:
        client.inspect("n")
        rival.inspect("n")
        # Nobody looks around by itself: who is forgotten is found out.
        client._runtime.recheck_after = NEVER
        yield Scene(server, client, rival, kind, Record(server, reentrant=kind == "rwlock"))


def trial(server: Server, kind: str, situation: str, handler: str, at: int) -> tuple[str, list[str]]:
    with ExitStack() as stack:
        scene = stack.enter_context(stage(server, kind))
        with SITUATIONS[situation](scene):
            where, wrong = struck(scene, handler, at)
        if "exit" in handler:
            # The interpreter's end.
            scene.client.close()
        if scene.lease is not None:
            # Whatever the handler and the call left of it; a call that was not `release` has left it held.
            for _ in range(2):
                with contextlib.suppress(pawlock.NotHeld, pawlock.LeaseLost):
                    scene.lease.release()
        for waiter in scene.waiting:
            try:
                waiter.result(6)
            except Exception as error:  # noqa: BLE001 - told with the place
                wrong.append(f"a waiter: {error!r}")
        served = len(scene.record.fences)
        expected = sum(1 for _ in scene.waiting) - (situation == "acquire from another thread")
        if handler not in ENDING and situation != "close" and served < expected:
            wrong.append(f"{served} of {expected} waiters were served")
        wrong += scene.record.faults
        end = time.monotonic() + FREE_WITHIN
        while (left := remains(server)) and time.monotonic() < end:
            time.sleep(0.002)
        if left:
            wrong.append(f"left: {left}, {server.command('PTTL', key('n'))!r} ms")
            server.command("FLUSHALL")
        elif handler not in ENDING and situation != "close":
            scene.lock().acquire(timeout=2).release()
    return where, wrong


def sweep(server: Server, kind: str, situation: str, handler: str, *, first: int = 1, stride: int = 1) -> int:
    """Strike at each step, or each ``stride``-th, until the call runs through."""
    at, bad = first, []
    while True:
        where, wrong = trial(server, kind, situation, handler, at)
        if wrong:
            bad.append(f"step {at}, {where or 'not struck'}: {'; '.join(wrong)}")
        if not where:
            break
        at += stride
    assert not bad, f"wrong at {len(bad)} of the steps up to {at}:\n" + "\n".join(bad)
    return at - 1


CASES = [
    (kind, situation)
    for situation in SITUATIONS
    for kind in ("lock", "fair_lock")
    if (kind, situation) != ("fair_lock", "leave an inner block")
] + [
    (kind, situation)
    for kind in ("semaphore", "rwlock")
    for situation in ("acquire, free", "acquire from another client", "release, alone", "release to threads")
]


@pytest.mark.parametrize("handler", HANDLERS)
def test_row_12_a_handler_at_a_few_steps(handler: str, server: Server) -> None:
    for situation in ("acquire from another thread", "release to threads", "extend"):
        sweep(server, "lock", situation, handler, first=3, stride=67)


@pytest.mark.slow
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize(("kind", "situation"), CASES)
def test_row_12_a_handler_at_some_steps(kind: str, situation: str, handler: str, server: Server) -> None:
    """At each 41st step; where it begins differs from case to case, and does not from run to run."""
    first = 1 + sum(f"{kind}{situation}{handler}".encode()) % 41
    sweep(server, kind, situation, handler, first=first, stride=41)


@pytest.mark.slow
def test_row_12_a_release_at_every_step_of_an_extend(server: Server) -> None:
    """Those who wait here go on by themselves from some step on; whoever releases after it leaves the name itself."""
    sweep(server, "lock", "extend", "same name")


@pytest.mark.slow
def test_row_12_a_close_at_every_step_of_an_acquire(server: Server) -> None:
    """Up to the last step before the caller has the lease: of a client that is closed by then, nobody gets one."""
    sweep(server, "lock", "acquire, free", "close")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize(("kind", "situation"), CASES)
def test_row_12_a_handler_at_every_step(kind: str, situation: str, handler: str, server: Server) -> None:
    assert sweep(server, kind, situation, handler) > 3
