"""A lease that an async generator holds across its ``yield``: whose task a loss cancels, and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

import pawlock
from tests.contract.edges.helpers import free
from tests.support.servers import Server

TTL = 0.3
PAST = 1.0
"""Seconds after which a lease of that TTL is lost for certain, and known to be."""


async def lock(client: pawlock.AsyncClient) -> AsyncGenerator[int]:
    async with client.lock("rows", ttl=TTL):
        for row in range(3):
            await asyncio.sleep(0.01)
            yield row


async def lease(client: pawlock.AsyncClient) -> AsyncGenerator[int]:
    async with await client.lock("rows", ttl=TTL).acquire():
        for row in range(3):
            await asyncio.sleep(0.01)
            yield row


async def permit(client: pawlock.AsyncClient) -> AsyncGenerator[int]:
    async with client.semaphore("rows", permits=1, ttl=TTL):
        for row in range(3):
            await asyncio.sleep(0.01)
            yield row


async def both(client: pawlock.AsyncClient) -> AsyncGenerator[int]:
    async with client.multi_lock(["rows", "columns"], ttl=TTL):
        for row in range(3):
            await asyncio.sleep(0.01)
            yield row


async def started(client: pawlock.AsyncClient) -> AsyncGenerator[int]:
    async with client.once("rows", ttl=TTL):
        for row in range(3):
            await asyncio.sleep(0.01)
            yield row


async def stack(client: pawlock.AsyncClient) -> AsyncGenerator[int]:
    async with contextlib.AsyncExitStack() as entered:
        await entered.enter_async_context(client.lock("rows", ttl=TTL))
        for row in range(3):
            await asyncio.sleep(0.01)
            yield row


@contextlib.asynccontextmanager
async def locked(client: pawlock.AsyncClient) -> AsyncGenerator[None]:
    async with client.lock("rows", ttl=TTL):
        yield


async def nested(client: pawlock.AsyncClient) -> AsyncGenerator[int]:
    async with locked(client):
        for row in range(3):
            await asyncio.sleep(0.01)
            yield row


ROWS = [lock, lease, permit, both, started, stack, nested]


@pytest.mark.parametrize("rows", ROWS)
async def test_a_loss_while_the_consumer_works_is_raised_by_the_next_step(
    aclient: pawlock.AsyncClient, valkey: Server, rows: Callable[[Any], AsyncGenerator[int]]
) -> None:
    """The consumer is not cancelled: nobody would learn why (PEP 789)."""
    seen: list[object] = []

    async def consume() -> None:
        async for row in rows(aclient):
            seen.append(row)
            valkey.command("FLUSHALL")
            await asyncio.sleep(PAST)
            seen.append("worked")

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(consume())
    assert isinstance(caught.value.exceptions[0], pawlock.LeaseLost)
    assert seen == [0, "worked"]


async def test_a_generator_that_never_awaits_reports_the_loss_at_its_end(
    aclient: pawlock.AsyncClient, valkey: Server
) -> None:
    async def rows() -> AsyncGenerator[int]:
        async with aclient.lock("rows", ttl=TTL):
            for row in range(3):
                yield row

    seen: list[int] = []

    async def consume() -> None:
        async for row in rows():
            seen.append(row)
            valkey.command("FLUSHALL")
            await asyncio.sleep(PAST / 3)

    with pytest.raises(pawlock.LeaseLost):
        await consume()
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("step", [anext, lambda generator: anext(generator, None)])
async def test_a_loss_while_the_generator_sleeps_ends_its_sleep(
    aclient: pawlock.AsyncClient, valkey: Server, step: Callable[[Any], Any]
) -> None:
    async def rows() -> AsyncGenerator[int]:
        async with aclient.lock("rows", ttl=TTL):
            yield 1
            valkey.command("FLUSHALL")
            await asyncio.sleep(60)

    generator = rows()
    await step(generator)
    with pytest.raises(pawlock.LeaseLost):
        await step(generator)


async def test_a_loss_ends_the_body_of_a_context_manager_that_is_a_generator(
    aclient: pawlock.AsyncClient, valkey: Server
) -> None:
    async def block() -> None:
        async with locked(aclient):
            valkey.command("FLUSHALL")
            await asyncio.sleep(60)

    async def in_a_stack() -> None:
        async with contextlib.AsyncExitStack() as entered:
            await entered.enter_async_context(locked(aclient))
            valkey.command("FLUSHALL")
            await asyncio.sleep(60)

    for body in (block, in_a_stack):
        with pytest.raises(pawlock.LeaseLost):
            await body()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_what_a_consumer_drops_is_released(aclient: pawlock.AsyncClient, valkey: Server) -> None:
    async for _ in lock(aclient):
        break
    await asyncio.sleep(0.1)
    assert free(valkey, "rows")
