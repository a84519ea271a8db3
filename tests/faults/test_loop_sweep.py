"""A signal handler on top of the loop's thread, at each step of what tasks do: it uses the sync client, or exits.

`signal.signal` handlers run between any two steps of the loop's thread: in the middle of a guarded step of the async
client, or of the loop's own callbacks. They may use a client of threads of the same process, for the same names. One
that raises SystemExit or KeyboardInterrupt ends the loop wherever that is; `asyncio.Runner` then cancels what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest

import pawlock
from tests.faults.rig import key, remains
from tests.faults.steps import Struck
from tests.support.servers import Server

pytestmark = pytest.mark.fault

TTL = 60.0
TICKET = 0.9
LATE = 0.01
FREE_WITHIN = 1.6
"""Seconds within which a name is free that nobody holds: a ticket's life, and some room."""


@dataclass
class Scene:
    """One trial: an async client in some situation, the call that is interrupted, and a sync client for the handler."""

    server: Server
    sync: pawlock.Client
    kind: str
    wrong: list[str] = field(default_factory=list)
    inside: list[Any] = field(default_factory=list)

    def lock(self, client: Any) -> Any:
        options: dict[str, Any] = {"ttl": TTL, "ticket_ttl": TICKET}
        if self.kind == "semaphore":
            return client.semaphore("n", permits=1, **options)
        return getattr(client, self.kind)("n", **options)

    def enter(self, lease: Any) -> None:
        self.wrong += [
            f"fence {lease.fence} beside {one.fence}" for one in self.inside if one.state == "held"
        ]
        self.inside.append(lease)

    async def visit(self, client: pawlock.AsyncClient) -> None:
        lease = await self.lock(client).acquire(timeout=4)
        self.enter(lease)
        await asyncio.sleep(0)
        self.inside.remove(lease)
        await lease.release()


Operation = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def acquire_free(scene: Scene, client: pawlock.AsyncClient) -> AsyncIterator[Operation]:
    yield lambda: scene.visit(client)


@asynccontextmanager
async def acquire_from_a_thread(scene: Scene, client: pawlock.AsyncClient) -> AsyncIterator[Operation]:
    """The sync client of the same process holds it, in another thread."""
    held = await asyncio.to_thread(lambda: scene.lock(scene.sync).acquire(timeout=4))

    def release() -> None:
        with contextlib.suppress(pawlock.NotHeld):
            held.release()

    timer = threading.Timer(LATE, release)
    timer.start()
    try:
        yield lambda: scene.visit(client)
    finally:
        timer.join()


@asynccontextmanager
async def release_to_tasks(scene: Scene, client: pawlock.AsyncClient) -> AsyncIterator[Operation]:
    lease = await scene.lock(client).acquire(timeout=4)
    waiting = [asyncio.ensure_future(scene.visit(client)) for _ in range(2)]
    await asyncio.sleep(0.005)

    async def release() -> None:
        await lease.release()
        await asyncio.gather(*waiting)

    try:
        yield release
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@asynccontextmanager
async def extend(scene: Scene, client: pawlock.AsyncClient) -> AsyncIterator[Operation]:
    async with await scene.lock(client).acquire(timeout=4) as lease:
        yield lambda: lease.extend(TTL)


SITUATIONS = {
    "acquire, free": acquire_free,
    "acquire from a thread": acquire_from_a_thread,
    "release to tasks": release_to_tasks,
    "extend": extend,
}


def same_name(scene: Scene) -> None:
    lease = scene.lock(scene.sync).try_acquire()
    if lease is not None:
        scene.enter(lease)
        scene.inside.remove(lease)
        lease.release()


def other_name(scene: Scene) -> None:
    with scene.sync.lock("other", ttl=TTL):
        scene.sync.inspect("other")


def close_sync(scene: Scene) -> None:
    scene.sync.close()


def end_process(_: Scene) -> NoReturn:
    sys.exit(0)


def interrupt(_: Scene) -> NoReturn:
    raise KeyboardInterrupt


def close_and_end(scene: Scene) -> NoReturn:
    scene.sync.close()
    sys.exit(0)


HANDLERS: dict[str, Callable[[Scene], None]] = {
    "same name": same_name,
    "another name": other_name,
    "close": close_sync,
    "exit": end_process,
    "interrupt": interrupt,
    "close and exit": close_and_end,
}
RAISING = {"exit", "interrupt", "close and exit"}
ASYNCIO_FORGETS = ("add_done_callback", "call_soon")
"""Where asyncio notes which task an answer wakes, and where it passes that on: a future that is done has given up its
callbacks before it hands them to the loop one by one. An exception at the entry of either makes asyncio forget the
task, whatever it waits for, and `asyncio.run` then waits for it without end."""


async def body(scene: Scene, situation: str, striking: Struck) -> None:
    async with (
        pawlock.connect_async(scene.server.url) as client,
        SITUATIONS[situation](scene, client) as operation,
    ):
        with striking:
            await operation()


def trial(server: Server, kind: str, situation: str, handler: str, at: int) -> tuple[str, list[str]]:
    with pawlock.connect(server.url) as sync:
        scene = Scene(server, sync, kind)

        def act() -> None:
            try:
                HANDLERS[handler](scene)
            except Exception as error:  # noqa: BLE001 - told with the place
                scene.wrong.append(f"the handler: {error!r}")

        raises = handler in RAISING
        striking = Struck(at, act, spared=ASYNCIO_FORGETS if raises else ())
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        on_interrupt = signal.getsignal(signal.SIGINT)
        runner = asyncio.Runner()
        # What asyncio itself says of a task that ended with SystemExit.
        runner.get_loop().set_exception_handler(lambda *_: None)
        try:
            with contextlib.suppress(SystemExit, KeyboardInterrupt, asyncio.CancelledError):
                runner.run(body(scene, situation, striking))
        except Exception as error:  # noqa: BLE001 - told with the place
            if handler not in RAISING:
                scene.wrong.append(f"the call: {error!r}")
        finally:
            sys.setprofile(None)
            # asyncio raises anew what ended one task in those that wait for it.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                runner.close()
            sys.unraisablehook = hook
            # The handler that raised may have done so in the lines that put this one back.
            signal.signal(signal.SIGINT, on_interrupt)
    end = time.monotonic() + FREE_WITHIN
    while (left := remains(server)) and time.monotonic() < end:
        time.sleep(0.002)
    if left:
        scene.wrong.append(f"left: {left}, {server.command('PTTL', key('n'))!r} ms")
        server.command("FLUSHALL")
    return striking.where, scene.wrong


def sweep(server: Server, kind: str, situation: str, handler: str, *, first: int = 1, stride: int = 1) -> int:
    """Strike at each step, or each ``stride``-th, until the call runs through."""
    at, bad = first, []
    while True:
        with warnings.catch_warnings():
            # The handler blocks the loop, as it is told; a loop that ends in the middle leaves its sockets to Python.
            warnings.simplefilter("ignore")
            where, wrong = trial(server, kind, situation, handler, at)
        if wrong:
            bad.append(f"step {at}, {where or 'not struck'}: {'; '.join(wrong)}")
        if not where:
            break
        at += stride
    # What an interrupt left to the collector: here, and not in whatever test comes next.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    assert not bad, f"wrong at {len(bad)} of the steps up to {at}:\n" + "\n".join(bad)
    return at - 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_row_12_a_handler_on_top_of_a_loop_at_a_few_steps(server: Server) -> None:
    for handler in HANDLERS:
        sweep(server, "lock", "acquire from a thread", handler, first=7, stride=211)


@pytest.mark.slow
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_row_12_a_handler_on_top_of_a_loop(situation: str, handler: str, server: Server) -> None:
    """At each 97th step; where it begins differs from case to case, and does not from run to run."""
    first = 1 + sum(f"{situation}{handler}".encode()) % 97
    sweep(server, "lock", situation, handler, first=first, stride=97)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("kind", ["lock", "fair_lock", "semaphore"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_row_12_a_handler_on_top_of_a_loop_at_every_step(
    kind: str, situation: str, handler: str, server: Server
) -> None:
    assert sweep(server, kind, situation, handler) > 3


class _Struck(Exception):
    """What the signal handler raises."""


async def _lock(client: pawlock.AsyncClient, name: str) -> None:
    async with client.lock(name, ttl=TTL):
        pass


async def _acquisition(client: pawlock.AsyncClient, name: str) -> None:
    async with client.lock(name, ttl=TTL).acquire(timeout=4):
        pass


async def _inner(client: pawlock.AsyncClient, name: str) -> None:
    lock = client.rlock(name, ttl=TTL)
    async with lock, lock:
        pass


async def _several(client: pawlock.AsyncClient, name: str) -> None:
    async with client.multi_lock([name, f"{name}-b"], ttl=TTL):
        pass


async def _several_acquired(client: pawlock.AsyncClient, name: str) -> None:
    async with client.multi_lock([name, f"{name}-b"], ttl=TTL).acquire(timeout=4):
        pass


async def _once(client: pawlock.AsyncClient, name: str) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with client.once(name, ttl=TTL):
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("block", "stride"),
    [
        (_lock, 29),
        *[
            pytest.param(block, stride, marks=pytest.mark.slow)
            for block in (_lock, _acquisition, _inner, _several, _several_acquired, _once)
            for stride in (1, 5)
        ],
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
async def test_row_12_a_handler_that_raises_in_a_task_leaves_no_block_behind(
    block: Callable[[pawlock.AsyncClient, str], Awaitable[None]], stride: int, server: Server
) -> None:
    """At each step, or each ``stride``-th, of the task that begins or ends the block: what it had is given back."""
    mine = asyncio.current_task()
    at, where, held = 0, "?", []

    def act() -> None:
        if asyncio.current_task() is mine:
            raise _Struck

    async with pawlock.connect_async(server.url) as client:
        await block(client, "first")
        while where:
            at += stride
            striking = Struck(at, act, spared=ASYNCIO_FORGETS)
            with warnings.catch_warnings(), contextlib.suppress(_Struck):
                # An acquisition that was made, and not begun.
                warnings.simplefilter("ignore", RuntimeWarning)
                with striking:
                    await block(client, f"n{at}")
            where = striking.where
            end, collect_at = time.monotonic() + FREE_WITHIN, time.monotonic() + 0.05
            while (left := _of(server, f"n{at}")) and time.monotonic() < end:
                await asyncio.sleep(0.001)
                if time.monotonic() > collect_at:
                    # What interrupted an acquisition refers to itself.
                    gc.collect()
                    collect_at = end
            if left:
                held.append(f"{where}: {left}")
    assert at > 60
    # Where one of these begins there is nobody yet to end it.
    unseen = ("__aexit__:", "_leave:", "given:")
    assert len({one.partition(": ")[0] for one in held}) <= 3, "\n".join(held)
    assert all(one.split()[1] in unseen for one in held), "\n".join(held)


def _of(server: Server, name: str) -> list[str]:
    return [one for one in remains(server) if one in {key(name), key(f"{name}-b"), key(f"%once:{name}")}]
