"""The requests themselves, where only a late copy or a race shows what they rest on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import pytest

from pawlock.etcd.address import members
from pawlock.etcd.gateway import Gateway, Gone
from pawlock.etcd.requests import Book, Requests, Wish
from tests.etcd.rig import order, queue
from tests.support.etcd import Etcd

BASE = b"pawlock:n"


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    with Etcd() as started:
        yield started


class Heard(Gateway):
    """Keeps what it was asked."""

    def __init__(self, etcd: Etcd) -> None:
        super().__init__(members(etcd.url).nodes)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """See ``Gateway``."""
        self.asked.append((path, body))
        return await super().ask(path, body)


@contextlib.asynccontextmanager
async def client(etcd: Etcd) -> AsyncGenerator[tuple[Requests, Heard]]:
    gateway = Heard(etcd)
    requests = Requests(gateway, Book())
    try:
        yield requests, gateway
    finally:
        await requests.close()


async def test_a_late_copy_of_an_acquire_takes_nothing_once_its_token_was_left_for_good(etcd: Etcd) -> None:
    wish = Wish(BASE, "first@host:1/t")
    async with client(etcd) as (requests, gateway):
        assert (await requests.acquire(wish, 20_000, 3_000, wait=False, most=1))[0] == b"H"
        (put,) = [body for path, body in gateway.asked if path == "kv/txn"]
        assert (await requests.leave(wish, for_good=True, close_ms=0))[0] == b"R"
        with pytest.raises(Gone):
            await gateway.ask("kv/txn", put)
    assert not queue(etcd)


async def test_a_late_copy_of_a_release_takes_nothing_from_who_adopted(etcd: Etcd) -> None:
    given, taken = Wish(BASE, "given@host:1/t"), Wish(BASE, "taken@host:2/t")
    async with client(etcd) as (first, _), client(etcd) as (second, _):
        await first.acquire(given, 20_000, 3_000, wait=False, most=1)
        granted = await second.adopt(taken, given.token, 20_000)
        assert granted[0] == b"H"
        # It still has the lease that it gave away with the name.
        assert (await first.leave(given, for_good=False, close_ms=0))[0] == b"A"
        assert len(order(etcd)) == 1
        assert (await second.renew(taken, 20_000))[:2] == granted[:2]
        assert (await second.leave(taken, for_good=False, close_ms=0))[0] == b"R"
    assert not queue(etcd)


async def test_a_grant_is_above_all_fences_that_the_one_before_reserves(etcd: Etcd) -> None:
    """As many as a lock passes on inside its client, also where the next one has waited from the next revision on."""
    one, two = Wish(BASE, "one@host:1/t"), Wish(BASE, "two@host:2/t")
    async with client(etcd) as (first, _), client(etcd) as (second, _):
        _, fence, *_ = await first.acquire(one, 20_000, 3_000, wait=True, most=1)
        assert (await second.acquire(two, 20_000, 3_000, wait=True, most=1))[0] == b"Q"
        await first.leave(one, for_good=False, close_ms=0)
        letter, after, *_ = await second.renew(two, 20_000)
        assert letter == b"H"
        assert after > fence + 64
        await second.leave(two, for_good=False, close_ms=0)
