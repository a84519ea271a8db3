"""What pawlock takes of the system, bound when it is loaded: clocks, sleep, the readiness of sockets.

Tests freeze the clocks of a program, or put another ``sleep`` in the place of ``time.sleep``: leases are counted in real
time all the same. freezegun replaces a clock wherever a module has it under a name, so here each is wrapped.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pawlock.errors import NotSupported

__all__ = [
    "ENDED",
    "LOCAL",
    "POLLIN",
    "POLLOUT",
    "SOCKET",
    "TIMED",
    "check_greenlets",
    "greenlet_error",
    "last_steps",
    "monotonic",
    "now",
    "poll",
    "sleep",
    "wall",
]


def _clock(name: str, otherwise: Callable[[], float]) -> Callable[[], float]:
    number: int | None = getattr(time, name, None)
    # The second is for Windows. The first one is real also if the clocks are frozen when this is loaded.
    return partial(otherwise) if number is None else partial(time.clock_gettime, number)


last_steps: list[Callable[[], object]] = []
"""What is called at the end of the process once all clients are closed, by which nothing is sent any more."""

monotonic: Callable[[], float] = _clock("CLOCK_MONOTONIC", time.monotonic)
"""Seconds, for time-outs."""

now: Callable[[], float] = _clock("CLOCK_BOOTTIME", monotonic)
"""Seconds on a clock that no wall clock moves; on Linux it also counts the time that the machine was suspended."""

wall: Callable[[], float] = _clock("CLOCK_REALTIME", time.time)
"""The time of day, in seconds since 1970."""

sleep: Callable[[float], None] = partial(time.sleep)
"""Block the thread for some seconds."""


# Sockets -------------------------------------------------------------------------------------------------------------

POLLIN: int = getattr(select, "POLLIN", 1)
POLLOUT: int = getattr(select, "POLLOUT", 4)
ENDED: int = getattr(select, "POLLRDHUP", 0) | getattr(select, "POLLHUP", 0)
"""That the other side has ended a connection; 0 where no system call tells that."""


class _Poll:
    """``select.poll`` where there is none, as on Windows: of what it has, what is used here."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    def register(self, number: int, wanted: int) -> None:
        self._wanted[number] = wanted

    def unregister(self, number: int) -> None:
        del self._wanted[number]

    def poll(self, milliseconds: int) -> list[tuple[int, int]]:
        if not self._wanted:  # Windows refuses to wait for nothing
            sleep(milliseconds / 1000)
            return []
        read = [number for number, wanted in self._wanted.items() if wanted & POLLIN]
        write = [number for number, wanted in self._wanted.items() if wanted & POLLOUT]
        readable, writable, broken = select.select(read, write, [*read, *write], milliseconds / 1000)
        return [*((one, POLLIN) for one in {*readable, *broken}), *((one, POLLOUT) for one in writable)]


poll: Callable[[], Any] = getattr(select, "poll", _Poll)
"""What tells which sockets can be read or written; see ``select.poll``."""


# Greenlets -----------------------------------------------------------------------------------------------------------

LOCAL = threading.local
SOCKET = socket.socket
"""What gevent and eventlet replace, as it was when pawlock was loaded."""

TIMED: type[socket.socket] | None = (
    SOCKET if SOCKET.__module__ == "socket" and hasattr(select, "poll") else None
)
"""The sockets whose time-outs the kernel keeps: none of gevent, and none on Windows, which counts them in another way."""

_CURE = "patch before anything else is imported: from gevent import monkey; monkey.patch_all()"


def greenlet_error() -> NotSupported | None:
    """Why greenlets cannot be told from one another; None where they can, and where others have replaced sockets.

    That is what test tools do which forbid connections, and proxies.
    """
    found = (LOCAL, threading.local, SOCKET, socket.socket)
    local, local_now, sock, sock_now = [one.__module__.partition(".")[0] for one in found]
    if "eventlet" in (local, local_now, sock, sock_now):
        return NotSupported("pawlock does not run under eventlet: use threads, gevent or asyncio")
    if local_now == "gevent" != local or sock_now == "gevent" != sock:
        return NotSupported(f"gevent has patched threads or sockets after pawlock had been used: {_CURE}")
    if sock == "gevent" != local:
        return NotSupported(f"gevent has patched sockets, but not threads: {_CURE}")
    return None


def check_greenlets() -> None:
    """Refuse greenlets that pawlock would take for one thread, and let in together.

    Raises:
        NotSupported: gevent has patched after pawlock was used, or not the threads; or it is eventlet.
    """
    if error := greenlet_error():
        raise error
