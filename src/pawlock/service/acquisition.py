"""One request that acquires a lock, from its first question to the grant, or to nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from pawlock.core.acquire import win
from pawlock.core.local_queue import Waiter, WaiterState
from pawlock.core.options import LockOptions
from pawlock.core.plan import Plan
from pawlock.core.primitive import TOMB_MS, Primitive
from pawlock.core.records import Attempt as Asked
from pawlock.core.records import Hold
from pawlock.core.runtime import Fault
from pawlock.errors import AcquireTimeout
from pawlock.service.leases import LeaseSpec, note
from pawlock.service.requests import Attempt, RequestContext
from pawlock.service.spaces import Space
from pawlock.service.terms import options_for

__all__ = ["Acquisition"]


class Acquisition:
    """One request that acquires a lock.

    Args:
        ctx: The request.
        spec: The lease that is asked for.
        attempt: The try of it that this is.
        token: The token of the acquisition.
        ttl_ms: The life of the lease without renewal.
        shared: Whether other requests, of the same identifier, may answer with what the token holds. Then nothing is
            taken back: one of them may hold by it before that arrives. Its ticket ends by itself, or its TTL.
    """

    def __init__(
        self,
        ctx: RequestContext,
        spec: LeaseSpec,
        attempt: Attempt,
        token: str,
        ttl_ms: int,
        *,
        shared: bool = False,
    ) -> None:
        self.ctx: RequestContext = ctx
        self.space: Space = ctx.space
        self.spec: LeaseSpec = spec
        self.primitive: Primitive = spec.primitive(ctx.space)
        self.options: LockOptions = options_for(ttl_ms, waits=True, answers=ctx.space.engine.request_timeout)
        self.waiter: Waiter = Waiter(token)
        self._give_up = attempt.give_up
        self._shared = shared
        self._noted = False

    async def run(
        self, wait: float, waiting: Callable[[], AbstractAsyncContextManager[object]]
    ) -> tuple[Hold, str]:
        """Acquire the lock.

        Args:
            wait: Seconds to wait.
            waiting: Makes the context manager that is entered while it waits.

        Returns:
            The grant, and the token that holds it.

        Raises:
            AcquireTimeout: Somebody else holds it, and the time is up; nothing is left on the server.
            Problem: The session is over; nothing is left either.
            PawlockError: See ``core.acquire.acquire``.
        """
        engine, waiter, space = self.space.engine, self.waiter, self.space
        began = engine.runtime.now()
        until = began + (wait or self.options.answer_within)
        try:
            engine.check_open(self.spec.name)
            if wait > 0:
                space.waiting += 1
                try:
                    async with waiting():
                        grant = await self._win(until, wait=True)
                        if self.ctx.gone:
                            raise asyncio.CancelledError
                finally:
                    space.waiting -= 1
            else:
                grant = await self._win(until, wait=False)
            if grant is not None:
                if self.ctx.session:
                    self._noted = True
                    await note(space, self.spec, waiter.token, self.ctx.who, self.ctx.session)
                if await self.ctx.is_gone():
                    # In the very moment of the grant: nobody would know of it.
                    raise asyncio.CancelledError
                return grant, waiter.token
        except BaseException as error:
            waiter.note_unconfirmed(error)
            self._drop()
            raise
        await self._withdraw()
        raise self._timed_out(wait, began)

    async def _win(self, until: float, *, wait: bool) -> Hold | None:
        engine, plan = self.space.engine, Plan(self.primitive, self.options, False, True, 1, "")
        asked = Asked(engine.runtime.who(), engine.runtime.now(), until, None, wait=wait)
        asked.waiter = self.waiter
        try:
            return await win(engine, plan, asked)
        finally:
            engine.waits.pop(asked, None)

    def _timed_out(self, wait: float, began: float) -> AcquireTimeout:
        name, holder = self.spec.name, self.waiter.holder
        text = f"acquire {name!r}: still held after {wait:g} s" + (f" by {holder}" if holder else "")
        waited = round(self.space.engine.runtime.now() - began, 3)
        return AcquireTimeout(text, name=name, holder=holder, waited=waited, position=self.waiter.rank)

    def _drop(self) -> None:
        """Leave the token in the background, unless a later try of the same request goes on with it."""
        if self._shared and self.waiter.sent:
            return
        if self._give_up is not None and self.waiter.sent:
            self.space.in_background(self._drop_if_last(self._give_up))
        else:
            self._leave()

    async def _drop_if_last(self, give_up: Callable[[], Awaitable[bool]]) -> None:
        # If the server cannot be reached, the TTL ends it: another try may hold by the same token.
        if await give_up():
            self._leave()

    def _leave(self) -> None:
        if self.waiter.sent:
            self.space.engine.post(self.primitive.leave(self.waiter.token, TOMB_MS, 0))
        if self._noted:
            self.space.remove_record(self.ctx.who.id, self.ctx.session, self.waiter.token)

    async def _withdraw(self) -> None:
        engine, waiter = self.space.engine, self.waiter
        if self._shared or (waiter.state is WaiterState.BUSY and not waiter.unanswered):
            return
        if self._give_up is not None and not await self._give_up():
            return
        leave = self.primitive.leave(waiter.token, TOMB_MS if waiter.unanswered else 0, 0)
        try:
            await engine.runtime.call(leave, self.options.answer_within)
        except BaseException as error:
            engine.post(self.primitive.leave(waiter.token, TOMB_MS, 0))
            if not isinstance(error, Fault):
                raise
