"""pawlock and clients of the plain SET NX PX pattern keep each other out, with ``namespace=""``."""

import threading
import time
from collections.abc import Iterator

import pytest
import redis

import pawlock
from tests.support.pace import pace
from tests.support.servers import Server

RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"


@pytest.fixture
def plain(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def client(server: Server) -> Iterator[pawlock.Client]:
    with pawlock.connect(server.url, namespace="") as client:
        yield client


def test_a_key_of_another_client_is_held(client: pawlock.Client, plain: redis.Redis) -> None:
    assert plain.set("stock", "somebody", nx=True, px=30_000)
    assert client.lock("stock").try_acquire() is None
    with pytest.raises(pawlock.AcquireTimeout):
        client.lock("stock").acquire(timeout=0.2)
    info = client.inspect("stock")
    assert info.held
    assert info.foreign
    assert info.holder == ""
    assert info.queue_length == 0
    assert plain.get("stock") == b"somebody"


@pytest.mark.parametrize("handover", [0, 16])
def test_a_waiter_gets_the_name_soon_after_the_other_client_lets_go(
    client: pawlock.Client, plain: redis.Redis, handover: int
) -> None:
    plain.set("stock", "somebody", px=30_000)
    let_go: list[float] = []

    def release() -> None:
        let_go.append(time.monotonic())
        assert plain.eval(RELEASE, 1, "stock", "somebody") == 1

    timer = threading.Timer(0.3, release)
    timer.start()
    with client.lock("stock", handover=handover).acquire(timeout=10) as lease:
        # Nobody tells of a foreign delete: the head of the queue polls every 50 to 100 ms.
        assert time.monotonic() - let_go[0] < 2 * pace()
        assert plain.get("stock") == lease.token.encode()
    timer.join()


def test_a_foreign_key_that_expires_frees_the_name(client: pawlock.Client, plain: redis.Redis) -> None:
    plain.set("stock", "somebody", px=300)
    with client.lock("stock").acquire(timeout=10) as lease:
        assert plain.get("stock") == lease.token.encode()


def test_a_foreign_key_without_ttl_is_never_touched(client: pawlock.Client, plain: redis.Redis) -> None:
    plain.set("stock", "old code")
    with pytest.raises(pawlock.AcquireTimeout):
        client.lock("stock").acquire(timeout=0.3)
    assert plain.get("stock") == b"old code"
    assert plain.ttl("stock") == -1
    assert client.inspect("stock").ttl_left == float("inf")


def test_other_clients_see_a_name_that_pawlock_holds(client: pawlock.Client, plain: redis.Redis) -> None:
    with client.lock("stock") as lease:
        assert not plain.set("stock", "somebody", nx=True, px=1000)
        assert not plain.lock("stock", timeout=5).acquire(blocking=False)
        # Their owner-checked release does not fit the value, so it frees nothing.
        assert plain.eval(RELEASE, 1, "stock", "somebody") == 0
        lease.check()
    assert plain.set("stock", "somebody", nx=True, px=1000)


def test_redis_py_and_pawlock_share_a_counter(
    client: pawlock.Client, plain: redis.Redis, server: Server
) -> None:
    """Both lock one name and each does a read and a write in two steps: nothing is lost."""
    rounds = 15

    def step() -> None:
        seen = int(plain.get("count") or 0)
        time.sleep(0.0005)
        plain.set("count", seen + 1)

    def with_pawlock() -> None:
        lock = client.lock("stock", handover=0)
        for _ in range(rounds):
            with lock:
                step()

    def with_redis_py() -> None:
        with redis.Redis.from_url(server.url) as own:
            lock = own.lock("stock", timeout=20, sleep=0.005)
            for _ in range(rounds):
                assert lock.acquire()
                step()
                lock.release()

    threads = [
        threading.Thread(target=work) for work in (with_pawlock, with_pawlock, with_redis_py, with_redis_py)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(plain.get("count") or 0) == 4 * rounds


async def test_asyncio_waits_for_a_foreign_key(server: Server, plain: redis.Redis) -> None:
    plain.set("stock", "somebody", px=300)
    async with pawlock.connect_async(server.url, namespace="") as client:
        assert await client.lock("stock").try_acquire() is None
        async with client.lock("stock").acquire(timeout=10) as lease:
            assert plain.get("stock") == lease.token.encode()


def test_a_key_that_never_ends_is_told(
    client: pawlock.Client, plain: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows whether its owner lives: it is waited for, told of once, and never touched."""
    plain.set("stock", "somebody")
    with pytest.raises(pawlock.AcquireTimeout, match="a key without a TTL, which never expires: delete it"):
        client.lock("stock").acquire(timeout=0.5 * pace())
    told = [record for record in caplog.records if "without a TTL" in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING"]
    assert client.lock("stock").try_acquire() is None
    assert (plain.get("stock"), plain.ttl("stock")) == (b"somebody", -1)


def test_a_lease_whose_ttl_was_taken_off_is_told(
    client: pawlock.Client, plain: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """By ``PERSIST``: the holder does not notice, but whoever waits does."""
    with client.lock("stock", renew=False):
        plain.persist("stock")
        url = f"redis://{_address(plain)}"
        never = pytest.raises(pawlock.AcquireTimeout, match="a key without a TTL")
        with pawlock.connect(url, namespace="") as other, never:
            other.lock("stock").acquire(timeout=0.2)
    assert plain.get("stock") is None


def _address(plain: redis.Redis) -> str:
    kwargs = plain.connection_pool.connection_kwargs
    return f"{kwargs['host']}:{kwargs['port']}"


# Moving from other names: the old key and the new one, held together


def test_old_key_and_new_name_are_held_together(server: Server, plain: redis.Redis) -> None:
    with pawlock.connect(server.url) as client:
        both = client.multi_lock(["order:42", pawlock.Key("lock:order:42")], ttl=10.0)
        with both as lease:
            assert set(lease.names) == {"order:42", "key:lock:order:42"}
            assert set(lease.fences) == set(lease.names)
            assert plain.get("lock:order:42") is not None
            assert plain.get("pawlock:order:42") is not None
            assert not plain.set("lock:order:42", "who has not moved", nx=True, px=1000)
            with pawlock.connect(server.url) as moved:
                assert moved.lock("order:42").try_acquire() is None
        assert plain.exists("lock:order:42", "pawlock:order:42") == 0


def test_both_wait_for_who_has_not_moved(server: Server, plain: redis.Redis) -> None:
    theirs = plain.lock("lock:order:42", timeout=10, thread_local=False)
    assert theirs.acquire()
    with pawlock.connect(server.url) as client:
        both = client.multi_lock(["order:42", pawlock.Key("lock:order:42")])
        assert both.try_acquire() is None
        assert plain.get("pawlock:order:42") is None, "nothing is kept while the whole is not had"
        timer = threading.Timer(0.3, theirs.release)
        timer.start()
        with both.acquire(timeout=10):
            assert plain.get("lock:order:42") is not None
        timer.join()


def test_the_same_words_in_both_places(server: Server, plain: redis.Redis) -> None:
    """The key of old may be what pawlock calls the name."""
    with (
        pawlock.connect(server.url) as client,
        client.multi_lock(["order:42", pawlock.Key("order:42")]) as lease,
    ):
        assert set(lease.names) == {"order:42", "key:order:42"}
        assert plain.get("order:42") is not None


async def test_both_in_asyncio(server: Server, plain: redis.Redis) -> None:
    async with pawlock.connect_async(server.url) as client:
        async with client.multi_lock(["order:42", pawlock.Key("lock:order:42")]) as lease:
            assert "key:lock:order:42" in lease.fences
            assert plain.get("lock:order:42") is not None
        assert plain.exists("lock:order:42", "pawlock:order:42") == 0


def test_the_same_key_twice_is_refused(server: Server) -> None:
    with pawlock.connect(server.url, namespace="") as client:
        for other in ("stock", pawlock.Key("stock")):
            with pytest.raises(pawlock.ConfigurationError, match="twice"):
                client.multi_lock([pawlock.Key("stock"), other])
    for wrong in ("", "\ud800"):
        with pytest.raises(pawlock.ConfigurationError):
            pawlock.Key(wrong)


def test_a_key_of_another_type_is_told_and_kept(server: Server, plain: redis.Redis) -> None:
    plain.hset("lock:order:42", "owner", "1")
    with pawlock.connect(server.url) as client:
        with pytest.raises(
            pawlock.WrongKey, match=r"holds a hash, which another program put there \[WRONG_KEY\]$"
        ):
            client.multi_lock(["order:42", pawlock.Key("lock:order:42")]).acquire(timeout=1)
        assert plain.hgetall("lock:order:42") == {b"owner": b"1"}
        assert plain.get("pawlock:order:42") is None
