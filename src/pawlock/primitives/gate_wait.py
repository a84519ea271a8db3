"""Waiting at a gate: what latches, barriers and the observers of an election have in common.

A waiter has a ticket on the server, with a life in server time, and sleeps until a message wakes it. It asks again
at least every third of that life, so a lost message costs no more, and a waiter that died leaves nothing longer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.faults import to_error
from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import DEAF, Fault, Wakeup
from pawlock.core.retry import patience, pause_after, rest
from pawlock.core.state.records import Waiter, WaiterState
from pawlock.errors import AcquireTimeout, LimitMismatch, ScriptError

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.options import LockOptions

__all__ = ["GateWait", "disagreement", "unexpected"]

T = TypeVar("T")

_DEAF_POLL = 0.05


def _nothing() -> None:
    """Nothing was begun."""


class GateWait:
    """One wait of one thread or task: its token, its deadline, and how the server answers.

    Args:
        engine: The client's engine.
        options: How long to retry after faults, and the life of the ticket.
        name: The name waited at, for errors.
        doing: What is being done, for errors, as in ``"wait at latch"``.
        timeout: Seconds to wait; None: no limit, 0 asks once.
        token: What the server is to know it by; None: a new one.
    """

    def __init__(
        self,
        engine: Engine,
        options: LockOptions,
        name: str,
        doing: str,
        timeout: float | None,
        token: str | None = None,
    ) -> None:
        self.engine: Engine = engine
        self.options: LockOptions = options
        self.name: str = name
        self.doing: str = doing
        self.began: float = engine.runtime.now()
        self.until: float | None = None
        if timeout is not None:
            self.until = self.began + (timeout or options.request_timeout)
        self.once: bool = timeout == 0
        self.waiter: Waiter = Waiter(token or engine.runtime.new_token())
        self.channel: str = ""
        self.former: str = ""
        self.undo: Callable[[], Request | None] = _nothing

    @property
    def token(self) -> str:
        """What the server knows the waiter by."""
        return self.waiter.token

    @property
    def unanswered(self) -> bool:
        """True once a request of the token got no reply: a copy of it may come late."""
        return self.waiter.unanswered

    def renew_token(self) -> None:
        """Go on with a new token."""
        self.waiter = Waiter(self.engine.runtime.new_token())

    async def within(self, wait: Coroutine[Any, Any, T], undo: Callable[[], Request | None]) -> T:
        """Run a wait; whatever it ends with, nothing of it stays on the server.

        Args:
            wait: The wait.
            undo: What takes the ticket back; None if there is none. Sent in the background.
        """
        engine = self.engine
        self.undo = undo
        engine.activity.calls[self] = engine.runtime.who()
        try:
            return await wait
        except BaseException as error:
            self.waiter.note_unconfirmed(error)
            call = self.undo()
            if call is not None:
                engine.post(call)
            raise
        finally:
            engine.activity.calls.pop(self, None)

    async def ask(self, make: Callable[[], Request]) -> Outcome:
        """Ask until there is an answer, on a link whose channel is noted in ``channel``.

        Raises:
            BackendError: The server could not be asked for too long.
        """
        runtime, waiter = self.engine.runtime, self.waiter
        retry = waiter.failing()
        # An observer of an election asks on after an error, and an earlier outage says nothing about this one.
        retry.over()
        while True:
            # A request that is to be sent once gets its time even if the wait's own is over.
            asked_at = runtime.now()
            budget = patience(asked_at, self.options, self.until)
            try:
                if not runtime.channel():
                    await runtime.ready(budget)
                if runtime.channel() != self.channel:
                    self.former, self.channel = self.channel, runtime.channel()
                waiter.state = WaiterState.ASKED
                outcome = await runtime.call(make(), budget)
            except Fault as fault:
                waiter.unanswered |= fault.maybe_applied
                pause = pause_after(
                    self.engine, fault, retry, self.options, self.until, self.doing, self.name, asked_at
                )
            else:
                self.engine.note_answer()
                retry.over()
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
        if runtime.channel() == DEAF:
            pause = min(pause, _DEAF_POLL * (1 + runtime.random()))
        try:
            return await runtime.wait_wakeup(self.token, pause)
        except Fault as fault:
            raise to_error(fault, self.name, self.doing) from fault

    def over(self) -> bool:
        """Whether the time is up."""
        return self.once or (self.until is not None and self.engine.runtime.now() >= self.until)

    async def withdraw(self, call: Request) -> Outcome:
        """Take the ticket back before the caller goes on; the answer says whether the gate opened meanwhile.

        Raises:
            BackendError: That is not known; the ticket is taken back in the background.
        """
        try:
            outcome = await self.engine.runtime.call(call, self.options.request_timeout)
        except Fault as fault:
            raise to_error(fault, self.name, self.doing) from fault
        # It is done: once is enough.
        self.undo = _nothing
        return outcome

    def timed_out(self, state: str) -> AcquireTimeout:
        """The error of a wait whose time is up."""
        waited = self.engine.runtime.now() - self.began
        self.engine.count("timeouts")
        text = f"{self.doing} {self.name!r}: {state} after {waited:.3g} s"
        return AcquireTimeout(text, name=self.name, waited=waited)


def disagreement(kind: str, name: str, what: str, there: int, here: int) -> LimitMismatch:
    """The error of two programs that use one name for different things."""
    text = f"{kind} {name!r} is in use with {what}={there}, and this client has {here}: use one number everywhere"
    return LimitMismatch(text, name=name, limit=there, permits=here)


def unexpected(outcome: Outcome, doing: str, name: str) -> ScriptError:
    """The error of an answer that no request of pawlock gets."""
    return ScriptError(
        f"{doing} {name!r}: a reply that is not from a pawlock script: {outcome!r:.100}", name=name
    )
