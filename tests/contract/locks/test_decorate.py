"""Locks as decorators, of functions, methods and coroutine functions, with names made from their arguments."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import pawlock
from pawlock.metrics.prometheus import instrument
from tests.support.refusal import case, refused
from tests.support.servers import Server

KINDS = ["lock", "rlock", "fair_lock"]
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def client(valkey: Server) -> Iterator[pawlock.Client]:
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url) as client:
        yield client


class Shop:
    """Something whose methods are decorated."""

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_is_filled_from_the_call(client: pawlock.Client, kind: str) -> None:
    seen: list[str] = []

    @getattr(client, kind)("stock:{shop.name}:{product}:{size}", ttl=5)  # type: ignore[untyped-decorator]
    def sell(shop: Shop, product: int, *, size: str = "M") -> int:
        """Sell one."""
        lease = pawlock.current_lease()
        seen.append(lease.name)
        lease.check()
        assert client.inspect(lease.name).held
        return product * 2

    assert sell(Shop("a"), 7) == 14
    assert sell(Shop("a"), product=7, size="L") == 14
    assert seen == ["stock:a:7:M", "stock:a:7:L"]
    assert not any(client.inspect(name).held for name in seen), "released after the call"


def test_signature_and_words_are_kept(client: pawlock.Client) -> None:
    def sell(product: int, *, size: str = "M") -> int:
        """Sell one."""
        return product

    wrapped = client.lock("stock:{product}")(sell)
    assert inspect.signature(wrapped) == inspect.signature(sell)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__) == ("sell", "Sell one.", sell)  # type: ignore[attr-defined]
    assert wrapped.__annotations__ == sell.__annotations__


def test_methods(client: pawlock.Client) -> None:
    class Till:
        def __init__(self, number: int) -> None:
            self.number = number

        @client.lock("till:{self.number}")
        def open(self) -> str:
            return pawlock.current_lease().name

        @staticmethod
        @client.lock("till:{number}")
        def still(number: int) -> str:
            return pawlock.current_lease().name

        @classmethod
        @client.lock("tills:{cls.__name__}")
        def all(cls) -> str:
            return pawlock.current_lease().name

    assert Till(3).open() == "till:3"
    assert Till.still(4) == "till:4"
    assert Till.all() == "tills:Till"


def test_calls_exclude_each_other_by_name(client: pawlock.Client) -> None:
    inside: list[str] = []
    most: list[int] = []
    together = threading.Barrier(2, timeout=10)

    @client.lock("one:{which}")
    def enter(which: str, barrier: threading.Barrier | None = None) -> None:
        inside.append(which)
        most.append(inside.count(which))
        if barrier is not None:
            barrier.wait()
        inside.remove(which)

    threads = [threading.Thread(target=enter, args=(which, together)) for which in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not together.broken, "two names do not wait for each other"
    threads = [threading.Thread(target=lambda: [enter("a") for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert max(most) == 1
    assert len(most) == 82


@pytest.mark.parametrize("kind", KINDS)
def test_on_contended(client: pawlock.Client, valkey: Server, kind: str) -> None:
    calls: list[int] = []

    def work(number: int) -> int:
        calls.append(number)
        return number

    make = getattr(client, kind)
    skip = make("job:{number}", timeout=60)(on_contended="skip")(work)
    fail = make("job:{number}", timeout=60)(on_contended="raise")(work)
    wait = make("job:{number}", timeout=0.05)(work)
    assert [f(1) for f in (skip, fail, wait)] == [1, 1, 1]
    with pawlock.connect(valkey.url) as other, other.lock("job:1"):
        assert skip(1) is None
        for late, least in ((fail, 0.0), (wait, 0.05)):
            with pytest.raises(pawlock.NotAcquired) as caught:
                late(1)
            assert isinstance(caught.value, pawlock.AcquireTimeout)
            assert least <= caught.value.waited
            assert caught.value.code == "LOCK_TIMEOUT"
        assert skip(2) == 2
    assert calls == [1, 1, 1, 2]


def test_a_call_that_is_skipped_is_logged_and_counted(
    client: pawlock.Client, valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()

    @client.lock("job:{number}")(on_contended="skip")
    def work(number: int) -> int:
        return number

    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as aclient:
            instrument(aclient, registry)

            @aclient.lock("job:{number}")(on_contended="skip")
            async def awaited(number: int) -> int:
                return number

            assert await awaited(1) is None
            assert await awaited(2) == 2

    instrument(client, registry)
    caplog.set_level(logging.INFO, "pawlock.acquire")
    with pawlock.connect(valkey.url) as other, other.lock("job:1"):
        assert work(1) is None
        assert work(2) == 2
        asyncio.run(main())
    said = [(record.levelname, getattr(record, "pawlock_name", None)) for record in caplog.records]
    assert said == [("INFO", "job:1")] * 2
    assert "skipping the call of" in caplog.records[1].getMessage()
    labels = {"kind": "lock", "outcome": "busy"}
    assert registry.get_sample_value("pawlock_lock_acquisitions_total", labels) == 2


def test_on_contended_is_one_of_three_and_of_the_decorator(client: pawlock.Client) -> None:
    lock: Any = client.lock("x")
    for wrong in ("ignore", None, True):
        with pytest.raises(
            pawlock.ConfigurationError, match="on_contended must be 'wait', 'raise' or 'skip'"
        ):
            lock(on_contended=wrong)
    with pytest.raises(pawlock.ConfigurationError, match=r"unknown option on_contended.*decorator"):
        client.lock("x", on_contended="skip")  # type: ignore[call-arg]


def test_an_exception_passes_and_the_name_is_free(client: pawlock.Client) -> None:
    @client.lock("x:{number}")
    def fail(number: int) -> None:
        raise KeyError(number)

    with pytest.raises(KeyError):
        fail(1)
    assert not client.lock("x:1").locked()
    with pytest.raises(pawlock.NotHeld):
        pawlock.current_lease()


def test_re_entry(client: pawlock.Client) -> None:
    @client.rlock("tree:{root}")
    def walk(root: str, depth: int) -> list[int]:
        return [pawlock.current_lease().count, *(walk(root, depth - 1) if depth else [])]

    @client.lock("line:{root}")
    def again(root: str) -> None:
        again(root)

    assert walk("a", 2) == [1, 2, 3]
    with pytest.raises(pawlock.DeadlockDetected):
        again("a")
    assert not client.lock("tree:a").locked()
    assert not client.lock("line:a").locked()


def test_the_innermost_lease_is_the_current_one(client: pawlock.Client) -> None:
    @client.lock("inner")
    def inner() -> str:
        return pawlock.current_lease().name

    @client.lock("outer")
    def outer() -> tuple[str, str, str]:
        return pawlock.current_lease().name, inner(), pawlock.current_lease().name

    assert outer() == ("outer", "inner", "outer")


def test_keyword_arguments_of_any_name(client: pawlock.Client) -> None:
    @client.lock("x:{order}:{kind}")
    def any_of(kind: str = "k", **more: Any) -> str:
        return pawlock.current_lease().name

    assert any_of(order=3) == "x:3:k"
    refused(any_of, "KeyError 'order'")


def test_what_fills_a_field_cannot_reach_another_name(client: pawlock.Client) -> None:
    """A value with braces is text; it is not filled again, and its key is its own."""

    @client.lock("x:{value}")
    def of(value: str) -> str:
        return pawlock.current_lease().name

    for value in ("{value}", "{{", "}", "a}}{b", "%7B"):
        assert of(value) == f"x:{value}"


def test_the_function_of_the_wrong_api() -> None:
    async def coroutine(x: int) -> None: ...

    class Callable:
        async def __call__(self, x: int) -> None: ...

    def plain(x: int) -> None: ...

    for wrong in (coroutine, Callable(), functools.partial(coroutine, 1)):
        refused(lambda wrong=wrong: pawlock.connect(NOWHERE).lock("x")(wrong), "pawlock.connect_async()")  # type: ignore[misc]
    for sync in (plain, print, functools.partial(plain, 1)):
        refused(lambda sync=sync: pawlock.connect_async(NOWHERE).lock("x")(sync), "async def")  # type: ignore[misc]


async def agenerator(x: int) -> AsyncIterator[int]:
    yield x


def generator(x: int) -> Iterator[int]:
    yield x


def function(product: int) -> None: ...


BAD_FUNCTIONS: list[tuple[Any, str]] = [
    (7, "decorates functions"),
    (None, "decorates functions"),
    (Shop, "decorates functions"),
    (generator, "generator function"),
    (agenerator, "generator function"),
    (staticmethod(function), "below @staticmethod"),
    (classmethod(function), "below @classmethod"),  # type: ignore[arg-type]
]


def test_a_function_that_returns_a_coroutine_has_not_run(client: pawlock.Client) -> None:
    """Another decorator hides the coroutine function, so the decoration cannot tell."""

    async def work() -> None:
        raise AssertionError("without the lock")

    def wrapper() -> object:
        return work()

    for decorate in (client.lock("n"), client.lock("n")(on_contended="skip"), client.once("n")):
        with pytest.raises(TypeError, match=r"wrapper returned a coroutine, .*connect_async"):
            decorate(wrapper)()
    assert not client.lock("n").locked()


def test_what_is_no_function() -> None:
    for connect in (pawlock.connect, pawlock.connect_async):
        for wrong, word in BAD_FUNCTIONS:
            with case(wrong):
                refused(lambda: connect(NOWHERE).lock("x")(wrong), word)


def test_unknown_fields_are_told_at_the_decoration() -> None:
    client = pawlock.connect(NOWHERE)
    assert "it has: product" in refused(lambda: client.lock("x:{prodct}")(function), "no argument prodct")
    refused(lambda: client.lock("x:{a}:{b.c}")(function), "no argument a, b")
    refused(lambda: client.lock("x:{a}")(lambda: None), "it has: none")
    refused(lambda: client.lock("x:{a}")(max), "cannot be read")
    client.lock("x:{product}")(function)


def test_a_call_that_the_function_would_refuse(client: pawlock.Client) -> None:
    wrapped: Any = client.lock("x:{product}")(function)
    with pytest.raises(TypeError, match="missing a required argument"):
        wrapped()
    assert not client.inspect("x:").held


def test_a_name_that_becomes_too_long(client: pawlock.Client) -> None:
    @client.lock("x:{value}")
    def of(value: str) -> None: ...

    refused(lambda: of("x" * 300), "at most 200 bytes")
    bare = pawlock.connect(NOWHERE, namespace="").lock("{product}")(function)
    refused(lambda: bare("a\n"), "needs escaping")  # type: ignore[arg-type]


# asyncio --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_coroutine_functions(valkey: Server, kind: str) -> None:
    valkey.command("FLUSHALL")
    async with pawlock.connect_async(valkey.url) as client:

        class Till:
            number = 3

            @getattr(client, kind)("till:{self.number}:{day}")  # type: ignore[untyped-decorator]
            async def open(self, day: str = "mo") -> str:
                """Open."""
                await asyncio.sleep(0)
                return pawlock.current_lease().name

        assert inspect.iscoroutinefunction(Till.open)
        assert await Till().open() == "till:3:mo"
        assert list(await asyncio.gather(Till().open(), Till().open("tu"))) == ["till:3:mo", "till:3:tu"]
        assert not await client.lock("till:3:mo").locked()


async def test_on_contended_in_asyncio(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    async with pawlock.connect_async(valkey.url) as client, pawlock.connect_async(valkey.url) as other:

        async def work(number: int) -> int:
            return number

        skip = client.lock("job:{number}")(on_contended="skip")(work)
        fail = client.lock("job:{number}")(on_contended="raise")(work)
        wait = client.lock("job:{number}")(work)
        async with other.lock("job:1") as lease:
            assert await skip(1) is None
            with pytest.raises(pawlock.NotAcquired):
                await fail(1)
            waiting = asyncio.create_task(wait(1))
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await lease.release()
        assert await waiting == 1


async def test_a_loss_ends_the_decorated_coroutine(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    async with pawlock.connect_async(valkey.url) as client:

        @client.lock("x", max_hold=0.1)
        async def work() -> None:
            await asyncio.sleep(10)

        with pytest.raises(pawlock.LeaseLost) as caught:
            await work()
        assert caught.value.reason == "max_hold"


async def test_a_cancelled_call_leaves_nothing(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    async with pawlock.connect_async(valkey.url) as client, pawlock.connect_async(valkey.url) as other:

        @client.lock("x")
        async def work() -> None:
            await asyncio.sleep(10)

        inside = asyncio.create_task(work())
        waiting = asyncio.create_task(work())
        await asyncio.sleep(0.05)
        for task in (waiting, inside):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        lease = await other.lock("x").acquire(timeout=1)
        await lease.release()
