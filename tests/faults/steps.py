"""Something happens to a thread at its n-th step inside pawl, wherever the interpreter may run a signal handler.

That is where a Python function begins and where a C function has returned (its result is lost if the handler raises).
A profiler is called in the same places.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pawl

_PAWL = str(Path(pawl.__file__).parent)
_LEFT_OUT = (f"{_PAWL}/testing", f"{_PAWL}/embedded")
_BELOW = ("threading.py", "weakref.py", "contextlib.py")
"""What pawl calls of the standard library is stepped through as well where it changes anything."""


def _traced(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(_PAWL) and not name.startswith(_LEFT_OUT)


def _is_finaliser(frame: FrameType | None) -> bool:
    """Whether a finaliser is at work: Python 3.11 trips over whatever a profiler does there."""
    while frame is not None:
        if frame.f_code.co_name in {"__del__", "_remove"}:
            return True
        frame = frame.f_back
    return False


def _is_below(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename.endswith(_BELOW):
        frame = frame.f_back
    return frame is not None and _traced(frame)


class Struck:
    """A block whose n-th step is followed by ``action``, on top of it.

    Args:
        strike_at: Which step; the first is 1.
        action: What happens. It may raise, or use the client and return.
        raises: True if it raises.
        spared: Functions in which nothing happens.
    """

    def __init__(
        self, strike_at: int, action: Callable[[], object], *, raises: bool, spared: tuple[str, ...] = ()
    ) -> None:
        self.spared = spared
        self.strike_at = strike_at
        self.reached = 0
        self.where = ""
        self._action = action
        self._raises = raises

    def __enter__(self) -> Self:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:  # noqa: ANN401 - what sys.setprofile gives
        if event not in {"call", "c_return"}:
            return
        caller = frame.f_back if event == "call" else frame
        if not (_traced(frame) or _is_below(caller)):
            return
        if event == "c_return" and self._raises and function.__name__ == "__exit__":
            # The interpreter would call the lock's end a second time, with the wrong arguments: not what a signal does.
            return
        if _is_finaliser(frame) or frame.f_code.co_name in self.spared:
            return
        self.reached += 1
        if self.reached == self.strike_at:
            name = frame.f_code.co_name
            what = name if event == "call" else f"{name} after {function.__name__}"
            self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {what}"
            sys.setprofile(None)
            self._action()
