"""The first waiter behind a program that is not pawlock is notified by the server: it need not poll."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, cast

import pytest

import pawlock
from pawlock.core.acquire import queue
from pawlock.core.protocol.runtime import Tracking
from pawlock.transport.wire import Handshake, ReplyError, tracked
from tests.contract.redlock.test_hints import count
from tests.faults.rig import APIS, Api, Client, Lease, Lock, until
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.pace import pace
from tests.support.servers import Server, available

SLEEPS = 60.0
"""Seconds that a waiter sleeps here, where nothing wakes it."""


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Threads, then asyncio."""
    with Api(request.param) as api:
        yield api


@pytest.fixture
def never_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter that is notified asks for nothing else."""
    monkeypatch.setattr(queue, "_NOTIFIED_POLL", SLEEPS)


def connect(api: Api, url: str) -> Client:
    return api.connect(url, namespace="", ttl=3 * SLEEPS, ticket_ttl=3 * SLEEPS)


def begin(
    client: Client, server: Server, name: str | pawlock.Key = "stock", **options: object
) -> Future[Lease]:
    """Wait for a name in a thread or task of its own, until the server was asked to notify it."""
    before = count(server, "client|caching")
    waiting = client.lock(cast("str", name), **options).start(timeout=SLEEPS)
    until(lambda: count(server, "client|caching") > before, what=f"{name} is tracked")
    return waiting


def hold(server: Server, key: pawlock.Key) -> None:
    """As a program of another library holds it, which will delete it blindly."""
    if key.wire == "redisson":
        server.command("HSET", key.key, "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1)
        server.command("PEXPIRE", key.key, 600_000)
    else:
        server.command("SET", key.key, "they", "PX", 600_000)


def end(waiting: Future[Lease]) -> None:
    """It has the lock far sooner than it would have asked by itself."""
    waiting.result(10 * pace()).release()


RELEASES = {
    "DEL": lambda server: server.command("DEL", "stock"),
    "UNLINK": lambda server: server.command("UNLINK", "stock"),
    "a script": lambda server: server.command(
        "EVAL", "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end", 1, "stock", "they"
    ),
    "RENAME": lambda server: server.command("RENAME", "stock", "elsewhere"),
    "FLUSHALL": lambda server: server.command("FLUSHALL"),
    "FLUSHDB": lambda server: server.command("FLUSHDB"),
    "the expiry": lambda server: server.command("PEXPIRE", "stock", 50),
}  # fmt: skip


@pytest.mark.usefixtures("never_polls")
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_stranger_does_wakes_the_first_waiter(server: Server, api: Api, release: str) -> None:
    client = connect(api, server.url)
    server.command("SET", "stock", "they", "PX", 600_000)
    waiting = begin(client, server)
    RELEASES[release](server)
    end(waiting)


@pytest.mark.usefixtures("never_polls")
def test_a_renewal_of_the_stranger_is_followed(server: Server, api: Api) -> None:
    """It is a change of the key: the waiter asks, and has itself notified again."""
    client = connect(api, server.url)
    server.command("SET", "stock", "they", "PX", 600_000)
    waiting = begin(client, server)
    for ttl_ms in (500_000, 700_000):
        tracked = count(server, "client|caching")
        server.command("PEXPIRE", "stock", ttl_ms)
        until(lambda tracked=tracked: count(server, "client|caching") > tracked, what="it is tracked again")  # type: ignore[misc]
    assert not waiting.done()
    server.command("DEL", "stock")
    end(waiting)


@pytest.mark.usefixtures("never_polls")
@pytest.mark.parametrize("release", ["DEL", "HDEL"])
def test_behind_a_lock_of_redisson(server: Server, api: Api, release: str) -> None:
    client = connect(api, server.url)
    field = "6f1e0a52-3f8c-4b3a-9a7d-0c2b1f6f2a11:45"
    server.command("HSET", "stock", field, "1")
    server.command("PEXPIRE", "stock", 600_000)
    before = count(server, "client|caching")
    waiting = Lock(api, client.raw.lock(pawlock.Key.redisson("stock"))).start(timeout=SLEEPS)
    until(lambda: count(server, "client|caching") > before, what="it is tracked")
    server.command(release, "stock", *([field] if release == "HDEL" else []))
    end(waiting)


@pytest.mark.usefixtures("never_polls")
def test_an_expiry_needs_no_notice(server: Server, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server notifies of an expiry when it gets to it, which may be late."""
    monkeypatch.setattr(Tracking, "concerns", lambda *_: False)
    client = connect(api, server.url)
    server.command("SET", "stock", "they", "PX", 400)
    end(begin(client, server))


@pytest.mark.usefixtures("never_polls")
def test_two_waiters_of_one_client_for_different_keys(server: Server, api: Api) -> None:
    client = connect(api, server.url)
    for name in ("one", "two"):
        server.command("SET", name, "they", "PX", 600_000)
    first, second = begin(client, server, "one"), begin(client, server, "two")
    asked = count(server, "evalsha")
    server.command("DEL", "two")
    end(second)
    # The other one was not even woken: an acquire that was answered before, and here the renewal, and the release.
    assert count(server, "evalsha") - asked <= 3
    assert not first.done()
    server.command("DEL", "one")
    end(first)


@pytest.mark.usefixtures("never_polls")
def test_a_waiter_whose_connection_is_cut_is_notified_on_the_next(server: Server, api: Api) -> None:
    client = connect(api, server.url)
    server.command("SET", "stock", "they", "PX", 600_000)
    waiting = begin(client, server)
    before = count(server, "client|tracking")
    server.command("CLIENT", "KILL", "TYPE", "pubsub")
    until(lambda: count(server, "client|tracking") > before, what="the new connection tracks")
    until(lambda: _tracks(server), what="it tracks the key")
    server.command("DEL", "stock")
    end(waiting)


def _tracks(server: Server) -> bool:
    info = server.command("INFO", "stats")
    assert isinstance(info, bytes)
    return b"tracking_total_keys:1\r\n" in info


def test_nothing_is_sent_for_a_name_that_only_pawlock_locks(server: Server, api: Api) -> None:
    client = connect(api, server.url)
    server.command("CONFIG", "RESETSTAT")
    lease = client.lock("stock").acquire()
    waiting = client.lock("stock").start(timeout=SLEEPS)
    other = connect(api, server.url).lock("stock").start(timeout=SLEEPS)
    until(lambda: server.command("ZCARD", "{stock}:1:queue"), what="it waits")
    lease.release()
    end(waiting)
    end(other)
    assert count(server, "client|tracking") == count(server, "client|caching") == 0


def test_a_stranger_that_is_faster_is_waited_for(server: Server, api: Api) -> None:
    """The notice is a hint: who asks first has the key."""
    client = connect(api, server.url)
    server.command("SET", "stock", "they", "PX", 600_000)
    waiting = begin(client, server)
    for _ in range(20):
        # Free and taken again before anybody can ask.
        server.command(
            "EVAL", "redis.call('del',KEYS[1]) redis.call('set',KEYS[1],'others','px',600000)", 1, "stock"
        )
    assert not waiting.done()
    server.command("DEL", "stock")
    end(waiting)
    assert server.command("EXISTS", "stock") == 0


@pytest.mark.usefixtures("never_polls")
def test_hear_false_polls(server: Server, api: Api) -> None:
    client = connect(api, server.url)
    server.command("SET", "stock", "they", "PX", 600_000)
    server.command("CONFIG", "RESETSTAT")
    waiting = client.lock("stock", hear=False).start(timeout=SLEEPS)
    until(lambda: count(server, "evalsha") >= 5, what="it polls")
    server.command("DEL", "stock")
    end(waiting)
    assert count(server, "client|caching") == 0


@pytest.mark.parametrize("refused", ["client|tracking", "client|caching"])
@pytest.mark.usefixtures("never_polls")
def test_where_the_acl_refuses_it_polls(
    own_server: Server, api: Api, refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    own_server.command("ACL", "SETUSER", "default", f"-{refused}")
    caplog.set_level(logging.DEBUG, "pawlock.tracking")
    client = connect(api, own_server.url)
    for name in ("one", "two"):
        own_server.command("SET", name, "they", "PX", 600_000)
        waiting = client.lock(name).start(timeout=SLEEPS)
        asked = count(own_server, "evalsha")
        until(lambda asked=asked: count(own_server, "evalsha") >= asked + 5, what="it polls")  # type: ignore[misc]
        own_server.command("DEL", name)
        end(waiting)
    told = [record.getMessage() for record in caplog.records if record.name == "pawlock.tracking"]
    assert len(told) == 1
    assert "waiters poll" in told[0]
    # Each connection asked once, and no more.
    assert count(own_server, refused, "rejected") <= 2


@pytest.mark.usefixtures("never_polls")
def test_on_a_server_that_speaks_resp2_only_it_polls(
    server: Server, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be pushed there. Its answer to ``HELLO`` is a list and not a map."""
    check_hello = Handshake.check_hello

    def as_list(self: Handshake, reply: Any) -> None:
        check_hello(self, [word for pair in reply.items() for word in pair])

    monkeypatch.setattr(Handshake, "check_hello", as_list)
    client = connect(api, server.url)
    server.command("SET", "stock", "they", "PX", 600_000)
    server.command("CONFIG", "RESETSTAT")
    waiting = client.lock("stock").start(timeout=SLEEPS)
    until(lambda: count(server, "evalsha") >= 5, what="it polls")
    server.command("DEL", "stock")
    end(waiting)
    assert count(server, "client|tracking") == 0


def test_a_notice_that_is_lost_costs_a_quarter_of_a_second(
    server: Server, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It then asks as if there were none."""
    monkeypatch.setattr(Tracking, "concerns", lambda *_: False)
    client = connect(api, server.url)
    server.command("SET", "stock", "they", "PX", 600_000)
    waiting = begin(client, server)
    server.command("DEL", "stock")
    end(waiting)


@pytest.mark.usefixtures("never_polls")
@pytest.mark.skipif(bool(available("valkey")), reason=str(available("valkey")))
@pytest.mark.parametrize("make", [pawlock.Key, pawlock.Key.redisson])
def test_each_node_of_a_cluster_notifies(api: Api, make: Callable[[str], pawlock.Key]) -> None:
    with ClusterGroup() as group:
        client, seen = connect(api, group.url), set()
        for number in range(50):
            name = f"n{number}"
            node = group.owner(group.slot_of(name))
            if node.port in seen:
                continue
            seen.add(node.port)
            hold(node, make(name))
            waiting = begin(client, node, make(name))
            node.command("DEL", name)
            end(waiting)
        assert len(seen) == 3


@pytest.mark.usefixtures("never_polls")
@pytest.mark.skipif(bool(available("valkey")), reason=str(available("valkey")))
@pytest.mark.parametrize("make", [pawlock.Key, pawlock.Key.redisson])
def test_a_master_that_sentinels_chose_notifies(api: Api, make: Callable[[str], pawlock.Key]) -> None:
    with SentinelGroup() as group:
        client, key = connect(api, group.url), make("stock")
        for failed_over in (False, True):
            if failed_over:
                old = group.master
                old.kill()
                group.wait_for_failover(old)
            master = group.master
            hold(master, key)
            waiting = begin(client, master, key)
            master.command("DEL", "stock")
            end(waiting)


@pytest.mark.parametrize("answers", [[b"OK", b"OK", 5], [b"OK", b"OK", -1], [b"OK", 7]])
def test_the_answers_to_a_tracking(answers: list[Any]) -> None:
    assert tracked(answers) == answers[-1]
    refused = ReplyError("NOPERM this user has no permissions")
    assert tracked([*answers[:-2], refused, 3]) == str(refused)
    assert tracked([*answers[:-2], ReplyError("LOADING"), 3]) is None
    # Not where the key is in a cluster, say.
    assert tracked([*answers[:-1], ReplyError("MOVED 1 127.0.0.1:1")]) is None
    assert tracked([*answers[:-2], 3, b"OK"]) is None, "an answer was lost"
