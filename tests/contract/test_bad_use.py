"""Wrong use: what is refused of leases and clients that are past their time."""

import pickle

import pytest

import pawlock
from tests.support.refusal import refused
from tests.support.servers import Server


def test_releasing_twice(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        lease = client.lock("x").acquire()
        lease.release()
        refused(lease.release, "already released", pawlock.NotHeld)
        refused(lambda: lease.extend(5.0), "released", pawlock.NotHeld)
        refused(lease.detach, "released", pawlock.NotHeld)
        refused(lease.check, "was released", pawlock.LeaseLost)
        refused(lease.beat, "was released", pawlock.LeaseLost)
        assert lease.remaining() == 0.0


async def test_releasing_twice_in_asyncio(valkey: Server) -> None:
    async with pawlock.connect_async(valkey.url) as client:
        lease = await client.lock("x").acquire()
        await lease.release()
        with pytest.raises(pawlock.NotHeld, match="already released"):
            await lease.release()
        with pytest.raises(pawlock.NotHeld, match="released"):
            await lease.extend(5.0)


def test_pickling_a_lease_or_a_client(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, client.lock("x") as lease:
        text = refused(lambda: pickle.dumps(lease), "detach()", pawlock.NotSupported)
        assert lease.token.partition("@")[0] not in text
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(client)


def test_a_closed_client(valkey: Server) -> None:
    client = pawlock.connect(valkey.url)
    lock = client.lock("x")
    client.close()
    client.close()
    for use in (lock.acquire, lock.try_acquire, lock.locked, lambda: client.inspect("x"), lock.__enter__):
        refused(use, "closed", pawlock.ClientClosed)


async def test_a_closed_async_client(valkey: Server) -> None:
    client = pawlock.connect_async(valkey.url)
    lock = client.lock("x")
    await client.close()
    await client.close()
    for use in (
        lock.acquire,
        lock.try_acquire,
        lock.locked,
        lambda: client.inspect("x"),
        lock.__aenter__,
    ):
        with pytest.raises(pawlock.ClientClosed, match="closed"):
            await use()
