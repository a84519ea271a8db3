"""An error names what another program put under the key, and what to do; not a byte of it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import pawlock
from pawlock.primitives.probe.foreign_values import describe
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


@pytest.mark.parametrize("value", VALUES)
def test_the_error_says_what_is_there(server: Server, api: Api, value: str) -> None:
    words, told = VALUES[value]
    server.command(*words)  # type: ignore[arg-type]
    before = server.command("DUMP", "order:42")
    client = api.connect(server.url, namespace="")
    raw = client.raw
    attempts: dict[str, Callable[[], object]] = {
        "acquire": raw.lock("order:42").acquire,
        "rlock": raw.rlock("order:42").acquire,
        "owner": raw.rlock("order:42", owner="job").acquire,
        "try": raw.lock("order:42").try_acquire,
        "multi_lock": raw.multi_lock(["one", pawlock.Key("order:42")]).acquire,
        "inspect": lambda: raw.inspect("order:42"),
        "force_release": lambda: raw.force_release("order:42", reason="a test"),
    }
    for what, attempt in attempts.items():
        with pytest.raises(pawlock.WrongKey) as caught:
            api.run(attempt)
        assert told in str(caught.value), what
        assert HOLDER not in str(caught.value)
    assert server.command("DUMP", "order:42") == before
    assert server.command("EXISTS", "one") == 0


def test_without_the_right_to_look_the_error_is_the_servers(own_server: Server, api: Api) -> None:
    own_server.command("HSET", "order:42", HOLDER, "1")
    own_server.command("ACL", "SETUSER", "default", "-hlen", "-zcard", "-lrange")
    client = api.connect(own_server.url, namespace="")
    with pytest.raises(pawlock.WrongKey, match=r"order:42"):
        client.lock("order:42").acquire(1)


@pytest.mark.parametrize(
    "fields", [[b"mode"], [b"mode", b"owner"], [b"x:1"], [HOLDER.encode(), b"other"], []]
)
def test_what_only_resembles_redisson_is_not_called_so(fields: list[bytes]) -> None:
    told = describe(b"k", "hash", fields)
    assert ("Redisson" in told) == (fields == [b"mode"])


@pytest.mark.parametrize(
    ("field", "ours"),
    [
        (b"Y5ecfby5M6ev8XlaM9pZmijU6@vm:26682/MainThread", True),
        (b"owner=deploy@shared", True),
        (b"someone@example.org", False),
        (b"owner", False),
    ],
)
def test_a_lock_of_pawlock_on_the_other_wire_is_called_so(field: bytes, *, ours: bool) -> None:
    told = describe(b"k", "hash", [field])
    assert ("use pawlock.Key.redisson('k')" in told) == ours
    assert field.decode() not in told


def test_a_key_without_a_strange_value_is_not_described() -> None:
    assert describe(b"k", "string", []) == describe(b"k", "none", []) == ""
