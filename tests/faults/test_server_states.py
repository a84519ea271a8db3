"""What a server can be in or go through: each has an outcome of its own, and none is taken for "held by another"."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
import redis

import pawlock
from tests.faults.conftest import start
from tests.faults.rig import (
    Api,
    Client,
    Lease,
    helper,
    in_thread,
    key,
    refusal,
    remains,
    set_config,
    until,
    value,
    waiters,
)
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.fault


@pytest.fixture
def near(api: Api, broken: Server) -> Client:
    """A client straight at the server that the test breaks, connected."""
    client = api.connect(broken.url)
    client.inspect("warm")
    return client


@pytest.fixture
def second(api: Api, broken: Server) -> Client:
    client = api.connect(broken.url)
    client.inspect("warm")
    return client


def test_row_34_scripts_are_flushed_again_and_again(near: Client, second: Client, broken: Server) -> None:
    def flush() -> None:
        broken.command("SCRIPT", "FLUSH")

    flush()
    lease = near.lock(ttl=20, ticket_ttl=1, renew=0.2).acquire(5)
    flush()
    lease.extend(30)
    flush()
    before = lease.raw.valid_until
    until(lambda: lease.raw.valid_until > before, what="a renewal by text")
    flush()
    waiting = second.lock(ttl=20, ticket_ttl=1).start(10)
    until(lambda: waiters(broken, "n") == 1, what="the waiter's ticket")
    flush()
    lease.release()
    got = waiting.result(5)
    assert got.fence > lease.fence
    flush()
    got.release()
    assert remains(broken) == []


def test_row_38_too_few_replicas(near: Client, broken: Server) -> None:
    lease = near.lock("held", ttl=4, ticket_ttl=0.6, unavailable_after=0.3).acquire(5)
    set_config(broken, "min-replicas-to-write", "1")
    began = time.monotonic()
    with pytest.raises(pawlock.BackendReadOnly, match="NOREPLICAS"):
        near.lock(unavailable_after=0.3).acquire(5)
    with pytest.raises(pawlock.BackendReadOnly):
        near.lock(unavailable_after=0.3).try_acquire()
    assert time.monotonic() - began < pace() * 5
    with pytest.raises(pawlock.BackendReadOnly, match="NOREPLICAS"):
        lease.release()
    set_config(broken, "min-replicas-to-write", "0")
    until(lambda: remains(broken) == [], what="the end of the ttl, or the late release")


def test_row_38_a_failing_snapshot(api: Api) -> None:
    """MISCONF: the server cannot save and refuses writes."""
    with start("valkey", "--dbfilename", "taken") as server:
        (server.folder / "data" / "taken" / "x").mkdir(parents=True)
        set_config(server, "save", "3600 1")
        client = api.connect(server.url)
        lease = client.lock(ttl=20).acquire(5)
        server.command("BGSAVE")
        until(lambda: refusal(server, "DEL", "x").startswith("MISCONF"), what="MISCONF")
        with pytest.raises(pawlock.BackendReadOnly, match="MISCONF"):
            client.lock("other", unavailable_after=0.3).acquire(5)
        set_config(server, "stop-writes-on-bgsave-error", "no")
        lease.check()
        lease.release()
        assert remains(server) == []


def test_row_39_loading(api: Api) -> None:
    # While it loads it answers after every 1024 commands only.
    with start("valkey", "--key-load-delay", "100", persist=True) as server:
        with (
            redis.Redis(unix_socket_path=server.socket_path) as plain,
            plain.pipeline(transaction=False) as pipe,
        ):
            for i in range(10_000):
                pipe.set(f"k{i}", i)
            pipe.execute()
        client = api.connect(server.url)
        client.lock().acquire(5).release()
        restarting = in_thread(lambda: server.restart(keep_data=True))
        until(lambda: _loading(server), what="LOADING")
        with pytest.raises(pawlock.BackendUnavailable):
            client.lock(unavailable_after=0).acquire(5)
        waiting = client.lock().start(20)
        restarting.result(20)
        waiting.result(10).release()


def _loading(server: Server) -> bool:
    with contextlib.suppress(OSError, RuntimeError):
        return refusal(server, "GET", "x").startswith("LOADING")
    return False


def test_row_39_a_busy_script(near: Client, broken: Server) -> None:
    set_config(broken, "lua-time-limit", "10")
    busy = in_thread(lambda: refusal(broken, "EVAL", "while true do end", "0"))
    until(lambda: refusal(broken, "GET", "x").startswith("BUSY"), what="BUSY")
    began = time.monotonic()
    with pytest.raises(pawlock.BackendUnavailable, match="BUSY"):
        near.lock(unavailable_after=0.3).acquire(5)
    assert time.monotonic() - began < pace() * 3
    waiting = near.lock().start(10)
    time.sleep(0.1)
    broken.command("SCRIPT", "KILL")
    waiting.result(5).release()
    assert "rror" in busy.result(5) or "kill" in busy.result(5).lower()


def test_row_40_out_of_memory(near: Client, second: Client, broken: Server) -> None:
    lease = near.lock(ttl=20, renew=0.2).acquire(5)
    waiting = second.lock(ttl=20, ticket_ttl=1.2).start(20)
    until(lambda: waiters(broken, "n") == 1, what="the waiter's ticket")
    set_config(broken, "maxmemory", "1")
    began = time.monotonic()
    with pytest.raises(pawlock.BackendOutOfMemory):
        near.lock("other").acquire(5)
    with pytest.raises(pawlock.BackendOutOfMemory):
        near.lock("other").try_acquire()
    assert time.monotonic() - began < pace() * 3
    before = lease.raw.valid_until
    until(lambda: lease.raw.valid_until > before, what="a renewal")
    lease.extend(40)
    # Longer than the ticket's life: it was renewed.
    time.sleep(1.5)
    lease.check()
    lease.release()
    got = waiting.result(5)
    got.release()
    set_config(broken, "maxmemory", "0")
    until(lambda: remains(broken) == [], what="a clean server")


@pytest.mark.parametrize("what", ["DEL", "FLUSHALL", "another holder"])
def test_row_42_a_lock_taken_away_is_lost_and_not_made_again(what: str, near: Client, broken: Server) -> None:
    lease = near.lock(ttl=20, renew=0.2).acquire(5)
    if what == "another holder":
        broken.command("SET", key("n"), "somebody@else", "PX", "20000")
    else:
        broken.command(*(["DEL", key("n")] if what == "DEL" else ["FLUSHALL"]))
    until(lambda: lease.state == "lost", timeout=5, what="the loss")
    assert lease.reason == {"DEL": "expired", "FLUSHALL": "data_lost", "another holder": "taken"}[what]
    assert value(broken) == ("somebody@else" if what == "another holder" else None)
    with pytest.raises(pawlock.NotHeld):
        lease.release()
    assert value(broken) == ("somebody@else" if what == "another holder" else None)


@pytest.mark.parametrize("policy", ["volatile-ttl", "allkeys-random"])
def test_row_41_an_evicted_lock_is_told(policy: str, near: Client, broken: Server) -> None:
    set_config(broken, "maxmemory-policy", policy)
    leases = [near.lock(f"n{i}", ttl=20, renew=0.3).acquire(5) for i in range(5)]
    set_config(broken, "maxmemory", "1")
    refusal(broken, "SET", "x", "1")
    until(lambda: all(lease.state == "lost" for lease in leases), timeout=8, what="the losses")
    # As far as its record of fences was evicted, too.
    assert {lease.reason for lease in leases} <= {"data_lost", "expired"}


WRONG = {"name": "", "fence": "fence", "queue": "1:queue", "tickets": "1:tickets"}


@pytest.mark.parametrize("which", WRONG)
def test_row_45_a_foreign_key_is_named_and_not_touched(which: str, near: Client, broken: Server) -> None:
    broken.command("SET", key("n"), "held@by/another", "PX", "60000")
    found = helper("n", WRONG[which]) if WRONG[which] else key("n")
    broken.command("DEL", found)
    broken.command("LPUSH", found, "theirs")
    with pytest.raises(pawlock.WrongKey) as caught:
        near.lock().acquire(2)
    assert "'n'" in str(caught.value)
    assert caught.value.name == "n"
    assert broken.command("LRANGE", found, "0", "-1") == [b"theirs"]


def test_row_45_a_foreign_value_is_somebody_elses_lock(near: Client, broken: Server) -> None:
    broken.command("SET", key("n"), "theirs")
    assert near.lock().try_acquire() is None
    with pytest.raises(pawlock.AcquireTimeout):
        near.lock().acquire(0.2)
    assert value(broken) == "theirs"
    assert near.inspect().foreign
    waiting = near.lock().start(5)
    until(lambda: waiters(broken, "n") == 1, what="the waiter's ticket")
    broken.command("DEL", key("n"))
    waiting.result(5).release()


def test_row_46_a_key_without_an_end_is_shown_and_not_taken(near: Client, broken: Server) -> None:
    broken.command("SET", key("n"), "secret@gone:1/x")
    assert near.inspect().ttl_left == float("inf")
    with pytest.raises(pawlock.AcquireTimeout):
        near.lock().acquire(0.3)
    assert value(broken) == "secret@gone:1/x"


def test_row_46_a_renewal_gives_a_persisted_key_its_end_again(near: Client, broken: Server) -> None:
    lease = near.lock(ttl=20, renew=0.2).acquire(5)
    broken.command("PERSIST", key("n"))
    until(lambda: int(str(broken.command("PTTL", key("n")))) > 0, what="an end")
    lease.release()


# Fences -----------------------------------------------------------------------------------------------------------

EVENTS: dict[str, Callable[[Server], object]] = {
    "DEL fence": lambda server: server.command("DEL", helper("n", "fence")),
    "FLUSHALL": lambda server: server.command("FLUSHALL"),
    "SCRIPT FLUSH": lambda server: server.command("SCRIPT", "FLUSH"),
    "restart with data": lambda server: server.restart(keep_data=True),
    "restart without data": lambda server: server.restart(keep_data=False),
}
events = pytest.mark.parametrize("event", EVENTS)
SURVIVES = ("DEL fence", "SCRIPT FLUSH", "restart with data")


@events
def test_row_47_fences_rise_while_holding(event: str, api: Api, lasting: Server) -> None:
    client = api.connect(lasting.url)
    lease = client.lock(ttl=20, ticket_ttl=1.2, renew=0.2).acquire(5)
    EVENTS[event](lasting)
    if event in SURVIVES:
        before = lease.raw.valid_until
        until(lambda: lease.raw.valid_until > before, what="a renewal")
        lease.check()
        lease.release()
    else:
        until(lambda: lease.state == "lost", what="the loss")
    fences = [lease.fence]
    for _ in range(3):
        after = client.lock(ttl=20).acquire(10)
        fences.append(after.fence)
        after.release()
    assert fences == sorted(set(fences))


@events
def test_row_47_fences_rise_while_waiting(event: str, api: Api, lasting: Server) -> None:
    holder, waiter = api.connect(lasting.url), api.connect(lasting.url)
    lease = holder.lock(ttl=20, ticket_ttl=1.2, renew=0.2).acquire(5)
    waiting = [waiter.lock(ttl=20, ticket_ttl=1.2, handover=0).start(20) for _ in range(2)]
    until(lambda: waiters(lasting, "n") >= 1, what="a waiter's ticket")
    EVENTS[event](lasting)
    if event in SURVIVES:
        time.sleep(0.5)
        assert not any(future.done() for future in waiting)
        lease.check()
        lease.release()
    fences = [lease.fence]
    for got in _one_after_the_other(waiting):
        fences.append(got.fence)
        got.release()
    assert fences == sorted(set(fences))
    if event not in SURVIVES:
        until(lambda: lease.state == "lost", what="the loss")
    until(lambda: remains(lasting) == [], what="a clean server")


def _one_after_the_other(waiting: list[Future[Lease]]) -> Iterator[Lease]:
    left = list(waiting)
    while left:
        until(lambda: any(future.done() for future in left), timeout=10, what="a grant")
        done = [future for future in left if future.done()]
        assert len(done) == 1, "two hold at once"
        left.remove(done[0])
        yield done[0].result()


def test_row_47_the_fence_never_falls_below_the_end_of_a_block(near: Client, broken: Server) -> None:
    """A fence ahead of the server's clock is counted on."""
    ahead = 9_000_000_000_000_000
    near.lock().acquire(5).release()
    broken.command("HSET", helper("n", "fence"), "last", str(ahead))
    fences = []
    for _ in range(3):
        lease = near.lock().acquire(5)
        fences.append(lease.fence)
        lease.release()
    assert fences[0] > ahead
    assert fences == sorted(set(fences))


# Connections ------------------------------------------------------------------------------------------------------
