"""Who waits for a key that other programs share hears what their releases send, and need not poll."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

import pawlock
from pawlock.core import wait
from tests.faults.rig import APIS, Api, until
from tests.support.servers import Server

JAVA = "6f1c1f06-9d6e-4a3f-8f0b-0d5f5a1c2b3d:31"
FREE = "redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', ARGV[1], ARGV[2])"


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Threads, then asyncio."""
    with Api(request.param) as api:
        yield api


@pytest.fixture
def sleepy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter that nothing wakes asks once a minute."""
    monkeypatch.setattr(wait, "_FOREIGN_POLL", 60.0)


def subscribers(server: Server, channel: str) -> int:
    found = server.command("PUBSUB", "NUMSUB", channel)
    assert isinstance(found, list)
    return int(str(found[1]))


def waits(api: Api, server: Server, key: pawlock.Key, channel: str) -> Any:
    """A client that waits for a key that another program holds, and listens."""
    if key.wire == "redisson":
        server.command("HSET", key.key, JAVA, 1)
        server.command("PEXPIRE", key.key, 600_000)
    else:
        server.command("SET", key.key, "theirs", "PX", 600_000)
    waiting = api.connect(server.url).lock(cast("str", key)).start(600)
    until(lambda: subscribers(server, channel) == 1, what="it listens")
    return waiting


@pytest.mark.usefixtures("sleepy")
@pytest.mark.parametrize(
    ("key", "channel", "message"),
    [
        (pawlock.Key.redisson("n"), "redisson_lock__channel:{n}", "0"),
        (pawlock.Key.spring("locks", "n"), "locks-channel:locks:n", "locks:n"),
        # What it says may look like a message of pawlock's own.
        (pawlock.Key("n", wake=("publish", "ears", "a b c d")), "ears", "a b c d"),
    ],
)
def test_what_a_release_publishes_wakes_who_waits(
    server: Server, api: Api, key: pawlock.Key, channel: str, message: str
) -> None:
    waiting = waits(api, server, key, channel)
    server.command("PUBLISH", channel, message)
    assert not waiting.done(), "it asked in vain, and listens again"
    server.command("EVAL", FREE, 1, key.key, channel, message)
    waiting.result(10).release()


@pytest.mark.usefixtures("sleepy")
def test_pawlock_wakes_pawlock(server: Server, api: Api) -> None:
    key = pawlock.Key.redisson("n")
    lease = api.connect(server.url).lock(cast("str", key)).acquire()
    waiting = api.connect(server.url).lock(cast("str", key)).start(600)
    until(lambda: subscribers(server, "redisson_lock__channel:{n}") == 1, what="it listens")
    lease.release()
    waiting.result(10).release()


@pytest.mark.usefixtures("sleepy")
def test_what_a_release_pushes_wakes_a_thread_that_waits(server: Server) -> None:
    key = pawlock.Key.python_redis_lock("n")
    server.command("SET", "lock:n", "theirs", "PX", 600_000)
    with Api("threads") as api:
        waiting = api.connect(server.url).lock(cast("str", key)).start(600)
        until(lambda: b"cmd=blmove" in cast("bytes", server.command("CLIENT", "LIST")), what="it listens")
        server.command("DEL", "lock:n")
        server.command("LPUSH", "lock-signal:n", "1")
        lease = waiting.result(10)
        assert server.command("LRANGE", "lock-signal:n", 0, -1) == [b"1"], "it is there for the others"
        lease.release()


def test_what_stays_in_the_list_is_not_asked_for_on_and_on(server: Server) -> None:
    key = pawlock.Key.python_redis_lock("n")
    server.command("SET", "lock:n", "theirs", "PX", 600_000)
    server.command("LPUSH", "lock-signal:n", "1")
    server.command("CONFIG", "RESETSTAT")
    with Api("threads") as api, pytest.raises(pawlock.AcquireTimeout):
        api.connect(server.url).lock(cast("str", key)).acquire(0.5)
    stats = cast("bytes", server.command("INFO", "commandstats")).decode()
    (asked,) = [line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:")]
    assert int(asked.partition("calls=")[2].partition(",")[0]) < 30


@pytest.mark.parametrize("denied", ["resetchannels", "-subscribe"])
def test_who_may_not_listen_polls(own_server: Server, api: Api, denied: str) -> None:
    rights = ("&pawlock:wake:*",) if denied == "resetchannels" else ()
    own_server.command("ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", "&*", denied, *rights)
    key = pawlock.Key.redisson("n")
    own_server.command("HSET", "n", JAVA, 1)
    client = api.connect(own_server.url.replace("redis://", "redis://some:secret@"))
    other = client.lock("another").acquire()
    waiting = client.lock(cast("str", key)).start(20)
    with pytest.raises(pawlock.AcquireTimeout):
        client.lock(cast("str", key)).acquire(0.3)
    other.release()
    own_server.command("DEL", "n")
    waiting.result(10).release()


@pytest.mark.usefixtures("sleepy")
def test_a_connection_hears_a_hundred_keys_and_no_more(server: Server) -> None:
    keys = [pawlock.Key.spring("locks", str(number)) for number in range(104)]
    for key in keys:
        server.command("SET", key.key, "theirs", "PX", 600_000)
    with Api("asyncio") as api:
        client = api.connect(server.url)
        for key in keys:
            client.lock(cast("str", key)).start(600)
        until(lambda: heard(server) >= 100, what="it listens")
        client.lock("a").acquire().release()
        assert heard(server) <= 101


def heard(server: Server) -> int:
    """How many channels of Spring have a listener."""
    found = server.command("PUBSUB", "CHANNELS", "locks-channel:*")
    assert isinstance(found, list)
    return len(found)
