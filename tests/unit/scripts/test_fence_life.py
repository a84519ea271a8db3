"""How long a fence is kept: its ttl past the last use, as long as a lease, and never less than was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.servers import Server
from tests.unit.scripts.permit_rig import PermitRig
from tests.unit.scripts.rig import DAY, Reply, Rig, token

A, B, C = (token(text) for text in "abc")
MINUTE = 60_000


def expiry(rig: Rig) -> int:
    """When the fence ends; before now: it is gone."""
    key = rig.key("fence")
    return int(rig.raw([key])[key][1])


def left(rig: Rig) -> list[str]:
    """The keys that are there a moment later; one that has to go now goes with the next look."""
    rig.advance(2)
    rig.run("inspect", (0, 0) if isinstance(rig, PermitRig) else (0,))
    return [key for key in rig.raw() if ":dead:" not in key]


@pytest.fixture
def permits(server: Server) -> Iterator[PermitRig]:
    found = PermitRig(server.socket_path)
    if not found.can_move_the_clock():
        found.close()
        pytest.skip("a clock that the test moves needs a server with PEXPIRETIME (Redis 7.0, Valkey)")
    yield found
    found.close()


def test_it_ends_its_ttl_after_the_release(rig: Rig) -> None:
    rig.fence_ttl = MINUTE
    rig.acquire(A, 20_000)
    assert rig.now + MINUTE <= expiry(rig) <= rig.now + MINUTE + 1
    rig.leave(A)
    assert rig.now + MINUTE <= expiry(rig) <= rig.now + MINUTE + 1


def test_it_is_kept_for_a_lease_that_is_longer(rig: Rig) -> None:
    rig.fence_ttl = 1000
    rig.acquire(A, 20_000)
    assert expiry(rig) == rig.now + 20_000
    rig.advance(19_000)
    assert rig.renew(A, 20_000)[1] == rig.inspect()[3] > 0
    assert expiry(rig) == rig.now + 20_000
    rig.leave(A)
    assert expiry(rig) == rig.now + 1000, "the lease is over"


def test_a_lease_of_many_renewals_keeps_its_fence(rig: Rig) -> None:
    rig.fence_ttl = MINUTE
    cur = rig.acquire(A, 30_000)[1]
    for _ in range(50):
        rig.advance(10_000)
        assert rig.renew(A, 30_000)[1] == cur
        assert expiry(rig) >= rig.now + MINUTE * 23 / 24
    assert rig.inspect()[3] == cur


def test_renewals_write_it_once_in_a_24th_of_its_ttl(rig: Rig) -> None:
    rig.fence_ttl = DAY
    rig.acquire(A, 30_000)
    written = set()
    for _ in range(3 * 360):
        rig.advance(10_000)
        rig.renew(A, 30_000)
        written.add(expiry(rig))
    assert len(written) in (3, 4), "in three hours"


def test_none_is_kept_of_an_idle_name(rig: Rig) -> None:
    rig.fence_ttl = 0
    for tomb in (0, 500):
        rig.redis.flushall()
        first = rig.acquire(A)[1]
        rig.advance(2)
        assert rig.leave(A, tomb=tomb)[0] == "R"
        assert left(rig) == [], tomb
        assert rig.acquire(B)[1] > first, "by the server's clock"


def test_none_is_kept_after_a_hand_off(rig: Rig) -> None:
    rig.fence_ttl = 0
    fences = [rig.acquire(A)[1]]
    rig.acquire(B)
    rig.advance(1)
    rig.leave(A)
    fences.append(rig.renew(B)[1])
    assert expiry(rig) >= rig.now + 1000, "it lives with the lease"
    rig.advance(1)
    rig.leave(B)
    assert left(rig) == []
    assert fences == sorted(set(fences))


def test_a_fence_ahead_of_the_clock_is_kept_until_the_clock_passes_it(rig: Rig) -> None:
    rig.fence_ttl = 0
    last = rig.acquire(A, block=5_000_000)[1] + 5_000_000 - 1
    rig.advance(10)
    rig.leave(A)
    assert last // 1000 <= expiry(rig) <= last // 1000 + 1
    assert rig.acquire(B)[1] > last
    rig.leave(B)
    rig.advance(6000)
    assert rig.acquire(C)[1] > last


def test_a_lease_that_ended_by_itself_leaves_none(rig: Rig) -> None:
    rig.fence_ttl = 0
    rig.acquire(A, 1000)
    rig.advance(1001)
    assert left(rig) == []


def test_whoever_keeps_it_longest_decides(rig: Rig) -> None:
    """A client with a shorter ttl never lowers what another one was promised."""
    for brief in (0, 50, 1000, MINUTE):
        rig.redis.flushall()
        rig.fence_ttl = DAY
        rig.acquire(A)
        rig.leave(A)
        promised = expiry(rig)
        rig.fence_ttl = brief
        for wait in (0, 500, 5000):
            rig.advance(wait)
            rig.acquire(B, 30_000)
            rig.renew(B, 40_000)
            rig.leave(B)
            assert expiry(rig) == promised, (brief, wait)


def test_a_waiters_wish_is_kept_by_whoever_grants(rig: Rig) -> None:
    """The one who releases, and so grants, wants less than the one who waits."""
    rig.fence_ttl = 0
    rig.acquire(A)
    for waiter in (B, C):  # the general way into a queue, and the quick one
        rig.fence_ttl = DAY
        rig.acquire(waiter)
        rig.fence_ttl = 0
    rig.leave(A)
    rig.leave(B)
    rig.leave(C)
    assert expiry(rig) >= rig.now + DAY * 23 / 24


def test_a_longer_wish_is_granted_at_once(rig: Rig) -> None:
    rig.fence_ttl = 1000
    rig.acquire(A)
    rig.leave(A)
    rig.fence_ttl = DAY
    rig.acquire(B)
    assert expiry(rig) >= rig.now + DAY


def test_a_lease_that_changes_hands_keeps_it(rig: Rig) -> None:
    rig.fence_ttl = 100
    rig.acquire(A, 1000)
    rig.acquire(B, 1000)
    rig.leave(A)
    assert rig.renew(B, 9000)[0] == "H"
    assert expiry(rig) == rig.now + 9000


def test_renewal_keeps_it_when_memory_is_full(own: Rig) -> None:
    own.fence_ttl = 1000
    own.acquire(A, 5000)
    own.redis.config_set("maxmemory", 1)
    try:
        own.advance(100)
        assert own.renew(A, 8000)[0] == "H"
        assert expiry(own) >= own.now + 7000
    finally:
        own.redis.config_set("maxmemory", 0)


# Permits ------------------------------------------------------------------------------------------------------------


def take(rig: PermitRig, tok: str, ttl: int = 1000) -> Reply:
    return rig.take(tok, "1", permits=2, ttl=ttl)


WAYS: dict[str, Callable[[PermitRig], object]] = {
    "released": lambda _: None,
    "renewed": lambda rig: [rig.again(tok, permits=2, ttl=5000) for tok in (A, B)],
    "another waited": lambda rig: [take(rig, C), rig.give(C, permits=2)],
}


def test_none_is_kept_of_idle_permits(permits: PermitRig) -> None:
    permits.fence_ttl = 0
    for way, run in WAYS.items():
        permits.redis.flushall()
        take(permits, A)
        take(permits, B)
        run(permits)
        permits.advance(2)
        permits.give(A, permits=2)
        assert permits.state().limit == 2, "somebody still holds"
        permits.give(B, permits=2)
        assert left(permits) == [], way


def test_permits_of_long_leases_keep_their_fence(permits: PermitRig) -> None:
    permits.fence_ttl = 1000
    take(permits, A, 20_000)
    take(permits, B, 5000)
    assert expiry(permits) == permits.now + 20_000
    permits.advance(4000)
    permits.again(B, permits=2, ttl=30_000)
    assert expiry(permits) == permits.now + 30_000
    permits.give(B, permits=2)
    permits.give(A, permits=2)
    assert permits.now + 1000 <= expiry(permits) <= permits.now + 1001


def test_a_limit_that_was_changed_is_remembered_for_a_day(permits: PermitRig) -> None:
    permits.fence_ttl = 0
    permits.limit(5, 2)
    assert expiry(permits) >= permits.now + DAY
    for _ in range(3):
        permits.advance(DAY // 2)
        assert take(permits, A)[0] == "H"
        permits.give(A, permits=2)
        assert (permits.state().limit, permits.state().declared) == (5, 2)
    permits.advance(DAY)
    assert left(permits) == []


def test_whoever_keeps_a_limit_longest_decides(permits: PermitRig) -> None:
    for brief in (0, 50, MINUTE):
        permits.redis.flushall()
        permits.fence_ttl = DAY
        take(permits, A)
        permits.give(A, permits=2)
        promised = expiry(permits)
        permits.fence_ttl = brief
        for tok in (B, C):
            take(permits, tok)
            permits.again(tok, permits=2, ttl=9000)
            permits.give(tok, permits=2)
        permits.limit(2, 2)
        assert expiry(permits) == promised, brief
