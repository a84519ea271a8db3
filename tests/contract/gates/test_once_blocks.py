"""``once`` as a block and as a decorator."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import pawlock
from tests.contract.gates.rig import Made, make, number
from tests.faults.rig import Api, in_thread
from tests.support.proxy import Proxy
from tests.support.published import runs
from tests.support.servers import Server

DONE = "{pawlock:%once:n}:1:done"
KEY = "pawlock:%once:n"
QUEUE = "{pawlock:%once:n}:1:queue"


def begun(once: Made, **options: object) -> Any:
    return once.do("begin", **options)


def finish(api: Api, state: Any, *args: object, **options: object) -> None:
    api.run(lambda: state.finish(*args, **options))


def abandon(api: Api, state: Any) -> None:
    api.run(state.abandon)


@pytest.fixture
def once(clean: Server, api: Api) -> Made:
    return make(api.connect(clean.url), "once", "n")


@pytest.fixture
def other(clean: Server, api: Api) -> Made:
    return make(api.connect(clean.url), "once", "n")


def test_a_block_finishes_or_abandons(clean: Server) -> None:
    with pawlock.connect(clean.url) as client:
        once = client.once("n")
        with pytest.raises(KeyError), once as state:  # noqa: PT012 - the block is what is tested
            assert isinstance(state, pawlock.Started)
            raise KeyError
        with once as state, once as inner:
            assert isinstance(state, pawlock.Started)
            assert isinstance(inner, pawlock.Running)
            state.finish("said")
        with once as state:
            assert isinstance(state, pawlock.Done)
            assert state.value == "said"
        once.forget()
        with once:
            pass
        found = once.begin()
        assert isinstance(found, pawlock.Done)
        assert found.value is None


async def test_an_async_block_finishes_or_abandons(clean: Server) -> None:
    async with pawlock.connect_async(clean.url) as client:
        once = client.once("n")
        with pytest.raises(KeyError):  # noqa: PT012 - the block is what is tested
            async with once as state:
                assert isinstance(state, pawlock.AsyncStarted)
                raise KeyError
        async with once as state:
            assert isinstance(state, pawlock.AsyncStarted)
            await state.finish("said")
        async with once as state:
            assert isinstance(state, pawlock.Done)
        await once.forget()
        async with once:
            pass
        assert isinstance(await once.begin(), pawlock.Done)


async def test_a_loss_cancels_an_async_block(clean: Server) -> None:
    async with pawlock.connect_async(clean.url, ttl=1.0) as client:
        with pytest.raises(pawlock.LeaseLost):  # noqa: PT012 - the block is what is tested
            async with client.once("n") as state:
                assert isinstance(state, pawlock.AsyncStarted)
                clean.command("DEL", KEY)
                await asyncio.sleep(60)
        assert not number(clean, "EXISTS", DONE)


def test_a_loss_in_a_block_of_threads_is_raised_at_its_end(clean: Server) -> None:
    with pawlock.connect(clean.url, ttl=1.0) as client:
        with pytest.raises(pawlock.LeaseLost), client.once("n") as state:  # noqa: PT012 - the block is what is tested
            assert isinstance(state, pawlock.Started)
            clean.command("DEL", KEY)
            assert state.lease.lost.wait(20)
        assert not number(clean, "EXISTS", DONE)


async def test_a_cancelled_finish_goes_on(clean: Server, proxy: Proxy) -> None:
    async with pawlock.connect_async(proxy.url) as client, pawlock.connect_async(clean.url) as near:
        state = await client.once("n").begin()
        assert isinstance(state, pawlock.AsyncStarted)
        held = proxy.hold_reply(runs("once/finish"))
        task = asyncio.create_task(state.finish("went on"))
        await asyncio.to_thread(proxy.wait_hit, held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        found = await near.once("n").begin(wait=True, timeout=60)
        assert isinstance(found, pawlock.Done)
        assert found.value == "went on"


def test_a_function_runs_once(clean: Server, api: Api) -> None:
    called: list[int] = []
    client = api.connect(clean.url)

    def work(number: int, *, fails: bool = False) -> list[int]:
        called.append(number)
        assert pawlock.current_lease().fence
        if fails:
            raise KeyError(number)
        return [number]

    async def task(number: int, *, fails: bool = False) -> list[int]:
        return work(number, fails=fails)

    plain: Any = task if api.name == "asyncio" else work
    function = client.raw.once("f:{number}", wait=True)(plain)
    with pytest.raises(KeyError):
        api.run(lambda: function(1, fails=True))
    results = [in_thread(partial(api.run, partial(function, number))) for number in (1, 2) * 5]
    assert sorted(found.result(20) for found in results) == [[1]] * 5 + [[2]] * 5
    assert sorted(called) == [1, 1, 2]


def test_a_function_that_runs_elsewhere_is_not_called(clean: Server, once: Made, api: Api) -> None:
    state = begun(once)

    def work() -> None:
        raise AssertionError

    async def task() -> None:
        raise AssertionError

    client = api.connect(clean.url)
    function = client.raw.once("n")(task if api.name == "asyncio" else work)
    with pytest.raises(pawlock.AcquireTimeout, match="wait=True"):
        api.run(function)
    abandon(api, state)


def test_a_function_of_the_other_api_is_refused(clean: Server, api: Api) -> None:
    async def task() -> None: ...

    def work() -> None: ...

    client = api.connect(clean.url)
    with pytest.raises(pawlock.ConfigurationError):
        client.raw.once("n")(work if api.name == "asyncio" else task)
