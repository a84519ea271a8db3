"""What a `Proxy` does to which requests: rules, how they match, and how tests look at them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Action(Enum):
    """What happens to a request, to its reply, or to a push message."""

    DROP_REQUEST = "drop request"
    HOLD_REQUEST = "hold request"
    RESET = "reset"
    DUPLICATE_REQUEST = "duplicate request"
    DUPLICATE_REQUEST_LATE = "duplicate request late"
    SWALLOW_REPLY = "swallow reply"
    HOLD_REPLY = "hold reply"
    KILL_ON_REPLY = "kill on reply"
    CUT_PUSH = "cut push"

    @property
    def on_reply(self) -> bool:
        """Whether the server has applied the request by the time the rule acts."""
        return self in {Action.SWALLOW_REPLY, Action.HOLD_REPLY, Action.KILL_ON_REPLY}


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came from a client; for `Action.CUT_PUSH`, a push message as it came from the server.

    Attributes:
        args: The command and its arguments, or the parts of the message.
        connection: Number of the client's connection, from 1 in the order in which they were made.
    """

    args: tuple[bytes, ...]
    connection: int

    @property
    def command(self) -> str:
        """The command's name in capitals."""
        return self.args[0].decode(errors="replace").upper() if self.args else ""

    def contains(self, text: str | bytes) -> bool:
        """Whether any argument contains `text`."""
        part = text.encode() if isinstance(text, str) else text
        return any(part in arg for arg in self.args)


Match: TypeAlias = str | bytes | Callable[[Request], bool] | None


class Rule:
    """One fault to inject, counted. Made by the methods of `Proxy`; any thread may call its methods.

    Attributes:
        action: What it does.
        seconds: For how long it holds something, or how late; None: until `release()`.
    """

    def __init__(
        self, action: Action, match: Match, *, nth: int, times: int | None, seconds: float | None
    ) -> None:
        if nth < 1:
            raise ValueError(f"nth must be at least 1, got {nth}")
        if times is not None and times < 1:
            raise ValueError(f"times must be at least 1, or None for every time, got {times}")
        self.action = action
        self.seconds = seconds
        self._match = match
        self._nth, self._times = nth, times
        self._seen = self._chosen = self._hits = 0
        self._removed = False
        self._released = False
        self._changed = threading.Condition()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def __repr__(self) -> str:
        return f"<Rule {self.action.value}: seen {self._seen}, hits {self._hits}>"

    @property
    def seen(self) -> int:
        """How many requests matched, whether the rule acted on them or not."""
        with self._changed:
            return self._seen

    @property
    def hits(self) -> int:
        """How often it acted. For a rule about replies that is after the server applied the request."""
        with self._changed:
            return self._hits

    def wait(self, timeout: float = 5.0, *, hits: int = 1) -> None:
        """Wait until the rule has acted.

        Args:
            timeout: Seconds to wait.
            hits: How often it must have acted.

        Raises:
            TimeoutError: it did not; the message says what it saw.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= hits, timeout):
                raise TimeoutError(f"{self!r} did not act {hits} time(s) within {timeout:g} s")

    def release(self) -> None:
        """Let everything go on that this rule holds, and hold nothing more."""
        with self._changed:
            self._released = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def remove(self) -> None:
        """Do nothing more, and release what is held."""
        with self._changed:
            self._removed = True
        self.release()

    def claim(self, request: Request) -> bool:
        """Count a request if it matches; return whether the rule acts on it. Called by the proxy."""
        with self._changed:
            if self._removed or not matches(self._match, request):
                return False
            self._seen += 1
            if self._seen < self._nth or (self._times is not None and self._chosen >= self._times):
                return False
            self._chosen += 1
            return True

    def hit(self) -> None:
        """Count that the rule has acted. Called by the proxy."""
        with self._changed:
            self._hits += 1
            self._changed.notify_all()

    async def hold(self) -> None:
        """Wait for the rule's seconds, or until it is released. Called by the proxy."""
        event = asyncio.Event()
        with self._changed:
            if self._released:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), self.seconds)


def matches(match: Match, request: Request) -> bool:
    """Return whether a request matches: by its command's name, a part of any argument, or a predicate."""
    if match is None:
        return True
    if callable(match):
        return match(request)
    word = match if isinstance(match, str) else match.decode(errors="replace")
    return request.command == word.upper() or request.contains(match)


def claim(rules: Iterable[Rule], request: Request, *, push: bool = False) -> Rule | None:
    """Find the first rule that is to act on a request or message; the rules after it do not see it."""
    for rule in rules:
        if (rule.action is Action.CUT_PUSH) is push and rule.claim(request):
            return rule
    return None
