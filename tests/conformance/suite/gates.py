"""What is promised of what has no ``acquire``: the latch, the barrier, the election, what is done once."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from pawlock.errors import AcquireTimeout, LeaseLost, NotHeld
from pawlock.model import Done, LeaseState, Running
from pawlock.primitives.registry import Entry
from tests.conformance.suite.checks import check, expect, expect_error
from tests.conformance.suite.leasing import SLACK
from tests.conformance.suite.waiting import FAULTS, SOON
from tests.conformance.suite.world import Started, World, settle

__all__ = [
    "a_barrier_counts_an_arrival_once",
    "a_barrier_lets_all_pass_together",
    "a_barrier_takes_an_arrival_back",
    "a_dead_leader_is_succeeded",
    "a_dead_starter_frees_it_and_records_nothing",
    "a_latch_begins_anew",
    "a_latch_counts_a_repeated_request_once",
    "a_latch_opens_at_zero",
    "gates_leave_no_key_without_a_ttl",
    "is_barrier",
    "is_election",
    "is_latch",
    "is_once",
    "it_is_done_once",
    "one_leads_and_everybody_knows",
    "what_is_abandoned_is_started_again",
]


def is_latch(entry: Entry) -> bool:
    """Whether it is a latch."""
    return entry.factory == "latch"


def is_barrier(entry: Entry) -> bool:
    """Whether it is a barrier."""
    return entry.factory == "barrier"


def is_once(entry: Entry) -> bool:
    """Whether it is something that is done once."""
    return entry.factory == "once"


def is_election(entry: Entry) -> bool:
    """Whether it is an election."""
    return entry.factory == "election"


def _wait(world: World, gate: Any, timeout: float = 10.0) -> Started:
    return world.start(lambda: settle(gate.wait(timeout)))


@check(is_latch)
async def a_latch_opens_at_zero(world: World) -> None:
    """A waiter is released when the count is 0, not before, and a later one does not wait."""
    latch = world.lock()
    await expect_error(AcquireTimeout, lambda: settle(latch.wait(0.2)), "a wait for a closed latch")
    waiting = [_wait(world, world.lock()) for _ in range(3)]
    for left in range(latch.count, 0, -1):
        await world.quiet()
        expect(await settle(latch.remaining()) == left, f"{left} are left to count down")
        expect(not any(waiter.done for waiter in waiting), f"nobody passes while {left} are left")
        await settle(world.lock().count_down())
    for waiter in waiting:
        await waiter.result(SOON, "everybody is let go at 0")
    await settle(latch.wait(0))
    await settle(latch.count_down())
    expect(await settle(latch.remaining()) == 0, "below 0 nothing happens")


@check(is_latch)
async def a_latch_begins_anew(world: World) -> None:
    """``reset`` closes it with the full count, and a part counts once in a round."""
    latch = world.lock()
    await settle(latch.count_down(latch.count))
    await settle(latch.reset())
    expect(await settle(latch.remaining()) == latch.count, "a reset latch has the full count")
    await expect_error(AcquireTimeout, lambda: settle(latch.wait(0)), "a wait for a latch that was reset")
    for _ in range(3):
        await settle(latch.count_down(part="one"))
    expect(await settle(latch.remaining()) == latch.count - 1, "one part counts once")


@check(is_latch)
async def a_latch_counts_a_repeated_request_once(world: World) -> None:
    """Whatever happens to one message of a count-down, it counts once."""
    proxy = world.proxy()
    client = await world.behind(proxy)
    await settle(world.lock(client, name="warm").count_down())
    for number, (what, fault) in enumerate(FAULTS.items()):
        latch = world.lock(client, name=f"n{number}", ticket_ttl=0.6)
        expect(await settle(latch.remaining()) == latch.count, "a new latch has the full count")
        rule = fault(proxy, world)
        await settle(latch.count_down())
        expect(rule.hits == 1, f"{what} was injected")
        proxy.clear()
        left = await settle(world.lock(name=f"n{number}").remaining())
        expect(left == latch.count - 1, f"after {what}, one was counted, not {latch.count - left}")


@check(is_barrier)
async def a_barrier_lets_all_pass_together(world: World) -> None:
    """Nobody passes before the last has come; then all do, each with a number of its own, round after round."""
    parties = world.lock().parties
    for _ in range(2):
        waiting: list[Started] = []
        for number in range(parties):
            expect(not any(party.done for party in waiting), f"nobody passes with {number} of {parties}")
            waiting.append(_wait(world, world.lock()))
            await world.quiet()
        passed = [await party.result(SOON, "all pass together") for party in waiting]
        expect(sorted(passed) == list(range(parties)), f"each has a number of its own, not {passed}")
        expect(await settle(world.lock().arrived()) == 0, "the barrier is ready again")


@check(is_barrier)
async def a_barrier_takes_an_arrival_back(world: World) -> None:
    """Who gives up waiting does not count."""
    barrier = world.lock()
    await expect_error(AcquireTimeout, lambda: settle(barrier.wait(0.2)), "a wait alone")
    expect(await settle(barrier.arrived()) == 0, "an arrival that was given up does not count")
    waiting = [_wait(world, world.lock()) for _ in range(barrier.parties - 1)]
    await world.quiet()
    expect(not any(party.done for party in waiting), "one is missing")
    await settle(barrier.wait(SOON))
    for party in waiting:
        await party.result(SOON, "all pass together")


@check(is_barrier)
async def a_barrier_counts_an_arrival_once(world: World) -> None:
    """Whatever happens to one message of an arrival, it counts once."""
    proxy = world.proxy()
    client = await world.behind(proxy)
    await expect_error(
        AcquireTimeout, lambda: settle(world.lock(client, name="warm").wait(0)), "a wait alone"
    )
    for number, (what, fault) in enumerate(FAULTS.items()):
        rule = fault(proxy, world)
        first = _wait(world, world.lock(client, name=f"n{number}", ticket_ttl=0.9))
        await world.until(partial(getattr, rule, "hits"), f"{what} was injected")
        await world.pause(0.5)
        proxy.clear()
        arrived, end = 0, time.monotonic() + SLACK
        # On a busy machine its ticket may lapse, and it arrives anew: never two, and one in the end.
        while arrived == 0 and time.monotonic() < end:
            arrived = await settle(world.lock(name=f"n{number}").arrived())
            await world.pause(0.02)
        expect(arrived == 1, f"after {what}, one has arrived, not {arrived}")
        others = [_wait(world, world.lock(name=f"n{number}")) for _ in range(world.lock().parties - 1)]
        for party in (first, *others):
            await party.result(SLACK, f"after {what}, all pass together")


@check(lambda entry: is_latch(entry) or is_barrier(entry))
async def gates_leave_no_key_without_a_ttl(world: World) -> None:
    """Every key has an expiry: while somebody waits, and afterwards."""
    gate = world.lock()
    waiting = _wait(world, gate, 0.4)
    await world.quiet()
    expect(world.stored(), "what waits is kept on the server")
    expect(world.without_ttl() == [], f"keys with an expiry; without: {world.without_ttl()}")
    expect(isinstance(await waiting.error(), AcquireTimeout), "the wait ends at its time")
    expect(world.without_ttl() == [], f"keys with an expiry; without: {world.without_ttl()}")


@check(is_election)
async def one_leads_and_everybody_knows(world: World) -> None:
    """One candidate leads at a time; the next is elected at once when it resigns, with a higher fence."""
    first, second, observer = world.lock(), world.lock(), world.lock()
    expect(await settle(observer.leader()) is None, "nobody leads before the first is elected")
    lease = await settle(first.campaign(timeout=5))
    world.kept.append(lease)
    expect(first.leading, "the elected one leads")
    expect(not second.leading, "nobody else does")
    expect((await settle(observer.leader())).fence == lease.fence, "everybody knows who leads")
    await expect_error(AcquireTimeout, lambda: settle(second.campaign(timeout=0.2)), "a second leader")
    waiting = world.start(lambda: settle(second.campaign(timeout=10)))
    await world.quiet()
    await settle(first.resign())
    later = await waiting.result(SOON, "the next is elected at once")
    world.kept.append(later)
    expect(later.fence > lease.fence, f"fence {later.fence} is above {lease.fence}")
    await expect_error(NotHeld, lambda: settle(first.resign()), "resigning twice")
    expect(world.without_ttl() == [], f"keys with an expiry; without: {world.without_ttl()}")


@check(is_election)
async def a_dead_leader_is_succeeded(world: World) -> None:
    """A leader that is cut off knows it by its own clock before its successor leads, within a ttl and a second."""
    proxy = world.proxy()
    ttl = world.life(0.8)
    first, second = world.lock(await world.behind(proxy), ttl=ttl), world.lock(ttl=ttl)
    lease = await settle(first.campaign(timeout=5))
    world.kept.append(lease)
    waiting = world.start(lambda: settle(second.campaign(timeout=10)))
    await world.quiet()
    proxy.blackhole()
    await world.until(lambda: waiting.done, "a successor leads", ttl + world.slack)
    expect(not first.leading, "the dead leader knew before")
    expect(lease.state is LeaseState.LOST, "its lease is lost")
    later = await waiting.result()
    world.kept.append(later)
    expect(later.fence > lease.fence, f"fence {later.fence} is above {lease.fence}")


@check(is_once)
async def it_is_done_once(world: World) -> None:
    """One client starts; everybody who waits or comes later gets what it finished with, and its fence."""
    first, second, third = world.lock(), world.lock(), world.lock()
    started = await settle(first.begin())
    world.kept.append(started)
    expect(hasattr(started, "lease"), "the first client starts")
    running = await settle(second.begin())
    expect(isinstance(running, Running), f"another client sees that it runs, not {running!r}")
    waiting = [world.start(lambda: settle(second.begin(wait=True, timeout=10))), world.start(
        lambda: settle(third.begin(wait=True, timeout=10))
    )]  # fmt: skip
    await world.quiet()
    await settle(started.finish({"number": 7}))
    for call in waiting:
        done = await call.result(SOON, "who waits is woken at once")
        expect(isinstance(done, Done), f"who waited gets the result, not {done!r}")
        expect(done.value == {"number": 7}, f"the value is what it was finished with, not {done.value!r}")
        expect(done.fence == started.fence, "its fence is that of the lease under which it was done")
    later = await settle(third.begin())
    expect(isinstance(later, Done), f"who comes later gets the result, not {later!r}")
    await expect_error(NotHeld, lambda: settle(started.finish(8)), "finishing twice")
    expect(world.without_ttl() == [], f"keys with an expiry; without: {world.without_ttl()}")


@check(is_once)
async def what_is_abandoned_is_started_again(world: World) -> None:
    """Who waits starts once the first gives up, with a higher fence; there is no result."""
    first, second = world.lock(), world.lock()
    started = await settle(first.begin())
    world.kept.append(started)
    waiting = world.start(lambda: settle(second.begin(wait=True, timeout=10)))
    await world.quiet()
    await settle(started.abandon())
    again = await waiting.result(SOON, "who waits starts at once")
    world.kept.append(again)
    expect(hasattr(again, "lease"), f"who waits starts, and gets no result: {again!r}")
    expect(again.fence > started.fence, f"fence {again.fence} is above {started.fence}")
    await settle(again.finish())
    expect((await settle(first.begin())).value is None, "the second one's result counts")


@check(is_once)
async def a_dead_starter_frees_it_and_records_nothing(world: World) -> None:
    """One that is cut off is succeeded within a ttl and a second, and its late result is refused."""
    proxy = world.proxy()
    first, second = world.lock(await world.behind(proxy), ttl=0.8), world.lock(ttl=5)
    started = await settle(first.begin())
    world.kept.append(started)
    waiting = world.start(lambda: settle(second.begin(wait=True, timeout=10)))
    await world.quiet()
    proxy.blackhole()
    await world.until(lambda: waiting.done, "a successor starts", 0.8 + world.slack)
    again = await waiting.result()
    world.kept.append(again)
    expect(again.fence > started.fence, f"fence {again.fence} is above {started.fence}")
    await expect_error(LeaseLost, lambda: settle(started.finish("late")), "a late result")
    await settle(again.finish("good"))
    expect((await settle(second.begin())).value == "good", "the successor's result counts")
