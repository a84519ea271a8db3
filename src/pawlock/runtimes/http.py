"""The runtimes of a client of ``pawlock serve``: what other runtimes send to the server goes through the service.

The service checks each call against the namespace and the limits of the token, names the keys itself, and passes
hand-offs on to the client that asks for one.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, cast
from urllib.parse import quote

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import Call, Fault, FaultKind, Wakeup
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.runtimes.shared import Known
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.endpoint import Endpoint, Service
from pawlock.transport.http import AsyncWire, Question, Wire, context_of

__all__ = ["HttpAsyncio", "HttpThreads"]

_CHANNEL = "service"
_LONGEST_WAIT = 20.0
_GRACE = 5.0
_MOST_LISTED = 10_000
_LISTED_WITHIN = 5.0
"""Seconds for what may be long, or is done in several steps: less would only have it asked for again."""


def _nowhere() -> Endpoint:
    raise AssertionError("a client of the service connects to no server")


class _Paths:
    """The paths of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._base = f"/v1/ns/{quote(namespace, safe='')}"
        self.calls: str = f"{self._base}/calls"
        self.wait: str = f"{self.calls}/wait"

    def of(self, what: str, about: Mapping[str, str]) -> str:
        """The path of what only a service can answer or do."""
        if what == "locks":
            return f"{self._base}/locks?limit={_MOST_LISTED}"
        if what == "audit":
            return f"{self._base}/audit?limit={about['limit']}"
        name = f"{self._base}/{about['kind']}/{quote(about['name'], safe='')}"
        return f"{name}/force-release"


def _packed(calls: Sequence[Call]) -> dict[str, Any]:
    try:
        return {
            "calls": [
                {"script": call.script.sha, "words": [word.decode() for word in call.words()]}
                for call in calls
            ]
        }
    except UnicodeDecodeError:
        raise Fault(FaultKind.SCRIPT, "a name that is not text", final=True) from None


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return [_bytes(one) for one in cast("Iterable[Any]", value)] if isinstance(value, list) else value


def _outcomes(content: Any, calls: Sequence[Call]) -> list[Outcome | Fault]:
    replies: Any = cast("dict[str, Any]", content).get("replies") if isinstance(content, dict) else None
    if not isinstance(replies, list) or len(cast("Sized", replies)) != len(calls):
        raise Fault(FaultKind.NOT_REDIS, "the answer does not come from pawlock serve")
    reply = cast("Iterable[Any]", replies)
    return [_outcome(call, one) for call, one in zip(calls, reply, strict=True)]


def _outcome(call: Call, reply: Any) -> Outcome | Fault:
    if isinstance(reply, list):
        return call.answer([_bytes(one) for one in cast("Iterable[Any]", reply)])
    kind = FaultKind(reply["fault"]) if reply.get("fault") in set(FaultKind) else FaultKind.SCRIPT
    return Fault(
        kind, str(reply.get("text")), maybe_applied=bool(reply.get("maybe")), final=bool(reply.get("final"))
    )


def _only(outcomes: list[Outcome | Fault]) -> Outcome:
    (one,) = outcomes
    if isinstance(one, Fault):
        raise one
    return one


def _wakeup(content: Any) -> Wakeup | None:
    reply: Any = cast("dict[str, Any]", content).get("wakeup") if isinstance(content, dict) else None
    return Wakeup(int(reply[0]), int(reply[1])) if reply else None


class _Asks(ABC):
    """What both runtimes do in the same way, however a question is sent."""

    _paths: _Paths

    @abstractmethod
    async def _ask(self, question: Question, timeout: float) -> Any: ...

    def channel(self) -> str:
        """See ``Runtime``."""
        return _CHANNEL

    def connection(self) -> None:
        """See ``Runtime``: there is none; every call is asked for."""
        return

    def notices(self) -> list[str]:
        """See ``Runtime``: none come; a lease that was taken away is noticed by its renewal."""
        return []

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``: connections are made when they are used."""
        del timeout

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        answer = await self._ask(Question(self._paths.calls, _packed([call])), timeout)
        return _only(_outcomes(answer, [call]))

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        try:
            return _outcomes(await self._ask(Question(self._paths.calls, _packed(calls)), timeout), calls)
        except Fault as fault:
            return [fault] * len(calls)

    async def look_up(self, what: str, about: Mapping[str, str], timeout: float) -> Any:
        """See ``ServiceRuntime``."""
        question = Question(self._paths.of(what, about))
        return await self._ask(question, max(timeout, _LISTED_WITHIN))

    async def take_away(self, about: Mapping[str, str], reason: str, key: str, timeout: float) -> Any:
        """See ``ServiceRuntime``."""
        question = Question(self._paths.of("force_release", about), {"reason": reason}, key)
        return await self._ask(question, max(timeout, _LISTED_WITHIN))

    def waker(self, token: str) -> Callable[[], object] | None:  # noqa: ARG002
        """See ``Runtime``: only the service wakes."""
        return None

    def extend_wait(self, token: str, seconds: float) -> None:
        """See ``Runtime``: the service looks after the ticket."""
        del token, seconds


class HttpThreads(_Asks, ThreadRuntime):
    """For threads: each has a connection of its own.

    Args:
        service: Where the service is.
        namespace: The namespace of the client.
    """

    def __init__(self, service: Service, namespace: str) -> None:
        super().__init__(_nowhere, "")
        self._service = service
        self._context = context_of(service)
        self._paths = _Paths(namespace)
        self._mine = threading.local()
        self._wires: Known[Wire] = Known()
        self._waiting: set[Wire] = set()

    def _wire(self, timeout: float) -> Wire:
        wire: Wire | None = getattr(self._mine, "wire", None)
        if wire is None or wire.dead or wire.is_stale():
            if self._ending:
                raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
            if wire is not None:
                wire.close()
            wire = self._mine.wire = Wire(self._service, self._context, max(timeout, 0.25))
            self._wires.add(wire)
        return wire

    async def _ask(self, question: Question, timeout: float) -> Any:
        if getattr(self._mine, "busy", False):
            # A signal handler on top of a call of the same thread.
            spare = Wire(self._service, self._context, max(timeout, 0.25))
            try:
                return spare.ask(question, timeout)
            finally:
                spare.close()
        self._mine.busy = True
        try:
            return self._wire(timeout).ask(question, timeout)
        finally:
            self._mine.busy = False

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``: a question that the service answers when there is something to report."""
        if self._closing.is_set():
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        self.start_late()
        patience = min(timeout, _LONGEST_WAIT)
        try:
            wire = self._wire(1.0)
            self._waiting.add(wire)
            try:
                question = Question(self._paths.wait, {"token": token, "timeout": patience})
                reply = await self._ask(question, patience + _GRACE)
            finally:
                self._waiting.discard(wire)
        except Fault:
            # The next request reports what is wrong, unless it has passed by then.
            if self._closing.wait(min(timeout, 0.1)):
                raise Fault(FaultKind.CLOSED, "the client is closed", final=True) from None
            return None
        return _wakeup(reply)

    def interrupt_waiters(self) -> None:
        """See ``ThreadRuntime``."""
        self._closing.set()
        for wire in list(self._waiting):
            wire.close()

    def shut_down(self, timeout: float) -> None:
        """See ``ThreadRuntime``."""
        super().shut_down(timeout)
        for wire in self._wires.all():
            wire.close()

    def after_fork(self) -> None:
        """See ``ThreadRuntime``."""
        super().after_fork()
        # The descriptors are shared with the parent: a shutdown here would end its connections too.
        self._mine = threading.local()
        self._wires = Known()
        self._waiting = set()


class HttpAsyncio(_Asks, AsyncioRuntime):
    """For asyncio.

    Args:
        loop: The loop.
        service: Where the service is.
        namespace: The namespace of the client.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, service: Service, namespace: str) -> None:
        super().__init__(loop, _nowhere, "")
        self._wires = AsyncWire(service, context_of(service))
        self._paths = _Paths(namespace)
        self._waits: set[asyncio.Task[Any]] = set()

    async def _ask(self, question: Question, timeout: float) -> Any:
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        return await self._wires.ask(question, timeout)

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``: a question that the service answers when there is something to report."""
        if self._closing:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        patience = min(timeout, _LONGEST_WAIT)
        question = Question(self._paths.wait, {"token": token, "timeout": patience})
        waiting = self.loop.create_task(self._wires.ask(question, patience + _GRACE))
        self._waits.add(waiting)
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError:
            waiting.cancel()
            raise
        finally:
            self._waits.discard(waiting)
        if self._closing:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        if waiting.cancelled() or isinstance(waiting.exception(), Fault):
            await asyncio.sleep(min(timeout, 0.1))
            return None
        return _wakeup(waiting.result())

    def interrupt_waiters(self) -> None:
        """See ``AsyncioRuntime``."""
        super().interrupt_waiters()
        for waiting in self._waits:
            waiting.cancel()

    async def shut_down(self) -> None:
        """See ``AsyncioRuntime``."""
        try:
            await super().shut_down()
        finally:
            self._wires.close()
