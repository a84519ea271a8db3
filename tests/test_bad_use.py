"""Wrong use: what is refused of leases and clients that are past their time."""

import pickle

import pytest

import pawl
from pawl.testing.servers import Server
from tests.refusal import refused


def test_releasing_twice(valkey: Server) -> None:
    with pawl.connect(valkey.url) as client:
        lease = client.lock("x").acquire()
        lease.release()
        refused(lease.release, "already released", pawl.NotHeld)
        refused(lambda: lease.extend(5.0), "released", pawl.NotHeld)
        refused(lease.detach, "released", pawl.NotHeld)
        refused(lease.check, "was released", pawl.LeaseLost)
        refused(lease.beat, "was released", pawl.LeaseLost)
        assert lease.remaining() == 0.0


async def test_releasing_twice_in_asyncio(valkey: Server) -> None:
    async with pawl.connect_async(valkey.url) as client:
        lease = await client.lock("x").acquire()
        await lease.release()
        with pytest.raises(pawl.NotHeld, match="already released"):
            await lease.release()
        with pytest.raises(pawl.NotHeld, match="released"):
            await lease.extend(5.0)


def test_pickling_a_lease_or_a_client(valkey: Server) -> None:
    with pawl.connect(valkey.url) as client, client.lock("x") as lease:
        text = refused(lambda: pickle.dumps(lease), "detach()", pawl.NotSupported)
        assert lease.token.partition("@")[0] not in text
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(client)


def test_a_closed_client(valkey: Server) -> None:
    client = pawl.connect(valkey.url)
    lock = client.lock("x")
    client.close()
    client.close()
    for use in (lock.acquire, lock.try_acquire, lock.locked, lambda: client.inspect("x"), lock.__enter__):
        refused(use, "closed", pawl.ClientClosed)


async def test_a_closed_async_client(valkey: Server) -> None:
    client = pawl.connect_async(valkey.url)
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
        with pytest.raises(pawl.ClientClosed, match="closed"):
            await use()
