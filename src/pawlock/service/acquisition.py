"""One request that acquires a lock: its calls are sent in one write, and a release here confirms the next waiter too.

A grant is worth nothing to a client of the service before it was counted among what the client holds, so the note goes
out in the same write as the question. Where a release leaves a name to somebody who waits at the same instance, the
waiter's confirmation goes out in the same write as the release: it needs no message first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from pawlock.core.acquire.queue import read_answer, win
from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.primitive import TOMB_MS, Primitive
from pawlock.core.protocol.runtime import Fault
from pawlock.core.protocol.terms import Terms
from pawlock.core.retry import patience
from pawlock.core.state.records import Waiter
from pawlock.errors import AcquireTimeout
from pawlock.model import Grant
from pawlock.service.access import Principal
from pawlock.service.leases import LeaseSpec, call, session_over
from pawlock.service.problems import Problem
from pawlock.service.spaces import Offer, Space
from pawlock.service.store.replies import Counted, NoSession
from pawlock.service.terms import options_for

__all__ = ["Acquisition", "Client"]

_Found: TypeAlias = tuple[Outcome, Outcome | Fault, float]
"""What was answered to a waiter's confirmation and to the note of it, and when they were asked for."""


class Client(Protocol):
    """Who waits for the answer."""

    @property
    def gone(self) -> bool:
        """True once nobody does."""
        ...


class Acquisition:
    """One request that acquires a lock.

    Args:
        space: The namespace.
        spec: The lease that is asked for.
        token: The owner token of the acquisition.
        ttl_ms: The life of the lease without renewal.
        who: Who asks.
        session: The session that the lease is to belong to, or ``""``.
        give_up: See ``Attempt``.
    """

    __slots__ = (
        "_ahead",
        "_counted",
        "_give_up",
        "_noted",
        "_over",
        "_ready",
        "options",
        "primitive",
        "session",
        "space",
        "spec",
        "waiter",
        "who",
    )  # fmt: skip

    def __init__(
        self,
        space: Space,
        spec: LeaseSpec,
        token: str,
        ttl_ms: int,
        who: Principal,
        session: str,
        give_up: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self.space: Space = space
        self.spec: LeaseSpec = spec
        self.who: Principal = who
        self.session: str = session
        self.primitive: Primitive = spec.primitive(space)
        self.options: Terms = options_for(ttl_ms, waits=True)
        self.waiter: Waiter = Waiter(token)
        self.waiter.asker = self._ask
        # The token that was noted last; it stays noted until this ends, since a late copy of taking the note back
        # would meet the next note of the same token.
        self._noted: str = ""
        # What came of the note that went out with the last question, if one did.
        self._counted: Outcome | Fault | None = None
        self._ahead: tuple[str, asyncio.Future[_Found | None]] | None = None
        self._ready: tuple[str, str, Request] | None = None
        self._over = False
        self._give_up = give_up

    # Asking -----------------------------------------------------------------------------------------------------

    def _note(self) -> Request:
        if self._noted != self.waiter.token:
            self._unnote()
            self._noted = self.waiter.token
        most, life_ms = self.who.limits.locks, self.options.ttl_ms
        return self.space.store.hold(
            self.who.id, self.waiter.token, self.spec.to_json(), self.session, life_ms=life_ms, most=most
        )

    async def _ask(self, question: Request, budget: float) -> tuple[Outcome, float]:
        runtime, waiter = self.space.engine.runtime, self.waiter
        if self._ahead is not None:
            (token, answer), self._ahead = self._ahead, None
            found = await answer
            if found is not None and token == waiter.token:
                confirmed, self._counted, asked_at = found
                return confirmed, asked_at
        self._counted = None
        sent_at = runtime.now()
        if not waiter.notified and (waiter.queued or self.primitive.key in self.space.contended):
            # It is not likely to be granted now: there is nothing to note.
            return await runtime.call(question, budget), sent_at
        waiter.notified = False
        note = self._note()
        outcome, counted = await runtime.call_many((question, note), budget)
        if isinstance(outcome, Fault):
            raise outcome
        self._counted = counted
        return outcome, sent_at

    async def _first(self, until: float, *, wait: bool) -> Grant | None:
        """The first question, with what only the first one needs."""
        engine, waiter, options = self.space.engine, self.waiter, self.options
        channel = engine.runtime.channel()
        if not channel:
            return None
        waiter.asks()
        question = self.primitive.acquire(
            waiter.token, options.ttl_ms, options.ticket_ms,
            wait=wait, block=options.block, channel=channel, max_waiters=options.max_waiters,
        )  # fmt: skip
        try:
            waiter.answer = await self._ask(question, patience(engine.runtime.now(), options, until))
        except Fault as fault:
            waiter.unanswered |= fault.maybe_applied
            return None
        return read_answer(engine, self.primitive, options, waiter)

    async def run(
        self,
        wait: float,
        waiting: Callable[[], AbstractAsyncContextManager[Client]],
        is_gone: Callable[[], bool],
    ) -> tuple[Grant, str]:
        """Acquire the lock.

        Args:
            wait: Seconds to wait.
            waiting: Makes the context manager that is entered while it waits.
            is_gone: Whether the client has disconnected, even before an event says so.

        Returns:
            The grant, and the token that holds it.

        Raises:
            AcquireTimeout: Somebody else holds it, and the time is up; nothing is left on the server.
            Problem: The client holds too much, or the session is over; nothing is left either.
            PawlockError: See ``core.acquire.queue.win``.
        """
        engine, waiter = self.space.engine, self.waiter
        began = engine.runtime.now()
        until = began + (wait or self.options.request_timeout)
        try:
            engine.check_open(self.spec.name)
            grant = await self._first(until, wait=wait > 0)
            if grant is None:
                self.space.remember_contended(self.primitive.key)
            if grant is None and wait > 0:
                waiter.asks()
                await self._retract()
                async with waiting() as client:
                    grant = await self._wait(until)
                    if client.gone:
                        raise asyncio.CancelledError
            elif grant is None and not waiter.busy:
                grant = await win(engine, self.primitive, self.options, waiter, until, wait=False)
            if grant is not None:
                await self._count()
                if is_gone():
                    # In the very moment of the grant: nobody would know of it.
                    raise asyncio.CancelledError
                if not waiter.contended:
                    self.space.contended.pop(self.primitive.key, None)
                return grant, waiter.token
        except BaseException as error:
            waiter.note_unconfirmed(error)
            self._drop()
            raise
        await self._withdraw()
        self._end()
        raise self._timed_out(wait, began)

    async def _wait(self, until: float) -> Grant | None:
        waiting = self.space.waiting.setdefault(self.primitive.key, {})
        waiting[self] = None
        self._prepare()
        try:
            return await win(self.space.engine, self.primitive, self.options, self.waiter, until, wait=True)
        finally:
            del waiting[self]
            if not waiting and self.space.waiting.get(self.primitive.key) is waiting:
                del self.space.waiting[self.primitive.key]

    def _timed_out(self, wait: float, began: float) -> AcquireTimeout:
        waiter, name = self.waiter, self.spec.name
        text = f"acquire {name!r}: still held after {wait:g} s"
        if waiter.blocker.holder:
            text += f" by {waiter.blocker.holder}"
        waited = round(self.space.engine.runtime.now() - began, 3)
        return AcquireTimeout(
            text, name=name, holder=waiter.blocker.holder, waited=waited, position=waiter.rank
        )

    def _drop(self) -> None:
        """Leave the token in the background, unless a later try of the same request goes on with it."""
        engine, waiter = self.space.engine, self.waiter
        if self._give_up is None or not waiter.sent:
            engine.drop_waiter(self.primitive, None, waiter)
            self._end()
            return
        self._over = True
        self.space.in_background(self._drop_if_last(self._give_up))

    async def _drop_if_last(self, give_up: Callable[[], Awaitable[bool]]) -> None:
        # Where that cannot be ctx, its ttl ends it: another try may hold by the same token.
        if await give_up():
            self.space.engine.drop_waiter(self.primitive, None, self.waiter)
            self._end()

    async def _withdraw(self) -> None:
        engine, waiter = self.space.engine, self.waiter
        if waiter.busy and not waiter.unanswered:
            return
        if self._give_up is not None and not await self._give_up():
            return
        try:
            tomb_ms = TOMB_MS if waiter.unanswered else 0
            await engine.runtime.call(
                self.primitive.leave(waiter.token, tomb_ms, 0), self.options.request_timeout
            )
        except Fault:
            engine.post(self.primitive.leave(waiter.token, TOMB_MS, 0))
        except BaseException:
            engine.post(self.primitive.leave(waiter.token, TOMB_MS, 0))
            raise

    # The note ---------------------------------------------------------------------------------------------------

    async def _count(self) -> None:
        """Make sure that the grant is counted among what its client holds, and belongs to its session.

        Raises:
            Problem: The client holds too much, or the session is over.
        """
        counted = self._counted
        if counted is None or isinstance(counted, Fault):
            counted = await call(self.space, self._note(), "note a lease")
        if isinstance(counted, Counted):
            return
        if isinstance(counted, NoSession):
            raise session_over()
        most = self.who.limits.locks
        here = f"{counted.already} leases in {self.space.namespace!r}"
        text = f"this client already holds {here}, and its limit is {most}"
        raise Problem(429, "LEASE_LIMIT", text, retry_after=1)

    async def _retract(self) -> None:
        """Take back the note before it waits: who waits holds nothing yet."""
        if self._noted:
            removal = self.space.removal(self.who.id, self.session, self._noted)
            with contextlib.suppress(Fault):
                # Unanswered, it stays noted until the wait ends.
                await self.space.engine.runtime.call(removal, self.options.request_timeout)
                self._noted = ""

    def _unnote(self) -> None:
        """Take back the note of what was not granted."""
        if self._noted:
            self.space.remove_record(self.who.id, self.session, self._noted)
            self._noted = ""

    def _end(self) -> None:
        self._over = True
        self._unnote()

    # What others ask for it -------------------------------------------------------------------------------------

    def _prepare(self) -> tuple[str, str, Request]:
        """Make the question of ``offer`` while there is time."""
        token, channel = self.waiter.token, self.space.engine.runtime.channel()
        question = self.primitive.renew(token, self.options.ttl_ms, self.options.ticket_ms, channel)
        self._ready = token, channel, question
        return self._ready

    def offer(self) -> Offer | None:
        """What is to be asked for it together with a release; None if it cannot use that now."""
        waiter = self.waiter
        if not waiter.queued or waiter.notified or self._ahead is not None or self._noted:
            return None
        token, runtime = waiter.token, self.space.engine.runtime
        answer: asyncio.Future[_Found | None] = asyncio.get_running_loop().create_future()
        self._ahead = token, answer
        token_of, channel, question = self._ready or self._prepare()
        if (token_of, channel) != (token, runtime.channel()):
            _, _, question = self._prepare()

        def heard(outcomes: Sequence[Outcome | Fault] | None, sent_at: float) -> None:
            found: _Found | None = None
            if outcomes:
                outcome, counted = outcomes
                if isinstance(outcome, Granted):
                    found = outcome, counted, sent_at
            if found is None and self._ahead is not None and self._ahead[1] is answer:
                self._ahead = None
            if self._over:
                self._unnote()
            if not answer.done():
                answer.set_result(found)

        return Offer((question, self._note()), heard)
