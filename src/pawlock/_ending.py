"""The end of the process: clients of threads are closed, and what all others have to leave is left."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from pawlock._system import last_steps, monotonic
from pawlock.core.close import drain
from pawlock.core.engine import served
from pawlock.errors import ClientClosed, NotSupported
from pawlock.model import LossReason
from pawlock.runtimes.threads import run

__all__ = ["UNANSWERED", "closers"]

_EXIT_TIME = 5.0
"""Seconds that the releases of all clients may take at the end of the process."""

UNANSWERED = 1.0
"""Seconds that they take there if the server does not answer, and those of each client at least."""

closers: list[Callable[[float], object]] = []
"""What closes the clients of an API, until a time of the monotonic clock; an event loop's are closed by nobody."""


def _hushed(
    hook: Callable[[threading.ExceptHookArgs], object],
) -> Callable[[threading.ExceptHookArgs], object]:
    """What reports the errors of threads, without those by which a daemon thread learns that the process ends."""

    def report(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if not isinstance(error, ClientClosed) and getattr(error, "reason", None) is not LossReason.CLOSED:
            hook(args)

    return report


def end_all() -> None:
    """Close what can be closed, and wait for the background threads of the rest."""
    threading.excepthook = _hushed(threading.excepthook)
    end = monotonic() + _EXIT_TIME
    for close in closers:
        close(end)
    for engine in list(served):
        with contextlib.suppress(NotSupported):  # of greenlets nothing is done any more
            run(drain(engine, max(UNANSWERED, end - monotonic())))
    for step in last_steps:
        step()


class _Ends:
    """What `multiprocessing` runs for a worker that was forked, whose end runs nothing of `atexit`."""

    def __init__(self) -> None:
        self._known = False
        # The worker of a fork server finds it here: it was forked before it imported anything.
        self.register()

    def register(self) -> None:
        """Be called in a worker; children inherit that."""
        # Whatever `multiprocessing` forks has it. It forgets the finalizers of its parent before it calls this.
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None and not self._known:
            self._known = True
            util.register_after_fork(self, _Ends.in_worker)
            # A worker that is the first to use pawlock is past that call.
            if sys.modules["multiprocessing.process"].parent_process() is not None:
                self.in_worker()

    def after_fork(self) -> None:
        """In any forked child: whatever is to be left of the parent is the parent's to leave."""
        served.clear()
        self.register()

    def in_worker(self) -> None:
        """In a worker: close all clients at its end, after its own children and finalizers."""
        util: Any = sys.modules["multiprocessing.util"]
        util.Finalize(None, self.close, exitpriority=-1000)

    def close(self) -> None:
        """Close them, unless threads go on for which the worker waits."""
        if all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()):
            end_all()


atexit.register(end_all)
_ends = _Ends()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ends.after_fork)
