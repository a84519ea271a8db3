"""Waiting at a gate: what latches, barriers and the observers of an election have in common.

A waiter has a ticket on the server, with a life in server time, and sleeps until a message wakes it. It asks again
at least every third of that life, so a lost message costs no more, and a waiter that died leaves nothing longer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from pawlock.core.faults import to_error
from pawlock.core.local_queue import Retry
from pawlock.core.outcomes import Open, Outcome, Passed
from pawlock.core.retry import patience, pause_after, rest
from pawlock.core.runtime import NO_CHANNEL, Fault, Request, Wakeup
from pawlock.errors import AcquireTimeout, LimitMismatch, PawlockError, ScriptError

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.options import LockOptions

__all__ = ["GateWait", "disagreement", "unexpected"]

T = TypeVar("T")

_NO_CHANNEL_POLL = 0.05


class GateWait:
    """One wait of one thread or task: its token, its deadline, and how the server answers.

    Args:
        engine: The client's engine.
        options: How long to retry after faults, and the life of the ticket.
        name: The name waited at, for errors.
        timeout: Seconds to wait; None: no limit, 0 asks once.
        token: What the server is to know it by; None: a new one.

    Attributes:
        doing: What is being done, for errors.
        least: The least number of a message that says that the gate is open.
        noted: Whether the server may have a ticket of the token.
        unanswered: Whether a request of the token got no reply: a copy of it may come late.
    """

    doing = "wait"

    def __init__(
        self, engine: Engine, options: LockOptions, name: str, timeout: float | None, token: str | None = None
    ) -> None:
        self.engine: Engine = engine
        self.options: LockOptions = options
        self.name: str = name
        self.began: float = engine.runtime.now()
        self.once: bool = timeout == 0
        # One that asks once has the time of one request.
        limit = timeout or options.answer_within
        self.until: float | None = None if timeout is None else self.began + limit
        self.token: str = token or engine.runtime.new_token()
        self.channel: str = ""
        self.former: str = ""
        self.least: int = 0
        self.noted: bool = False
        self.unanswered: bool = False

    @abstractmethod
    def call(self) -> Request:
        """What asks, and keeps the ticket."""

    @abstractmethod
    def leave(self) -> Request:
        """What takes the ticket back."""

    def read(self, outcome: Outcome) -> None:
        """Learn from an answer that says that the gate is shut; raises if it is no such answer."""
        raise unexpected(outcome, self.doing, self.name)

    def state(self) -> str:
        """How it stands, for the error of a wait whose time is up."""
        return "not open"

    async def run(self) -> int:
        """Wait until the gate is open; what it says then."""
        while True:
            outcome = await self.ask()
            if isinstance(outcome, (Open, Passed)):
                return outcome[0]
            self.read(outcome)
            wakeup = await self.listen() if self.noted else None
            if wakeup is not None and wakeup.fence >= self.least:
                return wakeup.fence
            if self.once or (self.until is not None and self.engine.runtime.now() >= self.until):
                break
        if self.noted:
            outcome = await self._withdraw()
            if isinstance(outcome, (Open, Passed)):
                return outcome[0]
        waited = self.engine.runtime.now() - self.began
        self.engine.count("timeouts")
        text = f"{self.doing} {self.name!r}: {self.state()} after {round(waited, 3):.3g} s"
        raise AcquireTimeout(text, name=self.name, waited=waited)

    async def within(self, wait: Coroutine[Any, Any, T]) -> T:
        """Run a wait; whatever it ends with, nothing of it stays on the server."""
        engine = self.engine
        engine.calls[self] = engine.runtime.who()
        try:
            return await wait
        except BaseException as error:
            # What was sent last may still be on its way, unless the server has spoken.
            self.unanswered |= not isinstance(error, PawlockError)
            if self.noted:
                engine.post(self.leave())
            raise
        finally:
            engine.calls.pop(self, None)

    async def ask(self) -> Outcome:
        """Ask until there is an answer, on a link whose channel is noted in ``channel``.

        Raises:
            BackendError: The server could not be reached for too long.
        """
        runtime, retry = self.engine.runtime, Retry()
        while True:
            # A request that is to be sent once gets its time even if the wait's own is over.
            asked_at = runtime.now()
            budget = patience(asked_at, self.options.answer_within, self.until)
            try:
                if not runtime.channel():
                    most = self.options.connect_timeout or budget
                    await runtime.ready(patience(asked_at, most, self.until))
                if runtime.channel() != self.channel:
                    self.former, self.channel = self.channel, runtime.channel()
                outcome = await runtime.call(self.call(), budget)
            except Fault as fault:
                self.unanswered |= fault.maybe_applied
                pause = pause_after(
                    self.engine, fault, retry, self.options, self.until, self.doing, self.name, asked_at
                )
            else:
                self.engine.note_answer()
                return outcome
            await rest(self.engine, pause, self.name, self.doing)

    async def listen(self, most: float | None = None) -> Wakeup | None:
        """Sleep until a message comes; None when it is time to ask, or to give up: at once for a caller that asks once.

        Args:
            most: Seconds after which to ask in any case.
        """
        if self.once:
            return None
        runtime = self.engine.runtime
        pause = self.options.ticket / 3
        if most is not None:
            pause = min(pause, most)
        if self.until is not None:
            pause = min(pause, max(0.0, self.until - runtime.now()))
        if runtime.channel() == NO_CHANNEL:
            pause = min(pause, _NO_CHANNEL_POLL * (1 + runtime.random()))
        try:
            return await runtime.wait_wakeup(self.token, pause)
        except Fault as fault:
            raise to_error(fault, self.name, self.doing) from fault

    async def _withdraw(self) -> Outcome:
        """Take the ticket back before the caller goes on; the answer says whether the gate opened meanwhile."""
        try:
            outcome = await self.engine.runtime.call(self.leave(), self.options.answer_within)
        except Fault as fault:
            # The ticket is taken back in the background.
            raise to_error(fault, self.name, self.doing) from fault
        self.noted = False
        return outcome


def disagreement(kind: str, name: str, what: str, there: int, here: int) -> LimitMismatch:
    """The error of two programs that use one name for different things."""
    text = f"{kind} {name!r} is in use with {what}={there}, and this client has {here}: use one number everywhere"
    return LimitMismatch(text, name=name, limit=there, permits=here)


def unexpected(outcome: Outcome, doing: str, name: str) -> ScriptError:
    """The error of an answer that no request of pawlock gets."""
    return ScriptError(
        f"{doing} {name!r}: a reply that is not from a pawlock script: {outcome!r:.100}", name=name
    )
