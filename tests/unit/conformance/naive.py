"""Designs that were published and are wrong, each as a variant of a sound primitive with that one fault."""

from __future__ import annotations

import asyncio
import random
import string
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, cast

import redis

import pawlock
from pawlock._system import now
from pawlock.aio.lock import AsyncLock
from tests.conformance.suite.world import drive, settle
from tests.unit.conformance.toy import Edit, Variant

__all__ = ["ANYBODY", "NAIVE", "UNSAFE_COUNT"]


class Around:
    """A lock with another one's manners: what it does not change is the sound lock's."""

    def __init__(self, client: Any, lock: Any) -> None:
        self.client = client
        self.lock = lock

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lock, name)

    @property
    def is_async(self) -> bool:
        """Whether it is of asyncio."""
        return isinstance(self.client, pawlock.AsyncClient)

    def acquire(self, *args: Any, **kwargs: Any) -> Any:
        """What ``taking`` does, in the lock's API."""
        return self.run(self.taking(*args, **kwargs))

    async def taking(self, *args: Any, **kwargs: Any) -> Any:
        """Acquire in the naive way."""
        return self.changed(await settle(self.lock.acquire(*args, **kwargs)))

    def changed(self, lease: Any) -> Any:
        """The lease, or what is naively made of it."""
        return lease

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run it in the lock's API."""
        return work if self.is_async else drive(work)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        if self.is_async:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 - this API blocks


class TwoTrips(Around):
    """Asks whether it is free, and takes it in a second trip."""

    async def taking(self, *args: Any, **kwargs: Any) -> Any:
        while await settle(self.lock.locked()):
            await self.sleep(0.002)
        return await settle(self.lock.acquire(*args, **kwargs))


class LocalCount(Around):
    """Counts re-entry by itself and does not ask whether the lease is still there."""

    mine: Any = None

    async def taking(self, *args: Any, **kwargs: Any) -> Any:
        if self.mine is None:
            self.mine = await settle(self.lock.acquire(*args, **kwargs))
        return self.mine


class OneAfterTheOther(Around):
    """Asks three nodes in turn, and raises without giving back what it got when they are too few."""

    async def taking(self, timeout: float = 10.0) -> Any:
        url, primitive = str(self.client._origin[0]), self.lock._plan.primitive
        end = time.monotonic() + min(timeout, 1.5)
        while time.monotonic() < end:
            votes = sum(self.vote(url, f"{primitive.key}:{node}") for node in range(3))
            if votes >= 2:
                return await settle(self.lock.acquire(timeout=timeout))
            await self.sleep(0.1)
        raise pawlock.QuorumNotReached("too few nodes")

    def vote(self, url: str, key: str) -> bool:
        """One node's."""
        client = cast("Any", redis.Redis).from_url(url, socket_timeout=0.15, retry=None)
        try:
            script = "return redis.call('SET', KEYS[1], '1', 'NX', 'PX', 20000)"
            return bool(client.eval(script, 1, key))
        except redis.RedisError:
            return False
        finally:
            client.close()


class TimeoutAsTtl(Around):
    """Makes the lease as long as twice the wait."""

    async def taking(self, timeout: float = 10.0) -> Any:
        return await settle(self.lock.acquire(timeout=timeout, ttl=max(0.1, timeout * 2)))


class FromTheReply(Around):
    """Counts the life of a lease from the answer."""

    def changed(self, lease: Any) -> Any:
        lease._record.hold.valid_until = now() + lease.ttl
        return lease


class FenceOfWhoever:
    """A lease that reads its fence from the server's counter when it is asked."""

    def __init__(self, lease: Any, key: str, url: str) -> None:
        self._lease = lease
        self._key = key
        self._url = url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    @property
    def fence(self) -> int:
        """What the counter says now."""
        with cast("Any", redis.Redis).from_url(self._url) as client:
            return int(client.hget(self._key, "cur"))


class CounterApart(Around):
    """Reads the fence after the fact, from a counter that everybody raises."""

    def changed(self, lease: Any) -> Any:
        return FenceOfWhoever(
            lease, f"{{{self.lock._plan.primitive.key}}}:fence", str(self.client._origin[0])
        )


def tokens(make: Callable[[], str]) -> Callable[[Any, Any], Any]:
    """Leases whose tokens are made by ``make``."""

    def around(client: Any, lock: Any) -> Any:
        runtime = client._engine().runtime if isinstance(lock, AsyncLock) else client._runtime
        runtime.new_token = lambda: f"{make()}@host:1/thread"
        return lock

    return around


def chosen() -> str:
    """A token as many programs choose it."""
    return "".join(random.choice(string.ascii_letters) for _ in range(22))


ANYBODY = (Edit("call('EXISTS', NAME, QUEUE, DEAD) == 0", "true"),)

UNSAFE_COUNT = (
    Edit("call('ZRANGEBYSCORE', NAME, '-inf', '(' .. now)", "{}"),
    Edit("call('ZRANGEBYSCORE', NAME, now, '+inf')", "call('ZRANGE', NAME, 0, -1)"),
)

DEAD_STAY = (
    Edit(
        "if expiry > now_ms then\n        found.token",
        "if expiry <= now_ms then found.drop = {} return found end\n      if expiry > now_ms then\n        found.token",
    ),
)

CLIENT_CLOCKS = (
    Edit("call('ZADD', QUEUE, digits(number), token)", "call('ZADD', QUEUE, digits(4e15 - now_us), token)"),
    Edit("math.max(now_us, tail + 1)", "4e15 - now_us"),
)

ARITHMETIC = (
    Edit(
        "if waiting then\n  found.drop[#found.drop + 1] = token\n",
        """if waiting then
  found.drop[#found.drop + 1] = token
  for _, other in ipairs(call('HKEYS', TICKETS)) do
    local expiry, ttl, block, channel, owner = parse(call('HGET', TICKETS, other))
    write_ticket(other, math.max(1, expiry - 60000), ttl, block, channel, owner)
  end
""",
    ),
)

AHEAD = (
    Edit("'PXAT', now_ms + ttl_ms)", "'PXAT', now_ms + ttl_ms + 3600000)"),
    Edit("grant(token, now_ms + ttl_ms, block)", "grant(token, now_ms + ttl_ms + 3600000, block)"),
)

BARE_COUNTER = (
    Edit("math.max((fence[1] or 0) + 1, now_us)", "(fence[1] or 0) + 1"),
    Edit("math.max((last or 0) + 1, now_us)", "(last or 0) + 1"),
    Edit("math.max(tonumber(fence[1] or '0') + 1, now_us)", "tonumber(fence[1] or '0') + 1"),
)

NAIVE: dict[str, tuple[Variant, str]] = {
    "row 1: dead waiters never leave the queue": (
        Variant(edits=DEAD_STAY),
        "dead_waiters_delay_by_one_ticket",
    ),
    "row 1: the queue is in the order of the clients' clocks": (
        Variant(edits=CLIENT_CLOCKS),
        "first_come_first_served",
    ),
    "row 2: one who leaves changes the time of the others": (
        Variant(edits=ARITHMETIC),
        "one_who_gives_up_costs_the_others_nothing",
    ),
    "row 3: holders are one count, kept alive by the living": (
        Variant(of="semaphore", edits=UNSAFE_COUNT),
        "a_dead_sharer_frees_only_itself",
    ),
    "row 4: it is asked for and taken in two trips": (
        Variant(edits=ANYBODY, wrap=TwoTrips),
        "a_crowd_is_never_inside_together",
    ),
    "row 5: re-entry is counted without a look at the lease": (
        Variant(of="rlock", wrap=LocalCount),
        "a_lost_lease_is_not_re_entered",
    ),
    "row 11: too few of the nodes, and nothing is given back": (
        Variant(wrap=OneAfterTheOther),
        "an_unknown_acquire_is_undone",
    ),
    "row 12: how long one waits is how long one holds": (
        Variant(wrap=TimeoutAsTtl),
        "time_out_and_life_are_apart",
    ),
    "row 13: the life counts from the answer": (
        Variant(wrap=FromTheReply),
        "life_counts_from_the_question",
    ),
    "row 14: the expiry is by the client's clock, which is an hour ahead": (
        Variant(edits=AHEAD),
        "a_dead_holder_frees_it",
    ),
    "row 15: the fence is read from a counter afterwards": (
        Variant(wrap=CounterApart),
        "a_stale_holder_has_a_lower_fence",
    ),
    "row 16: the fence is forgotten with the lock": (
        Variant(edits=BARE_COUNTER),
        "fences_rise_though_the_server_forgot",
    ),
    "row 17: the token is a uuid1": (
        Variant(wrap=tokens(lambda: uuid.uuid1().hex)),
        "tokens_cannot_be_guessed",
    ),
    "row 17: the token is chosen by the random module": (
        Variant(wrap=tokens(chosen)),
        "tokens_cannot_be_guessed",
    ),
    "row 18: a wake-up that is lost is waited for as long as a lease lives": (
        Variant(options={"ticket_ttl": 20}),
        "a_lost_wake_up_costs_little",
    ),
}
