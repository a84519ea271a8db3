"""A signal handler runs in the main thread at its n-th step inside pawlock, wherever the interpreter may run one.

That is where a Python function begins, where a loop turns, and where a C function has returned (its result is lost if
the handler raises). A profiler counts the steps, and at the chosen one marks SIGINT as arrived. It does so last, and in
an operation after which the interpreter runs no handler, so the handler runs where it would after a real signal, and
an exception comes out of it as it does there. A profiler that raises by itself breaks the interpreter: Python 3.11
crashes, or calls the end of a `with` block twice.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pawlock

_PAWLOCK = str(Path(pawlock.__file__).parent)
_LEFT_OUT = (f"{_PAWLOCK}/testing", f"{_PAWLOCK}/embedded")
_BELOW = ("threading.py", "weakref.py", "contextlib.py")
"""What pawlock calls of the standard library is stepped through as well where it changes anything."""

_MARK: Any = ctypes.PYFUNCTYPE(ctypes.c_int)(("PyErr_SetInterrupt", ctypes.pythonapi))
"""Marks SIGINT as arrived."""


def _traced(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(_PAWLOCK) and not name.startswith(_LEFT_OUT)


def _is_finaliser(frame: FrameType | None) -> bool:
    """Whether a finaliser is at work: what a handler raises there, Python drops."""
    while frame is not None:
        if frame.f_code.co_name in {"__del__", "_remove"}:
            return True
        frame = frame.f_back
    return False


def _is_below(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename.endswith(_BELOW):
        frame = frame.f_back
    return frame is not None and _traced(frame)


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"


class Paused:
    """A block in which something happens at the n-th step inside pawlock, in any thread; it does not raise.

    Args:
        strike_at: Which step; the first is 1.
        strike: What happens then, once.
        spared: Functions whose steps are not counted.

    Attributes:
        reached: How many steps there were.
        where: Which one it was; "" before it.
    """

    def __init__(self, strike_at: int, strike: Callable[[], object], *, spared: tuple[str, ...] = ()) -> None:
        self.spared = spared
        self.strike_at = strike_at
        self.reached = 0
        self.where = ""
        # A subscript: no handler runs between it and the end of the profiler.
        self._strike: defaultdict[int, object] = defaultdict(strike)

    def __enter__(self) -> Self:
        # Python 3.11 trips over a profiler in what a collection calls; and steps come in the same order each time.
        gc.disable()
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event not in {"call", "c_return"}:
            return
        caller = frame.f_back if event == "call" else frame
        if not (_traced(frame) or _is_below(caller)):
            return
        if frame.f_code.co_name in self.spared or _is_finaliser(frame):
            return
        self.reached += 1
        if self.reached == self.strike_at:
            self.where = _place(frame)
            sys.setprofile(None)
            self._strike[0]


class Struck(Paused):
    """A signal handler runs after the step, in the main thread. It may raise, or use the client and return."""

    def __init__(self, strike_at: int, action: Callable[[], object], *, spared: tuple[str, ...] = ()) -> None:
        super().__init__(strike_at, _MARK, spared=spared)
        self._action = action
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        super().__exit__()
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, _: int, frame: FrameType | None) -> None:
        if frame is None or frame.f_code.co_name in self.spared:
            return
        self.where = _place(frame)
        if frame.f_code is Struck.__exit__.__code__:
            # Python 3.13 runs it as late as that after the last step: what it raises ends ``__exit__`` at once.
            self._end()
        self._action()
