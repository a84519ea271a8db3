"""Whose lease a block ends, wherever it is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import pawlock


def elsewhere(step: Callable[[], Any]) -> Any:
    """Run a step in a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(step).result(20)


async def in_task(step: Awaitable[Any]) -> Any:
    """Run a step in a task of its own."""

    async def run() -> Any:
        return await step

    return await asyncio.create_task(run())


def dependency(shared: Any) -> Generator[Any, None, None]:
    """As a web framework takes one from a generator: each half runs in some thread of its pool."""
    with shared as held:
        yield held


async def async_dependency(shared: Any) -> AsyncGenerator[Any, None]:
    """The same for tasks."""
    async with shared as held:
        yield held


def permits(client: Any, kind: str) -> Any:
    return client.semaphore("n", permits=3) if kind == "semaphore" else client.rwlock("n").read


# Whose lease a block ends


@pytest.mark.parametrize("kind", ["semaphore", "read"])
def test_a_generator_ends_its_own_lease_in_any_thread(client: pawlock.Client, kind: str) -> None:
    shared = permits(client, kind)
    first, second = dependency(shared), dependency(shared)
    one, two = (elsewhere(partial(next, entered)) for entered in (first, second))
    elsewhere(second.close)
    one.check()
    assert two.state == "released"
    elsewhere(first.close)
    assert one.state == "released"


def test_one_thread_leaves_the_blocks_of_two_callers_in_any_order(client: pawlock.Client) -> None:
    shared = client.semaphore("n", permits=3)
    first, second = dependency(shared), dependency(shared)
    one, two = next(first), next(second)
    first.close()
    two.check()
    assert one.state == "released"
    second.close()
    assert two.state == "released"


@pytest.mark.parametrize("kind", ["semaphore", "read"])
async def test_an_async_generator_ends_its_own_lease_in_any_task(
    aclient: pawlock.AsyncClient, kind: str
) -> None:
    shared = permits(aclient, kind)
    first, second = async_dependency(shared), async_dependency(shared)
    one, two = [await in_task(anext(entered)) for entered in (first, second)]
    await in_task(second.aclose())
    one.check()
    assert two.state == "released"
    await in_task(first.aclose())
    assert one.state == "released"
    third, fourth = (contextlib.asynccontextmanager(async_dependency)(shared) for _ in range(2))
    one, two = [await in_task(entered.__aenter__()) for entered in (third, fourth)]
    await in_task(third.__aexit__(None, None, None))
    two.check()
    assert one.state == "released"
    await in_task(fourth.__aexit__(None, None, None))
    assert two.state == "released"


def test_who_is_told_that_it_runs_does_not_end_it(client: pawlock.Client, other: pawlock.Client) -> None:
    job = client.once("n")
    first, second = dependency(job), dependency(job)
    started, running = (elsewhere(partial(next, entered)) for entered in (first, second))
    assert isinstance(running, pawlock.Running)
    elsewhere(second.close)
    started.lease.check()
    assert isinstance(other.once("n").begin(), pawlock.Running)
    with pytest.raises(KeyError):
        elsewhere(lambda: first.throw(KeyError()))
    with other.once("n") as state:
        assert isinstance(state, pawlock.Started), "the work failed, and is to be done"


async def test_a_generator_that_is_dropped_ends_nothing_of_others(
    aclient: pawlock.AsyncClient, aother: pawlock.AsyncClient
) -> None:
    job = aclient.once("n")
    async with job as state:
        assert isinstance(state, pawlock.AsyncStarted)

        async def look() -> None:
            async for found in async_dependency(job):
                assert isinstance(found, pawlock.Running)
                break

        await in_task(look())
        gc.collect()
        await asyncio.sleep(0.05)
        state.lease.check()
        assert isinstance(await aother.once("n").begin(), pawlock.Running)
    assert isinstance(await aother.once("n").begin(), pawlock.Done)


def test_a_stack_that_is_left_elsewhere_ends_the_only_lease_or_none(client: pawlock.Client) -> None:
    """An ``ExitStack`` has no block of the object: threads tell whose lease is whose, or nothing is released."""
    shared = client.semaphore("n", permits=3)
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    one = elsewhere(lambda: first.enter_context(shared))
    two = second.enter_context(shared)
    third = contextlib.ExitStack()
    last = third.enter_context(shared)
    with pytest.raises(
        pawlock.NotHeld, match="'n': not entered in this thread or task, and 3 times in others"
    ):
        elsewhere(first.close)
    for lease in (one, two, last):
        lease.check()
    third.close()
    assert (two.state, last.state) == ("held", "released")
    second.close()
    shared.__exit__(None, None, None)
    assert [lease.state for lease in (one, two)] == ["released"] * 2
    with pytest.raises(pawlock.NotHeld, match="0 times"):
        shared.__exit__(None, None, None)


async def test_an_async_stack_that_is_left_elsewhere_ends_the_only_lease_or_none(
    aclient: pawlock.AsyncClient,
) -> None:
    shared = aclient.semaphore("n", permits=3)
    first, second = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
    one, two = [await in_task(stack.enter_async_context(shared)) for stack in (first, second)]
    with pytest.raises(pawlock.NotHeld, match="2 times in others"):
        await in_task(first.aclose())
    one.check()
    await two.release()
    one.check()
    async with contextlib.AsyncExitStack() as mine:
        three = await mine.enter_async_context(shared)
    assert (one.state, three.state) == ("held", "released")
    await one.release()
