"""An error names what another program put under the key, and what to do; not a byte of it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import pawlock
from tests.faults.rig import APIS, Api
from tests.support.servers import Server

HOLDER = "6f1e0a52-3f8c-4b3a-9a7d-0c2b1f6f2a11:45"
READER = f"{HOLDER}:write"
VALUES: dict[str, tuple[tuple[object, ...], str]] = {
    "RLock": (
        ("HSET", "order:42", HOLDER, "1"),
        "'order:42' holds a Redisson lock (a hash with the field <uuid>:<thread>): use pawlock.Key.redisson('order:42')",
    ),
    "RReadWriteLock": (
        ("HSET", "order:42", "mode", "write", READER, "1"),
        "'order:42' holds a Redisson read-write lock (a hash with the field mode): it cannot be shared",
    ),
    "a hash": (("HSET", "order:42", "owner", "1"), "'order:42' holds a hash, which another program put there"),
    "a large hash": (
        ("HSET", "order:42", *(word for n in range(20) for word in (f"{n}", "1"))),
        "'order:42' holds a hash, which another program put there",
    ),
    "a sorted set": (("ZADD", "order:42", "1", "x"), "'order:42' holds a sorted set, which another program"),
    "a list": (("RPUSH", "order:42", "x"), "'order:42' holds a list, which another program"),
    "a set": (("SADD", "order:42", "x"), "'order:42' holds neither a string nor a lock, which another program"),
    "a stream": (("XADD", "order:42", "1-1", "f", "v"), "'order:42' holds neither a string nor a lock"),
}  # fmt: skip


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Threads, then asyncio."""
    with Api(request.param) as api:
        yield api


def test_the_error_says_what_is_there(server: Server, api: Api) -> None:
    raw = api.connect(server.url, namespace="").raw
    attempts: dict[str, Callable[[], object]] = {
        "acquire": raw.lock("order:42").acquire,
        "rlock": raw.rlock("order:42").acquire,
        "try": raw.lock("order:42").try_acquire,
        "multi_lock": raw.multi_lock(["one", pawlock.Key("order:42")]).acquire,
        "inspect": lambda: raw.inspect("order:42"),
        "force_release": lambda: raw.force_release("order:42", reason="a test"),
    }
    for value, (words, told) in VALUES.items():
        server.command("DEL", "order:42")
        server.command(*words)  # type: ignore[arg-type]
        before = server.command("DUMP", "order:42")
        for what, attempt in attempts.items():
            with pytest.raises(pawlock.WrongKey) as caught:
                api.run(attempt)
            assert told in str(caught.value), (value, what)
            assert HOLDER not in str(caught.value), (value, what)
        assert server.command("DUMP", "order:42") == before, value
        assert server.command("EXISTS", "one") == 0, value


def test_without_the_right_to_look_the_error_is_the_servers(own_server: Server, api: Api) -> None:
    own_server.command("HSET", "order:42", HOLDER, "1")
    own_server.command("ACL", "SETUSER", "default", "-hlen", "-zcard", "-lrange")
    client = api.connect(own_server.url, namespace="")
    with pytest.raises(pawlock.WrongKey, match=r"order:42"):
        client.lock("order:42").acquire(1)
