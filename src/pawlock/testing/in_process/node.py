"""The server: requests answered one after the other, on a thread of its own."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias, TypeVar

from pawlock.core.protocol.runtime import Fault, FaultKind, Wakeup
from pawlock.testing._clock import Clock

__all__ = ["Deliver", "Entrance", "Node", "Outcome", "Subscriber"]

T = TypeVar("T")

Outcome: TypeAlias = Any
"""The answer to a request, or the ``Fault`` that it met."""

Deliver = Callable[[Outcome], object]


class Subscriber(Protocol):
    """A client's end of a connection."""

    channel: str

    def woken(self, token: str, wakeup: Wakeup) -> None:
        """A hand-off message came."""
        ...

    def cut(self) -> None:
        """The server is gone."""
        ...


class Entrance(Protocol):
    """What a connection asks of the server that it leads to."""

    @property
    def shown(self) -> str:
        """Its address."""
        ...

    def connect(self, link: Subscriber) -> None:
        """Open a connection. Raises ``Fault``."""
        ...

    def disconnect(self, link: Subscriber) -> None:
        """Forget a connection; from anywhere, also from a finaliser."""
        ...

    def submit(self, request: Any, rid: int, deliver: Deliver) -> None:
        """Send a request; its outcome is delivered before this returns, or later, from any thread. Raises ``Fault``."""
        ...


class Node(ABC):
    """One server. Its state is touched by its own thread alone, so no request is interrupted half-way.

    Args:
        clock: What its wall clock goes by.
        shown: Its address.
    """

    def __init__(self, clock: Clock, shown: str) -> None:
        self.shown: str = shown
        self._clock = clock
        self._links: dict[str, Subscriber] = {}
        self._backlog: list[tuple[Any, int, Deliver]] = []
        self._pid = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pawlock-memory")
        self.up: bool = True
        self.frozen: bool = False

    @abstractmethod
    def _answer(self, request: Any, rid: int) -> Outcome:
        """Serve one request, in the server's thread; a ``Fault`` is returned, not raised."""

    @abstractmethod
    def words(self, request: Any) -> tuple[str, ...]:
        """What a request says, for tests to pick some out: its kind first, then whatever it names."""

    @abstractmethod
    def _forget(self) -> None:
        """Lose all that is known, in the server's thread."""

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
            if not self.up:
                raise Fault(FaultKind.UNREACHABLE, f"{self.shown}: connection refused")
            if self.frozen:
                raise Fault(FaultKind.UNREACHABLE, f"{self.shown} does not answer")
            self._links[link.channel] = link

        self._do(open_)

    def disconnect(self, link: Subscriber) -> None:
        """Forget a connection; from anywhere, also from a finaliser."""
        self._links.pop(link.channel, None)

    def submit(self, request: Any, rid: int, deliver: Deliver) -> None:
        """Serve a request and deliver the outcome: before this returns, or, of a frozen server, later.

        Raises:
            Fault: It could not be sent.
        """

        def serve() -> None:
            if not self.up:
                deliver(_broken())
            elif self.frozen:
                self._backlog.append((request, rid, deliver))
            else:
                deliver(self._answer(request, rid))

        self._do(serve)

    def run(self, request: Any) -> Outcome:
        """Serve a request of the test itself, whatever state the server is in."""
        return self._do(lambda: self._answer(request, 0))

    def _wake(self, channel: str, token: str, wakeup: Wakeup) -> bool:
        """Send a hand-off message; False if nobody hears it. In the server's thread."""
        link = self._links.get(channel)
        if link is None:
            return False
        link.woken(token, wakeup)
        return True

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
                self._forget()

        self._do(start)

    def freeze(self) -> None:
        """Answer nothing."""
        self._do(lambda: setattr(self, "frozen", True))

    def thaw(self) -> None:
        """Go on: what was sent meanwhile is served now."""

        def thaw() -> None:
            self.frozen = False
            backlog, self._backlog = self._backlog, []
            for request, rid, deliver in backlog:
                deliver(self._answer(request, rid))

        self._do(thaw)

    def flush(self) -> None:
        """Lose all that is known."""
        self._do(self._forget)

    def close(self) -> None:
        """End its thread."""
        self._thread.shutdown()


def _broken() -> Fault:
    return Fault(
        FaultKind.UNANSWERED,
        "the connection broke: the server closed the connection",
        maybe_applied=True,
    )
