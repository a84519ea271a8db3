"""Whoever comes from another lock library is given pawlock's word for what is not there."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import pawlock
from tests.faults.rig import Api, Client
from tests.support.refusal import case

LOCKS: dict[str, Callable[[Any], Any]] = {
    "lock": lambda client: client.lock("a"),
    "rlock": lambda client: client.rlock("a"),
    "fair_lock": lambda client: client.fair_lock("a"),
    "read": lambda client: client.rwlock("a").read,
    "write": lambda client: client.rwlock("a").write,
    "semaphore": lambda client: client.semaphore("a", permits=2),
    "multi_lock": lambda client: client.multi_lock(["a", "b"]),
}


def test_an_attribute_of_the_lease_is_not_one_of_the_lock(pair: list[Client]) -> None:
    hints = (
        ("release", "release the lease that acquire() returned"),
        ("extend", "extend the lease that acquire() returned"),
        ("fence", "fence of the lease that acquire() returned"),
        ("unlock", "release the lease that acquire() returned"),
        ("reacquire", "extend(lease.ttl)"),
        ("owned", "bool(lease)"),
        ("nonsense", "object has no attribute 'nonsense'"),
    )
    for make in LOCKS.values():
        lock = make(pair[0].raw)
        for name, words in hints:
            with case(lock, name):
                assert not hasattr(lock, name)
                with pytest.raises(AttributeError) as caught:
                    getattr(lock, name)
                assert words in str(caught.value)
                assert type(lock).__name__ in str(caught.value)
                assert caught.value.name == name


def test_an_argument_of_another_library_is_refused_with_ours(api: Api, pair: list[Client]) -> None:
    arguments: list[tuple[str, object, str]] = [
        ("blocking", False, "try_acquire()"),
        ("blocking_timeout", 5, "blocking_timeout is timeout"),
        ("nonsense", 1, "unexpected keyword argument 'nonsense'"),
    ]
    for make in LOCKS.values():
        lock = make(pair[0].raw)
        for word, value, said in arguments:
            with case(lock, word):
                with pytest.raises(TypeError) as caught:
                    api.run(lambda: lock.acquire(**{word: value}))
                assert said in str(caught.value)
                assert repr(word) in str(caught.value)


def test_an_option_of_another_library_is_refused_with_ours(pair: list[Client]) -> None:
    with pytest.raises(pawlock.ConfigurationError, match="blocking_timeout is timeout"):
        pair[0].raw.lock("a", blocking_timeout=5)


def test_a_lock_is_still_copied_and_pickled(pair: list[Client]) -> None:
    for make in LOCKS.values():
        lock = make(pair[0].raw)
        assert copy.copy(lock).name == copy.deepcopy(lock).name == lock.name
        assert pickle.loads(pickle.dumps(lock)).name == lock.name
