"""A signal handler raises at each step of acquire, release, extend, wait and the ends of blocks, alone and contended.

What is promised: never two owners; nothing is renewed that nobody has; others go on within the TTL and a second; at most one
lease is left for its TTL. A client of another connection is the witness.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import pawlock
from tests.faults.rig import in_thread
from tests.faults.steps import Struck
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = [
    pytest.mark.fault,
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning"
    ),
]

TTL = 1.0
TICKET = 0.5
LATE = 0.01


class Limit(Exception):
    """As Celery's ``SoftTimeLimitExceeded``."""


class Stop(BaseException):
    """As ``KeyboardInterrupt``, which an event loop would pass on to who runs it."""


KINDS: tuple[type[BaseException], ...] = (Limit, Stop)


class Tally:
    """What became of the name at each step."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.fence = 0

    def others_went_on(self, where: str, waited: float, fence: int) -> None:
        """A witness got the name after so many seconds."""
        if waited > pace() * (TTL + 1.0):
            self.wrong.append(f"{where}: the others went on after {waited:.2f} s")
        if fence <= self.fence:
            self.wrong.append(f"{where}: the fence {fence} after {self.fence}")
        self.fence = fence
        self.outcomes["at once" if waited < TTL / 4 else "within the TTL and a second"] += 1

    def check(self, what: str) -> None:
        print(f"{what}: {self.outcomes.total()} steps: {dict(self.outcomes)}")
        assert not self.wrong, "\n".join(self.wrong)


# Threads -------------------------------------------------------------------------------------------------------------


class Scene:
    """One trial: a client, an outside witness, and what the trial has to end."""

    def __init__(self, client: pawlock.Client, rival: pawlock.Client, name: str) -> None:
        self.client, self.rival, self.name = client, rival, name
        self.kept: list[Any] = []
        self.others: list[Future[Any]] = []

    def lock(self, client: pawlock.Client | None = None) -> pawlock.Lock:
        return (client or self.client).lock(self.name, ttl=TTL, ticket_ttl=TICKET)

    def held(self, lock: pawlock.Lock) -> None:
        """Another thread holds it, and soon lets go."""
        ready = threading.Event()

        def hold() -> None:
            with lock.acquire(5):
                ready.set()
                time.sleep(LATE)

        self.others.append(in_thread(hold))
        assert ready.wait(5)

    def wanted(self, lock: pawlock.Lock) -> None:
        """Another thread waits for it."""

        def wait() -> None:
            with lock.acquire(5):
                pass

        self.others.append(in_thread(wait))
        deadline = time.monotonic() + 5
        while (
            not self.rival.inspect(self.name).waiters and not self._sleeps() and time.monotonic() < deadline
        ):
            time.sleep(0.001)

    def _sleeps(self) -> bool:
        return any(queue.sleepers for queue in list(self.client._engine.local_queues.values()))


Begin = Callable[[Scene], Callable[[], Any]]
SCENES: dict[str, Begin] = {}


def scene(begin: Begin) -> Begin:
    SCENES[begin.__name__] = begin
    return begin


@scene
def acquire(scene: Scene) -> Callable[[], Any]:
    return scene.lock().acquire


@scene
def try_acquire(scene: Scene) -> Callable[[], Any]:
    return scene.lock().try_acquire


@scene
def acquire_where_it_may_degrade(scene: Scene) -> Callable[[], Any]:
    return scene.client.lock(scene.name, ttl=TTL, ticket_ttl=TICKET, on_unavailable="local").acquire


@scene
def acquire_behind_another_client(scene: Scene) -> Callable[[], Any]:
    scene.held(scene.lock(scene.rival))
    return lambda: scene.lock().acquire(5)


@scene
def acquire_behind_a_thread(scene: Scene) -> Callable[[], Any]:
    scene.held(scene.lock())
    return lambda: scene.lock().acquire(5)


@scene
def acquire_in_vain(scene: Scene) -> Callable[[], Any]:
    scene.held(scene.lock(scene.rival))

    def in_vain() -> Any:
        with contextlib.suppress(pawlock.AcquireTimeout):
            return scene.lock().acquire(LATE / 2)

    return in_vain


@scene
def release(scene: Scene) -> Callable[[], Any]:
    return scene.lock().acquire().release


@scene
def release_to_another_client(scene: Scene) -> Callable[[], Any]:
    lease = scene.lock().acquire()
    scene.wanted(scene.lock(scene.rival))
    return lease.release


@scene
def release_to_a_thread(scene: Scene) -> Callable[[], Any]:
    lease = scene.lock().acquire()
    scene.wanted(scene.lock())
    return lease.release


@scene
def extend(scene: Scene) -> Callable[[], Any]:
    lease = scene.lock().acquire()
    scene.kept.append(lease)
    return lambda: lease.extend(TTL)


@scene
def wait_for_a_loss(scene: Scene) -> Callable[[], Any]:
    lease = scene.lock().acquire()
    scene.kept.append(lease)
    return lambda: lease.lost.wait(LATE)


@scene
def block(scene: Scene) -> Callable[[], Any]:
    def enter_and_leave() -> None:
        with scene.lock():
            pass

    return enter_and_leave


@scene
def block_of_a_lease(scene: Scene) -> Callable[[], Any]:
    def enter_and_leave() -> None:
        with scene.lock().acquire():
            pass

    return enter_and_leave


@scene
def block_behind_a_thread(scene: Scene) -> Callable[[], Any]:
    scene.held(scene.lock())
    return block(scene)


@scene
def block_of_a_lock_that_is_kept(scene: Scene) -> Callable[[], Any]:
    lock = scene.lock()
    _LOCKS.append(lock)

    def enter_and_leave() -> None:
        with lock:
            pass

    return enter_and_leave


_LOCKS: list[Any] = []
"""As those of a module: they live as long as the program."""


@scene
def inner_block(scene: Scene) -> Callable[[], Any]:
    lock = scene.client.rlock(scene.name, ttl=TTL, ticket_ttl=TICKET)
    scene.kept.append(lock.acquire())

    def enter_and_leave() -> None:
        with lock:
            pass

    return enter_and_leave


@scene
def several(scene: Scene) -> Callable[[], Any]:
    def enter_and_leave() -> None:
        with scene.client.multi_lock([scene.name, f"{scene.name}-b"], ttl=TTL):
            pass

    return enter_and_leave


def _strike(scene: Scene, operation: Callable[[], Any], at: int, kind: type[BaseException]) -> str:
    """Run an operation; where the handler raised, "" if it did not."""

    def act() -> None:
        raise kind

    striking = Struck(at, act)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with striking:
            result = operation()
        if result:
            scene.kept.append(result)
    except kind:
        pass
    finally:
        sys.unraisablehook = hook
    return striking.where


def _settle(scene: Scene, tally: Tally, where: str) -> None:
    """Let go of what is held, and have the witness, and then the client itself, take the name."""
    for lease in scene.kept:
        if lease is not True and lease:
            taken = scene.lock(scene.rival).try_acquire()
            if taken is not None and lease:
                tally.wrong.append(f"{where}: two owners, {lease!r} and {taken!r}")
            with contextlib.suppress(pawlock.NotHeld):
                lease.release()
    scene.kept.clear()
    began = time.monotonic()
    for other in scene.others:
        other.result(10)
    with scene.lock(scene.rival).acquire(10) as lease:
        tally.others_went_on(where, time.monotonic() - began, lease.fence)
    began = time.monotonic()
    in_thread(lambda: scene.lock().acquire(10).release()).result(20)
    scene.lock().acquire(10).release()
    if (waited := time.monotonic() - began) > pace() * 1.5:
        tally.wrong.append(f"{where}: its own client went on after {waited:.2f} s")


def _sweep(server: Server, name: str, kind: type[BaseException], steps: Iterator[int]) -> None:
    tally = Tally()
    with pawlock.connect(server.url) as client, pawlock.connect(server.url) as rival:
        for one in (client, rival):
            one.lock("first").acquire().release()
        for at in steps:
            trial = Scene(client, rival, f"n{at}")
            where = _strike(trial, SCENES[name](trial), at, kind)
            _settle(trial, tally, where)
            if not where:
                break
    tally.check(f"{name}, {kind.__name__}")


# asyncio -------------------------------------------------------------------------------------------------------------

AsyncScene = tuple[pawlock.AsyncClient, pawlock.AsyncClient, str]
AsyncBegin = Callable[[AsyncScene], Awaitable[Callable[[], Awaitable[Any]]]]
ASYNC_SCENES: dict[str, AsyncBegin] = {}


def async_scene(begin: AsyncBegin) -> AsyncBegin:
    ASYNC_SCENES[begin.__name__.removeprefix("tasks_")] = begin
    return begin


def _lock(client: pawlock.AsyncClient, name: str) -> pawlock.AsyncLock:
    return client.lock(name, ttl=TTL, ticket_ttl=TICKET)


async def _held(lock: pawlock.AsyncLock) -> None:
    lease = await lock.acquire()
    asyncio.get_running_loop().call_later(LATE, lambda: _tasks.add(asyncio.ensure_future(lease.release())))


_ASYNCIO_FORGETS = ("add_done_callback", "call_soon")
"""Where asyncio notes which task an answer wakes: interrupted there, it forgets the task, whatever that waits for."""

_tasks: set[asyncio.Future[Any]] = set()


@async_scene
async def tasks_acquire(scene: AsyncScene) -> Callable[[], Awaitable[Any]]:
    return _lock(scene[0], scene[2]).acquire


@async_scene
async def tasks_acquire_behind_another_client(scene: AsyncScene) -> Callable[[], Awaitable[Any]]:
    await asyncio.ensure_future(_held(_lock(scene[1], scene[2])))
    return _lock(scene[0], scene[2]).acquire


@async_scene
async def tasks_acquire_behind_a_task(scene: AsyncScene) -> Callable[[], Awaitable[Any]]:
    await asyncio.ensure_future(_held(_lock(scene[0], scene[2])))
    return _lock(scene[0], scene[2]).acquire


@async_scene
async def tasks_release(scene: AsyncScene) -> Callable[[], Awaitable[Any]]:
    return (await _lock(scene[0], scene[2]).acquire()).release


@async_scene
async def tasks_extend(scene: AsyncScene) -> Callable[[], Awaitable[Any]]:
    lease = await _lock(scene[0], scene[2]).acquire()

    async def extend_and_release() -> None:
        try:
            await lease.extend(TTL)
        finally:
            await lease.release()

    return extend_and_release


@async_scene
async def tasks_block(scene: AsyncScene) -> Callable[[], Awaitable[Any]]:
    async def enter_and_leave() -> None:
        async with _lock(scene[0], scene[2]):
            pass

    return enter_and_leave


@async_scene
async def tasks_block_of_a_lock_that_is_kept(scene: AsyncScene) -> Callable[[], Awaitable[Any]]:
    lock = _lock(scene[0], scene[2])
    _LOCKS.append(lock)

    async def enter_and_leave() -> None:
        async with lock:
            pass

    return enter_and_leave


@async_scene
async def tasks_block_of_an_acquisition(scene: AsyncScene) -> Callable[[], Awaitable[Any]]:
    async def enter_and_leave() -> None:
        async with _lock(scene[0], scene[2]).acquire():
            pass

    return enter_and_leave


async def _strike_task(
    operation: Callable[[], Awaitable[Any]], at: int, kind: type[BaseException]
) -> tuple[str, Any]:
    mine = asyncio.current_task()

    def act() -> None:
        if asyncio.current_task() is mine:
            raise kind

    striking = Struck(at, act, spared=_ASYNCIO_FORGETS)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    result = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            with striking:
                result = await operation()
    except kind:
        pass
    finally:
        sys.unraisablehook = hook
    return striking.where, result


async def _sweep_tasks(server: Server, name: str, kind: type[BaseException], steps: Iterator[int]) -> None:
    tally = Tally()
    async with _clients(server) as (client, rival):
        for at in steps:
            where, lease = await _strike_task(await ASYNC_SCENES[name]((client, rival, f"n{at}")), at, kind)
            if lease:
                taken = await _lock(rival, f"n{at}").try_acquire()
                if taken is not None and lease:
                    tally.wrong.append(f"{where}: two owners, {lease!r} and {taken!r}")
                await lease.release()
            del lease
            began = time.monotonic()
            async with _lock(rival, f"n{at}").acquire(10) as got:
                tally.others_went_on(where, time.monotonic() - began, got.fence)
            began = time.monotonic()
            await asyncio.ensure_future(_take(_lock(client, f"n{at}")))
            if (waited := time.monotonic() - began) > pace() * 1.5:
                tally.wrong.append(f"{where}: its own client went on after {waited:.2f} s")
            if not where:
                break
    tally.check(f"tasks: {name}, {kind.__name__}")


async def _take(lock: pawlock.AsyncLock) -> None:
    async with lock.acquire(10):
        pass


@contextlib.asynccontextmanager
async def _clients(server: Server) -> AsyncIterator[tuple[pawlock.AsyncClient, pawlock.AsyncClient]]:
    async with pawlock.connect_async(server.url) as client, pawlock.connect_async(server.url) as rival:
        for one in (client, rival):
            await (await one.lock("first").acquire()).release()
        yield client, rival


# The sweeps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["acquire", "acquire_behind_a_thread", "release_to_a_thread", "block"])
def test_row_12_a_handler_raises_at_some_steps(name: str, server: Server) -> None:
    kind = KINDS[len(name) % 2]
    _sweep(server, name, kind, iter(range(1 + len(name) % 5, 400, 7)))


def test_row_12_a_handler_raises_at_some_steps_of_a_task(server: Server) -> None:
    asyncio.run(_sweep_tasks(server, "block", Limit, iter(range(3, 400, 29))))


@pytest.mark.parametrize("name", ["acquire", "acquire_behind_another_client", "acquire_where_it_may_degrade"])
def test_row_12_who_keeps_the_error_may_acquire_it_again(name: str, server: Server) -> None:
    """As the ``except`` clause of a time limit does: the traceback keeps what was in hand."""
    at, where = 0, "begin"
    with pawlock.connect(server.url) as client, pawlock.connect(server.url) as rival:
        for one in (client, rival):
            one.lock("first").acquire().release()
        while where:
            at += 1
            trial = Scene(client, rival, f"n{at}")
            operation = SCENES[name](trial)
            striking = Struck(at, _limit)
            try:
                with striking:
                    operation()
            except Limit:
                trial.lock().acquire(pace() * (TTL + 1.0)).release()
            where = striking.where
    assert at > 10


def _limit() -> None:
    raise Limit


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCENES)
def test_row_12_a_handler_raises_at_every_step(name: str, kind: type[BaseException], server: Server) -> None:
    _sweep(server, name, kind, iter(range(1, 2000)))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ASYNC_SCENES)
def test_row_12_a_handler_raises_at_every_step_of_a_task(
    name: str, kind: type[BaseException], server: Server
) -> None:
    asyncio.run(_sweep_tasks(server, name, kind, iter(range(1, 2000))))
