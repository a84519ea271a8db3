"""What can never work with permits is refused where it is given, before anything is sent."""

from __future__ import annotations

from typing import Any

import pawlock
from tests.contract.test_bad_input import CONNECTS, refused_by_both
from tests.support.refusal import case, refused

NOWHERE = "redis://127.0.0.1:1/0"  # whatever is sent there ends in another error

BAD_PERMITS: list[tuple[Any, str]] = [
    (0, "got 0"),
    (-1, "got -1"),
    (True, "permits must be an int, got bool"),
    (3.0, "permits must be an int, got float"),
    ("3", "permits must be an int, got str"),
    (None, "permits must be an int, got NoneType"),
    (10**10, "got 10000000000"),
]
BAD_SHARES: list[tuple[Any, str]] = [
    (0, "got 0"),
    (-1, "got -1"),
    (True, "n must be an int, got bool"),
    (1.0, "n must be an int, got float"),
    (4, "n must be 1 to 3, got 4"),
    (None, "n must be an int, got NoneType"),
]


def test_permits() -> None:
    for permits, word in BAD_PERMITS:
        with case(permits):
            for connect in CONNECTS:
                refused(lambda: connect(NOWHERE).semaphore("x", permits=permits), word)
            refused_by_both(NOWHERE, lambda client: client.semaphore("x", permits=3).set_limit(permits), word)


def test_permits_at_once() -> None:
    for n, word in BAD_SHARES:
        with case(n):
            for connect in CONNECTS:
                refused(lambda: connect(NOWHERE).semaphore("x", permits=3).acquire(n), word)
            refused_by_both(NOWHERE, lambda client: client.semaphore("x", permits=3).try_acquire(n), word)


def test_options() -> None:
    options: list[tuple[dict[str, Any], str]] = [
        ({"handover": 4}, "hand-off"),
    ]
    for connect in CONNECTS:
        client = connect(NOWHERE)
        for given, word in options:
            refused(lambda: client.semaphore("x", permits=3, **given), word)
            refused(lambda: client.rwlock("x", **given), word)


def test_not_on_several_masters() -> None:
    for connect in CONNECTS:
        client = connect([NOWHERE, NOWHERE.replace(":1/", ":2/"), NOWHERE.replace(":1/", ":3/")])
        refused(lambda: client.semaphore("x", permits=3), "Redlock", pawlock.NotSupported)
        refused(lambda: client.rwlock("x"), "Redlock", pawlock.NotSupported)
