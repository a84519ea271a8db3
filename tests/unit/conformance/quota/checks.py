"""What is promised of a quota, for the conformance suite; and how it is made known, and forgotten."""

from __future__ import annotations

from functools import partial
from typing import Any

from pawlock.errors import AcquireTimeout
from pawlock.primitives.registry import Entry, register, unregister
from tests.conformance.suite.checks import CHECKS, check, expect, expect_error
from tests.conformance.suite.waiting import FAULTS
from tests.conformance.suite.world import World, settle
from tests.unit.conformance.quota.entry import ENTRY

__all__ = ["PROMISES", "forget", "know"]


async def _take(quota: Any) -> None:
    await settle(quota.take(timeout=0))


async def a_period_gives_its_limit(world: World) -> None:
    """All clients together take as much as the limit, and no more, in one period."""
    quotas = [world.lock(per=60) for _ in range(3)]
    takers = [world.start(partial(_take, one)) for one in [*quotas, *quotas]]
    ends = [await one.error() for one in takers]
    expect(ends.count(None) == 3, "3 of 6 take a part")
    expect(sum(isinstance(end, AcquireTimeout) for end in ends) == 3, "the others are refused")
    expect(await settle(quotas[0].left()) == 0, "nothing is left")
    expect(world.without_ttl() == [], "the period ends by itself")


async def the_next_period_gives_again(world: World) -> None:
    """Who wants more than is left waits for the next period, which has all of it."""
    quota = world.lock(per=0.3)
    await settle(quota.take())
    expect(await settle(quota.take(3, timeout=10)) == 0, "a whole period is taken")
    await world.until(lambda: not world.stored(), "the period ends")
    expect(await settle(quota.left()) == 3, "all is left of a new one")


async def a_repeated_request_takes_once(world: World) -> None:
    """Whatever happens to one message, its part is taken once."""
    proxy = world.proxy()
    client = await world.behind(proxy)
    await settle(world.lock(client, name="warm").take())
    for number, (what, fault) in enumerate(FAULTS.items()):
        rule = fault(proxy, world)
        left: Any = await settle(world.lock(client, name=f"n{number}", per=60).take(timeout=10))
        expect(rule.hits == 1, f"{what} was injected")
        proxy.clear()
        expect(left == 2, f"after {what}, one part of 3 was taken")
        again = world.lock(name=f"n{number}", per=60)
        expect(await settle(again.left()) == 2, f"after {what}, one part of 3 was taken")
        await expect_error(
            AcquireTimeout, lambda: settle(again.take(3, timeout=0)), "taking more than is left"
        )


PROMISES = (a_period_gives_its_limit, the_next_period_gives_again, a_repeated_request_takes_once)


def _is_quota(entry: Entry) -> bool:
    return entry.kind == ENTRY.kind


def know() -> None:
    """Register it, and what it promises."""
    register(ENTRY)
    for one in PROMISES:
        check(_is_quota)(one)


def forget() -> None:
    """And no more."""
    unregister(ENTRY.kind)
    for one in PROMISES:
        CHECKS.pop(one.__name__, None)
