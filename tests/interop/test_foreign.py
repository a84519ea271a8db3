"""pawl and clients of the plain SET NX PX pattern keep each other out, with ``namespace=""``."""

import threading
import time
from collections.abc import Iterator

import pytest
import redis

import pawl
from pawl.testing.servers import Server

RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"


@pytest.fixture
def plain(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def client(server: Server) -> Iterator[pawl.Client]:
    with pawl.connect(server.url, namespace="") as client:
        yield client


def test_a_key_of_another_client_is_held(client: pawl.Client, plain: redis.Redis) -> None:
    assert plain.set("stock", "somebody", nx=True, px=30_000)
    assert client.lock("stock").try_acquire() is None
    with pytest.raises(pawl.AcquireTimeout):
        client.lock("stock").acquire(timeout=0.2)
    info = client.inspect("stock")
    assert info.held
    assert info.foreign
    assert info.holder == ""
    assert info.queue_length == 0
    assert plain.get("stock") == b"somebody"


@pytest.mark.parametrize("handover", [0, 16])
def test_a_waiter_gets_the_name_soon_after_the_other_client_lets_go(
    client: pawl.Client, plain: redis.Redis, handover: int
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
        assert time.monotonic() - let_go[0] < 2
        assert plain.get("stock") == lease.token.encode()
    timer.join()


def test_a_foreign_key_that_expires_frees_the_name(client: pawl.Client, plain: redis.Redis) -> None:
    plain.set("stock", "somebody", px=300)
    with client.lock("stock").acquire(timeout=10) as lease:
        assert plain.get("stock") == lease.token.encode()


def test_a_foreign_key_without_ttl_is_never_touched(client: pawl.Client, plain: redis.Redis) -> None:
    plain.set("stock", "old code")
    with pytest.raises(pawl.AcquireTimeout):
        client.lock("stock").acquire(timeout=0.3)
    assert plain.get("stock") == b"old code"
    assert plain.ttl("stock") == -1
    assert client.inspect("stock").ttl_left == float("inf")


def test_other_clients_see_a_name_that_pawl_holds(client: pawl.Client, plain: redis.Redis) -> None:
    with client.lock("stock") as lease:
        assert not plain.set("stock", "somebody", nx=True, px=1000)
        assert not plain.lock("stock", timeout=5).acquire(blocking=False)
        # Their owner-checked release does not fit the value, so it frees nothing.
        assert plain.eval(RELEASE, 1, "stock", "somebody") == 0
        lease.check()
    assert plain.set("stock", "somebody", nx=True, px=1000)


def test_redis_py_and_pawl_share_a_counter(client: pawl.Client, plain: redis.Redis, server: Server) -> None:
    """Both lock one name and each does a read and a write in two steps: nothing is lost."""
    rounds = 15

    def step() -> None:
        seen = int(plain.get("count") or 0)
        time.sleep(0.0005)
        plain.set("count", seen + 1)

    def with_pawl() -> None:
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

    threads = [threading.Thread(target=work) for work in (with_pawl, with_pawl, with_redis_py, with_redis_py)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(plain.get("count") or 0) == 4 * rounds


async def test_asyncio_waits_for_a_foreign_key(server: Server, plain: redis.Redis) -> None:
    plain.set("stock", "somebody", px=300)
    async with pawl.connect_async(server.url, namespace="") as client:
        assert await client.lock("stock").try_acquire() is None
        async with client.lock("stock").acquire(timeout=10) as lease:
            assert plain.get("stock") == lease.token.encode()
