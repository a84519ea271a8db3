"""All held names, a name taken from its holder, the audit log of who did that, and what inspect shows."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import pawlock
from tests.contract.edges.helpers import started_threads
from tests.contract.operate.rig import eventually, wait_in_vain
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.published import runs
from tests.support.refusal import case
from tests.support.servers import Server

# inspect


def test_inspect_says_who_where_and_since_when(client: pawlock.Client, other: pawlock.Client) -> None:
    began = time.time()
    with client.rlock("seen") as lease, client.rlock("seen"):
        threads = [threading.Thread(target=wait_in_vain, args=(one, "seen", 0.5)) for one in (other, client)]
        threads[0].start()
        eventually(lambda: client.inspect("seen").queue_length == 1, "it waits")
        time.sleep(0.1)
        info = client.inspect("seen")
        assert (info.kind, info.host, info.pid) == ("lock", socket.gethostname(), os.getpid())
        assert info.since is not None
        assert began - 2 <= info.since <= time.time() + 2
        assert (info.fence, info.held, info.holder.rpartition("/")[2]) == (lease.fence, True, "MainThread")
        assert info.waiters[0].position == 0
        assert 0.1 <= info.waiters[0].age < 5
        threads[0].join(10)
    free = client.inspect("seen")
    assert (free.held, free.host, free.pid, free.since) == (False, "", None, None)


# force_release


def taken(lease: pawlock.Lease | pawlock.AsyncLease) -> bool:
    """Whether its owner was told that somebody took it."""
    with pytest.raises(pawlock.LeaseLost) as lost:
        lease.check()
    return lost.value.reason is pawlock.LossReason.TAKEN


def test_the_holder_learns_with_its_next_renewal(clean: Server) -> None:
    with pawlock.connect(clean.url) as holder, pawlock.connect(clean.url) as admin:
        lease = holder.lock("stuck", ttl=3).acquire()
        with started_threads(lambda: admin.lock("stuck").acquire(timeout=10)) as got:
            eventually(lambda: admin.inspect("stuck").queue_length == 1, "somebody waits")
            began = time.monotonic()
            forced = admin.force_release("stuck", reason="it hangs")
            assert lease.lost.wait(3.0)
            assert time.monotonic() - began < pace() * 2.0
        assert forced.holder == lease.token.partition("@")[2]
        (next_lease,) = got
        assert isinstance(next_lease, pawlock.Lease)
        assert lease.fence + 16 < forced.fence < next_lease.fence
        assert taken(lease)
        with pytest.raises(pawlock.NotHeld):
            lease.release()
        next_lease.check()
        next_lease.release()


async def test_a_task_is_cancelled_with_its_next_renewal(clean: Server) -> None:
    async with pawlock.connect_async(clean.url) as holder, pawlock.connect_async(clean.url) as admin:
        entered = asyncio.Event()

        async def work() -> None:
            async with holder.lock("stuck", ttl=3):
                entered.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await entered.wait()
        began = time.monotonic()
        await admin.force_release("stuck", reason="it hangs")
        with pytest.raises(pawlock.LeaseLost) as lost:
            await task
        assert time.monotonic() - began < pace() * 2.0
        assert lost.value.reason is pawlock.LossReason.TAKEN
        assert [entry.name for entry in await admin.audit()] == ["stuck"]


def test_a_holder_whose_ttl_is_longer_than_a_tombstone_learns_the_reason(
    client: pawlock.Client, other: pawlock.Client, clean: Server
) -> None:
    lease = client.lock("long", ttl=3600).acquire()
    other.force_release("long", reason="stuck")
    left = clean.command("PTTL", f"{{pawlock:long}}:1:dead:{lease.token}")
    assert isinstance(left, int)
    assert left > 3_590_000
    with pytest.raises(pawlock.NotHeld):
        lease.release()


def test_with_nobody_behind_it_the_reason_is_the_same(client: pawlock.Client, other: pawlock.Client) -> None:
    lease = client.lock("brief", ttl=2.1).acquire()
    other.force_release("brief", reason="too soon")
    assert lease.lost.wait(4.0)
    assert taken(lease)
    with other.lock("brief").acquire(timeout=1):
        pass


def test_nothing_released_is_an_error(client: pawlock.Client, other: pawlock.Client) -> None:
    with pytest.raises(pawlock.NotHeld, match="nobody holds it as lock") as raised:
        client.force_release("free", reason="to be sure")
    assert (raised.value.name, raised.value.operation) == ("free", "force_release")
    assert client.audit()[0].outcome == "free"
    with other.lock("held") as lease:
        with pytest.raises(pawlock.NotHeld, match=r"it is held by .*, not somebody/else"):
            client.force_release("held", reason="x", holder="somebody/else")
        lease.check()
    assert client.audit()[0].outcome == "changed"
    for kind in ("latch", "rlock", "", None):
        with (
            case(kind),
            pytest.raises(pawlock.ConfigurationError, match="kind must be one of lock, semaphore"),
        ):
            client.force_release("free", kind, reason="x")  # type: ignore[arg-type]
    with pytest.raises(pawlock.ConfigurationError, match=r"kind must be one of lock, got .once"):
        client.force_release(pawlock.Key("a"), "once", reason="x")


def test_every_kind_of_holder(client: pawlock.Client, other: pawlock.Client, clean: Server) -> None:
    own = client.rlock("own").acquire()
    assert other.force_release("own", reason="x").holder == own.token.partition("@")[2]
    with other.lock("own").acquire(timeout=0):
        pass
    with pytest.raises(pawlock.NotHeld):
        own.extend(60)
    clean.command("SET", "pawlock:foreign", "somebody-elses", "PX", "60000")
    forced = other.force_release("foreign", reason="x")
    assert (forced.count, forced.holder) == (1, "")
    assert not client.inspect("foreign").held
    other.lock("closed", min_hold=60).acquire().release()
    other.force_release("closed", reason="x")
    with client.lock("closed").acquire(timeout=0):
        pass


def test_a_value_of_any_bytes_is_taken_away(
    client: pawlock.Client, other: pawlock.Client, clean: Server
) -> None:
    for value in (
        b"\xff\xfe\x00\x80",
        b"\x80@host:1/2",
        "Grüße".encode("latin-1"),
        b"\xed\xa0\x80",
        b"",
        b"\r\n$1\r\n",
        b"x" * 70_000,
    ):
        with case(value):
            client.lock("any").acquire().release()
            clean.command(b"SET", b"pawlock:any", value, b"PX", b"60000")
            assert client.inspect("any").held
            forced = other.force_release("any", reason="x")
            assert forced.holder == ""
            assert clean.command("EXISTS", "pawlock:any") == 0
            with client.lock("any").acquire(timeout=0) as lease:
                assert lease.fence > forced.fence


async def test_a_value_of_any_bytes_is_taken_away_by_a_task(clean: Server) -> None:
    clean.command(b"SET", b"pawlock:any", b"\xff\xfe\x80", b"PX", b"60000")
    async with pawlock.connect_async(clean.url) as client:
        await client.force_release("any", reason="x")
        assert not (await client.inspect("any")).held


NOT_PAWLOCKS = {
    "ShedLock": "ADDED:2026-11-22T14:00:00.000Z@build-7",
    "rueidislock, with a byte 64 in it": "Zk3@q9Vw1x",
    "a host and a number": "vm@4c1b7b0e-37f3-4a53-9d3c-0d1b9f6d7a11",
    "a word": "somebody@else",
    "a long word before another @": "0123456789-0123456789-0123456789@vm:1/main",
}


def test_what_another_program_wrote_is_not_taken_for_pawlocks(client: pawlock.Client, clean: Server) -> None:
    for what, value in NOT_PAWLOCKS.items():
        with case(what):
            with client.lock("theirs").acquire() as lease:
                assert client.inspect("theirs").fence == lease.fence
            clean.command("SET", "pawlock:theirs", value, "PX", "60000")
            info = client.inspect("theirs")
            assert (info.held, info.foreign, info.holder, info.host, info.pid) == (True, True, "", "", None)
            # The last grant was another one, and when this one came is known to nobody.
            assert (info.fence, info.since) == (None, None)
            clean.command("DEL", "pawlock:theirs")


OTHER_KINDS: dict[str, Callable[[Any], Any]] = {
    "semaphore": lambda client: client.semaphore("n", permits=2).acquire(),
    "rwlock": lambda client: client.rwlock("n").read.acquire(),
    "election": lambda client: client.election("n").campaign(),
    "once": lambda client: client.once("n").begin(),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_what_is_held_as_something_else_says_so(
    client: pawlock.Client, other: pawlock.Client, kind: str
) -> None:
    assert (client.inspect("n").held, client.inspect("n").held_as) == (False, "")
    lease = OTHER_KINDS[kind](other)
    lease = getattr(lease, "lease", lease)
    info = client.inspect("n")
    assert (info.held, info.held_as) == (False, kind)
    with pytest.raises(pawlock.NotHeld, match=f"nobody holds it as lock, but somebody as {kind}"):
        client.force_release("n", reason="x")
    assert client.audit()[0].outcome == "free"
    lease.check()
    # As a lock the same name is another thing.
    with client.lock("n").acquire():
        assert client.inspect("n").held_as == ""
    lease.release()
    assert client.inspect("n").held_as == ""


@pytest.mark.parametrize("kind", OTHER_KINDS)
async def test_what_is_held_as_something_else_says_so_to_a_task(clean: Server, kind: str) -> None:
    async with pawlock.connect_async(clean.url) as client:
        lease = await OTHER_KINDS[kind](client)
        lease = getattr(lease, "lease", lease)
        assert (await client.inspect("n")).held_as == kind
        with pytest.raises(pawlock.NotHeld, match=f"somebody as {kind}"):
            await client.force_release("n", reason="x")
        await lease.release()


TAKEN_AS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "permit": ("semaphore", lambda client: client.semaphore("n", permits=1, ttl=2).acquire(timeout=10)),
    "reader": ("rwlock", lambda client: client.rwlock("n", ttl=2).read.acquire(timeout=10)),
    "writer": ("rwlock", lambda client: client.rwlock("n", ttl=2).write.acquire(timeout=10)),
    "leader": ("election", lambda client: client.election("n", ttl=2).campaign(timeout=10)),
    "once": ("once", lambda client: client.once("n", ttl=2).begin(wait=True, timeout=10)),
}
WAITS_AS = {"reader": "writer"}
"""Readers do not wait for each other."""


def lease_of(got: Any) -> Any:
    """The lease inside a leader or a started one."""
    return getattr(got, "lease", got)


@pytest.mark.parametrize("held", TAKEN_AS)
def test_every_kind_is_taken_away(client: pawlock.Client, other: pawlock.Client, held: str) -> None:
    kind, take = TAKEN_AS[held]
    lease = lease_of(take(other))
    holder = lease.token.partition("@")[2]
    with started_threads(lambda: TAKEN_AS[WAITS_AS.get(held, held)][1](client)) as got:
        eventually(lambda: client.locks()[0].queue_length == 1, "somebody waits")
        forced = client.force_release("n", kind, reason="it hangs")  # type: ignore[arg-type]
    assert (forced.name, forced.kind, forced.holder, forced.count) == ("n", kind, holder, 1)
    next_lease = lease_of(got[0])
    next_lease.check()
    assert lease.fence < forced.fence
    assert next_lease.fence != lease.fence
    assert lease.lost.wait(4.0)
    assert taken(lease)
    with pytest.raises(pawlock.NotHeld):
        lease.release()
    next_lease.check()
    entry = client.audit()[0]
    assert (entry.kind, entry.outcome, entry.holder, entry.fence) == (kind, "released", holder, forced.fence)
    next_lease.release()


@pytest.mark.parametrize("held", TAKEN_AS)
async def test_every_kind_is_taken_away_by_a_task(clean: Server, held: str) -> None:
    kind, take = TAKEN_AS[held]
    async with pawlock.connect_async(clean.url) as holder, pawlock.connect_async(clean.url) as admin:
        lease = lease_of(await take(holder))
        forced = await admin.force_release("n", kind, reason="it hangs")  # type: ignore[arg-type]
        assert forced.holder == lease.token.partition("@")[2]
        assert not await admin.locks()
        await asyncio.wait_for(lease.lost.wait(), pace() * 4)
        assert taken(lease)
        with pytest.raises(pawlock.NotHeld):
            await admin.force_release("n", kind, reason="again")  # type: ignore[arg-type]


def test_of_several_holders_all_or_one(client: pawlock.Client, other: pawlock.Client) -> None:
    with started_threads(other.rwlock("n").read.acquire) as got:
        own = client.rwlock("n").read.acquire()
    (theirs,) = got
    assert isinstance(theirs, pawlock.Lease)
    holder = theirs.token.partition("@")[2]
    forced = client.force_release("n", "rwlock", reason="x", holder=holder)
    assert (forced.count, forced.holder) == (1, holder)
    own.extend(30)
    with pytest.raises(pawlock.NotHeld):
        theirs.extend(30)
    permits = [client.semaphore("n", permits=5).acquire(n=2), other.semaphore("n", permits=5).acquire(n=3)]
    forced = client.force_release("n", "semaphore", reason="x")
    assert forced.count == 2
    client.semaphore("n", permits=5).acquire(n=5, timeout=0).release()
    for lease in permits:
        with pytest.raises(pawlock.NotHeld):
            lease.release()
    own.release()


def test_a_result_of_who_lost_it_is_refused(client: pawlock.Client, other: pawlock.Client) -> None:
    started = other.once("n").begin()
    assert isinstance(started, pawlock.Started)
    client.force_release("n", "once", reason="it hangs")
    with pytest.raises((pawlock.NotHeld, pawlock.LeaseLost)):
        started.finish("late")
    again = client.once("n").begin(timeout=0)
    assert isinstance(again, pawlock.Started)
    again.finish("new")
    done = other.once("n").begin()
    assert isinstance(done, pawlock.Done)
    assert (done.value, done.fence) == ("new", again.fence)


def test_who_may_not_read_the_other_kinds_learns_of_the_lock(own_server: Server) -> None:
    own_server.command(
        "ACL", "SETUSER", "narrow", "on", ">pw", "+@all", "&*", "~pawlock:n", "~{pawlock:n}:fence", "~{pawlock:n}:1:[qthd]*"
    )  # fmt: skip
    with (
        pawlock.connect(own_server.url) as holder,
        pawlock.connect(own_server.url.replace("//", "//narrow:pw@")) as narrow,
        holder.rwlock("n").read.acquire(),
    ):
        assert narrow.inspect("n").held_as == ""
        with holder.lock("n").acquire():
            assert narrow.inspect("n").held


def test_a_late_copy_of_the_old_holder_takes_nothing(client: pawlock.Client, clean: Server) -> None:
    with Proxy(clean) as proxy, pawlock.connect(proxy.url) as far:
        far.inspect("late")
        late = proxy.duplicate_request_late(runs("mutex/acquire"))
        lease = far.lock("late").acquire()
        client.force_release("late", reason="x")
        assert clean.command("EXISTS", f"{{pawlock:late}}:1:dead:{lease.token}") == 1
        late.release()
        proxy.wait_hit(late)
        assert not client.inspect("late").held
        with pytest.raises(pawlock.NotHeld):
            lease.release()


def test_the_audit_trail(client: pawlock.Client, other: pawlock.Client, clean: Server) -> None:
    lease = client.lock("one").acquire()
    forced = other.force_release("one", reason="pager 7 & „quoted“ \n text")
    with pytest.raises(pawlock.NotHeld):
        lease.release()
    with pytest.raises(pawlock.NotHeld):
        other.force_release("two", reason="second")
    second, first = client.audit()
    assert (first.name, first.text, first.outcome) == ("one", "pager 7 & „quoted“ \n text", "released")
    assert (first.holder, first.fence, first.action) == (forced.holder, forced.fence, "force_release")
    assert first.who.endswith(f"@{socket.gethostname()}")
    assert abs(first.at - time.time()) < 10
    assert (second.name, second.outcome, second.fence) == ("two", "free", None)
    assert client.audit(1) == [second]
    lines = clean.command("LRANGE", "{pawlock}:1:audit", "0", "-1")
    assert lease.token.split("@")[0] not in repr(lines)
    left = clean.command("PTTL", "{pawlock}:1:audit")
    assert isinstance(left, int)
    assert left > 80 * 86_400_000
    for number in range(520):
        with pytest.raises(pawlock.NotHeld):
            other.force_release("bulk", reason=str(number))
    assert clean.command("LLEN", "{pawlock}:1:audit") == 1000
    assert len(client.audit(1000)) == 500


def test_nothing_is_taken_that_cannot_be_written_down(own_server: Server) -> None:
    own_server.command(
        "ACL", "SETUSER", "mute", "on", ">x", "~pawlock:*", "~{pawlock:*", "&*", "+@all", "-@dangerous"
    )
    url = own_server.url.replace("redis://", "redis://mute:x@")
    with pawlock.connect(url) as client, client.lock("kept") as lease:
        with pytest.raises(pawlock.BackendDenied):
            client.force_release("kept", reason="x")
        lease.check()
        assert client.inspect("kept").held


def test_an_unfinished_one_is_told_as_unknown(client: pawlock.Client, clean: Server) -> None:
    with pytest.raises(pawlock.NotHeld):
        client.force_release("n", reason="x")
    clean.command("LPOP", "{pawlock}:1:audit")
    (entry,) = client.audit()
    assert (entry.outcome, entry.text) == ("unknown", "x")
