"""A server that is no server: pawlock's own scripts on keys in memory, run one after the other on a thread of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Protocol, TypeAlias, TypeVar

from pawlock.core.runtime import Call, Fault, FaultKind, Reply, Wakeup
from pawlock.errors import ConfigurationError
from pawlock.testing.clock import VirtualClock
from pawlock.testing.memory.lua import Interpreter
from pawlock.testing.memory.store import Refused, Store
from pawlock.transport.conn import read_push, refusal_of

__all__ = ["MemoryNode", "Outcome", "Subscriber"]

T = TypeVar("T")

Outcome: TypeAlias = Any
"""The answer to a request, or the ``Fault`` that it met."""

_Deliver: TypeAlias = Callable[[Outcome], object]

_INFO = {
    b"server": b"redis_version:7.0.0\r\nredis_mode:standalone\r\nuptime_in_seconds:1000000",
    b"replication": b"role:master\r\nconnected_slaves:0",
    b"memory": b"maxmemory:0\r\nmaxmemory_policy:noeviction",
    b"persistence": b"loading:0\r\naof_enabled:1",
}


class Subscriber(Protocol):
    """A client's end of a connection."""

    channel: str

    def woken(self, token: str, wakeup: Wakeup) -> None:
        """A hand-off message came."""
        ...

    def cut(self) -> None:
        """The server is gone."""
        ...


class MemoryNode:
    """One server. Its state is touched by its own thread alone, so no request is interrupted half-way.

    Args:
        clock: What its wall clock goes by.
        shown: Its address.

    Raises:
        ConfigurationError: lupa is not installed.
    """

    def __init__(self, clock: VirtualClock, shown: str) -> None:
        try:
            self._interpreter = Interpreter()
        except ImportError as error:
            raise ConfigurationError(
                f"a server in memory runs pawlock's own scripts by lupa, and {error}: pip install 'pawlock[testing]'"
            ) from error
        self.shown: str = shown
        self._clock = clock
        self._store = Store(Random(1), self._publish, _info)  # noqa: S311 - a sample of a hash, in a test
        self._links: dict[str, Subscriber] = {}
        self._backlog: list[tuple[Call, int, _Deliver]] = []
        self._pid = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pawlock-memory")
        self._up = True
        self._frozen = False

    def _do(self, action: Callable[[], T]) -> T:
        if os.getpid() != self._pid:
            text = f"{self.shown} lives in another process: use pawlock_server where processes share a lock"
            raise Fault(FaultKind.UNREACHABLE, text, final=True)
        try:
            return self._thread.submit(action).result()
        except RuntimeError as error:
            # Closed, or the interpreter ends.
            raise Fault(FaultKind.UNREACHABLE, f"{self.shown} is closed: {error}", final=True) from error

    # For connections --------------------------------------------------------------------------------------------

    def connect(self, link: Subscriber) -> None:
        """Open a connection. Raises ``Fault``."""

        def open_() -> None:
            if not self._up:
                raise Fault(FaultKind.UNREACHABLE, f"{self.shown}: connection refused")
            if self._frozen:
                raise Fault(FaultKind.UNREACHABLE, f"{self.shown} does not answer")
            self._links[link.channel] = link

        self._do(open_)

    def disconnect(self, link: Subscriber) -> None:
        """Forget a connection; from anywhere, also from a finaliser."""
        self._links.pop(link.channel, None)

    def submit(self, request: Call, rid: int, deliver: _Deliver) -> None:
        """Serve a request and deliver the outcome: before this returns, or, of a frozen server, later.

        Raises:
            Fault: It could not be sent.
        """

        def serve() -> None:
            if not self._up:
                deliver(_broken())
            elif self._frozen:
                self._backlog.append((request, rid, deliver))
            else:
                deliver(self._answer(request, rid))

        self._do(serve)

    def _answer(self, request: Call, rid: int) -> Outcome:
        words = [*request.words(), b"%d" % rid]
        count = request.script.numkeys
        self._store.begin(self._clock.server_us())
        try:
            reply: Reply = self._interpreter.run(
                request.script.source, self._store, words[:count], words[count:]
            )
        except Refused as refused:
            return refusal_of(str(refused.args[0]))
        return request.answer(reply)

    def _publish(self, channel: bytes, text: bytes) -> int:
        found = read_push((b"message", b"", text))
        if found is None:
            raise AssertionError(f"a script published what no client can read: {text!r}")
        link = self._links.get(channel.decode())
        if link is None:
            return 0
        link.woken(*found)
        return 1

    # For the test -----------------------------------------------------------------------------------------------

    def run(self, request: Call) -> Outcome:
        """Serve a request of the test itself, whatever state the server is in."""
        return self._do(lambda: self._answer(request, 0))

    def crash(self, *, keep_data: bool) -> None:
        """Go away: connections break, requests get no answer; and what is known is lost, or not."""

        def crash() -> None:
            self._up = False
            if not keep_data:
                self._store.flush()
            backlog, self._backlog = self._backlog, []
            for _, _, deliver in backlog:
                deliver(_broken())
            links, self._links = list(self._links.values()), {}
            for link in links:
                link.cut()

        self._do(crash)

    def start(self) -> None:
        """Come back."""
        self._do(lambda: setattr(self, "_up", True))

    def freeze(self) -> None:
        """Answer nothing."""
        self._do(lambda: setattr(self, "_frozen", True))

    def thaw(self) -> None:
        """Go on: what was sent meanwhile is served now."""

        def thaw() -> None:
            self._frozen = False
            backlog, self._backlog = self._backlog, []
            for request, rid, deliver in backlog:
                deliver(self._answer(request, rid))

        self._do(thaw)

    def flush(self) -> None:
        """Lose all that is known."""
        self._do(self._store.flush)

    def close(self) -> None:
        """End its thread."""
        self._thread.shutdown()


def _info(section: bytes) -> bytes:
    return _INFO.get(section, b"")


def _broken() -> Fault:
    return Fault(
        FaultKind.UNANSWERED,
        "the connection broke: the server closed the connection",
        maybe_applied=True,
    )
