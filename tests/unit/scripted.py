"""A runtime whose server is a list of canned answers and whose time stands still until somebody sleeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple, TypeVar

from pawlock.core.acquire import acquire
from pawlock.core.engine import Engine
from pawlock.core.lease import HeldLease, release
from pawlock.core.maintenance import maintain
from pawlock.core.options import LockOptions
from pawlock.core.outcomes import Look, Outcome
from pawlock.core.plan import ASKERS, Plan
from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind, Parker, Reply, Wakeup
from pawlock.model import Release
from pawlock.primitives.mutex import Mutex

T = TypeVar("T")

START = 1000.0
NOW_MS = 5_000_000
"""The server's clock in the canned replies; the client never compares it with its own."""


def run(operation: Coroutine[Any, Any, T]) -> T:
    """Finish an operation: this runtime never suspends."""
    try:
        operation.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    operation.close()
    raise AssertionError("the operation suspended")


# Replies, without the request id: the runtime puts it in.


def held(fence: int = 100, left_ms: int = 30_000) -> Reply:
    return [b"H", b"", fence, left_ms, NOW_MS]


def queued(
    rank: int = 0, holder_ms: int = 20_000, expires_ms: int = NOW_MS + 3000, foreign: int = 0
) -> Reply:
    return [b"Q", b"", rank, holder_ms, expires_ms, NOW_MS, foreign]


def busy(holder_ms: int = 20_000, foreign: int = 0) -> Reply:
    return [b"B", b"", holder_ms, foreign, b"other:1/main"]


def unknown(present: bytes = b"none") -> Reply:
    return [b"U", b"", present]


GONE: Reply = [b"X", b""]
RELEASED: Reply = [b"R", b""]
WITHDRAWN: Reply = [b"W", b""]


def absent(present: bytes = b"other", forced: int | None = 0) -> Reply:
    return [b"A", b"", present, *([] if forced is None else [forced])]


def unanswered() -> Fault:
    return Fault(FaultKind.UNANSWERED, "no answer", maybe_applied=True)


class Sent(NamedTuple):
    """One request as it went out."""

    script: str
    args: list[str]
    at: float
    timeout: float

    @property
    def token(self) -> str:
        """The token that it was sent for."""
        return self.args[0]


class After(NamedTuple):
    """An answer that takes its time."""

    seconds: float
    answer: Reply | Fault


Answer = Reply | Fault | After | Callable[[], "Reply | Fault | After"]


class _Parker:
    def __init__(self, runtime: Scripted) -> None:
        self._runtime = runtime
        self.woken = 0

    async def park(self, timeout: float | None) -> bool:
        if not self.woken:
            if self._runtime.while_parked is not None:
                self._runtime.while_parked()
            if not self.woken:
                assert timeout is not None, "would sleep forever"
                self._runtime.clock += timeout
        woken, self.woken = bool(self.woken), 0
        return woken

    def rest(self, timeout: float | None) -> Awaitable[bool]:
        return self.park(timeout)

    def unpark(self) -> None:
        self.woken += 1


class Scripted:
    """See ``pawlock.core.runtime.Runtime``. Answers in order; a request too many fails the test."""

    fence_strength = "server"

    def __init__(self, *answers: Answer) -> None:
        self.clock = START
        self.answers: deque[Answer] = deque(answers)
        self.wakeups: deque[Wakeup | None] = deque()
        self.sent: list[Sent] = []
        self.waits: list[float] = []
        self.sleeps: list[float] = []
        self.while_parked: Callable[[], object] | None = None
        self.reported: list[Callable[[], object]] = []
        self.slept_until: float | None = None
        self.me: Hashable = "main"
        self._tokens = 0

    def now(self) -> float:
        return self.clock

    several = False

    def random(self) -> float:
        return 0.5

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> list[str]:
        return [key_of(0)]

    def new_token(self) -> str:
        self._tokens += 1
        return f"t{self._tokens}@host:1/{self.me}"

    def who(self) -> Hashable:
        return self.me

    def channel(self) -> str:
        return "pawlock:wake:me"

    def mutex(self) -> AbstractContextManager[object]:
        return nullcontext()

    def parker(self) -> Parker:
        return _Parker(self)

    async def ready(self, timeout: float) -> None:
        pass

    def _note(self, call: Call, timeout: float) -> Sent:
        words = [word.decode() for word in call.words()]
        return Sent(call.script.name, words[call.script.numkeys :], self.clock, timeout)

    async def call(self, call: Call, timeout: float) -> Outcome:
        if call.script.name == "inspect":
            # Asked once a wait is over, to say who holds it, or a lease is lost; no fence was forgotten.
            return Look("other:1/main", 5_000, 1, 2**53, NOW_MS, holds=1)
        self.sent.append(self._note(call, timeout))
        assert self.answers, f"a request too many: {self.sent[-1]}"
        answer = self.answers.popleft()
        if callable(answer):
            answer = answer()
        if isinstance(answer, After):
            self.clock += answer.seconds
            answer = answer.answer
        if isinstance(answer, Fault):
            raise answer
        return call.answer(answer)

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        outcomes: list[Outcome | Fault] = []
        for call in calls:
            try:
                outcomes.append(await self.call(call, timeout))
            except Fault as fault:
                outcomes.append(fault)
        return outcomes

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``: each replica has everything."""
        return [(outcome, replicas) for outcome in await self.call_many(calls, timeout)]

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.clock += seconds

    async def pause(self, seconds: float) -> None:
        self.clock += seconds

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        await self.sleep(seconds)

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        self.waits.append(timeout)
        if self.wakeups:
            return self.wakeups.popleft()
        self.clock += timeout
        return None

    def spawn_maintenance(self, maintenance: Callable[[], Awaitable[None]]) -> str:
        return ""

    async def idle(self, until: float | None) -> bool:
        self.slept_until = until
        return False

    def nudge(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    def gone(self) -> bool:
        return False

    def run_in_owner(self, callback: Callable[[], object]) -> None:
        callback()

    def report(self, callback: Callable[[], object]) -> None:
        self.reported.append(callback)


class Rig:
    """An engine on a scripted runtime, and one lock.

    Attributes:
        all: Those of the test that runs, each with its leases: it closes them at its end, since a lease that is
            dropped before warns.
    """

    all: ClassVar[list[Rig]] = []

    def __init__(self, *answers: Answer, **options: Any) -> None:
        self.all.append(self)
        self._leases: list[HeldLease] = []
        self.runtime = Scripted(*answers)
        self.engine = Engine(self.runtime, self.runtime, self, maintain)
        self._posted: list[Sent] = []
        post = self.engine.post

        def noted(call: Call, seconds: float = 60.0) -> None:
            self._posted.append(self.runtime._note(call, 0.0))
            post(call, seconds)

        self.engine.post = noted  # type: ignore[method-assign]
        self.options = LockOptions(**options)
        mutex = Mutex("lock", "x", "pawlock:x")
        self.plan = Plan(mutex, self.options, False, False, 1 if self.options.hands_over else ASKERS, "spot")

    @property
    def sent(self) -> list[str]:
        """The names of the scripts sent so far."""
        return [sent.script for sent in self.runtime.sent]

    def acquire(self, timeout: float | None = None, *, keep: bool = True) -> HeldLease:
        lease = run(acquire(self.engine, self.plan, timeout))
        if keep:
            self._leases.append(lease)
        return lease

    def release(self, lease: HeldLease) -> Release:
        self._leases = [other for other in self._leases if other is not lease]
        return run(release(self.engine, lease))

    @classmethod
    def close_all(cls) -> None:
        for rig in cls.all:
            rig.engine.closed = True
        cls.all.clear()

    def maintenance(self, *answers: Answer) -> None:
        """One round of the maintenance: what is due now, with these answers."""
        self.runtime.answers.extend(answers)
        run(maintain(self.engine))

    def departed(self) -> list[list[str]]:
        """Token and tombstone of every leave in the background."""
        return [sent.args[:2] for sent in self._posted]
