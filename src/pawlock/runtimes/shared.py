"""What both APIs need of the system: the clock, tokens, the identity of this process."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import string
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from pawlock._system import monotonic, now
from pawlock.core.faults import classify, or_raise
from pawlock.core.names import WIRE_VERSION, helper_key
from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind
from pawlock.topology.cluster import first_key
from pawlock.transport.conn import ReplyError, Words
from pawlock.transport.route import Route

__all__ = ["Routed", "leave_signals_to_main", "living", "secret", "start_thread", "stock"]

T = TypeVar("T")


_BASE62 = (string.digits + string.ascii_letters).encode()
# 256 byte values onto 62 digits is a little uneven: 5/256 at most, so 24 digits keep over 136 bits.
_TO_BASE62 = bytes(_BASE62[value % 62] for value in range(256))
_TOKEN_DIGITS = 24
_UNSAFE = re.compile(r"[^\w.\-#]")

_SHARE = 0.75
"""Of the time for an answer, what the replicas may take of it."""

_ATTACHED = re.compile(rb"connected_slaves:(\d+)")

Exchange: TypeAlias = Callable[[Sequence[Call | Words], float], Awaitable[list[Any]]]
"""Sends several together; what each is answered with."""


class Routed:
    """What both runtimes have in common: who they are, and that requests go by a route.

    Args:
        route: Where requests go.
        wake_prefix: What the wake-up channels of this client begin with.

    Attributes:
        request_timeout, connect_timeout: The client's options, or None.
    """

    def __init__(self, route: Route, wake_prefix: str) -> None:
        self._route = route
        self._several: bool = route.several
        self._wake_prefix = wake_prefix
        self._identify()
        # Whether it ever had a connection; whether nobody may wait any more; whether all of it ends.
        self._served = False
        self._closed = False
        self._ending = False
        self.request_timeout: float | None = None
        self.connect_timeout: float | None = None
        self.on_move: Callable[[], object] | None = None
        self.now = now
        self.random: Callable[[], float] = random.SystemRandom().random

    def _identify(self) -> None:
        """Learn who this process is, as its tokens show it: ``@host:pid/``, and who asks."""
        host = _UNSAFE.sub("_", socket.gethostname())[:64] or "unknown"
        self._whose: str = f"@{host}:{os.getpid()}/"

    def _check(self, over: bool) -> None:  # noqa: FBT001 - what is checked
        if over:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)

    def mutex(self) -> AbstractContextManager[object]:
        """See ``Runtime``."""
        # Re-entrant: a finaliser may run while its thread has it.
        return threading.RLock()

    @property
    def fence_strength(self) -> str:
        """See ``Runtime``."""
        return "server"

    @property
    def several(self) -> bool:
        """See ``Carrier``."""
        return self._several

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        return [outcome for outcome, _ in await self._route.send_all(calls, 0, timeout)]

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``."""
        return await self._route.send_all(calls, replicas, timeout)

    @staticmethod
    async def ask_replicas(
        exchange: Exchange, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """Run scripts of one server, and count the replicas that have what they wrote, if any are to have it.

        ``WAIT`` covers what its own connection wrote. A grant that another's script made (a hand-off), and a resend that
        finds its token holding, write nothing; so a write goes before it: it stands behind all of them in the stream of
        replication, wherever they came from. A master that never had a replica numbers no writes, and counts one that comes
        while it waits, whatever that has by then: so only those count that were there before.
        """
        if not replicas:
            return [(outcome, 0) for outcome in await exchange(calls, timeout)]
        end = monotonic() + timeout
        info, *outcomes = await exchange([(b"INFO", b"replication"), *calls], timeout)
        there = _ATTACHED.search(_checked(info, bytes))
        # Not sooner: a script that the server did not know was sent again, and only what stands before it is covered.
        left = max(0.001, end - monotonic())
        key = helper_key(first_key(calls[0].body).decode("latin-1"), f"{WIRE_VERSION}:wait").encode("latin-1")
        wait = b"WAIT", b"%d" % replicas, b"%d" % max(1, int(left * 1000 * _SHARE))
        _, count = await exchange([(b"SET", key, b"1", b"PX", b"1"), wait], left)
        count = min(_checked(count, int), int(there[1])) if there else 0
        return [(outcome, count) for outcome in outcomes]

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """See ``Carrier``."""
        return await self._route.key_for_each(key_of, timeout)


def living(known: WeakValueDictionary[int, T]) -> list[T]:
    """Those of them that somebody else has; other threads may add to them meanwhile."""
    return [one for reference in known.valuerefs() if (one := reference()) is not None]


stock: list[str] = []
"""Secret parts that were drawn and not used yet."""

_POOLED = 64


def secret() -> str:
    """The secret part of a token: over 128 random bits in base 62, from the system's generator."""
    try:
        # One step under the interpreter's lock: no two threads get the same.
        return stock.pop()
    except IndexError:
        # Many at once: each call of the system lets another thread in between.
        digits = os.urandom(_TOKEN_DIGITS * _POOLED).translate(_TO_BASE62).decode()
        fresh = [digits[at : at + _TOKEN_DIGITS] for at in range(0, len(digits), _TOKEN_DIGITS)]
        token = fresh.pop()
        stock.extend(fresh)
        return token


if hasattr(os, "register_at_fork"):
    # Parent and child must never use the same token.
    os.register_at_fork(after_in_child=stock.clear)


def start_thread(thread: threading.Thread) -> str:
    """Start a thread.

    If a signal handler raises in here, as Ctrl-C does, the thread may be running, may never have started, or may hang
    before its target is called. The caller must be correct in each case.

    Returns:
        "" if it runs; else why not: the system has none left, or the interpreter ends and allows no more of them.
    """
    try:
        thread.start()
    except (RuntimeError, KeyError) as error:
        if error.__context__ is not None:
            # A signal handler raised during the start, and what Python then does about its own books failed as well.
            raise error.__context__ from None
        # As text: who kept the error would keep the frames of its caller, and with them a lease.
        return str(error)
    return ""


def leave_signals_to_main() -> None:
    """Block signals here: one that the kernel gives to this thread would leave the main thread asleep.

    A greenlet that stands for a thread runs in the main thread itself: there it would block them for the whole process.
    """
    # The second one is the parent's after a fork, the first one is right on Linux.
    here_is_main = threading.get_native_id() in (os.getpid(), threading.main_thread().native_id)
    if hasattr(signal, "pthread_sigmask") and not here_is_main:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _checked(reply: Any, kind: type[Any]) -> Any:
    """The reply to a command. Raises ``Fault``: the scripts may have been applied."""
    if isinstance(reply, ReplyError):
        fault = classify(str(reply))
        raise Fault(fault.kind, fault.text, maybe_applied=True)
    if type(or_raise(reply)) is kind:
        return reply
    raise Fault(FaultKind.UNANSWERED, f"no answer to the count of replicas: {reply}", maybe_applied=True)
