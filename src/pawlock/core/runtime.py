"""The interface between decisions and I/O: what the core may ask of a runtime.

Three runtimes stand behind this protocol: threads, asyncio, and a simulator. Everything that the core awaits is a
method of a runtime or another coroutine of the core. The runtime of threads never suspends, so one ``send(None)``
finishes an operation there.

A request is what a primitive makes; nobody here or above knows what is in one. Its answer is one of the records of
``outcomes``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from pawlock.core.outcomes import Outcome, Unexpected
from pawlock.core.scripts import Script

__all__ = [
    "FIRST_RID",
    "NO_CHANNEL",
    "UNREADABLE",
    "Acknowledged",
    "Background",
    "Call",
    "Carrier",
    "Fault",
    "FaultKind",
    "Parker",
    "Reply",
    "Request",
    "Runtime",
    "StopSignal",
    "Wakeup",
    "make_call",
    "run",
    "suspended",
]


Request: TypeAlias = Any
"""What an engine's primitives make and its carrier takes: opaque to everybody between the two.

It has a ``name``, under which requests of its sort are counted.
"""

NO_CHANNEL = "-"
"""The channel of a caller that cannot listen: it polls instead."""


class Wakeup(NamedTuple):
    """The message by which the server notifies a waiter of its grant. Only a hint until it is checked."""

    fence: int
    expires_ms: int


class FaultKind(StrEnum):
    """What a server did instead of answering; the core decides what follows from it."""

    UNREACHABLE = "unreachable"
    UNANSWERED = "unanswered"
    NOT_READY = "not_ready"
    LATE = "late"
    READ_ONLY = "read_only"
    OUT_OF_MEMORY = "out_of_memory"
    DENIED = "denied"
    WRONG_KEY = "wrong_key"
    SCRIPT = "script"
    UNSUPPORTED = "unsupported"
    NOT_REDIS = "not_redis"
    NO_TLS = "no_tls"
    REDIRECTED = "redirected"
    CLOSED = "closed"


class Fault(Exception):
    """A request that ended without an answer of its own.

    Attributes:
        kind: What happened.
        text: The server's or the system's words, without secrets.
        maybe_applied: True if the server may have carried it out.
        final: True if another try can only fail the same way.
        outcomes: Of several servers, what each of them said, by its address; None of one.
    """

    def __init__(
        self,
        kind: FaultKind,
        text: str,
        *,
        maybe_applied: bool = False,
        final: bool = False,
        outcomes: dict[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.maybe_applied = maybe_applied
        self.final = final
        self.outcomes = outcomes

    def without_traceback(self) -> Self:
        """Without the frames that it passed through: kept beyond its ``except``, it keeps alive what they hold.

        Since Python 3.13 that is also what their callers hold: the lease that one of them gives to its user.
        """
        for kept in ("__cause__", "__context__"):
            setattr(self, kept, None)
        return self.with_traceback(None)


Acknowledged: TypeAlias = "tuple[Outcome | Fault, int]"
"""An outcome, and how many replicas have what its request wrote."""


class Carrier(Protocol):
    """The connections of a client to its server. All times are seconds.

    The same request, with the same token, may be sent again, and is answered alike.
    """

    def now(self) -> float:
        """The present, on the clock of every deadline, which also counts suspends."""
        ...

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
        ...

    def new_token(self) -> str:
        """A token that was never used before: 128 random bits, and who asks."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let a little time pass, also while the client closes."""
        ...

    async def ready(self, timeout: float) -> None:
        """Connect the present caller's link and confirm its wake-up subscription. Raises ``Fault``."""
        ...

    def channel(self) -> str:
        """The channel on which the present caller hears hand-offs; ``""`` before ``ready``, else maybe ``NO_CHANNEL``."""
        ...

    @property
    def several(self) -> bool:
        """Whether there are several servers, and the key of a request says which one it is for."""
        ...

    async def call(self, call: Request, timeout: float) -> Outcome:
        """Send one request, and wait for its answer. Raises ``Fault``; after ``timeout`` seconds, ``UNANSWERED``."""
        ...

    async def call_many(self, calls: Sequence[Request], timeout: float) -> list[Outcome | Fault]:
        """Send several requests at once; one outcome each, in order."""
        ...

    async def call_replicated(
        self, calls: Sequence[Request], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """The same, on a connection that nobody else uses meanwhile, and ``WAIT`` for replicas behind it.

        Returns:
            One outcome each, in order, and how many replicas have what it wrote. Raises ``Fault``.
        """
        ...

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """Wait for the hand-off message of ``token``; None after ``timeout``, or when the link had to be renewed."""
        ...

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        """Sleep, but no longer than until another program sends what wakes its waiters, where that can be heard.

        Args:
            hears: ``"publish"`` and a channel, or ``"push"`` and a list.
            seconds: For how long at most.

        Raises:
            Fault: The client is closed.
        """
        ...

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """One of the keys that a function makes of numbers for each server that has some of all. Raises ``Fault``."""
        ...


T = TypeVar("T")

Reply = list[Any]
"""What a script answered: a status letter, the echoed request id, then what the script's header says."""


FIRST_RID = 1_000_000_000
"""Request ids start here, so that each has ten digits: its length need not be worked out."""


UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What reading a reply raises that is not as its script's header says."""


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
        except UNREADABLE:
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
