"""Distinguishes a failure of the connection from an exception that was raised into the thread during its I/O.

A signal handler raises on top of whatever its thread does, and so does a thread that raises in another one: the time
limits of Celery, RQ and ``signal.alarm`` work that way. Most of what they raise is an ``Exception``, often a
``TimeoutError``. Taken for a failure of the connection it would end no wait, and count as an outage.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from types import CodeType

__all__ = ["let_out"]

_DRIVERS = frozenset(
    {
        "builtins",
        "gevent",
        "eventlet",
        "hiredis",
        "pawlock",
        "redis",
        "select",
        "socket",
        "ssl",
        "struct",
        "valkey",
    }
)
"""The packages whose exceptions may be the failure of a connection."""

_WRAPPERS = frozenset({"redis", "valkey"})
"""The packages that raise an error of their own in place of what they met."""


def let_out(error: BaseException, *packages: str) -> None:
    """Raise again what came from outside; return if an error is the failure of the I/O itself.

    What another thread raises is known by its class alone: a plain ``TimeoutError`` of one is not.

    Args:
        error: What was caught right around the I/O.
        packages: Other packages whose exceptions may be such a failure.
    """
    met = _from_outside(error, packages)
    if met is not None:
        try:
            raise met
        finally:
            # The error's traceback has this frame: the two would keep each other alive, and what the caller opened.
            del met, error


def _from_outside(error: BaseException, packages: tuple[str, ...]) -> BaseException | None:
    codes: set[CodeType] | None = None
    for met in _chain(error):
        home = _home(type(met).__module__)
        if not isinstance(met, OSError) and home not in _DRIVERS and home not in packages:
            return met
        trace = met.__traceback__
        while trace is not None:
            codes = set(_codes()) if codes is None else codes
            if trace.tb_frame.f_code in codes:
                return met
            trace = trace.tb_next
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what redis-py put it in place of; not what the caller was handling before."""
    met: BaseException | None = error
    while met is not None:
        yield met
        met = met.__context__
        trace = None if met is None else met.__traceback__
        if trace is None or _home(trace.tb_frame.f_globals.get("__name__", "")) not in _WRAPPERS:
            return


def _home(module: str) -> str:
    return module.partition(".")[0]


def _codes() -> Iterator[CodeType]:
    """The code of each signal handler."""
    for number in signal.valid_signals():
        handler: object = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        of_object = getattr(type(handler), "__call__", None)  # noqa: B004 - its code is wanted
        for place in (handler, getattr(handler, "__func__", None), of_object):
            code = getattr(place, "__code__", None)
            if isinstance(code, CodeType):
                yield code
