"""What is promised of everything that gives a lease, in quiet times: grant, exclusion, fence, life, loss, end."""

from __future__ import annotations

import os
from typing import Any

from pawlock.errors import AcquireTimeout, LeaseLost, NotHeld, NotSupported, PawlockError
from pawlock.model import LeaseState
from pawlock.primitives.registry import REGISTRY, Entry
from tests.conformance.suite.checks import check, expect, expect_error
from tests.conformance.suite.world import World, settle

__all__ = [
    "a_loss_is_raised_by_the_block",
    "a_loss_is_told",
    "a_second_release_is_refused",
    "another_client_goes_on_with_it",
    "any_number_at_once",
    "bounded",
    "checked",
    "crowded",
    "every_key_has_a_ttl",
    "extend_sets_the_life",
    "fences_rise",
    "fences_rise_though_the_server_forgot",
    "fill",
    "grant_and_release",
    "inspect_tells_the_truth",
    "its_family_keeps_it_out",
    "its_holder_may_take_it_again",
    "its_holder_waits_for_it_like_any_other",
    "leases",
    "names_are_apart",
    "no_key_outlives_its_lease",
    "no_more_than_the_capacity",
    "refused",
    "renewal_keeps_it",
    "the_block_releases",
    "without_renewal_it_ends",
]

SLACK = 1.0


def crowded() -> float:
    """How many programs want each core now; 1 at least, and where the system does not say."""
    try:
        return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    except (AttributeError, OSError):
        return 1.0


def leases(entry: Entry) -> bool:
    """Whether it gives leases."""
    return entry.leases


def bounded(entry: Entry) -> bool:
    """Whether it can be full."""
    return entry.leases and entry.capacity is not None


async def fill(world: World, **options: Any) -> list[Any]:
    """As many leases as there may be, each of an owner of its own."""
    return [await world.acquire(world.lock(**options)) for _ in range(world.entry.capacity or 1)]


async def refused(world: World, **options: Any) -> bool:
    """Whether one more lease is refused now."""
    return await world.attempt(world.lock(**options)) is None


@check(leases)
async def grant_and_release(world: World) -> None:
    """A lease is held with its full life, and after its release the next one is granted at once."""
    lock = world.lock(ttl=5)
    lease = await world.acquire(lock)
    expect(lease.state is LeaseState.HELD, f"a fresh lease is held, not {lease.state}")
    expect(bool(lease.token), "a lease has a token")
    expect(4 < lease.remaining() <= 5, f"a fresh lease of 5 s has that left, not {lease.remaining():g}")
    lease.check()
    await settle(lease.release())
    expect(lease.state is LeaseState.RELEASED, f"a released lease says so, not {lease.state}")
    for other in (lock, world.lock(ttl=5)):
        again = await world.attempt(other)
        expect(again is not None, "a name is free at once after its release")
        await settle(again.release())


@check(leases)
async def the_block_releases(world: World) -> None:
    """Leaving the ``with`` block releases, also when the body fails, whose error goes on as it is."""
    lock = world.lock(ttl=5)
    async with world.inside(lock) as lease:
        lease.check()
    expect(lease.state is LeaseState.RELEASED, "the block releases at its end")

    async def failing() -> None:
        async with world.inside(lock):
            raise KeyError("the body's own")

    await expect_error(KeyError, failing, "the block")
    leases_again = await fill(world, ttl=5)
    expect(len(leases_again) == (world.entry.capacity or 1), "everything is free after the blocks")


@check(bounded)
async def no_more_than_the_capacity(world: World) -> None:
    """Never more leases at once than the capacity, and each release makes room for exactly one."""
    held = await fill(world, ttl=20)
    expect(await refused(world, ttl=20), f"lease number {len(held) + 1} is refused")
    for lease in held:
        await settle(lease.release())
        again = await world.attempt(world.lock(ttl=20))
        expect(again is not None, "a release makes room")
        expect(await refused(world, ttl=20), "a release makes room for one only")


@check(lambda entry: entry.leases and entry.capacity is None)
async def any_number_at_once(world: World) -> None:
    """Without a limit, all are granted at once."""
    for _ in range(5):
        lease = await world.attempt(world.lock(ttl=20))
        expect(lease is not None, "everybody gets a lease at once")


@check(lambda entry: entry.leases and bool(entry.family))
async def its_family_keeps_it_out(world: World) -> None:
    """Primitives of one family and name exclude each other, unless they may share it."""
    family = [e for e in REGISTRY.values() if e.family == world.entry.family and e.leases]
    for number, other in enumerate(family):
        if not (world.entry.exclusive or other.exclusive):
            continue
        name = f"n{number}"
        try:
            world.lock(name=name, kind=other.kind)
        except NotSupported:
            # Where this one can be kept, that one cannot.
            continue
        held = await world.acquire(world.lock(name=name, ttl=20))
        with_tombstone = await world.attempt(world.lock(name=name, kind=other.kind, ttl=20))
        expect(with_tombstone is None, f"{other.kind} is refused while {world.entry.kind} is held")
        await settle(held.release())
        free = await world.attempt(world.lock(name=name, kind=other.kind, ttl=20))
        expect(free is not None, f"{other.kind} is granted after {world.entry.kind} was released")


@check(leases)
async def names_are_apart(world: World) -> None:
    """One name's leases say nothing of another's, however alike they are spelled."""
    for name in ("a", "a:1", "a 1", "é", "a" * 100):
        await world.acquire(world.lock(name=name, ttl=20), 0)


@check(leases)
async def fences_rise(world: World) -> None:
    """Each grant's fence is above the one before it, for any holder."""
    clients = [world.client(), world.client()]
    before = 0
    for turn in range(12):
        lease = await world.acquire(world.lock(clients[turn % 2], ttl=20))
        expect(isinstance(lease.fence, int), f"a fence is an int, not {lease.fence!r}")
        expect(lease.fence > before, f"fence {lease.fence} is above {before}")
        before = lease.fence
        await settle(lease.release())


@check(leases)
async def fences_rise_though_the_server_forgot(world: World) -> None:
    """When the server lost all keys, the next fence is still above the last."""
    lease = await world.acquire(world.lock(ttl=20))
    before = lease.fence
    await settle(lease.release())
    world.wipe()
    lease = await world.acquire(world.lock(ttl=20))
    expect(lease.fence > before, f"fence {lease.fence} is above {before} of before the loss")


@check(leases)
async def every_key_has_a_ttl(world: World) -> None:
    """No key without an expiry: held, waited for, timed out, released."""
    held = await fill(world, ttl=3)
    expect(world.stored(), "a lease is kept on the server")
    expect(world.without_ttl() == [], f"keys with an expiry while held; without: {world.without_ttl()}")
    if world.entry.capacity is not None:
        waiting = world.waiting(world.lock(ttl=3), 0.5 * crowded())
        await world.quiet()
        expect(
            world.without_ttl() == [], f"keys with an expiry while waiting; without: {world.without_ttl()}"
        )
        error = await waiting.error()
        expect(
            isinstance(error, AcquireTimeout),
            f"a wait that is too short ends with AcquireTimeout, not {error!r}",
        )
    for lease in held:
        await settle(lease.release())
    expect(world.without_ttl() == [], f"keys with an expiry after release; without: {world.without_ttl()}")


@check(leases)
async def no_key_outlives_its_lease(world: World) -> None:
    """A lease that is never released leaves nothing behind that says "held"; what stays on is the fence's memory."""
    before = world.stored()
    ttl = world.life(0.3)
    lease = await world.acquire(world.lock(ttl=ttl, renew=False))
    held = set(world.stored()) - set(before)
    expect(held, "a lease is kept on the server")
    await world.until(lambda: lease.state is LeaseState.LOST, "a lease without renewal ends", ttl + 1.7)

    def left() -> list[str]:
        return [key for key in world.stored() if key in held and "fence" not in key]

    await world.until(lambda: not left(), f"the keys of a dead lease go: {left()}", ttl + world.slack)


@check(leases)
async def renewal_keeps_it(world: World) -> None:
    """A lease is renewed for as long as it is held, well past its first life."""
    # Where programs wait for a core, a client may truly not be run for the third of a second that it has to renew in.
    ttl = world.life(1.0 * crowded())
    held = await fill(world, ttl=ttl)
    await world.pause(2.0 * ttl)
    for lease in held:
        lease.check()
        expect(lease.remaining() > 0, "a renewed lease has life left")
    if world.entry.capacity is not None:
        expect(await refused(world), "a renewed lease still keeps others out")
    for lease in held:
        await settle(lease.release())


@check(bounded)
async def without_renewal_it_ends(world: World) -> None:
    """With ``renew=False`` it is lost at its deadline, by its owner's own clock, and then passes on."""
    ttl = world.life(0.4)
    held = await fill(world, ttl=ttl, renew=False)
    extra = await world.attempt(world.lock())
    if extra is not None:
        expect(any(lease.remaining() <= 0 for lease in held), "it keeps others out until then")
        await settle(extra.release())
    for lease in held:
        expect(lease.remaining() <= ttl, f"it is granted for {ttl:g} s, not for {lease.remaining():g} s")

    def over() -> bool:
        for lease in held:
            # In this order: the clock is looked at before the state.
            at_its_end = lease.remaining() <= 0
            expect(
                lease.state is LeaseState.LOST or not at_its_end,
                f"at its deadline it is lost, not {lease.state}",
            )
        return all(lease.state is LeaseState.LOST for lease in held)

    await world.until(over, "it ends")
    await expect_error(LeaseLost, lambda: checked(held[0]), "check of a lost lease")
    await world.acquire(world.lock())


async def checked(lease: Any) -> None:
    """Check a lease."""
    lease.check()


@check(leases)
async def a_loss_is_told(world: World) -> None:
    """When its keys are gone, the owner hears of it at the next renewal: ``lost``, ``check``, ``on_lost`` once."""
    told: list[object] = []
    ttl = world.life(0.6)
    lease = await world.acquire(world.lock(ttl=ttl, on_lost=told.append))
    world.wipe()
    await world.until(lambda: lease.lost, "the owner learns of the loss", ttl)
    await expect_error(LeaseLost, lambda: checked(lease), "check of a lost lease")
    await world.until(lambda: told, "on_lost is called", 1)
    await world.pause(0.3)
    expect(len(told) == 1, f"on_lost is called once, not {len(told)} times")
    await expect_error(NotHeld, lambda: settle(lease.release()), "release of a lost lease")
    expect(lease.state is LeaseState.LOST, "a lost lease stays lost")


@check(leases)
async def a_loss_is_raised_by_the_block(world: World) -> None:
    """The ``with`` block of a lease that was lost raises ``LeaseLost``."""
    ttl = world.life(0.6)
    lock = world.lock(ttl=ttl)

    async def block() -> None:
        async with world.inside(lock) as lease:
            world.wipe()
            await world.until(lambda: lease.lost, "the owner learns of the loss", ttl)

    error = await expect_error(LeaseLost, block, "the block")
    # The last: on a busy machine the server may not answer within a third of so short a ttl.
    reasons = ("data_lost", "taken", "expired", "unreachable")
    expect(error.reason in reasons, f"a reason is given, not {error.reason!r}")


@check(leases)
async def extend_sets_the_life(world: World) -> None:
    """``extend`` sets the remaining life; it never adds, and a shorter one ends the lease sooner for its owner."""
    lease = await world.acquire(world.lock(ttl=5))
    for ttl in (30, 10):
        await settle(lease.extend(ttl))
        expect(ttl - 1.5 < lease.remaining() <= ttl, f"extend({ttl}) leaves {ttl}, not {lease.remaining():g}")
    expect(lease.ttl == 10, f"the ttl is the last one asked for, not {lease.ttl:g}")
    await settle(lease.release())
    await expect_error(NotHeld, lambda: settle(lease.extend(5)), "extend after release")


@check(leases)
async def a_second_release_is_refused(world: World) -> None:
    """Releasing what is not held any more raises ``NotHeld`` and touches nobody else's lease."""
    lock = world.lock(ttl=20)
    lease = await world.acquire(lock)
    await settle(lease.release())
    held = await fill(world, ttl=20)
    await expect_error(NotHeld, lambda: settle(lease.release()), "a second release")
    if world.entry.capacity is not None:
        expect(await refused(world), "a second release frees nobody else's lease")
    for other in held:
        other.check()
        await settle(other.release())


@check(lambda entry: bounded(entry) and entry.exclusive and not entry.reentrant)
async def its_holder_waits_for_it_like_any_other(world: World) -> None:
    """Somebody else may release it: its holder gets it then, and not before."""
    lock = world.lock(ttl=20)
    lease = await world.acquire(lock)
    expect(await world.attempt(lock) is None, "try_acquire by the holder brings None")
    await expect_error(AcquireTimeout, lambda: world.acquire(lock, timeout=0.1), "acquire by the holder")
    await settle(lease.release())
    again = await world.acquire(lock)
    expect(again.fence > lease.fence, f"fence {again.fence} follows {lease.fence}")


@check(lambda entry: entry.leases and entry.reentrant)
async def its_holder_may_take_it_again(world: World) -> None:
    """The holder takes it again with the same fence, and it is free after as many releases."""
    entry, client = world.entry, world.client()
    first = await world.acquire(world.lock(client, ttl=20))
    second = await world.acquire(world.lock(client, ttl=20))
    expect(second.fence == first.fence, f"re-entry keeps fence {first.fence}, not {second.fence}")
    expect(second.count == 2, f"it is held twice, not {second.count} times")
    family = [e.kind for e in REGISTRY.values() if e.exclusive and e.family and e.family == entry.family]
    rival = family[0] if family and entry.capacity is None else ""
    await settle(second.release())
    expect(await refused(world, kind=rival), "it is still held after the first release")
    await settle(first.release())
    expect(not await refused(world, kind=rival), "it is free after the last release")


@check(lambda entry: entry.leases and entry.adopt)
async def another_client_goes_on_with_it(world: World) -> None:
    """A detached lease is adopted once, keeps its fence, lives as its adopter says, and is nobody else's any more."""
    lease = await world.acquire(world.lock(ttl=20))
    ticket = lease.detach()
    adopted = await settle(world.client().adopt(ticket, ttl=5))
    world.kept.append(adopted)
    if world.entry.inspects:
        left = (await settle(world.client().inspect(world.named("n")))).ttl_left
        expect(0 < (left or 0) <= 5, f"its life is what the adopter asked for, at most 5 s, not {left}")
    expect(adopted.fence == lease.fence, f"the fence stays {lease.fence}, not {adopted.fence}")
    await expect_error(NotHeld, lambda: settle(world.client().adopt(ticket)), "a second adopt")
    expect(await refused(world), "an adopted lease keeps others out")
    await expect_error(PawlockError, lambda: settle(lease.release()), "release of a lease given away")
    adopted.check()
    await settle(adopted.release())
    expect(not await refused(world), "it is free after the release")


@check(lambda entry: entry.leases and entry.inspects)
async def inspect_tells_the_truth(world: World) -> None:
    """``inspect`` shows who holds and who waits, and of a free name that it is free."""
    client = world.client()
    free = await settle(client.inspect(world.named("n")))
    expect(not free.held, "a free name is shown as free")
    expect(free.queue_length == 0, "nobody waits for a free name")
    held = await fill(world, ttl=5)
    info = await settle(client.inspect(world.named("n")))
    expect(info.held, "a held name is shown as held")
    expect(info.fence == held[-1].fence, f"its fence is {held[-1].fence}, not {info.fence}")
    expect(0 < info.ttl_left <= 5, f"its life is at most 5 s, not {info.ttl_left:g}")
    expect(held[-1].token not in repr(info), "a token is a secret")
    if world.entry.capacity is not None:
        waiting = world.waiting(world.lock(ttl=5), 1.0)
        await world.quiet()
        info = await settle(client.inspect(world.named("n")))
        expect(info.queue_length == 1, f"one waits, not {info.queue_length}")
        expect(isinstance(await waiting.error(), AcquireTimeout), "the wait ends at its time")
        info = await settle(client.inspect(world.named("n")))
        expect(info.queue_length == 0, f"nobody waits any more, not {info.queue_length}")
