"""Keys that other programs lock too, through the service, by pawlock's own clients of both APIs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest

import pawlock
from tests.faults.rig import APIS, Api, Client, until
from tests.service.rig import Instance
from tests.service.test_client import url
from tests.service.test_keys import THEIRS
from tests.support.servers import Server

pytestmark = pytest.mark.slow


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Threads, then asyncio."""
    with Api(request.param) as api:
        yield api


@pytest.fixture
def client(api: Api, instance: Instance) -> Client:
    return api.connect(url(instance))


def lock(client: Client, key: pawlock.Key, **options: Any) -> Any:
    return client.lock(cast("str", key), **options)


KEYS = [
    pawlock.Key("order:42"), pawlock.Key.redisson("order:42"), pawlock.Key.redisson("order:42", fenced=True),
    pawlock.Key.spring("locks", "order:42"), pawlock.Key.python_redis_lock("order:42"), pawlock.Key.shedlock("job", env="e"),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_client_locks_a_key(api: Api, client: Client, server: Server, key: pawlock.Key) -> None:
    direct = api.connect(server.url)
    lease = lock(client, key, ttl=2).acquire()
    assert lease.raw.name == key.name
    assert server.command("EXISTS", key.key) == 1
    assert lock(direct, key).try_acquire() is None
    assert api.run(client.raw.lock(key).locked) is True
    info = api.run(lambda: client.raw.inspect(key))
    assert (info.name, info.held, info.foreign, info.fence) == (key.name, True, False, lease.fence)
    waiting = lock(direct, key).start(20)
    until(lambda: api.run(lambda: client.raw.inspect(key)).queue_length == 1, what="a waiter")
    lease.release()
    second = waiting.result(10)
    assert second.fence > lease.fence
    second.release()
    if key.fence == "redisson":
        counter = server.command("GET", "redisson_lock_token:{order:42}")
        assert isinstance(counter, bytes)
        assert int(counter) >= second.fence


@pytest.mark.parametrize("key", KEYS[:2], ids=repr)
def test_a_client_renews_and_notices_a_blind_delete(
    api: Api, client: Client, server: Server, key: pawlock.Key
) -> None:
    lease = lock(client, key, ttl=0.9).acquire()
    until(lambda: lease.remaining() < 0.6, what="some time")
    until(lambda: lease.remaining() > 0.7, what="a renewal")
    server.command("DEL", key.key)
    until(lambda: api.run(lambda: lease.raw.state) == "lost", what="the loss")


def test_a_client_waits_for_another_program_and_leaves_it_room(
    api: Api, client: Client, instance: Instance, server: Server
) -> None:
    key, rival = pawlock.Key("order:42"), api.connect(url(instance))
    server.command("SET", "order:42", "theirs", "PX", 60_000)
    waiting = lock(client, key, yield_after=0.001, yield_for=3.0).start(20)
    until(lambda: api.run(lambda: client.raw.inspect(key)).queue_length == 1, what="a waiter")
    server.command("DEL", "order:42")
    lease = waiting.result(10)
    behind = lock(rival, key, yield_after=0.001, yield_for=3.0).start(20)
    until(lambda: api.run(lambda: client.raw.inspect(key)).queue_length == 1, what="another")
    time.sleep(0.01)
    lease.release()
    # It is left free for others, though a client of pawlock waits.
    assert server.command("SET", "order:42", "theirs", "NX", "PX", 500) is not None
    behind.result(10).release()


def test_a_client_is_told_what_another_program_put_there(api: Api, client: Client, server: Server) -> None:
    server.command("HSET", "order:42", THEIRS, 1)
    before = server.command("DUMP", "order:42")
    with pytest.raises(pawlock.WrongKey, match="Redisson"):
        lock(client, pawlock.Key("order:42")).acquire()
    assert server.command("DUMP", "order:42") == before
    assert api is not None


@pytest.mark.parametrize("held", [pawlock.Key("n"), pawlock.Key.redisson("n")], ids=repr)
def test_two_wires_on_one_name_are_refused(
    api: Api, client: Client, server: Server, instance: Instance, held: pawlock.Key
) -> None:
    lease = lock(client, held, ttl=30, renew=False).acquire()
    other = pawlock.Key("n") if held.wire == "redisson" else pawlock.Key.redisson("n")
    raw = api.connect(url(instance)).raw
    before = server.command("DUMP", "n")
    attempts: dict[str, Callable[[], object]] = {
        "acquire": raw.lock(other).acquire,
        "try": raw.lock(other).try_acquire,
        "owner": raw.rlock(other, owner="job").acquire,
        "several": raw.multi_lock(["one", other]).acquire,
        "inspect": lambda: raw.inspect(other),
        "locked": raw.lock(other).locked,
        "force_release": lambda: raw.force_release(other, reason="a test"),
    }
    for what, attempt in attempts.items():
        began = time.monotonic()
        with pytest.raises(pawlock.WrongKey, match="key:n") as caught:
            api.run(attempt)
        told = str(caught.value)
        assert f"use pawlock.Key{'.redisson' if held.wire == 'redisson' else ''}('n')" in told, what
        assert told.count("the key of this lock has a value") == 1, told
        assert time.monotonic() - began < 5, f"{what}: it was tried again and again"
    assert server.command("DUMP", "n") == before
    assert server.command("EXISTS", "pawlock:one") == 0
    lease.release()


def test_a_lease_is_passed_on_between_the_service_and_the_server(
    api: Api, client: Client, server: Server
) -> None:
    direct = api.connect(server.url)
    for key in (pawlock.Key("n"), pawlock.Key.redisson("n", fenced=True), pawlock.Key.spring("locks", "n")):
        for giver, taker in ((client, direct), (direct, client)):
            lease = lock(giver, key, ttl=5).acquire()
            ticket = api.run(lease.raw.detach)
            adopted = api.run(partial(taker.raw.adopt, ticket))
            assert (adopted.name, adopted.fence >= lease.fence) == (key.name, True)
            api.run(adopted.release)
            assert server.command("EXISTS", key.key) == 0


def test_a_client_takes_keys_and_names_together_and_by_force(
    api: Api, client: Client, server: Server
) -> None:
    raw = client.raw
    both = raw.multi_lock([pawlock.Key.redisson("a"), "b"])
    lease = api.run(both.acquire)
    assert server.command("EXISTS", "a", "pawlock:b") == 2
    api.run(lease.release)
    held = api.run(raw.rlock(pawlock.Key("job"), owner="deploy").acquire)
    again = api.run(raw.rlock(pawlock.Key("job"), owner="deploy").acquire)
    api.run(again.release)
    taken = api.run(lambda: raw.force_release(pawlock.Key("job"), reason="a test"))
    assert (taken.name, taken.released) == ("key:job", True)
    until(lambda: api.run(lambda: held.state) == "lost", what="the loss")


def test_what_has_no_text_is_refused_before_anything_is_sent(client: Client) -> None:
    for key in (pawlock.Key("k", wake=("push", "mine", 1000)), pawlock.Key.spring("a:b", "c")):
        with pytest.raises(pawlock.NotSupported, match="HTTP service"):
            lock(client, key)
    with pytest.raises(pawlock.NotSupported, match="fair_lock"):
        client.raw.fair_lock(pawlock.Key("k"))
