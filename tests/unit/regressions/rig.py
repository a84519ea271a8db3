"""What the tests of mended defects share."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tests.support.pace import pace


def until(condition: Callable[[], object], timeout: float = 5.0) -> None:
    """Wait for a condition; fail if it does not come."""
    end = time.monotonic() + pace() * timeout
    while not condition():
        assert time.monotonic() < end, "the awaited condition did not come"
        time.sleep(0.002)


@contextmanager
def between(function: str, meanwhile: Callable[[], object], *, patience: float = 0.3) -> Iterator[None]:
    """Let another thread run ``meanwhile`` when this thread first enters a function of that name.

    The other thread gets ``patience`` seconds there; if it is kept out by a lock, it goes on afterwards.
    """
    threads: list[threading.Thread] = []

    def trace(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == function and not threads:
            threads.append(threading.Thread(target=meanwhile))
            threads[0].start()
            threads[0].join(patience)

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
        for thread in threads:
            thread.join()
    assert threads, f"{function} was never entered"
