"""The drop-in for redis-py's lock: one key with programs that did not move, and what is better."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock

import pawlock
from pawlock.compat.redis import (
    AsyncLock,
    AsyncRedis,
    AsyncRedisLocks,
    Lock,
    LockError,
    LockNotOwnedError,
    Redis,
    RedisLocks,
)
from tests.integrations.compat import django_redis, redis_py
from tests.integrations.compat.apis import Api
from tests.support.pace import pace
from tests.support.servers import Server


@pytest.fixture(params=["threads", "asyncio"])
def api(request: pytest.FixtureRequest, valkey: Server) -> Iterator[Api]:
    valkey.command("FLUSHALL")
    found = Api(valkey.url, asynchronous=request.param == "asyncio")
    yield found
    found.close()


@pytest.fixture
def theirs(valkey: Server) -> Iterator[redis.Redis]:
    valkey.command("FLUSHALL")
    client = redis.Redis.from_url(valkey.url)
    yield client
    client.close()


def test_a_program_that_moved_and_one_that_did_not_exclude_each_other(api: Api, theirs: redis.Redis) -> None:
    moved, unmoved = api.lock("job", timeout=10), theirs.lock("job", timeout=10)
    assert api.run(moved.acquire()) is True
    assert unmoved.acquire(blocking=False) is False
    api.run(moved.release())
    assert unmoved.acquire(blocking=False) is True
    assert api.run(moved.acquire(blocking=False)) is False
    assert api.run(moved.acquire(blocking_timeout=0.3)) is False
    assert api.run(moved.locked()) is True
    assert api.run(moved.owned()) is False
    unmoved.release()
    assert theirs.exists("job") == 0


def test_a_key_stands_where_a_name_may(api: Api, theirs: redis.Redis) -> None:
    told = theirs.pubsub()
    told.subscribe("orders-channel:orders:42")
    lock = api.lock(pawlock.Key.spring("orders", "42"), timeout=10)
    assert lock.name == pawlock.Key.spring("orders", "42")
    assert theirs.lock("orders:42", timeout=10).acquire(blocking=False) is True
    assert api.run(lock.locked()) is True
    assert api.run(lock.acquire(blocking=False)) is False
    theirs.delete("orders:42")
    assert api.run(lock.acquire()) is True
    assert theirs.get("orders:42") == lock.local.token
    assert api.run(lock.owned()) is True
    assert api.run(lock.extend(5)) is True
    api.run(lock.release())
    assert theirs.exists("orders:42") == 0
    with pytest.raises(LockError) as unlocked:
        api.run(lock.release())
    assert unlocked.value.lock_name == "orders:42"
    heard = iter(lambda: told.get_message(timeout=5), None)
    assert any(message["data"] == b"orders:42" for message in heard), "its waiters are told"
    told.close()


def test_a_key_of_redisson_is_a_hash(api: Api, theirs: redis.Redis) -> None:
    lock = api.lock(pawlock.Key.redisson("job"), timeout=10)
    assert api.run(lock.acquire()) is True
    assert list(theirs.hgetall("job").values()) == [b"1"]
    assert 0 < theirs.pttl("job") <= 10_000
    api.run(lock.release())
    theirs.set("job", "theirs")
    with pytest.raises(pawlock.WrongKey):
        api.run(lock.acquire(blocking=False))
    assert theirs.get("job") == b"theirs"


@pytest.mark.parametrize("api", ["asyncio", pytest.param("threads", marks=pytest.mark.slow)], indirect=True)
def test_a_lock_without_a_timeout_has_a_ttl_and_is_renewed(api: Api, theirs: redis.Redis) -> None:
    lock = api.lock("job")
    assert api.run(lock.acquire())
    assert 0 < theirs.pttl("job") <= 30_000
    theirs.pexpire("job", 10_500)
    deadline = time.monotonic() + 40
    # Renewed after a third of its TTL, without a call of ours; an event loop has to run for that.
    while theirs.pttl("job") < 20_000:
        assert time.monotonic() < deadline, "never renewed"
        api.run(asyncio.sleep(0.1)) if api.loop else time.sleep(0.1)
    api.run(lock.release())


def test_the_fencing_token_increases_and_is_asked_of_a_held_lock_only(api: Api) -> None:
    lock = api.lock("job", timeout=10)
    with pytest.raises(LockError):
        _ = lock.fence
    tokens = []
    for _round in range(3):
        api.run(lock.acquire())
        tokens.append(lock.fence)
        lock.lease.check()
        api.run(lock.release())
    assert tokens == sorted(set(tokens))


def test_errors_are_those_of_redis_py_and_of_pawlock_at_once(api: Api, theirs: redis.Redis) -> None:
    lock = api.lock("job", timeout=10)
    with pytest.raises(redis.exceptions.LockError) as unlocked:
        api.run(lock.release())
    assert isinstance(unlocked.value, pawlock.PawlockError)
    assert unlocked.value.lock_name == unlocked.value.name == "job"
    api.run(lock.acquire())
    theirs.set("job", "another")
    with pytest.raises(redis.exceptions.LockNotOwnedError) as lost:
        api.run(lock.release())
    assert isinstance(lost.value, LockNotOwnedError)
    assert str(lost.value).count("[") == 1, "one code"
    assert theirs.get("job") == b"another", "what another holds is left alone"
    again = pickle.loads(pickle.dumps(lost.value))
    assert (type(again), str(again), again.lock_name) == (LockNotOwnedError, str(lost.value), "job")
    for arguments in ({"token": "mine"}, {"blocking_timeout": "5"}, {"blocking_timeout": float("nan")}):
        with pytest.raises(ValueError, match=r"token|blocking_timeout"):
            api.run(lock.acquire(**arguments))
    with pytest.raises(ValueError, match="ttl"):
        api.run(api.lock("job", timeout=0.001).acquire())


@pytest.mark.parametrize("asynchronous", [False, True], ids=["threads", "asyncio"])
def test_a_dead_server_is_an_error_of_both_and_never_false(*, asynchronous: bool) -> None:
    api = Api("redis://127.0.0.1:1", asynchronous=asynchronous)
    with pytest.raises(redis.exceptions.ConnectionError) as dead:
        api.run(api.lock("job", timeout=1).acquire(blocking=False))
    assert isinstance(dead.value, pawlock.BackendUnavailable)
    api.close()


def test_extend_adds_and_reacquire_sets_back(api: Api, theirs: redis.Redis) -> None:
    lock = api.lock("job", timeout=100)
    api.run(lock.acquire())
    assert api.run(lock.extend(50)) is True
    assert 140_000 < theirs.pttl("job") <= 150_000
    assert api.run(lock.extend(200, replace_ttl=True)) is True
    assert 190_000 < theirs.pttl("job") <= 200_000
    with pytest.raises(ValueError, match="additional_time"):
        api.run(lock.extend(-20))
    assert theirs.exists("job"), "a negative number does not delete the lock"
    assert api.run(lock.reacquire()) is True
    assert 90 < lock.lease.remaining() <= 100
    api.run(lock.release())


def test_extend_adds_no_more_than_was_asked_for(api: Api, theirs: redis.Redis) -> None:
    """In whole milliseconds of the server, as a lock of redis-py that adds on the server itself."""
    lock = api.lock("job", timeout=10.5)
    api.run(lock.acquire())
    for more in (10.5, 0.0105, 1.0009) * 20:
        before = theirs.pttl("job")
        api.run(lock.extend(more))
        assert before - 400 + int(more * 1000 + 1e-6) < theirs.pttl("job") <= before + int(more * 1000 + 1e-6)
    api.run(lock.release())


def test_the_name_may_be_bytes_and_the_body_error_is_not_hidden(valkey: Server, theirs: redis.Redis) -> None:
    lock = Lock(theirs, b"job", timeout=10)

    def fail() -> None:
        with lock:
            theirs.delete("job")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as failed:
        fail()
    assert any("failed as well" in note for note in failed.value.__notes__)


def test_a_thread_sees_what_it_acquired_itself_unless_told_otherwise(theirs: redis.Redis) -> None:
    with ThreadPoolExecutor(1) as other:
        own = theirs.lock("job", timeout=10, lock_class=Lock)
        own.acquire()
        with pytest.raises(LockError):
            other.submit(own.release).result()
        own.release()
        shared = theirs.lock("job", timeout=10, thread_local=False, lock_class=Lock)
        shared.acquire()
        other.submit(shared.release).result()
        assert not shared.locked()


def test_a_thread_ends_only_what_it_acquired_itself(theirs: redis.Redis) -> None:
    """Threads share one lock: the first one's time ends, the second acquires it, then the first one releases."""
    shared = theirs.lock("job", timeout=0.3, thread_local=False, lock_class=Lock)
    with ThreadPoolExecutor(1) as other:
        assert shared.acquire()
        assert other.submit(shared.acquire).result()
        assert other.submit(shared.extend, 30, replace_ttl=True).result()
        assert not shared.owned()
        for late in (lambda: shared.extend(30), shared.reacquire, shared.release):
            with pytest.raises(LockNotOwnedError):
                late()
        assert other.submit(shared.owned).result()
        # It has nothing of its own now, so this is the release of what another thread acquired.
        shared.release()
        assert not shared.locked()
        with pytest.raises(LockError, match="not owned"):
            other.submit(shared.release).result()


@pytest.mark.parametrize("in_blocks", [False, True])
async def test_a_task_ends_only_what_it_acquired_itself(
    valkey: Server, theirs: redis.Redis, *, in_blocks: bool
) -> None:
    client = redis.asyncio.Redis.from_url(valkey.url)
    shared = client.lock("job", timeout=0.3, lock_class=AsyncLock)
    began, second, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(until: asyncio.Event) -> None:
        began.set()
        if until is ended:
            await shared.extend(30, replace_ttl=True)
            second.set()
        await until.wait()

    async def hold(until: asyncio.Event) -> None:
        if in_blocks:
            async with shared:
                await work(until)
        else:
            await shared.acquire()
            await work(until)
            await shared.release()

    async def first() -> None:
        with pytest.raises(LockNotOwnedError):
            await hold(second)
        assert await shared.locked()
        ended.set()

    async def other() -> None:
        await began.wait()
        await hold(ended)

    await asyncio.gather(first(), other())
    assert not theirs.exists("job")
    await client.aclose()


def test_a_thread_waits_for_its_own_lock(api: Api) -> None:
    first, second = api.lock("throttle", timeout=0.3), api.lock("throttle", timeout=60)
    assert api.run(first.acquire())
    assert api.run(second.acquire(blocking_timeout=20)) is True
    api.run(second.release())
    with pytest.raises(LockNotOwnedError):
        api.run(first.release())
    held = api.lock("renewed")
    assert api.run(held.acquire())
    assert api.run(api.lock("renewed").acquire(blocking=False)) is False
    assert api.run(api.lock("renewed").acquire(blocking_timeout=0.1)) is False
    api.run(held.release())


def test_sixteen_threads_count_exactly_beside_programs_that_did_not_move(
    valkey: Server, theirs: redis.Redis
) -> None:
    valkey.command("FLUSHALL")
    count = 0

    def add(make: Callable[[], Any]) -> None:
        nonlocal count
        for _round in range(5):
            with make():
                seen = count
                time.sleep(0.001)
                count = seen + 1

    makers = [lambda: theirs.lock("n", timeout=30, sleep=0.005, lock_class=Lock)] * 12
    makers += [lambda: theirs.lock("n", timeout=30, sleep=0.005)] * 4
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(add, makers))
    assert count == 16 * 5


def test_a_client_class_for_programs_that_name_no_lock_class(valkey: Server) -> None:
    class Redis(RedisLocks, redis.Redis):
        pass

    class AsyncRedis(AsyncRedisLocks, redis.asyncio.Redis):  # type: ignore[misc] # redis-py's own bases differ
        pass

    client = Redis.from_url(valkey.url)
    assert type(client.lock("job")) is Lock
    assert type(client.lock("job", lock_class=redis.lock.Lock)) is redis.lock.Lock
    assert isinstance(client.lock("job"), redis.lock.Lock), "for those who look at the class"
    assert type(AsyncRedis.from_url(valkey.url).lock("job")) is AsyncLock
    # celery-redbeat puts a script of its own on the lock that it made.
    lock = client.lock("job", timeout=10)
    lock.lua_extend = client.register_script("return 1")
    with lock:
        assert lock.extend(10)
    client.close()


def test_one_pool_is_one_client_and_a_child_releases_nothing_of_its_parent(
    valkey: Server, theirs: redis.Redis
) -> None:
    valkey.command("FLUSHALL")
    before = len(theirs.client_list())
    locks = [
        redis.Redis(connection_pool=theirs.connection_pool).lock(f"n{n}", lock_class=Lock) for n in range(9)
    ]
    for lock in locks:
        assert lock.acquire()
    assert len(theirs.client_list()) <= before + 2, "one for the thread and one for renewals"
    child = os.fork()
    if child == 0:
        try:
            locks[0].release()
        except Exception:  # noqa: BLE001 - how it is refused is not the question
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert theirs.exists("n0")
    for lock in locks:
        lock.release()


def test_a_pool_that_is_gone_leaves_no_client_and_no_thread(valkey: Server) -> None:
    """Programs make a pool for each task or test; each brought a client, a thread and a connection that stayed."""
    code = """
import gc, sys, threading, time, weakref
import redis
from pawlock.compat.redis import Lock

made = []
for _ in range(3):
    client = redis.Redis.from_url(sys.argv[1])
    with client.lock("job", timeout=10, lock_class=Lock) as lock:
        made.append(weakref.ref(lock.lease._record.client))
    client.close()
    del client, lock
gc.collect()
assert [ref() for ref in made] == [None] * 3
end = time.monotonic() + float(sys.argv[2])
while threading.active_count() > 1 and time.monotonic() < end:
    time.sleep(0.01)
assert threading.active_count() == 1
"""
    run_apart(code, valkey.url, str(pace() * 5))


def run_apart(code: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-c", code, *arguments], timeout=pace() * 20, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("where", ["child", "handler"])
def test_the_first_lock_of_a_pool_needs_nothing_that_a_fork_or_a_handler_may_find_taken(
    where: str, valkey: Server
) -> None:
    """A process forks, or a signal comes, while a thread makes the client of another pool, for as long as it likes."""
    code = """
import os, signal, sys, threading
import pawlock, redis
from pawlock.compat.redis import Lock

url, where = sys.argv[1:]
connect, inside, go_on = pawlock.connect, threading.Event(), threading.Event()

def take(signum=None, frame=None):
    taken = redis.Redis.from_url(url).lock("two", timeout=10, lock_class=Lock)
    assert taken.acquire(blocking_timeout=10)
    taken.release()

def slow(target, **options):
    if threading.current_thread() is not threading.main_thread():
        inside.set()
        go_on.wait()
    elif where == "handler" and not inside.is_set():
        inside.set()
        signal.raise_signal(signal.SIGUSR1)
    return connect(target, **options)

pawlock.connect = slow
signal.signal(signal.SIGUSR1, take)
first = redis.Redis.from_url(url).lock("one", timeout=10, lock_class=Lock)
if where == "handler":
    first.acquire()
else:
    threading.Thread(target=first.acquire, daemon=True).start()
    inside.wait()
    child = os.fork()
    take()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
"""
    run_apart(code, valkey.url, where)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["threads", "asyncio"])
def test_a_release_that_fails_at_the_end_of_a_block_hides_no_error_of_its_body(*, asynchronous: bool) -> None:
    with Server("valkey") as server:
        api = Api(server.url, asynchronous=asynchronous)
        lock = api.lock("job", timeout=0.5)

        def fail() -> None:
            server.stop()
            raise KeyError("of the body")

        async def enter() -> None:
            async with lock:
                fail()

        def block() -> None:
            with lock:
                fail()

        with pytest.raises(KeyError) as caught:
            api.run(enter()) if asynchronous else block()
        assert "failed as well" in caught.value.__notes__[0]
        api.close()


async def test_a_cancelled_release_can_be_repeated_and_a_cancelled_acquire_leaves_nothing(
    valkey: Server,
) -> None:
    valkey.command("FLUSHALL")
    client = redis.asyncio.Redis.from_url(valkey.url)
    held = client.lock("job", timeout=30, lock_class=AsyncLock)
    await held.acquire()
    waiting = asyncio.ensure_future(client.lock("job", timeout=30, lock_class=AsyncLock).acquire())
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await held.release()
    after = client.lock("job", timeout=30, lock_class=AsyncLock)
    # What was cancelled is undone in the background.
    assert await after.acquire(blocking_timeout=10)
    # Cancelled before it could send anything, or in the middle: the lock still knows what it holds.
    releasing = asyncio.ensure_future(after.release())
    await asyncio.sleep(0)
    releasing.cancel()
    await asyncio.wait([releasing])
    with contextlib.suppress(LockError):
        await after.release()
    assert not await after.locked()
    await client.aclose()


async def test_closing_the_client_of_redis_py_closes_what_is_behind_it_unless_a_lock_is_held(
    valkey: Server, theirs: redis.Redis
) -> None:
    valkey.command("FLUSHALL")
    before = len(theirs.client_list())
    client = redis.asyncio.Redis.from_url(valkey.url)
    async with client.lock("job", timeout=30, lock_class=AsyncLock):
        waiter: Any = client.lock("job", timeout=30, lock_class=AsyncLock)
        waiting = asyncio.ensure_future(waiter.acquire())
        await asyncio.sleep(0.05)
        await client.aclose()
        assert theirs.exists("job"), "redis-py does not release locks at that either"
    assert await waiting
    await client.aclose()
    assert theirs.exists("job")
    await waiter.release()
    async with waiter:
        waiting = asyncio.ensure_future(waiter.acquire())
        await asyncio.sleep(0.05)
    assert await waiting
    await client.aclose()
    assert waiter.lease.state == "held", "another task acquired it through the same object"
    await waiter.release()
    for _again in range(2):
        async with client.lock("other", timeout=30, lock_class=AsyncLock):
            pass
        await client.aclose()
    deadline = time.monotonic() + 10
    while len(theirs.client_list()) > before + 1:
        assert time.monotonic() < deadline, "a connection was left open"
        await asyncio.sleep(0.01)


def test_waiters_are_woken_by_the_release(theirs: redis.Redis) -> None:
    """With ``sleep=60`` a loop that polls would be a minute late."""
    held = theirs.lock("job", timeout=30, lock_class=Lock)
    held.acquire()
    began = threading.Event()

    def wait() -> bool:
        began.set()
        waiter = theirs.lock("job", timeout=30, sleep=60, lock_class=Lock)
        found = bool(waiter.acquire(blocking_timeout=50))
        waiter.release()
        return found

    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(wait)
        began.wait()
        time.sleep(0.1)
        held.release()
        assert waiting.result(timeout=30)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", redis_py.VERSIONS)
def test_the_lock_tests_of_redis_py_itself_pass(version: str, valkey: Server) -> None:
    assert len(redis_py.LEFT_OUT) < 7
    done = redis_py.run(version, valkey.url)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_lock_tests_of_django_redis_pass(valkey: Server) -> None:
    try:
        done = django_redis.run(valkey.url)
    except subprocess.CalledProcessError:
        pytest.skip("django-redis could not be installed")
    for one in done:
        assert "4 passed" in one.stdout, one.stdout[-4000:]


def test_the_client_of_redis_py_that_makes_these_locks(valkey: Server) -> None:
    with Redis.from_url(valkey.url) as theirs, theirs.lock("client", timeout=5) as lock:
        assert isinstance(lock, Lock)
        assert lock.fence
    assert isinstance(AsyncRedis().lock("client"), AsyncLock)
