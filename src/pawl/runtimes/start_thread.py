"""Starting a thread, where a signal handler may raise in the middle."""

from __future__ import annotations

import threading

__all__ = ["start_thread"]


def start_thread(thread: threading.Thread) -> str:
    """Start a thread.

    A signal handler that raises in here, as Ctrl-C does, may leave it running, not begun, or standing for good in its
    first step, before any code of ours: the caller must not count on it, nor on its being gone.

    Returns:
        "" if it runs; else why not: the system has none left, or the interpreter ends and allows no more of them.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if error.__context__ is not None:
            # A signal handler raised in the wait for the thread, and Python's lock made this of it.
            raise error.__context__ from None
        # As text: who kept the error would keep the frames of its caller, and with them a lease.
        return str(error)
    return ""
