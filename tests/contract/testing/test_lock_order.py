"""Names that are taken in different orders are found though nobody ever waits."""

from __future__ import annotations

import asyncio
import threading

import pytest

import pawlock

# ruff: noqa: PT031 - the warnings come at the end of what lock_order watches
from pawlock.testing import LockOrderWarning, lock_order
from tests.support.servers import Server


def first_place(client: pawlock.Client) -> None:
    with client.lock("a"), client.lock("b"):
        pass


def second_place(client: pawlock.Client) -> None:
    with client.lock("b"), client.rlock("a"):
        pass


def test_two_orders_are_told_with_both_places(valkey: Server) -> None:
    with (
        pawlock.connect(valkey.url) as client,
        pytest.warns(LockOrderWarning) as warned,
        lock_order() as order,
    ):
        first_place(client)
        assert order.inversions == []
        thread = threading.Thread(target=second_place, args=(client,), name="the-other")
        thread.start()
        thread.join(10)
        first_place(client)
        second_place(client)
        (inversion,) = order.inversions
    assert inversion.names == ("pawlock:a", "pawlock:b", "pawlock:a")
    assert [step.who for step in inversion.steps] == ["MainThread", "the-other"]
    text = str(warned[0].message)
    assert "in first_place" in text
    assert "in second_place" in text
    assert len(warned) == 1


def test_one_order_is_fine(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, lock_order() as order:
        for _ in range(2):
            first_place(client)
            with client.lock("b"):
                pass
            with client.lock("a"), client.rlock("r"), client.rlock("r"):
                pass
        lease = client.lock("b").acquire()
        lease.release()
        with client.lock("a"):
            pass
    assert order.inversions == []


def test_a_circle_of_three(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, pytest.warns(LockOrderWarning), lock_order() as order:
        for held, taken in (("x", "y"), ("y", "z"), ("z", "x")):
            with client.lock(held), client.lock(taken):
                pass
        assert [inversion.names for inversion in order.inversions] == [
            ("pawlock:x", "pawlock:y", "pawlock:z", "pawlock:x")
        ]


async def test_tasks_have_orders_of_their_own(valkey: Server) -> None:
    async with pawlock.connect_async(valkey.url) as client:

        async def take(first: str, second: str) -> None:
            async with client.lock(first), client.lock(second):
                pass

        with pytest.warns(LockOrderWarning) as warned, lock_order() as order:
            # Each task holds one name only: no order.
            async with client.lock("p"):
                await asyncio.create_task(take("q", "s"))
            await asyncio.create_task(take("q", "p"), name="one")
            assert order.inversions == []
            await asyncio.create_task(take("p", "q"), name="two")
        assert "by two" in str(warned[0].message)


def test_nothing_is_left_of_it(server: Server) -> None:
    with pawlock.connect(server.url) as client:
        with lock_order() as order:
            first_place(client)
        with client.lock("b"), client.lock("a"):
            pass
    assert order.inversions == []
