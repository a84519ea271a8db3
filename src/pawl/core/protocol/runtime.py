"""The seam between deciding and doing: what the core may ask of the world.

Three runtimes stand behind this protocol: threads, asyncio, and a simulator. Everything that the core awaits is a
method of a runtime or another coroutine of the core. The runtime of threads never suspends, so one ``send(None)``
finishes an operation there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from pawl.core.protocol.scripts import Script

__all__ = [
    "DEAF",
    "FIRST_RID",
    "Call",
    "Fault",
    "FaultKind",
    "Line",
    "Parker",
    "Relief",
    "Reply",
    "Runtime",
    "StopSignal",
    "Tracking",
    "Wakeup",
    "behind_subscribe",
    "make_call",
    "run",
]

T = TypeVar("T")

Reply = list[Any]
"""What a script answered: a status letter, the echoed request id, then what the script's header says."""


DEAF = "-"
"""The channel of a caller that cannot listen: it polls instead."""


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

    def pack(self, rid: int) -> bytes:
        """The bytes of one EVALSHA; ``rid`` comes back in the reply."""
        return b"%b%b$10\r\n%d\r\n" % (self.script.evalsha, self.body, rid)

    def pack_eval(self, rid: int) -> bytes:
        """The same as EVAL, for a server that does not know the script yet."""
        return b"%b%b$10\r\n%d\r\n" % (self.script.eval, self.body, rid)

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


_BEHIND: dict[tuple[str, str], Script] = {}
_MOST_KEPT = 1000


def behind_subscribe(call: Call, channel: str) -> Call:
    """The same call behind a ``SUBSCRIBE`` of the channel that its connection hears already, which changes nothing.

    A server writes what it owes to its clients in the reverse order of who was the first to be owed anything. Without
    that, the message that a script publishes is written after the script's own reply: who gives the name back is woken
    first, and on a machine with few CPUs takes the one that the new owner needs.
    """
    if channel in ("", DEAF):
        return call
    key = call[0].sha, channel
    script = _BEHIND.get(key)
    if script is None:
        if len(_BEHIND) >= _MOST_KEPT:
            _BEHIND.clear()
        subscribe = b"*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%b\r\n" % (len(channel), channel.encode())
        script = _BEHIND[key] = replace(call[0], evalsha=subscribe + call[0].evalsha)
    return make_call((script, call[1]))


class Wakeup(NamedTuple):
    """The message by which the server notifies a waiter of its grant. Only a hint until it is checked."""

    fence: int
    expires_ms: int
    behind: tuple[str, ...] = ()
    """The tokens whose tickets stand directly behind, of the same process."""

    @property
    def is_notice(self) -> bool:
        """True: it reports to an owner that its token is over. Every other message has 0 in one of the two at most."""
        return self.fence == 0 and self.expires_ms == 0


class Tracking:
    """What the server was asked to notify of: the next change of one key. Notices are hints, and may get lost.

    Args:
        token: Of the waiter, or the holder.
        key: The key, as it is on the server.
        notify: Called once with the tracking when the key changed, by whichever thread reads it; None for a waiter.

    Attributes:
        left_ms: Milliseconds that the key had left when the tracking began; -1: it has no expiry, -2: there is no key.
        changed: True once the key may have changed since.
    """

    __slots__ = ("_notify", "_place", "changed", "key", "left_ms", "token")

    def __init__(self, token: str, key: bytes, notify: Callable[[Tracking], object] | None = None) -> None:
        self.token: str = token
        self.key: bytes = key
        self.left_ms: int = -2
        self.changed: bool = False
        self._notify = notify
        self._place: dict[str, Tracking] | None = None

    def begin(self, place: dict[str, Tracking]) -> None:
        """Be found there, by the token, until its end."""
        self._place = place
        place[self.token] = self

    def end(self) -> None:
        """Notices of the key are of no interest any more; from any thread, and safe to repeat."""
        place, self._place, self._notify = self._place, None, None
        if place is not None and place.get(self.token) is self:
            place.pop(self.token, None)

    def concerns(self, keys: Sequence[bytes] | None) -> bool:
        """Whether a notice of these keys (None: of all) is about this one; if so the key counts as changed."""
        if keys is not None and self.key not in keys:
            return False
        self.changed = True
        notify, self._notify = self._notify, None
        if notify is not None:
            notify(self)
        return True


class FaultKind(StrEnum):
    """What a node did instead of answering; the core decides what follows from it."""

    UNREACHABLE = "unreachable"
    UNANSWERED = "unanswered"
    NOT_READY = "not_ready"
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
    """A request that ended without a reply of its script.

    Attributes:
        kind: What happened.
        text: The server's or the system's words, without secrets.
        maybe_applied: True if the server may have run the script.
        final: True if another try can only fail the same way.
    """

    def __init__(
        self, kind: FaultKind, text: str, *, maybe_applied: bool = False, final: bool = False
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.maybe_applied = maybe_applied
        self.final = final


class Parker(Protocol):
    """Where one waiter sleeps until another of the same client wakes it. Waking first and sleeping later is fine."""

    async def park(self, timeout: float | None) -> bool:
        """Sleep until woken or until ``timeout`` seconds passed; True if woken."""
        ...

    def rest(self, timeout: float | None) -> bool | Awaitable[object]:
        """``park`` for the fast path: done where a call blocks its thread, else what is to be awaited."""
        ...

    def unpark(self) -> None:
        """Wake the local waiter; from any thread, any number of times."""
        ...


class Line(Protocol):
    """A connection, as the fast path uses it: with no coroutine between the question and the socket."""

    channel: str
    """The channel on which its user hears hand-offs, or ``DEAF``."""

    def ask(self, call: Call, timeout: float) -> Reply | Awaitable[Reply]:
        """Run one script: the reply itself where a call blocks its thread, else what brings it. Both may ``Fault``."""
        ...


class Runtime(Protocol):
    """What a runtime provides. All times are seconds on one clock that also counts suspends."""

    look_after: float | None
    """Seconds after which a local waiter makes sure that somebody has the turn; None where a call cannot be
    interrupted between two of its steps."""

    def now(self) -> float:
        """The present, on the clock of every deadline."""
        ...

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
        ...

    def new_token(self) -> str:
        """A token that was never used before: 128 random bits, and who asks."""
        ...

    def comer(self) -> tuple[Hashable, str]:
        """``who`` and ``new_token`` in one step."""
        ...

    def who(self) -> Hashable:
        """The present thread or task; never reused while anything refers to it."""
        ...

    def channel(self) -> str:
        """The channel on which the present caller hears hand-offs; ``""`` before ``ready``, else maybe ``DEAF``."""
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """A new guard for shared state, held for short: other threads look at an event loop's, too."""
        ...

    def parker(self) -> Parker:
        """A place to sleep for the present thread or task."""
        ...

    async def ready(self, timeout: float) -> None:
        """Connect the present caller's link and confirm its wake-up subscription. Raises ``Fault``."""
        ...

    def line(self) -> Line | None:
        """The connection of the present caller, if it is there and free; None where only ``call`` will do."""
        ...

    async def call(self, call: Call, timeout: float) -> Reply:
        """Run one script. Raises ``Fault``; after ``timeout`` seconds, ``UNANSWERED``."""
        ...

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Reply | Fault]:
        """Run several scripts in one write; one outcome each, in order."""
        ...

    def cast(self, call: Call) -> None:
        """Send without waiting, behind all that was sent before, if a connection lives; else do nothing."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass. Raises ``Fault`` of kind CLOSED if the client is closed meanwhile."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let a little time pass, also while the client closes."""
        ...

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """Wait for the hand-off message of ``token``.

        Returns:
            None after ``timeout``, when the link had to be renewed, or when its bell was rung.
        """
        ...

    def bell(self, token: str) -> Callable[[], object] | None:
        """What ends the present caller's next wait for ``token`` from within the client; None if nothing can."""
        ...

    def prolong(self, token: str, seconds: float) -> None:
        """Let the present wait for ``token`` end no sooner than after so long; a hint, which spares a wake-up."""
        ...

    async def track(
        self, token: str, key: str, timeout: float, notify: Callable[[Tracking], object] | None = None
    ) -> Tracking | None:
        """Have the server notify of the next change of a key, which ends ``wait_wakeup`` of ``token``.

        It raises no ``Fault``: a connection that broke is noticed by the next call. With ``notify`` it is for the
        maintenance alone, in whose ``idle`` notices are read.

        Returns:
            None if the server, or the connection to it, cannot. Its ``end`` is to be called.
        """
        ...

    def spawn_maintenance(self, maintenance: Callable[[], Awaitable[None]]) -> bool:
        """Run the client's maintenance in the background, once; a second call while it runs does nothing.

        Returns:
            False if it does not run: the client has ended, and nothing is served any more; or no thread could be
            started now, and the runtime tries again with the client's next operations.
        """
        ...

    async def idle(self, until: float | None) -> bool:
        """For the maintenance alone: sleep until ``nudge`` or a time of this clock; False once it should end.

        A time and not a number of seconds: if the process is stopped before the sleep begins, and runs again after that
        time, it does not begin at all, and the end of a lease is reported.
        """
        ...

    def notices(self) -> list[str]:
        """For the maintenance alone: tokens that the server said are over, since it was asked last."""
        ...

    def nudge(self) -> None:
        """Wake the maintenance; from any thread, also from a finaliser."""
        ...

    def at_home(self, callback: Callable[[], object]) -> None:
        """Run something where the client's state may be changed: at once where this is that, else soon."""
        ...

    def report(self, callback: Callable[[], object]) -> None:
        """Run a user's callback where it can neither block nor break the maintenance."""
        ...


class Relief(Protocol):
    """What renews the leases of an event loop while that is blocked."""

    def rouse(self) -> None:
        """Have it look now: a lease is due earlier than it knows, or it does not run yet. In the loop's thread."""
        ...

    def stop(self) -> None:
        """End it at once; from any thread."""
        ...

    def after_fork(self) -> None:
        """In the child: its thread and its connections are the parent's."""
        ...


def run(operation: Coroutine[Any, Any, T]) -> T:
    """Finish an operation of the core on a runtime that never suspends."""
    try:
        operation.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    operation.close()
    raise RuntimeError(
        "an operation of pawl awaited something that is not of its runtime; please report this"
    )


class StopSignal(Protocol):
    """An event, of threading or asyncio: set, it ends a wait."""

    def is_set(self) -> bool:
        """True once the wait is to end."""
        ...
