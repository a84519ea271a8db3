"""A test leaves the signals of its process as it found them: programs that a later test starts inherit them.

A blocked or ignored SIGINT passes through fork and exec, and such a program never hears the Ctrl-C at its terminal.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any

import pytest

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)
_FOUND = pytest.StashKey[tuple[set[int], dict[signal.Signals, Any]]]()


def _state() -> tuple[set[int], dict[signal.Signals, Any]]:
    blocked = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())}
    return blocked, {number: signal.getsignal(number) for number in _WATCHED}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Note what the test finds."""
    item.stash[_FOUND] = _state()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Put back what the test has changed, and fail it rather than one that follows."""
    yield
    blocked, handlers = item.stash[_FOUND]
    now = _state()
    if now == (blocked, handlers):
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number, handler in handlers.items():
        if handler is not None:  # one that was not installed from Python cannot be put back from here
            signal.signal(number, handler)
    pytest.fail(f"it leaves signals changed: blocked {now[0]}, handlers {now[1]}")
