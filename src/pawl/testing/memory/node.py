"""The server: scripts on keys in memory, one after the other, on a thread of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Protocol, TypeVar

from pawl.core.protocol.runtime import Call, Fault, FaultKind, Reply
from pawl.errors import ConfigurationError
from pawl.testing._clock import Clock
from pawl.testing.sim.lua import Interpreter
from pawl.testing.sim.store import Refused, Store
from pawl.transport.wire import refusal_of

__all__ = ["MemoryNode", "Subscriber"]

T = TypeVar("T")

_INFO = {
    b"server": b"redis_version:7.0.0\r\nredis_mode:standalone\r\nuptime_in_seconds:1000000",
    b"replication": b"role:master\r\nconnected_slaves:0",
    b"memory": b"maxmemory:0\r\nmaxmemory_policy:noeviction",
    b"persistence": b"loading:0\r\naof_enabled:1",
}

Outcome = Reply | Fault
Deliver = Callable[[Outcome], object]


class Subscriber(Protocol):
    """A client's end of a connection."""

    channel: str

    def pushed(self, text: bytes) -> None:
        """A hand-off message came."""
        ...

    def cut(self) -> None:
        """The server is gone."""
        ...


class MemoryNode:
    """One server. Its state is touched by its own thread alone, so a script is never interrupted half-way.

    Args:
        clock: What its wall clock goes by.
        shown: Its address.

    Raises:
        ConfigurationError: lupa is not installed.
    """

    def __init__(self, clock: Clock, shown: str) -> None:
        try:
            self._interpreter = Interpreter()
        except ImportError as error:
            raise ConfigurationError(
                f"a server in memory runs pawl's own scripts by lupa, and {error}: pip install 'pawlock[testing]'"
            ) from error
        self.shown: str = shown
        self._clock = clock
        self._store = Store(Random(1), self._publish, _info)  # noqa: S311 - a sample of a hash, in a test
        self._links: dict[str, Subscriber] = {}
        self._backlog: list[tuple[Call, int, Deliver]] = []
        self._pid = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pawl-memory")
        self.up: bool = True
        self.frozen: bool = False

    def _do(self, action: Callable[[], T]) -> T:
        if os.getpid() != self._pid:
            text = f"{self.shown} lives in another process: use pawl_server where processes share a lock"
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
            if not self.up:
                raise Fault(FaultKind.UNREACHABLE, f"{self.shown}: connection refused")
            if self.frozen:
                raise Fault(FaultKind.UNREACHABLE, f"{self.shown} does not answer")
            self._links[link.channel] = link

        self._do(open_)

    def disconnect(self, link: Subscriber) -> None:
        """Forget a connection; from anywhere, also from a finaliser."""
        self._links.pop(link.channel, None)

    def submit(self, call: Call, rid: int, deliver: Deliver) -> None:
        """Run a script and deliver what comes of it: before this returns, or, of a frozen server, later.

        Raises:
            Fault: It could not be sent.
        """

        def serve() -> None:
            if not self.up:
                deliver(_broken())
            elif self.frozen:
                self._backlog.append((call, rid, deliver))
            else:
                deliver(self._run(call, rid))

        self._do(serve)

    def run(self, call: Call) -> Outcome:
        """Run a script for the test itself, whatever state the server is in."""
        return self._do(lambda: self._run(call, 0))

    def _run(self, call: Call, rid: int) -> Outcome:
        words = [*call.words(), b"%d" % rid]
        count = call.script.numkeys
        self._store.begin(self._clock.server_us())
        try:
            reply: Reply = self._interpreter.run(
                call.script.source, self._store, words[:count], words[count:]
            )
        except Refused as refused:
            return refusal_of(str(refused.args[0]))
        return reply

    def _publish(self, channel: bytes, text: bytes) -> int:
        link = self._links.get(channel.decode())
        if link is None:
            return 0
        link.pushed(text)
        return 1

    # For the test -----------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Go away: connections break, requests get no answer."""

        def crash() -> None:
            self.up = False
            backlog, self._backlog = self._backlog, []
            for _, _, deliver in backlog:
                deliver(_broken())
            links, self._links = list(self._links.values()), {}
            for link in links:
                link.cut()

        self._do(crash)

    def start(self, *, keep_data: bool) -> None:
        """Come back, with all keys or with none."""

        def start() -> None:
            self.up = True
            if not keep_data:
                self._store.flush()

        self._do(start)

    def freeze(self) -> None:
        """Answer nothing."""
        self._do(lambda: setattr(self, "frozen", True))

    def thaw(self) -> None:
        """Go on: what was sent meanwhile is served now."""

        def thaw() -> None:
            self.frozen = False
            backlog, self._backlog = self._backlog, []
            for call, rid, deliver in backlog:
                deliver(self._run(call, rid))

        self._do(thaw)

    def flush(self) -> None:
        """Delete every key."""
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
