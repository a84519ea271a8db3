"""A time limit that strikes while the first call starts the server reaches the caller; the server can be stopped."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pawlock
from pawlock import embedded
from tests.support.pace import pace

# A file that `open` has just returned is closed by the garbage collector if the limit strikes there.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

_EMBEDDED = str(Path(embedded.__file__).parent)


class Limit(Exception):
    """As Celery's ``SoftTimeLimitExceeded``."""


@pytest.fixture
def handlers() -> Iterator[Callable[[type[Exception]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def install(limit: type[Exception]) -> None:
        def handler(*_: object) -> None:
            raise limit("time is up")

        signal.signal(signal.SIGUSR1, handler)

    yield install
    signal.signal(signal.SIGUSR1, before)


def strike(state: Path, at: int) -> int:
    """Start a server, and send the signal at one step; how many steps were reached."""
    reached = 0

    def profile(frame: FrameType, event: str, function: Any) -> None:
        nonlocal reached
        if event not in {"call", "c_return"} or not frame.f_code.co_filename.startswith(_EMBEDDED):
            return
        # The interpreter would leave a block a second time, with the wrong arguments: not what a signal does.
        if event == "c_return" and function.__name__ == "__exit__":
            return
        reached += 1
        if reached == at:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGUSR1)

    sys.setprofile(profile)
    try:
        embedded.ensure(state)
    finally:
        sys.setprofile(None)
    return reached


def stopped(state: Path) -> None:
    """Stop the server, once it has noticed that the connection of the call that was struck is closed."""
    end = time.monotonic() + pace() * 3
    while True:
        # Where the limit strikes as a connection is made, its socket is in a circle.
        gc.collect()
        try:
            assert embedded.stop(state) in {True, False}
            return
        except embedded.ServerInUse:
            if time.monotonic() > end:
                raise
        time.sleep(0.02)


def check(state: Path, limit: type[Exception], at: int) -> int | None:
    """How many steps there were if that step was not reached; None if it was, and the limit came to the caller."""
    reached = said = None
    # In a finaliser, Python itself drops it.
    dropped: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda args: dropped.append(args.exc_type)
    try:
        reached = strike(state, at)
    except (limit, pawlock.PawlockError) as error:
        said = f"{type(error).__name__}: {error}"
    finally:
        sys.unraisablehook = hook
    stopped(state)
    assert not embedded.status(state).running
    if dropped == [limit]:
        return None
    assert reached is None or reached < at, f"the limit was lost at step {at}"
    assert reached is not None or said == f"{limit.__name__}: time is up", f"step {at}"
    return reached


@pytest.mark.parametrize("limit", [TimeoutError, Limit])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_a_time_limit_at_some_steps_of_the_first_start(
    state: Path, handlers: Callable[[type[Exception]], None], limit: type[Exception], part: float
) -> None:
    handlers(limit)
    steps: int | None = strike(state, 0)
    stopped(state)
    # It looks again and again whether the server is up: one that is up sooner than at the time before takes less steps.
    for _ in range(20):
        assert steps is not None
        assert steps > 100
        steps = check(state, limit, int(steps * part))
        if steps is None:
            break
    assert steps is None, "no start got that far"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("limit", [TimeoutError, Limit])
def test_a_time_limit_at_every_step_of_the_first_start(
    state: Path, handlers: Callable[[type[Exception]], None], limit: type[Exception]
) -> None:
    handlers(limit)
    at = 1
    while check(state, limit, at) is None:
        at += 1
    assert at > 100
