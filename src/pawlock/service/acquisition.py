"""One request that acquires a lock, from its first question to the grant, or to nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from pawlock.core.acquire.queue import win
from pawlock.core.protocol.primitive import TOMB_MS, Primitive
from pawlock.core.protocol.runtime import Fault
from pawlock.core.protocol.terms import Terms
from pawlock.core.state.records import Waiter
from pawlock.errors import AcquireTimeout
from pawlock.model import Grant
from pawlock.service.access import Principal
from pawlock.service.leases import LeaseSpec, note
from pawlock.service.spaces import Space
from pawlock.service.terms import options_for

__all__ = ["Acquisition", "Client"]


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
        token: The token of the acquisition.
        ttl_ms: The life of the lease without renewal.
        who: Who asks.
        session: The session that the lease is to belong to, or ``""``.
        give_up: See ``Attempt``.
    """

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
        self._give_up = give_up
        self._noted = False

    async def run(
        self,
        wait: float,
        waiting: Callable[[], AbstractAsyncContextManager[Client]],
        is_gone: Callable[[], Awaitable[bool]],
    ) -> tuple[Grant, str]:
        """Acquire the lock.

        Args:
            wait: Seconds to wait.
            waiting: Makes the context manager that is entered while it waits.
            is_gone: Whether the client has disconnected.

        Returns:
            The grant, and the token that holds it.

        Raises:
            AcquireTimeout: Somebody else holds it, and the time is up; nothing is left on the server.
            Problem: The session is over; nothing is left either.
            PawlockError: See ``core.acquire.queue.win``.
        """
        engine, waiter, space = self.space.engine, self.waiter, self.space
        began = engine.runtime.now()
        until = began + (wait or self.options.request_timeout)
        try:
            engine.check_open(self.spec.name)
            if wait > 0:
                space.waiting += 1
                try:
                    async with waiting() as client:
                        grant = await win(engine, self.primitive, self.options, waiter, until, wait=True)
                        if client.gone:
                            raise asyncio.CancelledError
                finally:
                    space.waiting -= 1
            else:
                grant = await win(engine, self.primitive, self.options, waiter, until, wait=False)
            if grant is not None:
                if self.session:
                    self._noted = True
                    await note(space, self.spec, waiter.token, self.who, self.session)
                if await is_gone():
                    # In the very moment of the grant: nobody would know of it.
                    raise asyncio.CancelledError
                return grant, waiter.token
        except BaseException as error:
            waiter.note_unconfirmed(error)
            self._drop()
            raise
        await self._withdraw()
        raise self._timed_out(wait, began)

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
        if self._give_up is not None and self.waiter.sent:
            self.space.in_background(self._drop_if_last(self._give_up))
        else:
            self._leave()

    async def _drop_if_last(self, give_up: Callable[[], Awaitable[bool]]) -> None:
        # If the server cannot be asked, the TTL ends it: another try may hold by the same token.
        if await give_up():
            self._leave()

    def _leave(self) -> None:
        self.space.engine.drop_waiter(self.primitive, None, self.waiter)
        if self._noted:
            self.space.remove_record(self.who.id, self.session, self.waiter.token)

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
