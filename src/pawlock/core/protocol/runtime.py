"""The interface between decisions and I/O: what the core may ask of a runtime.

Three runtimes stand behind this protocol: threads, asyncio, and a simulator. Everything that the core awaits is a
method of a runtime or another coroutine of the core. The runtime of threads never suspends, so one ``send(None)``
finishes an operation there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from pawlock.core.protocol.carrier import DEAF, Acknowledged, Carrier, Fault, FaultKind, Wakeup
from pawlock.core.protocol.outcomes import Outcome, Unexpected
from pawlock.core.protocol.scripts import Script

__all__ = [
    "DEAF",
    "FIRST_RID",
    "Acknowledged",
    "Background",
    "Call",
    "Fault",
    "FaultKind",
    "Parker",
    "Reply",
    "Runtime",
    "StopSignal",
    "Wakeup",
    "make_call",
    "run",
    "suspended",
]

T = TypeVar("T")

Reply = list[Any]
"""What a script answered: a status letter, the echoed request id, then what the script's header says."""


FIRST_RID = 1_000_000_000
"""Request ids start here, so that each has ten digits: its length need not be worked out."""


class Call(NamedTuple):
    """One run of one script, packed but for the request id, which the transport appends.

    Attributes:
        script: What runs.
        body: Its keys and arguments as they stand in a request: each word with its length before it.
    """

    script: Script
    body: bytes

    @property
    def name(self) -> str:
        """Under which requests of its sort are counted."""
        return self.script.name

    def pack(self, rid: int) -> bytes:
        """The bytes of one EVALSHA; ``rid`` comes back in the reply."""
        return b"%b%b$10\r\n%d\r\n" % (self.script.evalsha, self.body, rid)

    def pack_eval(self, rid: int) -> bytes:
        """The same as EVAL, for a server that does not know the script yet."""
        return b"%b%b$10\r\n%d\r\n" % (self.script.eval, self.body, rid)

    def answer(self, reply: Reply) -> Outcome:
        """What a reply to it says."""
        try:
            return self.script.read[reply[0]](reply[2:])
        except (AttributeError, IndexError, TypeError, ValueError):
            return Unexpected(reply)

    def words(self) -> list[bytes]:
        """Keys and arguments, unpacked: for simulators, tests and logs."""
        words: list[bytes] = []
        at = 0
        while at < len(self.body):
            start = self.body.index(b"\r\n", at) + 2
            end = start + int(self.body[at + 1 : start - 2])
            words.append(self.body[start:end])
            at = end + 2
        return words


make_call: Callable[[tuple[Script, bytes]], Call] = partial(tuple.__new__, Call)  # pyright: ignore[reportUnknownMemberType]
"""A call of a script and its body, in one step of C: the class itself takes one of Python."""


class Parker(Protocol):
    """Where one waiter sleeps until another of the same client wakes it. Waking first and sleeping later is fine."""

    async def park(self, timeout: float | None) -> bool:
        """Sleep until woken or until ``timeout`` seconds passed; True if woken."""
        ...

    def rest(self, timeout: float | None) -> bool | Awaitable[object]:
        """``park`` without a coroutine: done where a call blocks its thread, else what is to be awaited."""
        ...

    def unpark(self) -> None:
        """Wake the local waiter; from any thread, any number of times."""
        ...


class Runtime(Carrier, Protocol):
    """What a runtime provides: a carrier, and all that is not its engine's: identity, guards, sleep."""

    @property
    def fence_strength(self) -> str:
        """What vouches for fences: ``"server"``, ``"quorum"`` or ``"best_effort"``; see ``Lease.fence_strength``."""
        ...

    recheck_after: float | None
    """Seconds after which a local waiter makes sure that somebody has the turn; None where a call cannot be
    interrupted between two of its steps."""

    def who(self) -> Hashable:
        """The present thread or task; never reused while anything refers to it."""
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """A new guard for shared state, held for short: other threads look at an event loop's, too."""
        ...

    def parker(self) -> Parker:
        """A place to sleep for the present thread or task."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass. Raises ``Fault`` of kind CLOSED if the client is closed meanwhile."""
        ...

    def gone(self) -> bool:
        """Whether nobody can use the client here any more: its event loop was closed."""
        ...

    def run_in_owner(self, callback: Callable[[], object]) -> None:
        """Run something where the users of the client run, who are woken by it: at once if this is there, else soon.

        Of an event loop that is its thread, and any thread otherwise. Nothing is run once the loop is closed.
        """
        ...

    def report(self, callback: Callable[[], object]) -> None:
        """Run a user's callback where it can neither block nor break the maintenance."""
        ...


class Background(Carrier, Protocol):
    """The thread that serves a client in the background, and its own connections; in both APIs the same.

    A client of threads uses connections of the same runtime, each thread its own; one of asyncio another runtime.
    """

    def spawn_maintenance(self, maintenance: Callable[[], Awaitable[None]]) -> str:
        """Run the client's maintenance in the background, once; a second call while it runs does nothing.

        Returns:
            "" if it runs; else why not: no thread can be started now, or the client has ended.
        """
        ...

    async def idle(self, until: float | None) -> bool:
        """For the maintenance alone: sleep until ``nudge`` or a time of this clock; False once it should end.

        A time and not a number of seconds: if the process is stopped before the sleep begins, and runs again after that
        time, it does not begin at all, and the end of a lease is reported.
        """
        ...

    def nudge(self) -> None:
        """Wake the maintenance; from any thread, also from a finaliser."""
        ...

    def abandon(self) -> None:
        """Let the maintenance end, because nobody can use the client any more; also from a finaliser."""
        ...


def run(operation: Coroutine[Any, Any, T]) -> T:
    """Finish an operation of the core on a runtime that never suspends."""
    try:
        operation.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise suspended(operation)


def suspended(operation: Coroutine[Any, Any, object]) -> RuntimeError:
    """The error of an operation that is suspended on a runtime that never suspends; it ends."""
    operation.close()
    return RuntimeError(
        "an operation of pawlock awaited something that is not of its runtime; please report this"
    )


class StopSignal(Protocol):
    """An event, of threading or asyncio: set, it ends a wait."""

    def is_set(self) -> bool:
        """True once the wait is to end."""
        ...
