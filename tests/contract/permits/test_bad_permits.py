"""What can never work with permits is refused where it is given, before anything is sent."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import pawlock
from tests.contract.test_bad_input import word_of
from tests.support.refusal import refused

NOWHERE = "redis://127.0.0.1:1/0"  # whatever is sent there ends in another error

BAD_PERMITS: list[tuple[object, str]] = [
    (0, "got 0"),
    (-1, "got -1"),
    (True, "permits must be an int, got bool"),
    (3.0, "permits must be an int, got float"),
    ("3", "permits must be an int, got str"),
    (None, "permits must be an int, got NoneType"),
    (10**10, "got 10000000000"),
]
BAD_SHARES: list[tuple[object, str]] = [
    (0, "got 0"),
    (-1, "got -1"),
    (True, "n must be an int, got bool"),
    (1.0, "n must be an int, got float"),
    (4, "n must be 1 to 3, got 4"),
    (None, "n must be an int, got NoneType"),
]


@pytest.mark.parametrize(("permits", "word"), BAD_PERMITS, ids=word_of)
@pytest.mark.parametrize("connect", [pawlock.connect, pawlock.connect_async])
def test_permits(connect: Any, permits: Any, word: str) -> None:
    refused(lambda: connect(NOWHERE).semaphore("x", permits=permits), word)


@pytest.mark.parametrize(("n", "word"), BAD_SHARES, ids=word_of)
def test_permits_at_once(n: Any, word: str) -> None:
    threads = pawlock.connect(NOWHERE).semaphore("x", permits=3)
    refused(lambda: threads.acquire(n), word)
    refused(lambda: threads.try_acquire(n), word)
    tasks = pawlock.connect_async(NOWHERE).semaphore("x", permits=3)
    refused(lambda: tasks.acquire(n), word)
    refused(lambda: asyncio.run(tasks.try_acquire(n)), word)


@pytest.mark.parametrize(("permits", "word"), BAD_PERMITS, ids=word_of)
def test_a_new_limit(permits: Any, word: str) -> None:
    refused(lambda: pawlock.connect(NOWHERE).semaphore("x", permits=3).set_limit(permits), word)
    tasks = pawlock.connect_async(NOWHERE).semaphore("x", permits=3)
    refused(lambda: asyncio.run(tasks.set_limit(permits)), word)


@pytest.mark.parametrize("connect", [pawlock.connect, pawlock.connect_async])
def test_permits_are_not_handed_over(connect: Any) -> None:
    for given, word in (({"handover": 4}, "hand-off"), ({"lock_delay": 1}, "lock_delay")):
        refused(partial(connect(NOWHERE).semaphore, "x", permits=3, **given), word)
        refused(partial(connect(NOWHERE).rwlock, "x", **given), word)


@pytest.mark.parametrize("upgradable", [None, 1, "yes"])
@pytest.mark.parametrize("connect", [pawlock.connect, pawlock.connect_async])
def test_upgradable_is_a_word(connect: Any, upgradable: object) -> None:
    refused(lambda: connect(NOWHERE).rwlock("x", upgradable=upgradable), "upgradable")


@pytest.mark.parametrize("connect", [pawlock.connect, pawlock.connect_async])
def test_not_on_several_masters(connect: Any) -> None:
    client = connect([NOWHERE, NOWHERE.replace(":1/", ":2/"), NOWHERE.replace(":1/", ":3/")])
    refused(lambda: client.semaphore("x", permits=3), "Redlock", pawlock.NotSupported)
    refused(lambda: client.rwlock("x"), "Redlock", pawlock.NotSupported)
