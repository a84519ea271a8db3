"""The drop-in takes what redis-py takes: names, tokens, numbers, and the whole of its lock's surface."""

from __future__ import annotations

import contextlib
import gc
import inspect
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock

import pawlock
from pawlock.compat.redis import AsyncLock, Lock, LockError, LockNotOwnedError, RedisLocks
from tests.integrations.compat.apis import Api
from tests.support.groups import ClusterGroup
from tests.support.pace import pace
from tests.support.refusal import case
from tests.support.servers import Server

NAMES: list[tuple[Any, bytes]] = [
    ("{user:1}:lock", b"{user:1}:lock"),
    ("{user}:lock", b"{user}:lock"),
    ("{42}", b"{42}"),
    ("{{user}}:lock", b"{{user}}:lock"),
    ("{a}{b}", b"{a}{b}"),
    ("{}", b"{}"),
    ("{}}", b"{}}"),
    ("a{b", b"a{b"),
    ("a}b", b"a}b"),
    ("{order.id!r:>3}", b"{order.id!r:>3}"),
    ("{tenant}:42:lock", b"{tenant}:42:lock"),
    ("{order}:fence", b"{order}:fence"),
    ("order:pawlock:1:queue", b"order:pawlock:1:queue"),
    ("%once:order", b"%once:order"),
    ("https://example.org/a%20b?c={d}", b"https://example.org/a%20b?c={d}"),
    ("a\r\n\t\x00\x1b\x7fb", b"a\r\n\t\x00\x1b\x7fb"),
    ("\x85\u2028", b"\xc2\x85\xe2\x80\xa8"),
    (" order ", b" order "),
    ("key:order", b"key:order"),
    ("A\u0308 is not \xc4", b"A\xcc\x88 is not \xc3\x84"),
    ("u" * 201, b"u" * 201),
    ("u" * 100_000, b"u" * 100_000),
    (42, b"42"),
    (-1.5, b"-1.5"),
    (b"\xff\xfe\x00\x80", b"\xff\xfe\x00\x80"),
    (b"{\xff}\xfe", b"{\xff}\xfe"),
    (memoryview(b"order"), b"order"),
]


@pytest.fixture(params=["threads", "asyncio"])
def api(request: pytest.FixtureRequest, valkey: Server) -> Iterator[Api]:
    valkey.command("FLUSHALL")
    with Api(valkey.url, asynchronous=request.param == "asyncio") as found:
        yield found


@pytest.fixture
def other(api: Api) -> Iterator[Api]:
    """The same in another process: nothing of the first is known to it."""
    with Api(api.url, asynchronous=bool(api.loop)) as found:
        yield found


@pytest.fixture
def theirs(valkey: Server) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(valkey.url)
    yield client
    client.close()


def test_a_name_is_the_key_byte_for_byte(api: Api, other: Api, theirs: redis.Redis) -> None:
    for name, key in NAMES:
        with case(key[:30]):
            moved, another, unmoved = (
                api.lock(name, timeout=30),
                other.lock(name, timeout=30),
                theirs.lock(name),
            )
            assert api.run(moved.acquire(blocking=False))
            assert theirs.get(key) == moved.local.token
            assert not unmoved.acquire(blocking=False)
            assert not other.run(another.acquire(blocking=False))
            assert other.run(another.locked())
            assert api.run(moved.owned())
            assert api.run(moved.extend(30))
            assert theirs.pttl(key) > 30_000
            assert repr(moved).isprintable()
            api.run(moved.release())
            assert not theirs.exists(key)
            assert unmoved.acquire(blocking=False)
            assert not api.run(moved.acquire(blocking=False))
            unmoved.release()
            with pytest.raises(LockError) as refused:
                api.run(moved.release())
            str(refused.value).encode()


def test_what_redis_py_refuses_as_a_name_is_refused(api: Api) -> None:
    for name in (None, True, object(), ("order",)):
        with case(name), pytest.raises(redis.DataError):
            api.run(api.lock(name, timeout=5).acquire())
    with pytest.raises(pawlock.ConfigurationError, match="empty"):
        api.run(api.lock("", timeout=5).acquire())


@pytest.mark.parametrize("options", [{"decode_responses": True}, {"encoding": "utf-16"}, {"protocol": 2}])
def test_a_client_of_redis_py_may_be_set_as_it_likes(valkey: Server, options: dict[str, Any]) -> None:
    valkey.command("FLUSHALL")
    with redis.Redis.from_url(valkey.url, **options) as client:
        moved = client.lock("jöb", timeout=10, lock_class=Lock)
        assert moved.acquire(blocking=False)
        assert not client.lock("jöb", timeout=10).acquire(blocking=False)
        again = client.lock("jöb", timeout=10, lock_class=Lock)
        again.local.token = moved.local.token
        assert again.owned()
        again.release()
        assert client.lock("jöb", timeout=10).acquire(blocking=False)
        client.delete("jöb")


def test_a_waiter_of_any_name_is_woken_by_the_release(
    api: Api, other: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nobody queues for a key that is shared: one who polls would be a minute late."""
    monkeypatch.setattr("pawlock.core.wait._FOREIGN_POLL", 60.0)
    held, waiter = api.lock("{user:1}:lock", timeout=100), other.lock("{user:1}:lock", timeout=100)
    assert api.run(held.acquire())
    with ThreadPoolExecutor(1) as thread:

        def take() -> None:
            assert other.run(waiter.acquire(blocking_timeout=100))
            other.run(waiter.release())

        waiting = thread.submit(take)
        end = time.monotonic() + 20
        while not api.server_listens():
            assert time.monotonic() < end, "it never listened"
            time.sleep(0.01)
        api.run(held.release())
        waiting.result(20)


# Tokens ----------------------------------------------------------------------------------------------------------------


def test_who_has_the_token_has_the_lock(api: Api, other: Api, theirs: redis.Redis) -> None:
    """A web process acquires, a worker releases: whichever of them moved."""
    for text in (False, True):
        first, second = api.lock("export", timeout=30), other.lock("export", timeout=30, thread_local=False)
        api.run(first.acquire())
        second.local.token = first.local.token.decode() if text else first.local.token
        assert other.run(second.owned())
        assert second.lease is None
        assert other.run(second.extend(30))
        assert 50_000 < theirs.pttl("export") <= 60_000
        assert other.run(second.extend(90, replace_ttl=True))
        assert 80_000 < theirs.pttl("export") <= 90_000
        assert other.run(second.reacquire())
        with pytest.raises(LockError, match="acquired elsewhere"):
            _ = second.fence
        other.run(second.release())
        assert second.local.token is None
        assert not theirs.exists("export")
        with pytest.raises(LockNotOwnedError):
            api.run(first.release())
        assert not api.run(first.owned())


def test_a_token_of_redis_py_serves_in_the_drop_in_and_the_other_way_round(
    api: Api, theirs: redis.Redis
) -> None:
    unmoved, moved = theirs.lock("export", timeout=30), api.lock("export", timeout=30)
    unmoved.acquire()
    moved.local.token = unmoved.local.token
    assert api.run(moved.owned())
    assert api.run(moved.extend(30))
    assert 50_000 < theirs.pttl("export") <= 60_000
    assert api.run(moved.reacquire())
    assert theirs.pttl("export") <= 30_000
    api.run(moved.release())
    assert not theirs.exists("export")
    theirs.lock("export", timeout=30).acquire(token="job-7")
    api.run(moved.do_release("job-7"))
    assert not theirs.exists("export")

    api.run(moved.acquire())
    unmoved.local.token = moved.local.token
    assert unmoved.owned()
    assert unmoved.extend(30)
    unmoved.release()
    with pytest.raises(LockNotOwnedError):
        api.run(moved.release())


def test_a_token_that_is_not_at_the_key_is_refused(api: Api, other: Api, theirs: redis.Redis) -> None:
    for token in (
        "uuid-of-redis-py",
        "0123456789abcdefghijklmn@host:1/main",
        b"0123456789abcdefghijklmn@\xff",
        b"\xff",
    ):
        for held in (False, True):
            with case(token, held):
                theirs.delete("export")
                if held:
                    theirs.set("export", "of another", px=30_000)
                lock = api.lock("export", timeout=30)
                lock.local.token = token
                assert not api.run(lock.owned())
                for call in (
                    lock.reacquire,
                    lambda lock=lock: lock.extend(5),
                    lambda t=token, lock=lock: lock.do_release(t),
                ):
                    with pytest.raises(LockNotOwnedError):
                        api.run(call())
                with pytest.raises(LockNotOwnedError):
                    api.run(lock.release())
                assert theirs.get("export") == (b"of another" if held else None)


def test_do_release_releases_what_this_lock_holds_too(api: Api, theirs: redis.Redis) -> None:
    lock = api.lock("export", timeout=30)
    api.run(lock.acquire())
    lease = lock.lease
    assert api.run(lock.do_extend(30, False))
    assert api.run(lock.do_reacquire())
    api.run(lock.do_release(lock.local.token))
    assert lease.state == "released"
    with pytest.raises(LockNotOwnedError):
        api.run(lock.release())


@pytest.mark.filterwarnings("ignore:.* was never released:ResourceWarning")
@pytest.mark.parametrize("thread_local", [True, False])
def test_a_lock_that_is_dropped_is_gone_at_once(*, thread_local: bool, api: Api) -> None:
    """It is not renewed until Python's collector runs, which may be never in a program that waits."""
    gc.disable()
    try:
        lock = api.lock("export", thread_local=thread_local)
        assert api.run(lock.acquire())
        lease = weakref.ref(lock.lease)
        del lock
        assert lease() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_release_that_the_server_did_not_answer_keeps_the_token(api: Api) -> None:
    with Server("valkey") as own, Api(own.url, asynchronous=bool(api.loop)) as there:
        lock = there.lock("export", timeout=30)
        there.run(lock.acquire())
        token = lock.local.token
        own.pause()
        with pytest.raises(redis.ConnectionError):
            there.run(lock.release())
        assert lock.local.token == token
        own.resume()
        with contextlib.suppress(LockNotOwnedError):
            there.run(lock.release())
        assert lock.local.token is None
        assert not there.run(lock.locked())


def test_a_token_that_was_taken_away_holds_nothing(api: Api) -> None:
    lock = api.lock("export", timeout=30)
    api.run(lock.acquire())
    kept, lease, lock.local.token = lock.local.token, lock.lease, None
    assert not api.run(lock.owned())
    assert lock.lease is None
    with pytest.raises(LockError, match="unlocked"):
        api.run(lock.release())
    lock.local.token = kept
    assert lock.lease is lease
    api.run(lock.release())


def test_a_token_of_the_callers_choice_is_refused_in_words(api: Api) -> None:
    lock = api.lock("export", timeout=30)
    for call in (lambda: lock.acquire(token="mine"), lambda: lock.do_acquire("mine")):
        with pytest.raises(pawlock.ConfigurationError, match=r"call acquire\(\) and read lock\.local\.token"):
            api.run(call())
    assert not api.run(lock.locked())


def test_another_process_releases_by_token(valkey: Server, theirs: redis.Redis) -> None:
    code = """
import sys, redis
from pawlock.compat.redis import Lock

lock = redis.Redis.from_url(sys.argv[1]).lock("export", timeout=30, lock_class=Lock, thread_local=False)
lock.local.token = sys.argv[2]
lock.release()
"""
    lock = theirs.lock("export", lock_class=Lock)
    lock.acquire()
    words = [sys.executable, "-c", code, valkey.url, lock.local.token.decode()]
    assert subprocess.run(words, timeout=pace() * 20, check=False).returncode == 0
    assert not theirs.exists("export")
    with pytest.raises(LockNotOwnedError):
        lock.release()


# Numbers ---------------------------------------------------------------------------------------------------------------


def test_numbers_that_redis_py_takes(api: Api, theirs: redis.Redis) -> None:
    numbers: list[Any] = [10, 10.5, Decimal("10.5"), Fraction(21, 2)]
    for number in numbers:
        with case(number):
            lock = api.lock("job", timeout=number)
            assert api.run(lock.acquire(blocking_timeout=float("inf")))
            assert 9_000 < theirs.pttl("job") <= 10_500
            assert api.run(lock.extend(number))
            began = time.monotonic()
            for over in (-1, float("-inf"), 0):
                assert api.run(api.lock("job").acquire(blocking_timeout=over)) is False
            assert time.monotonic() - began < 5
            api.run(lock.release())
    for number in ("10", b"10", True, float("nan")):
        with case(number), pytest.raises(pawlock.ConfigurationError):
            api.run(api.lock("job", timeout=number).acquire())


# What stays ------------------------------------------------------------------------------------------------------------


def test_nothing_stays_on_the_server_for_longer_than_a_minute(api: Api, theirs: redis.Redis) -> None:
    for number in range(20):
        lock = api.lock(f"order:{number}", timeout=3600 if number % 2 else None)
        api.run(lock.acquire())
        assert not api.run(api.lock(f"order:{number}").acquire(blocking_timeout=0.02))
        if number % 3:
            api.run(lock.extend(3600) if number % 2 else lock.owned())
        api.run(lock.release())
    stay = {key: theirs.pttl(key) for key in theirs.scan_iter()}
    assert not any(key.startswith(b"order:") for key in stay), "the locks are gone"
    assert all(0 < left <= 60_000 for left in stay.values()), stay


# The surface -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(Lock, redis.lock.Lock), (AsyncLock, redis.asyncio.lock.Lock)],
    ids=["sync", "asyncio"],
)
def test_every_method_of_redis_pys_lock_is_ours(ours: Any, theirs: Any) -> None:
    """One that was left to redis-py would work on a lock that knows nothing of pawlock's."""
    for name, method in inspect.getmembers(theirs, inspect.isfunction):
        if name.startswith("_") and name not in (
            "__init__",
            "__enter__",
            "__exit__",
            "__aenter__",
            "__aexit__",
        ):
            continue
        with case(name):
            assert getattr(ours, name) is not method
            if not name.startswith("_"):
                assert list(inspect.signature(getattr(ours, name)).parameters) == list(
                    inspect.signature(method).parameters
                )
    made = inspect.signature(theirs).parameters
    taken = inspect.signature(ours).parameters
    assert [name for name in taken if name != "ignored"] == list(made)
    assert {n: p.default for n, p in made.items()} == {n: taken[n].default for n in made}
    for name in vars(theirs(redis.Redis() if theirs is redis.lock.Lock else redis.asyncio.Redis(), "job")):
        assert hasattr(ours(redis.Redis(), "job"), name)


# Clusters --------------------------------------------------------------------------------------------------------------


def test_names_with_hash_tags_in_a_cluster() -> None:
    class Cluster(RedisLocks, redis.RedisCluster):
        pass

    with ClusterGroup(masters=3) as group:
        host, _, port = group.url.partition("://")[2].split(",")[0].rpartition(":")
        client = Cluster(host=host, port=int(port))
        for name in ("{user:1}:lock", "{{user}}:lock", "a{b", "{a}{b}", b"{\xff}"):
            with case(name):
                moved = client.lock(name, timeout=10)
                assert moved.acquire(blocking=False)
                unmoved = redis.RedisCluster.lock(client, name, timeout=10, lock_class=redis.lock.Lock)
                assert not unmoved.acquire(blocking=False)
                other = client.lock(name, timeout=10)
                other.local.token = moved.local.token
                other.release()
                assert unmoved.acquire(blocking=False)
                unmoved.release()
        with pytest.raises(pawlock.NotSupported, match="no hash tag"):
            client.lock("a}b", timeout=10).acquire()
        client.close()
