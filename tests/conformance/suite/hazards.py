"""The interleavings at which published designs fail: crowds, deaths among the living, late answers, guessed tokens."""

from __future__ import annotations

import random
import time
from functools import partial
from time import monotonic as now
from typing import Any

from pawlock.errors import AcquireTimeout, LeaseLost, PawlockError
from pawlock.model import LeaseState
from pawlock.primitives.registry import REGISTRY, Entry
from tests.conformance.suite.checks import check, expect, expect_error
from tests.conformance.suite.leasing import SLACK, bounded, crowded, fill, leases, refused
from tests.conformance.suite.waiting import SOON
from tests.conformance.suite.world import Started, World, settle
from tests.support.history import History, Mode, Rules, report
from tests.support.history import check as judge

__all__ = [
    "a_crowd_is_never_inside_together",
    "a_dead_sharer_frees_only_itself",
    "a_lost_lease_is_not_re_entered",
    "a_stale_holder_has_a_lower_fence",
    "life_counts_from_the_question",
    "mode_of",
    "one_who_gives_up_costs_the_others_nothing",
    "time_out_and_life_are_apart",
    "tokens_cannot_be_guessed",
]


def mode_of(entry: Entry) -> Mode:
    """How leases of a primitive keep others out, for the history checker."""
    if entry.exclusive:
        return Mode.EXCLUSIVE
    return Mode.SHARED if entry.capacity is None else Mode.PERMITS


@check(bounded)
async def a_crowd_is_never_inside_together(world: World) -> None:
    """Many at once over a slow link: never more inside than may be, fences rise, and nobody idles while others wait."""
    entry, history = world.entry, History()
    proxies = [world.proxy() for _ in range(3)]
    for number, proxy in enumerate(proxies):
        proxy.delay(requests=0.004 * number, replies=0.003)
    limit = entry.capacity or 0 if mode_of(entry) is Mode.PERMITS else 0

    async def worker(number: int, lock: Any) -> None:
        for _ in range(5):
            asked = history.invoke(now(), f"w{number}", "acquire", "n", mode=mode_of(entry), limit=limit)
            lease = await world.acquire(lock)
            history.ok(now(), asked, fence=lease.fence, deadline=now() + lease.remaining())
            await world.pause(0.003)
            left = history.invoke(now(), f"w{number}", "release", "n", lease=asked)
            await settle(lease.release())
            history.ok(now(), left)

    crowd: list[Started] = []
    for number in range(6):
        lock = world.lock(world.client(proxies[number % 3].url), ttl=20)
        crowd.append(world.start(partial(worker, number, lock)))
    for member in crowd:
        await member.result(20, "everybody had all turns")
    found = judge(history, Rules(ttl=20, slack=SLACK * crowded(), overtakes=None))
    expect(not found, f"a history without a fault; {report(found)}")


@check(bounded)
async def one_who_gives_up_costs_the_others_nothing(world: World) -> None:
    """A waiter that leaves the queue changes nothing for those behind it: neither their place nor their time."""
    held = await fill(world, ttl=20)
    leaving = world.waiting(world.lock(ttl=20), 0.35 * crowded())
    await world.quiet()
    waiting = world.waiting(world.lock(ttl=20))
    await world.quiet()
    expect(isinstance(await leaving.error(), AcquireTimeout), "the first gives up")
    rival = world.lock(ttl=20)
    await settle(held[0].release())
    expect(await world.attempt(rival) is None, "one who comes later does not get in before the second")
    await waiting.result(SOON, "the second is served at once")


@check(lambda entry: entry.leases and not entry.exclusive)
async def a_dead_sharer_frees_only_itself(world: World) -> None:
    """Of several holders one dies: its share comes back within its ttl, though the others live on; theirs stay."""
    proxy, ttl = world.proxy(), world.life(0.8)
    dead = await world.acquire(world.lock(await world.behind(proxy), ttl=ttl))
    alive = await world.acquire(world.lock(ttl=ttl))
    proxy.blackhole()
    await world.until(
        lambda: dead.state is LeaseState.LOST, "the dead holder reports the loss by its own clock", ttl
    )
    await world.pause(world.slack)
    alive.check()
    rivals = [e.kind for e in REGISTRY.values() if e.family == world.entry.family and e.exclusive]
    if world.entry.capacity is not None:
        for _ in range(world.entry.capacity - 1):
            await world.acquire(world.lock(ttl=20), world.slack)
        expect(await refused(world), "the living one's share stays its own")
    elif rivals:
        expect(await world.attempt(world.lock(kind=rivals[0])) is None, "the living one keeps a writer out")
        await settle(alive.release())
        lease = await world.attempt(world.lock(kind=rivals[0]))
        expect(lease is not None, "the dead one keeps nobody out")


@check(lambda entry: entry.leases and entry.reentrant)
async def a_lost_lease_is_not_re_entered(world: World) -> None:
    """A holder that lost the name is notified, or queues like any other: it does not get in."""
    ttl = world.life(0.6)
    lock = world.lock(ttl=ttl)
    lease = await world.acquire(lock)
    world.wipe()
    rival = await world.acquire(world.lock(ttl=20), SLACK)
    await world.until(lambda: lease.lost, "the owner learns of the loss", ttl)
    error = await expect_error(PawlockError, lambda: world.acquire(lock, 0.2), "acquire by one that lost it")
    expect(isinstance(error, AcquireTimeout | LeaseLost), f"the error says why, not {error!r}")
    rival.check()


@check(leases)
async def life_counts_from_the_question(world: World) -> None:
    """A late answer shortens what its owner may rely on: validity counts from before the request was sent."""
    proxy = world.proxy()
    lock = world.lock(await world.behind(proxy), ttl=9)
    await settle((await world.acquire(lock)).release())
    rule = proxy.hold_reply(world.script, seconds=0.5)
    lease = await world.acquire(lock)
    left = lease.remaining()
    expect(rule.hits == 1, "the answer was late")
    expect(left <= 8.5, f"of 9 s at most 8.5 are left after an answer that took 0.5 s, not {left:.3f}")


@check(leases)
async def a_stale_holder_has_a_lower_fence(world: World) -> None:
    """Who lost the name still shows its own fence, below its successor's, so that its writes are refused."""
    ttl = world.life(0.6)
    lease = await world.acquire(world.lock(ttl=ttl, renew=False))
    fence = lease.fence
    await world.until(lambda: lease.lost, "the lease ends", ttl + 1.4)
    later = await world.acquire(world.lock(ttl=20), world.slack)
    expect(lease.fence == fence, f"a lease keeps its fence {fence}, not {lease.fence}")
    expect(lease.fence < later.fence, f"fence {lease.fence} of the stale holder is below {later.fence}")


@check(leases)
async def tokens_cannot_be_guessed(world: World) -> None:
    """Who knows many tokens knows nothing of the next: 128 random bits, not from a clock or a seeded generator."""
    secrets: list[str] = []
    state = random.getstate()
    try:
        for number in range(12):
            random.seed(7)
            lease = await world.acquire(world.lock(world.client(), name=f"n{number}", ttl=20))
            secrets.append(lease.token.partition("@")[0])
    finally:
        random.setstate(state)
    expect(
        len(set(secrets)) == len(secrets),
        "no token comes twice, even when the program seeds the random module",
    )
    length = min(len(secret) for secret in secrets)
    expect(length >= 16, f"128 bits take 16 characters at least, not {length}")
    same = sum(len({secret[at] for secret in secrets}) < 4 for at in range(length))
    expect(same <= length // 4, f"{same} of {length} characters hardly change from one token to the next")


@check(bounded)
async def time_out_and_life_are_apart(world: World) -> None:
    """How long one waits says nothing of how long the lease lives."""
    slow = crowded()
    for timeout in (0.5 * slow, 60.0):
        lease = await world.acquire(world.lock(ttl=9), timeout)
        expect(9 - slow < lease.remaining() <= 9, f"a lease of 9 s has that left, not {lease.remaining():g}")
        await settle(lease.release())
    await fill(world, ttl=9)
    began = time.monotonic()
    await expect_error(AcquireTimeout, lambda: world.acquire(world.lock(ttl=9), 0.4 * slow), "a wait")
    expect(time.monotonic() - began < SLACK * slow, "a wait ends at its own time")
