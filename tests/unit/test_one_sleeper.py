"""The event that wakes one thread: sleeping, waking, and a signal handler that raises in the middle."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from pawlock.transport.one_sleeper import OneSleeper
from tests.faults.steps import Struck

pytestmark = pytest.mark.slow


class _OfAHandler(Exception):
    pass


def _raise() -> None:
    raise _OfAHandler


def test_who_was_woken_before_does_not_sleep() -> None:
    bell = OneSleeper()
    bell.wake()
    bell.wake()
    assert bell.sleep(60)
    assert not bell.sleep(0)


def test_a_sleep_ends_at_its_time_or_when_woken() -> None:
    bell = OneSleeper()
    began = time.monotonic()
    assert not bell.sleep(0.05)
    assert time.monotonic() - began >= 0.05
    threading.Timer(0.05, bell.wake).start()
    assert bell.sleep(60)


@pytest.mark.parametrize("woken_before", [False, True])
def test_row_12_a_handler_that_raises_at_any_step_of_waking_breaks_nothing(*, woken_before: bool) -> None:
    at, where = 0, "begin"
    while where:
        at += 1
        bell = OneSleeper()
        if woken_before:
            bell.wake()
        with contextlib.suppress(_OfAHandler), Struck(at, _raise) as striking:
            bell.wake()
        where = striking.where
        bell.wake()
        assert bell.sleep(5), f"not woken after {where}"
        assert not bell.sleep(0), f"woken twice after {where}"
    assert at > 1
