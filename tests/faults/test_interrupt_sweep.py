"""KeyboardInterrupt at every step of pawlock that acquire and release run through: nothing may be left on the server.

The interpreter runs signal handlers where a Python function begins and where a C function has returned (its result
is lost then); see ``steps``.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from types import FrameType
from typing import Any

import pytest

import pawlock
import pawlock.metrics
from tests.faults.rig import in_thread, remains, teach, until, waiters
from tests.faults.steps import Paused, Struck
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.resp import texts
from tests.support.servers import Server

pytestmark = pytest.mark.fault

TTL = 60.0
TICKET = 0.9
"""Between the queueing and its guard lie a few steps: interrupted there, a waiter is gone with its ticket's life."""

LATE = 0.01


def _sleep_here(client: pawlock.Client, number: int) -> bool:
    return sum(len(one.local_waiters) for one in client._engine.queues.local.by_key.values()) == number


def struck(
    operation: Callable[[], Any],
    strike_at: int,
    raised: type[BaseException] = KeyboardInterrupt,
    *,
    spared: tuple[str, ...] = (),
) -> tuple[str, Any]:
    """Interrupt an operation at one step; where it was ("" if it ran through), and its result."""

    def act() -> None:
        raise raised

    result = None
    striking = Struck(strike_at, act, spared=spared)
    dropped: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, dropped.append
    try:
        with striking:
            result = operation()
    except raised:
        return striking.where, None
    finally:
        sys.unraisablehook = hook
    # In a finaliser, Python itself drops it.
    assert dropped or not striking.where, f"the interrupt at {striking.where} was swallowed"
    return striking.where, result


def leftover(server: Server) -> list[str]:
    """What is on the server still, after the life of a ticket."""
    end = time.monotonic() + TICKET + 0.6
    while (left := remains(server)) and time.monotonic() < end:
        time.sleep(0.002)
    return left


def sweep(
    server: Server,
    client: pawlock.Client,
    situation: Callable[[], contextlib.AbstractContextManager[Any]],
    raised: type[BaseException] = KeyboardInterrupt,
) -> int:
    """Interrupt at the first, the second, … step until an operation runs through; how many steps it has."""
    at, bad = 1, []
    while True:
        with situation() as operation:
            where, result = struck(operation, at, raised)
            if isinstance(result, pawlock.Lease | pawlock.MultiLease):
                result.release()
            del result
        if left := leftover(server):
            bad.append(f"{where}: {left}")
            server.command("FLUSHALL")
        else:
            client.lock("n", ttl=TTL, ticket_ttl=TICKET).acquire(2).release()
        if not where:
            break
        at += 1
    print(f"{at - 1} steps")
    assert not bad, f"left after an interrupt at {len(bad)} of {at} steps:\n" + "\n".join(bad)
    return at - 1


@pytest.fixture
def pair(server: Server) -> Iterator[tuple[pawlock.Client, pawlock.Client]]:
    with pawlock.connect(server.url) as client, pawlock.connect(server.url) as rival:
        client.inspect("n")
        rival.inspect("n")
        yield client, rival


@contextlib.contextmanager
def nobody(_: pawlock.Client, __: pawlock.Client) -> Iterator[None]:
    yield


@contextlib.contextmanager
def rival_holds(_: pawlock.Client, rival: pawlock.Client) -> Iterator[None]:
    held = rival.lock("n", ttl=TTL).acquire(5)
    timer = threading.Timer(LATE, held.release)
    timer.start()
    yield
    timer.join()


@contextlib.contextmanager
def thread_holds(client: pawlock.Client, _: pawlock.Client) -> Iterator[None]:
    ready, done = threading.Event(), None

    def hold() -> None:
        with client.lock("n", ttl=TTL, ticket_ttl=TICKET).acquire(5):
            ready.set()
            time.sleep(LATE)

    done = in_thread(hold)
    assert ready.wait(5)
    yield
    done.result(5)


SITUATIONS = {
    "free": nobody,
    "another client holds": rival_holds,
    "another thread holds": thread_holds,
}


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
@pytest.mark.parametrize("way", ["acquire", "try_acquire", "with", "rlock"])
@pytest.mark.timeout(300)
def test_row_12_interrupt_at_every_step_of_acquire(
    way: str,
    situation: Callable[..., contextlib.AbstractContextManager[None]],
    pair: tuple[pawlock.Client, pawlock.Client],
    server: Server,
) -> None:
    client, rival = pair
    lock = (
        client.rlock("n", ttl=TTL, ticket_ttl=TICKET)
        if way == "rlock"
        else client.lock("n", ttl=TTL, ticket_ttl=TICKET)
    )
    operations: dict[str, Callable[[], Any]] = {
        "acquire": lambda: lock.acquire(5),
        "rlock": lambda: lock.acquire(5),
        "try_acquire": lock.try_acquire,
        "with": lock.__enter__,
    }

    @contextlib.contextmanager
    def prepared() -> Iterator[Callable[[], Any]]:
        with situation(client, rival):
            yield operations[way]

    assert sweep(server, client, prepared) > 20


def _steps_of(operation: Callable[[], Any], function: str) -> tuple[int, int]:
    """The first and the last step of an operation that is in a function, or in what that calls."""
    places: list[bool] = []

    class Watched(Paused):
        def _profile(self, frame: FrameType, event: str, argument: object) -> None:
            before = self.reached
            super()._profile(frame, event, argument)
            if self.reached > before:
                above: FrameType | None = frame
                while above is not None and above.f_code.co_name != function:
                    above = above.f_back
                places.append(above is not None)

    with Watched(-1, lambda: None):
        operation()
    return places.index(True) + 1, len(places) - places[::-1].index(True)


@pytest.mark.parametrize("way", ["acquire", "try_acquire"])
@pytest.mark.parametrize("kind", ["lock", "fair_lock", "semaphore"])
def test_row_12_interrupt_at_every_step_of_the_end_of_a_wait(
    kind: str, way: str, pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    """What is given up is given back at once, and is in nobody's way."""
    client, rival = pair
    given: dict[str, Any] = {"permits": 1} if kind == "semaphore" else {}
    # So long a ticket that one which was left is not over by itself.
    lock = getattr(client, kind)("n", ttl=TTL, ticket_ttl=30, **given)
    wait = {"acquire": lambda: lock.acquire(timeout=0.02), "try_acquire": lock.try_acquire}[way]
    local_queues = client._engine.queues.local.by_key

    def attempt() -> None:
        with contextlib.suppress(pawlock.AcquireTimeout):
            assert wait() is None

    def left() -> list[str]:
        return [key for key in texts(server.command("KEYS", "*")) if "queue" in key or "ticket" in key]

    held = getattr(rival, kind)("n", ttl=TTL, **given).acquire(timeout=5)
    attempt()
    first, last = _steps_of(attempt, "give_up")
    for at in range(first - 1, last + 2):
        # With a connection: the steps are the same each time.
        attempt()
        where, _ = struck(attempt, at)
        until(lambda: not left() and not local_queues, what=f"what was interrupted at {where} is given back")
    held.release()
    lock.acquire(timeout=5).release()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rwlock.write", "multi_lock"])
@pytest.mark.timeout(300)
def test_row_12_interrupt_at_every_step_of_the_begin_of_a_block(
    kind: str, pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    client, _ = pair
    lock: Any = (
        client.rwlock("n", ttl=TTL, ticket_ttl=TICKET).write
        if kind == "rwlock.write"
        else client.multi_lock(["n", "m"], ttl=TTL, ticket_ttl=TICKET)
    )

    @contextlib.contextmanager
    def prepared() -> Iterator[Callable[[], Any]]:
        yield lock.__enter__

    assert sweep(server, client, prepared) > 20


class _OfAHandler(pawlock.NotHeld):
    """What a handler raises that releases the same lease, on top of its release."""

    def __init__(self) -> None:
        super().__init__("raised by a handler", name="n")


def _waits_here(client: pawlock.Client) -> Future[None]:
    """Another thread of the client, which sleeps in its local queue until it has the lock for a moment."""
    waiter = in_thread(lambda: client.lock("n", ttl=TTL, ticket_ttl=TICKET).acquire(5).release())
    until(lambda: any(place.local_waiters for place in client._engine.queues.local.by_key.values()))
    return waiter


@pytest.mark.parametrize("raised", [pytest.param(KeyboardInterrupt, marks=pytest.mark.slow), _OfAHandler])
@pytest.mark.parametrize(
    ("waiting", "min_hold"),
    [
        pytest.param(False, 0.0, id="nobody waits", marks=pytest.mark.slow),
        pytest.param(True, 0.0, id="another thread waits", marks=pytest.mark.slow),
        pytest.param(False, 0.001, id="with min_hold"),
    ],
)
def test_row_12_interrupt_at_every_step_of_release(
    *,
    waiting: bool,
    min_hold: float,
    raised: type[BaseException],
    pair: tuple[pawlock.Client, pawlock.Client],
    server: Server,
) -> None:
    client, _ = pair

    @contextlib.contextmanager
    def prepared() -> Iterator[Callable[[], Any]]:
        lease = client.lock("n", ttl=TTL, ticket_ttl=TICKET, min_hold=min_hold).acquire(5)
        waiter = _waits_here(client) if waiting else None
        yield lease.release
        # Interrupted before its first step, it has not begun.
        with contextlib.suppress(pawlock.NotHeld):
            lease.release()
        if waiter is not None:
            waiter.result(5)
        kept.append(lease)

    kept: list[pawlock.Lease] = []
    assert sweep(server, client, prepared, raised) > 5


@pytest.mark.parametrize("raised", [KeyboardInterrupt, _OfAHandler])
@pytest.mark.parametrize("waiting", [False, True], ids=["nobody waits", "another thread waits"])
def test_row_12_interrupt_at_every_step_of_detach(
    *, waiting: bool, raised: type[BaseException], pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    client, rival = pair

    @contextlib.contextmanager
    def prepared() -> Iterator[Callable[[], Any]]:
        lease = client.lock("n", ttl=TTL, ticket_ttl=TICKET).acquire(5)
        waiter = _waits_here(client) if waiting else None

        tickets: list[str] = []
        yield lambda: tickets.append(lease.detach())
        for ticket in tickets:
            rival.adopt(ticket).release()
        # Interrupted before its first step.
        with contextlib.suppress(pawlock.NotHeld):
            lease.release()
        if waiter is not None:
            waiter.result(5)
        kept.append(lease)

    kept: list[pawlock.Lease] = []
    assert sweep(server, client, prepared, raised) > 5


class _Counted:
    """An observer that notes the end of each lease, and nothing else."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def released(self, kind: str, name: str, *, held: float, outcome: str) -> None:
        del kind, name, held
        self.ends.append(outcome)

    def _ignore(self, *_: object, **__: object) -> None:
        pass

    acquired = refused = queued = lost = counted = called = _ignore


@pytest.mark.parametrize("way", ["release", "with"])
def test_row_12_metrics_hear_once_of_each_release_that_is_interrupted(
    way: str, pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    client, _ = pair
    counted, at, bad = _Counted(), 1, []
    pawlock.metrics.observe(client, counted)
    # What the observer itself was interrupted in is between it and the handler.
    spared = ("released", "_notify", "<lambda>", "_ignore")
    while True:
        lease = client.lock("n", ttl=TTL).acquire(5)
        counted.ends.clear()

        def block(lease: pawlock.Lease = lease) -> None:
            with lease:
                pass

        where, _none = struck(lease.release if way == "release" else block, at, spared=spared)
        # Interrupted before its first step, it has not begun.
        with contextlib.suppress(pawlock.NotHeld):
            lease.release()
        until(lambda: not remains(server))
        if len(counted.ends) != 1:
            bad.append(f"{where}: {counted.ends}")
        if not where:
            break
        at += 1
    assert at > 10
    assert not bad, f"counted otherwise than once at {len(bad)} of {at} steps:\n" + "\n".join(bad)


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_row_12_interrupt_at_every_step_of_the_end_of_a_block_of_a_lock_that_is_kept(
    kind: str, pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    """The lock knows who is in its blocks: a lease that stayed there would be renewed for as long as the lock lives."""
    client, _ = pair
    given: dict[str, Any] = {"permits": 1} if kind == "semaphore" else {}
    lock = getattr(client, kind)("n", ttl=TTL, **given)
    at, where, bad = 0, "?", []
    while where:
        at += 1
        lock.__enter__()
        where, _none = struck(lambda: lock.__exit__(None, None, None), at)
        if lock._entered:
            bad.append(where)
            lock.__exit__(None, None, None)
        until(lambda: not remains(server), what=f"what was interrupted at {where} is given back")
    assert at > 10
    # Where `__exit__` itself begins there is nobody yet to end it.
    assert len(bad) <= 1, f"left in the block at {bad}"


@pytest.mark.parametrize("kind", ["multi_lock", "once"])
def test_row_12_interrupt_at_every_step_of_the_end_of_a_block_of_several_names_or_of_once(
    kind: str, pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    client, _ = pair
    at, where, waits = 0, "?", 0
    while where:
        at += 1
        lock: Any = (
            client.multi_lock(["n", "m"], ttl=TTL) if kind == "multi_lock" else client.once("n", ttl=TTL)
        )
        lock.__enter__()
        where, _none = struck(lambda lock=lock: lock.__exit__(None, None, None), at)  # type: ignore[misc]
        if lock._entered:
            # Where `__exit__` itself begins there is nobody yet to end it.
            waits += 1
            lock.__exit__(None, None, None)
        until(
            lambda: not [key for key in remains(server) if not key.endswith(":done")],
            what=f"what was interrupted at {where} is given back",
        )
        server.command("FLUSHALL")
        teach(server)
    assert at > 40
    assert waits <= 2


def test_row_12_interrupt_at_every_step_of_a_block_that_another_thread_entered(
    pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    """It ends what that one holds, once, and nothing of who is in a block of the same object meanwhile."""
    client, _ = pair
    lock = client.semaphore("n", permits=4, ttl=TTL)
    at, where = 0, "?"
    while where:
        at += 1
        in_thread(lock.__enter__).result(10)
        stays = in_thread(lock.__enter__).result(10)
        where, _none = struck(lambda: lock.__exit__(None, None, None), at)
        if len(lock._entered) > 1:
            # Where `__exit__` itself begins there is nobody yet to end it.
            lock.__exit__(None, None, None)
        assert stays.state == "held", f"ended by an interrupt at {where}"
        lock.__exit__(None, None, None)
        until(lambda: not remains(server), what=f"what was interrupted at {where} is given back")
    assert at > 10


def test_row_12_interrupt_at_every_step_of_the_release_of_several(
    pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    client, _ = pair
    at, where, held = 0, "?", []
    while where:
        at += 1
        lease = client.multi_lock(["n", "m"], ttl=TTL).acquire()
        where, _none = struck(lease.release, at)
        if lease:
            held.append(where)
            lease.release()
        until(lambda: not remains(server), what=f"what was interrupted at {where} is given back")
    assert at > 40
    # Where it begins there is nobody yet to end it.
    assert len(held) <= 2, f"held after an interrupt at {held}"


def test_row_12_interrupt_at_every_step_of_a_release_by_identifier(
    pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    """The hold is noted until its release has begun, so that the caller can ask again."""
    client, _ = pair
    service = client.service()
    at, where = 0, "?"
    while where:
        at += 1
        service.acquire("n", {"ttl": 60.0}, identifier="me")
        where, _none = struck(lambda: service.release("n", "me"), at)
        with contextlib.suppress(pawlock.NotHeld):
            service.release("n", "me")
        until(lambda: not remains(server), what=f"what was interrupted at {where} is given back")
        assert service.stats().released in {at, at - 1}
    assert at > 20


_DELIVERY = (" given", " __init__")
"""Where the lease is on its way to the caller: a traceback that is kept keeps it until then."""


@pytest.mark.parametrize(
    "kind",
    [
        "free",
        "again",
        "max_hold",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("handed over", "observed")),
    ],
)
def test_row_12_an_interrupted_acquisition_leaves_nothing_while_its_error_is_kept(  # noqa: C901 - one step after the other
    kind: str, pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    """The traceback keeps each record of the call alive, so no finaliser may be needed to undo it."""
    client, _ = pair
    if kind == "observed":
        pawlock.metrics.observe(client, _Counted())
    make = client.rlock if kind == "again" else client.lock
    lock = make("n", ttl=TTL, ticket_ttl=TICKET, max_hold=30 if kind == "max_hold" else None)
    spared = ("acquired", "released", "_notify", "<lambda>", "_ignore")

    def act() -> None:
        raise KeyboardInterrupt

    def hold(held: threading.Event) -> None:
        with lock.acquire(5):
            held.set()
            time.sleep(LATE)

    at, where, bad = 0, "begin", []
    while where:
        at += 1
        kept: list[BaseException] = []
        outer = lock.acquire(5) if kind == "again" else None
        held = threading.Event()
        holder = in_thread(partial(hold, held)) if kind not in ("free", "again") else None
        assert holder is None or held.wait(5)
        striking = Struck(at, act, spared=spared)
        # A coroutine that was not begun; Python says so wherever the collector comes to it.
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with striking:
                lease = lock.acquire(5)
            lease.release()
            del lease
        except KeyboardInterrupt as error:
            kept.append(error)
        where = striking.where
        if outer is not None:
            outer.release()
        if holder is not None:
            holder.result(5)
        if where.endswith(_DELIVERY):
            kept.clear()
            if outer is not None:
                # The level that was on its way counts, where it was.
                with contextlib.suppress(pawlock.NotHeld):
                    outer.release()
        if left := leftover(server):
            bad.append(f"{where}: {left}")
            break
        # Nor is anything in this client in the way of the next one.
        in_thread(lambda: lock.acquire(5).release()).result(10)
        kept.clear()
        sys.unraisablehook = hook
    assert not bad, f"left behind at step {at}: {bad}"
    assert at > 15


@pytest.mark.parametrize("way", ["release", "with"])
def test_row_12_interrupt_at_every_step_of_an_inner_release(
    way: str, pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    """The outer section goes on: it must not end with the inner one, whatever step of that was interrupted."""
    client, _ = pair
    lock = client.rlock("n", ttl=TTL, ticket_ttl=TICKET)
    at, ended = 1, []
    while True:
        outer, inner = lock.acquire(5), lock.acquire(5)

        def leave_block(lease: pawlock.Lease = inner) -> None:
            with lease:
                pass

        where, _none = struck(inner.release if way == "release" else leave_block, at)
        if outer.state != "held" or not server.command("EXISTS", "pawlock:n"):
            ended.append(where)
        with contextlib.suppress(pawlock.NotHeld):
            while True:
                outer.release()
        if not where:
            break
        at += 1
    assert at > 5
    assert not ended, f"the outer section ended with the inner one, interrupted at {ended}"


@pytest.mark.parametrize("kept_lease", [True, False], ids=["as outer", "no lease"])
def test_row_12_the_outer_section_ends_after_an_inner_one_that_was_interrupted(
    pair: tuple[pawlock.Client, pawlock.Client], server: Server, *, kept_lease: bool
) -> None:
    """An inner level that is not counted off would keep the name after the outer block has ended.

    ``with lock:`` drops the lease that it gets, so the inner block makes a new object for it.
    """
    client, _ = pair
    lock = client.rlock("n", ttl=TTL, ticket_ttl=TICKET)

    def inner() -> None:
        with lock:
            pass

    def section(at: int) -> tuple[str, Any]:
        if kept_lease:
            with lock as outer:
                return struck(inner, at)[0], outer._record
        with lock:
            (_who, record), *_inner = lock._entered
            return struck(inner, at)[0], record

    at, where, kept = 0, "?", []
    while where:
        at += 1
        where, record = section(at)
        if not record.released:
            kept.append(where)
            pawlock.Lease(record).release()
        until(lambda: not remains(server), what=f"what was interrupted at {where} is given back")
    assert at > 20
    # On its way to the caller, and where `__exit__` begins, nobody knows of it yet, or any more.
    assert len(kept) <= 2, f"held once more after an interrupt at {kept}"


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [0, 1])
def test_row_12_interrupt_at_every_step_of_a_release_to_the_last_of_a_run(
    waiting: int, pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    """Another client waited too: who is next here, if anybody, queues while the last one holds."""
    client, rival = pair
    lock = client.lock("n", ttl=TTL, ticket_ttl=TICKET, handover=1)

    @contextlib.contextmanager
    def prepared() -> Iterator[Callable[[], Any]]:
        held = rival.lock("n", ttl=TTL).acquire(5)
        first = in_thread(lambda: lock.acquire(5))
        until(lambda: waiters(server, "n") == 1)
        held.release()
        lease = first.result(5)
        assert not lease._record.server_lease.uncontended
        behind: list[Future[None]] = []
        for count in range(1, waiting + 2):
            behind.append(in_thread(lambda: lock.acquire(5).release()))
            until(partial(_sleep_here, client, count))
        yield lease.release
        with contextlib.suppress(pawlock.NotHeld):
            lease.release()
        for waiter in behind:
            waiter.result(5)

    assert sweep(server, client, prepared) > 15


@pytest.mark.slow
def test_row_12_interrupt_at_every_step_of_connect(
    pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    client, _ = pair
    clients: list[pawlock.Client] = []

    @contextlib.contextmanager
    def prepared() -> Iterator[Callable[[], Any]]:
        fresh = pawlock.connect(server.url)
        clients.append(fresh)
        yield lambda: fresh.lock("n", ttl=TTL).acquire(5)

    try:
        assert sweep(server, client, prepared) > 20
    finally:
        for fresh in clients:
            fresh.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "way", ["release", *(pytest.param(way, marks=pytest.mark.slow) for way in ("with", "nested", "wait"))]
)
def test_row_12_interrupt_at_every_step_of_a_lock_without_the_server(way: str) -> None:
    """What nothing but this process keeps has no ttl that would free it."""
    at, bad, where, kept = 0, [], "begin", []
    with pawlock.connect("redis://127.0.0.1:1") as client, pawlock.connect("redis://127.0.0.1:1") as rival:

        def block() -> None:
            with lock:
                pass

        def nested() -> None:
            with lock:
                block()

        while where:
            at += 1
            # A name of its own: what is taken for ever stays so.
            lock = client.rlock(f"n{at}", on_unavailable="local", unavailable_after=0.02)
            theirs = rival.lock(f"n{at}", on_unavailable="local", unavailable_after=0.02)
            releasing = None
            if way == "release":
                kept.append(lock.acquire(5))
                where, _ = struck(kept[-1].release, at)
                # Interrupted before its first step, it has not begun.
                with contextlib.suppress(pawlock.PawlockError):
                    kept[-1].release()
            else:
                if way == "wait":
                    releasing = threading.Timer(LATE, theirs.acquire(5).release)
                    releasing.start()
                where, _ = struck(nested if way == "nested" else block, at)
            if releasing is not None:
                releasing.join()
            try:
                in_thread(lambda theirs=theirs: theirs.acquire(5).release()).result(10)  # type: ignore[misc]
            except pawlock.AcquireTimeout:
                if not where.endswith(" __exit__"):
                    # There its first step had not begun: Python leaves the block without it.
                    bad.append(where)
    assert at > 10
    assert not bad, f"taken for ever after an interrupt at {len(bad)} of {at} steps:\n" + "\n".join(bad)


@pytest.mark.parametrize("operation", ["acquire", "acquire queued", "release"])
def test_row_12_a_signal_while_the_server_is_silent(
    operation: str, pair: tuple[pawlock.Client, pawlock.Client], server: Server
) -> None:
    _, rival = pair
    with Proxy(server) as proxy, pawlock.connect(proxy.url) as client:
        client.inspect("n")
        lock = client.lock("n", ttl=TTL, ticket_ttl=TICKET)
        held = rival.lock("n", ttl=TTL).acquire(5) if operation == "acquire queued" else None
        lease = lock.acquire(5) if operation == "release" else None
        rule = proxy.hold_reply("EVALSHA") if held is None else None
        main = threading.get_ident()

        def strike() -> None:
            if rule is not None:
                rule.wait()
            else:
                until(lambda: waiters(server, "n") == 1)
            time.sleep(0.02)
            signal.pthread_kill(main, signal.SIGINT)

        striking = in_thread(strike)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(5) if lease is None else lease.release()
        assert time.monotonic() - began < pace() * 2
        striking.result(5)
        if rule is not None:
            rule.remove()
        if held is not None:
            held.release()
        until(lambda: remains(server) == [], timeout=2, what="a clean server")
        with lock.acquire(2) as again:
            again.check()
