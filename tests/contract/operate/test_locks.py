"""All held names, as the server's keys tell of them: whoever holds them, and since when ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import pawlock
from tests.contract.edges.helpers import Script, script_calls
from tests.contract.operate.rig import eventually
from tests.support.servers import Server


def names_of(client: pawlock.Client) -> list[str]:
    return [info.name for info in client.locks()]


def test_every_kind_is_listed_at_once(clean: Server) -> None:
    with (
        pawlock.connect(clean.url) as one,
        pawlock.connect(clean.url) as two,
        pawlock.connect(clean.url, namespace="else") as stranger,
        one.lock("b") as lease,
        two.rlock("a"),
        two.semaphore("s", permits=3),
        two.rwlock("w").read,
        one.rwlock("w").read,
        one.election("e").campaign(),
        stranger.lock("z"),
    ):
        started = two.once("o").begin()
        assert isinstance(started, pawlock.Started)
        infos = {info.name: info for info in one.locks()}
        assert [(name, info.kind) for name, info in infos.items()] == [
            ("a", "lock"), ("b", "lock"), ("e", "election"), ("o", "once"), ("s", "semaphore"), ("w", "rwlock"),
        ]  # fmt: skip
        assert names_of(stranger) == ["z"]
        assert (infos["s"].limit, infos["s"].used) == (3, 1)
        assert [(holder.mode, holder.permits) for holder in infos["s"].holders] == [("permits", 1)]
        # One of the holders, and how many there are: `inspect` has them all.
        assert ([holder.mode for holder in infos["w"].holders], infos["w"].count) == (["read"], 2)
        assert (infos["b"].fence, infos["b"].pid) == (lease.fence, os.getpid())
        assert infos["b"].holder.endswith("/MainThread")
        assert all(info.held and abs((info.since or 0) - time.time()) < 10 for info in infos.values())
        assert 1 < infos["b"].ttl_left <= 30
        assert lease.token.split("@")[0] not in repr(infos)
        started.abandon()
    with pawlock.connect(clean.url) as client:
        assert client.locks() == []


async def test_tasks_that_wait_inside_a_client_are_counted(clean: Server) -> None:
    async with pawlock.connect_async(clean.url) as one, pawlock.connect_async(clean.url) as two:
        rlock = one.rlock("busy")
        semaphore = one.semaphore("pool", permits=1)

        async def wait(lock: Any) -> None:
            async with lock:
                pass

        async with rlock, semaphore:
            waiters = [asyncio.create_task(wait(lock)) for lock in (rlock, semaphore) for _ in range(5)]
            await asyncio.sleep(1.2)
            for _ in range(200):
                if (await two.inspect("busy")).waiting == 5:
                    break
                await asyncio.sleep(0.05)
            found = {info.name: info for info in await two.locks()}
            for info in found.values():
                assert info.waiting == 5, info
                assert 1 <= (info.longest_wait or 0) < 11, info
            # All of them are on the server where none is handed over, and none behind the holder's own client.
            assert [found[name].queue_length for name in ("busy", "pool")] == [0, 5]
            assert (await two.inspect("busy")).waiting == 5
        await asyncio.gather(*waiters)
        for _ in range(200):
            if not (await two.inspect("busy")).waiting:
                return
            await asyncio.sleep(0.05)
        pytest.fail("they are counted forever")


async def test_a_client_of_asyncio_lists_the_same(clean: Server) -> None:
    seen: list[tuple[int, int]] = []
    async with pawlock.connect_async(clean.url) as client, client.lock("mine"):
        infos = await client.locks(progress=lambda *at: seen.append(at))
        assert [info.name for info in infos] == ["mine"]
    assert seen
    assert seen[-1][0] == seen[-1][1] > 0


def test_a_name_is_spelled_as_it_was_given(clean: Server) -> None:
    names = ["a:b", "50%", "{order}", "Grüße", "line\nbreak", "%2F", "x:fence", "x:1:queue", "*", "a b"]
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(pawlock.connect(clean.url, namespace="of [us]*"))
        for name in names:
            stack.enter_context(client.lock(name.replace("{", "{{").replace("}", "}}")))
            stack.enter_context(client.semaphore(name.replace("{", "{{").replace("}", "}}"), permits=2))
        assert {(info.kind, info.name) for info in client.locks()} == {
            (kind, name) for kind in ("lock", "semaphore") for name in names
        }


def test_without_a_namespace_names_are_keys(clean: Server) -> None:
    with (
        pawlock.connect(clean.url, namespace="") as bare,
        pawlock.connect(clean.url) as other,
        bare.lock("order:{{42}}"),
        bare.semaphore("s:{{1}}", permits=1),
        bare.lock(pawlock.Key("k")),
        other.lock("a"),
    ):
        assert [(info.kind, info.name) for info in bare.locks()] == [
            ("lock", "k"), ("lock", "order:{42}"), ("lock", "pawlock:a"), ("semaphore", "s:{1}"),
        ]  # fmt: skip


def test_what_another_program_put_there_hides_no_other_name(clean: Server) -> None:
    with pawlock.connect(clean.url) as client, client.lock("a"):
        client.lock("once_ours").acquire().release()
        clean.command("SET", "pawlock:once_ours", "theirs")
        clean.command("SET", "pawlock:never_ours", "theirs")
        clean.command("HSET", "pawlock:hash", "field", "1")
        clean.command("SET", "{pawlock:a}:1:rwlock", "no sorted set")
        clean.command(b"SET", b"pawlock:\xff\xfe", "theirs")
        clean.command("SET", "pawlock:" + "x" * 300, "theirs")
        infos = {info.name: info for info in client.locks()}
        assert sorted(infos) == ["a", "once_ours"]
        assert (infos["once_ours"].foreign, infos["once_ours"].ttl_left) == (True, float("inf"))


def test_a_holder_that_was_killed_is_listed_until_its_lease_ends(clean: Server) -> None:
    text = """
        import sys, time, pawlock
        client = pawlock.connect(sys.argv[1])
        lease = client.lock("dead", ttl=3).acquire()
        print("ready", flush=True)
        time.sleep(60)
    """
    with Script(text, clean.url) as script, pawlock.connect(clean.url) as client:
        assert script.line() == "ready"
        os.kill(script.process.pid, signal.SIGKILL)
        (info,) = client.locks()
        assert (info.name, info.pid) == ("dead", script.process.pid)
        eventually(lambda: names_of(client) == [], "its lease ran out", timeout=5)


def test_many_names_cost_one_look_each(clean: Server) -> None:
    with pawlock.connect(clean.url) as client:
        leases = [client.lock(f"n{number:03}").acquire() for number in range(450)]
        before = script_calls(clean)
        assert names_of(client) == [f"n{number:03}" for number in range(450)]
        # Each name has a fence, and there is a step for every thousand keys.
        assert script_calls(clean) - before <= 450 + 3
        for lease in leases:
            lease.release()


@contextlib.contextmanager
def crowd(locks: list[Any], count: int, held_for: float) -> Iterator[None]:
    """Threads that take one of some locks in turn, each for a while, until the block ends."""
    over = threading.Event()

    def work(lock: Any) -> None:
        while not over.is_set():
            with lock.acquire():
                over.wait(held_for)

    threads = [threading.Thread(target=work, args=(locks[number % len(locks)],)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


@pytest.mark.parametrize("kind", ["lock", "fair_lock"])
def test_what_is_held_for_moments_is_listed_each_time(
    client: pawlock.Client, other: pawlock.Client, kind: str
) -> None:
    """Twenty threads of two clients that hold one name for 0.2 s each; those of a ``lock`` share one ticket a client."""
    with crowd([getattr(one, kind)("busy", ttl=5) for one in (client, other)], 20, 0.2):
        least = 1 if kind == "lock" else 15
        eventually(lambda: client.inspect("busy").queue_length >= least, "they queue")
        for _ in range(10):
            (info,) = other.locks()
            assert (info.name, info.held) == ("busy", True)
            # Between a hand-off and the next ticket of whoever gave it, all may wait inside the clients.
            assert info.waiting >= least
            time.sleep(0.05)


def fill(server: Server, keys: int) -> None:
    """Keys of another program."""
    script = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'other:' .. i, i) end"
    for start in range(0, keys, 10_000):
        server.command("EVAL", script, "0", str(start), str(start + 9_999))


@pytest.mark.parametrize("keys", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_beside_many_other_keys_it_tells_how_far_it_is_and_keeps_nobody(
    own_server: Server, keys: int
) -> None:
    fill(own_server, keys)
    own_server.command("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "10000")
    seen: list[tuple[int, int]] = []
    with pawlock.connect(own_server.url) as client, client.lock("a"), client.semaphore("s", permits=2):
        client.locks()
        own_server.command("SLOWLOG", "RESET")
        infos = client.locks(progress=lambda *at: seen.append(at))
    assert [info.name for info in infos] == ["a", "s"]
    assert len(seen) > keys / 2000
    assert [looked for looked, _ in seen] == sorted(looked for looked, _ in seen)
    assert seen[-1][0] >= keys
    entries: Any = own_server.command("SLOWLOG", "GET", "-1")
    steps = sorted(int(entry[2]) for entry in entries if entry[3][0].upper().startswith(b"EVAL"))
    print(
        f"{keys:,} keys: {len(steps)} steps, the longest {steps[-1]} µs, the median {steps[len(steps) // 2]} µs"
    )
    # A thousand keys a step: a server that did all of it at once would be away for a tenth of a second and more.
    assert steps[len(steps) // 2] < 5_000
