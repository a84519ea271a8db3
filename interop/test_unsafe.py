"""What the page on shared names says of unsafe libraries: each sentence is shown with the library itself.

Where a library has mended it, the test fails: then the page is to be changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

import pawlock
from interop.line import Driver
from tests.faults.rig import until
from tests.support.pace import pace
from tests.support.servers import Server

Start = Callable[..., Driver]
JOB = "job-lock:default:x"


def connections(server: Server) -> int:
    """How many there are."""
    found = server.command("CLIENT", "LIST")
    assert isinstance(found, bytes)
    return len(found.splitlines())


def expire(server: Server, key: str) -> None:
    """Do what its TTL does while the holder is paused."""
    assert server.command("DEL", key) == 1


def test_a_late_unlock_of_shedlock_deletes_pawlocks_key(
    start: Start, client: pawlock.Client, server: Server
) -> None:
    them = start("shedlock")
    assert them.ask("try", JOB, 10_000)["ok"]
    expire(server, JOB)
    lease = client.lock(JOB, renew=False).acquire(timeout=0)
    assert them.ask("unlock", JOB)["ok"]
    assert server.command("EXISTS", JOB) == 0
    with pawlock.connect(server.url, namespace="") as other, other.lock(JOB).acquire(timeout=0):
        # Two holders: nobody has told the first.
        lease.check()
    with pytest.raises(pawlock.NotHeld):
        lease.release()


def test_with_safe_update_it_deletes_nothing_of_pawlocks(
    start: Start, client: pawlock.Client, server: Server
) -> None:
    them = start("shedlock-safe")
    assert them.ask("try", JOB, 10_000)["ok"]
    expire(server, JOB)
    with client.lock(JOB).acquire(timeout=0) as lease:
        them.ask("unlock", JOB)
        assert server.command("GET", JOB) == lease.token.encode()
        lease.check()


BUSY = "for i = 1, tonumber(ARGV[1]) do end"


def rounds(server: Server, seconds: float) -> int:
    """How far a script has to count to keep the server busy for so long."""
    took: list[float] = []
    for _ in range(3):
        begin = time.monotonic()
        server.command("EVAL", BUSY, "0", "3000000")
        took.append(time.monotonic() - begin)
    return round(3_000_000 * seconds / min(took))


def both_held(server: Server, them: Driver, tries: int = 20) -> int:
    """How often rueidislock gets a lock that pawlock holds, on a server that stands still for 30 ms now and then."""
    found, busy = 0, str(rounds(server, 0.03))
    for _ in range(tries):
        stall = threading.Thread(target=server.command, args=("EVAL", BUSY, "0", busy))
        stall.start()
        time.sleep(0.005)
        if them.ask("try", "rueidislock:0:x", 0)["ok"]:
            found += 1
            them.ask("unlock", "rueidislock:0:x")
        stall.join()
    return found


def test_rueidislock_takes_two_of_three_keys(start: Start, client: pawlock.Client, server: Server) -> None:
    """Its default. A first key that is not answered for 20 ms is passed over, and pawlock holds only that one."""
    them = start("rueidis")
    with client.lock("rueidislock:0:x") as lease:
        # A busy machine stretches or cuts the pause, so more than one measure of it is tried.
        assert any(both_held(server, them) for _ in range(10))
        lease.check()


def test_all_three_keys_keep_rueidislock_out(start: Start, client: pawlock.Client, server: Server) -> None:
    them = start("rueidis")
    keys = [pawlock.Key(f"rueidislock:{i}:x") for i in range(3)]
    with client.multi_lock(keys) as lease:
        assert both_held(server, them) == 0
        lease.check()
    assert them.ask("try", "rueidislock:0:x", 0)["ok"]
    assert client.multi_lock(keys).try_acquire() is None


def test_one_key_is_enough_with_a_majority_of_one(
    start: Start, client: pawlock.Client, server: Server
) -> None:
    them = start("rueidis1")
    with client.lock("rueidislock:0:x") as lease:
        assert both_held(server, them) == 0
        lease.check()


def test_a_read_write_lock_of_redisson_enters_beside_its_own_lock(start: Start) -> None:
    """RLock and RReadWriteLock of one name, without any pawlock: both hold."""
    lock, write = start("redisson"), start("redisson-write")
    assert lock.ask("try", "x", 10_000)["ok"]
    assert write.ask("try", "x", 10_000)["ok"]
    assert [them.ask("state", "x")["state"] for them in (lock, write)] == ["held", "held"]


@pytest.mark.parametrize("kind", ["redsync", "redsync-setnx"])
def test_set_nx_on_extend_takes_a_lost_lock_again(
    kind: str, start: Start, client: pawlock.Client, server: Server
) -> None:
    """What pawlock wrote in between is not known to a holder whose extension succeeds."""
    them = start(kind)
    assert them.ask("try", "x", 10_000)["ok"]
    expire(server, "x")
    with client.lock("x"):
        assert not them.ask("extend", "x", 10_000)["ok"]
    assert them.ask("extend", "x", 10_000)["ok"] is (kind == "redsync-setnx")


def test_a_waiter_of_springs_pub_sub_lock_does_not_hear_pawlock(
    start: Start, client: pawlock.Client, server: Server
) -> None:
    them = start("springpub", JAVA_TOOL_OPTIONS="-Dttl=30000")
    with client.lock("locks:x"):
        before = connections(server)
        them.send("lock", "locks:x", 0, -1)
        # It connects when it asks first, and on a busy machine that takes a while.
        until(lambda: connections(server) > before, timeout=30)
        assert them.silent(1.0)
    assert them.silent(2.0), "it was told of a release of pawlock's"
    assert server.command("EXISTS", "locks:x") == 0
    server.command("PUBLISH", "locks-channel:locks:x", "locks:x")
    assert them.reply(10 * pace())["ok"]


def test_a_waiter_of_python_redis_lock_does_not_hear_pawlock(
    start: Start, client: pawlock.Client, server: Server
) -> None:
    them = start("pyredislock")
    with client.lock("lock:x"):
        them.send("lock", "lock:x", 0, -1)
        assert them.silent(0.5)
    assert them.silent(2.0), "it was told of a release of pawlock's"
    assert server.command("EXISTS", "lock:x") == 0
    server.command("LPUSH", "lock-signal:x", "1")
    assert them.reply(10 * pace())["ok"]
