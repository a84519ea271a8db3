"""What is promised to those who wait, and when things break: order, hand-off, deaths, lost replies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pawlock.errors import AcquireTimeout, ClientClosed, NotAcquired, PawlockError, QueueFull
from pawlock.model import LeaseState
from tests.conformance.suite.backend import Faulty
from tests.conformance.suite.checks import check, expect, expect_error
from tests.conformance.suite.leasing import SLACK, bounded, crowded, fill, refused
from tests.conformance.suite.world import Started, World, settle
from tests.support._rules import Rule

__all__ = [
    "SOON",
    "a_dead_holder_frees_it",
    "a_late_copy_revives_nothing",
    "a_lost_wake_up_costs_little",
    "a_release_hands_it_on",
    "a_repeated_acquire_counts_once",
    "a_repeated_release_counts_once",
    "a_server_that_forgot_the_scripts",
    "a_wait_ends_at_its_time",
    "an_unknown_acquire_is_undone",
    "close_wakes_and_releases",
    "dead_waiters_delay_by_one_ticket",
    "first_come_first_served",
    "giving_up_leaves_nothing",
    "nobody_barges_in",
    "too_many_waiters_are_refused",
    "warm",
]

SOON = 0.6
"""Seconds within which a hand-off must arrive: far less than the second that a waiter polls at the latest."""


def quick(world: World) -> dict[str, Any]:
    """Options of who gives up soon on an answer."""
    return {"ttl": 6, "ticket_ttl": world.life(0.6)}


@check(bounded)
async def a_wait_ends_at_its_time(world: World) -> None:
    """A wait takes its ``timeout``, not less and little more, and leaves nothing that stands in anybody's way."""
    held = await fill(world, ttl=20)
    slow = crowded()
    wait, began = 0.5 * slow, time.monotonic()
    error = await expect_error(AcquireTimeout, lambda: world.acquire(world.lock(ttl=20), wait), "a wait")
    took = time.monotonic() - began
    expect(
        wait - 0.01 <= took < wait + SLACK * slow, f"a wait of {wait:g} s takes that long, not {took:.3f} s"
    )
    expect(error.waited >= wait - 0.01, f"it says how long it waited, not {error.waited:g}")
    await expect_error(AcquireTimeout, lambda: world.acquire(world.lock(ttl=20), 0), "a wait of 0 s")
    await settle(held[0].release())
    again = await world.attempt(world.lock(ttl=20))
    expect(again is not None, "those who gave up stand in nobody's way")


@check(bounded)
async def a_release_hands_it_on(world: World) -> None:
    """A release wakes the next waiter, who holds with the full life of its own lease soon after."""
    held = await fill(world, ttl=20)
    waiting = world.waiting(world.lock(ttl=20))
    await world.quiet()
    expect(not waiting.done, "it waits while all is taken")
    await settle(held[0].release())
    lease = await waiting.result(SOON, "a release wakes the next waiter")
    await world.until(lambda: lease.remaining() > 15, "a handed-off lease gets its full life", 2)
    expect(await refused(world), "what was handed on is taken")


@check(lambda entry: bounded(entry) and entry.fifo)
async def first_come_first_served(world: World) -> None:
    """Waiters are served in the order in which they came."""
    held = await fill(world, ttl=20)
    served: list[int] = []

    async def serve(number: int) -> None:
        lease = await world.acquire(world.lock(ttl=20))
        served.append(number)
        await world.pause(0.02)
        await settle(lease.release())

    crowd: list[Started] = []
    for number in range(5):
        crowd.append(world.start(partial(serve, number)))
        await world.quiet()
    await settle(held[0].release())
    for waiter in crowd:
        await waiter.result()
    expect(served == sorted(served), f"they are served in order, not {served}")


@check(lambda entry: bounded(entry) and entry.fifo)
async def nobody_barges_in(world: World) -> None:
    """One who comes when somebody waits already does not get in before."""
    held = await fill(world, ttl=20)
    waiting = world.waiting(world.lock(ttl=20))
    await world.quiet()
    rival = world.lock(ttl=20)
    await settle(held[0].release())
    expect(await world.attempt(rival) is None, "one who comes later does not get in before a waiter")
    await waiting.result(SOON, "the waiter is served")


@check(bounded)
async def a_dead_holder_frees_it(world: World) -> None:
    """A holder that is cut off learns by its own clock before anybody else is granted, within its ttl and a second."""
    proxy, ttl = world.proxy(), world.life(0.8)
    held = await fill(world, ttl=20)
    await settle(held.pop().release())
    dead = await world.acquire(world.lock(await world.behind(proxy), ttl=ttl))
    waiting = world.waiting(world.lock(ttl=20))
    await world.quiet()
    proxy.blackhole()
    await world.until(lambda: waiting.done, "a dead holder frees the name", ttl + world.slack)
    expect(dead.state is LeaseState.LOST, "the loss was reported before the next grant")
    lease = await waiting.result()
    expect(lease.fence > dead.fence, f"the fence rises from {dead.fence}, not to {lease.fence}")


@check(bounded)
async def dead_waiters_delay_by_one_ticket(world: World) -> None:
    """Any number of waiters that died costs the living one ticket's life in all."""
    held = await fill(world, ttl=20)
    proxies = [world.proxy() for _ in range(3)]
    ticket_ttl = world.life(0.9)
    options: dict[str, Any] = {"ttl": 20, "ticket_ttl": ticket_ttl}
    dead: list[Started] = []
    for proxy in proxies:
        lock = world.lock(await world.behind(proxy), unavailable_after=0.2, **options)
        dead.append(world.waiting(lock))
        await world.quiet()
    waiting = world.waiting(world.lock(**options))
    await world.quiet()
    for proxy in proxies:
        proxy.blackhole()
    await settle(held[0].release())
    await waiting.result(
        ticket_ttl + world.slack * crowded(), "three dead waiters cost one ticket's life in all"
    )
    for waiter in dead:
        expect(isinstance(await waiter.error(), PawlockError), "a waiter that is cut off gets an error")


@check(bounded)
async def giving_up_leaves_nothing(world: World) -> None:
    """A wait that is cancelled (a task) or stopped (a thread) leaves nothing in the queue."""
    held = await fill(world, ttl=20)
    stop: Any = asyncio.Event() if world.is_async else threading.Event()
    lock = world.lock(ttl=20)
    waiting = world.start(lambda: settle(lock.acquire(stop=stop)))
    await world.quiet()
    if waiting.task is not None:
        waiting.task.cancel()
        expect(isinstance(await waiting.error(), asyncio.CancelledError), "the cancel goes on")
    else:
        stop.set()
        expect(isinstance(await waiting.error(), NotAcquired), "a stopped wait ends with NotAcquired")
    # The leave may still be under way; nobody is to wait for a ticket's life.
    await world.quiet()
    await settle(held[0].release())
    again = await world.acquire(world.lock(ttl=20), SOON * crowded())
    again.check()


@check(bounded)
async def too_many_waiters_are_refused(world: World) -> None:
    """Beyond ``max_waiters`` in the queue, one more is refused at once."""
    held = await fill(world, ttl=20)
    waiting = world.waiting(world.lock(ttl=20, max_waiters=1))
    await world.quiet()
    await expect_error(
        QueueFull,
        lambda: world.acquire(world.lock(ttl=20, max_waiters=1), 5),
        "the second in a queue for one",
    )
    await settle(held[0].release())
    await waiting.result(what="the first waits on")


@check(bounded)
async def close_wakes_and_releases(world: World) -> None:
    """``close`` ends a client's waits with ``ClientClosed`` and releases what it holds."""
    client = world.client()
    held = await fill(world, ttl=20)
    mine = world.client()
    await settle(held.pop().release())
    await world.acquire(world.lock(mine, ttl=20))
    waiting = world.waiting(world.lock(client, ttl=20))
    await world.quiet()
    await settle(client.close())
    expect(isinstance(await waiting.error(1.0), ClientClosed), "close wakes its waiters")
    await settle(mine.close())
    lease = await world.attempt(world.lock(ttl=20))
    expect(lease is not None, "close releases, and a closed waiter stands in nobody's way")


# Lost and doubled messages ------------------------------------------------------------------------------------------

Fault = Callable[[Faulty, World], Rule]

FAULTS: dict[str, Fault] = {
    "a lost reply": lambda proxy, world: proxy.swallow_reply(world.script),
    "a lost request": lambda proxy, world: proxy.drop_request(world.script),
    "a connection that dies on the reply": lambda proxy, world: proxy.kill_on_reply(world.script),
    "a doubled request": lambda proxy, world: proxy.duplicate_request(world.script),
}


async def warm(world: World, proxy: Faulty, **options: Any) -> tuple[Any, Any]:
    """A lock on a client behind a proxy whose scripts the server knows, and that client."""
    client = await world.behind(proxy)
    lock = world.lock(client, **options)
    for _ in range(2):
        await settle((await world.acquire(lock)).release())
    return lock, client


@check(bounded)
async def a_repeated_acquire_counts_once(world: World) -> None:
    """Whatever happens to one message of an acquire: it is granted, once, and one release frees it."""
    proxy = world.proxy()
    lock, _ = await warm(world, proxy, **quick(world))
    for what, fault in FAULTS.items():
        held = await fill(world, ttl=20)
        await settle(held.pop().release())
        rule = fault(proxy, world)
        lease = await world.acquire(lock, 5)
        expect(rule.hits == 1, f"{what} was injected")
        proxy.clear()
        lease.check()
        expect(await refused(world), f"after {what}, the lease is held")
        await settle(lease.release())
        await world.quiet()
        again = await world.attempt(world.lock(ttl=20))
        expect(again is not None, f"after {what}, one release frees it")
        expect(await refused(world), f"after {what}, no more than one is free")
        for other in (again, *held):
            await settle(other.release())


@check(bounded)
async def a_repeated_release_counts_once(world: World) -> None:
    """Whatever happens to one message of a release: it is released, once, and nobody else's lease is touched."""
    proxy = world.proxy()
    # Of a server that may have restarted meanwhile nobody can say whether it was released.
    await world.settled()
    lock, _ = await warm(world, proxy, **quick(world))
    for what, fault in FAULTS.items():
        held = await fill(world, ttl=20)
        await settle(held.pop().release())
        lease = await world.acquire(lock, 5)
        rule = fault(proxy, world)
        await settle(lease.release())
        expect(rule.hits == 1, f"{what} was injected")
        proxy.clear()
        expect(lease.state is LeaseState.RELEASED, f"after {what}, it is released, not {lease.state}")
        again = await world.attempt(world.lock(ttl=20))
        expect(again is not None, f"after {what}, it is free")
        await world.quiet()
        again.check()
        expect(await refused(world), f"after {what}, no more than one is free")
        for other in (again, *held):
            await settle(other.release())


@check(bounded)
async def a_late_copy_revives_nothing(world: World) -> None:
    """A request that was given up and asked again arrives after the release: it takes nothing for nobody."""
    proxy = world.proxy()
    lock, _ = await warm(world, proxy, **quick(world))
    late = 1.5 * world.life(0.6)
    rule = proxy.hold_request(world.script, seconds=late)
    lease = await world.acquire(lock, 5)
    expect(rule.hits == 1, "a request is held up")
    await settle(lease.release())
    await world.pause(late + 0.2)
    held = [await world.attempt(world.lock(ttl=20)) for _ in range(world.entry.capacity or 1)]
    expect(None not in held, "all of it is free after the late copy")


@check(bounded)
async def an_unknown_acquire_is_undone(world: World) -> None:
    """An acquire that never gets an answer ends with an error, and what it took is given back, not left to its ttl."""
    proxy = world.proxy()
    _, client = await warm(world, proxy, **quick(world))
    lock = world.lock(client, **quick(world), unavailable_after=0.3)
    rule = proxy.swallow_reply(world.script, times=None)
    await expect_error(PawlockError, lambda: world.acquire(lock, 2), "an acquire without an answer")
    expect(rule.hits, "the answers were lost")
    proxy.clear()
    held = [await world.acquire(world.lock(ttl=20), 3) for _ in range(world.entry.capacity or 1)]
    expect(await refused(world), f"it is {len(held)} leases and no more")


@check(lambda entry: entry.leases, alone=True)
async def a_server_that_forgot_the_scripts(world: World) -> None:
    """SCRIPT FLUSH between any two steps is not noticed."""
    lock = world.lock(ttl=20)
    for _ in range(2):
        world.forget_scripts()
        lease = await world.acquire(lock, 2)
        world.forget_scripts()
        await settle(lease.extend(20))
        world.forget_scripts()
        await settle(lease.release())


@check(bounded)
async def a_lost_wake_up_costs_little(world: World) -> None:
    """A wake-up that never arrives delays the waiter by a third of its ticket's life, no more."""
    proxy = world.proxy()
    held = await fill(world, ttl=20)
    waiting = world.waiting(world.lock(await world.behind(proxy), ttl=20, ticket_ttl=3))
    await world.quiet()
    proxy.cut_push()
    await settle(held[0].release())
    await waiting.result(1.0 + SLACK, "a waiter asks again at least every third of its ticket's life")
