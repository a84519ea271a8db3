"""One connection of one event loop, shared by all its tasks: writes joined per tick, replies matched by request id.

A reply is matched by the id that the script echoes. Error replies carry none and belong to the oldest request; a
mistake there can only turn a yes into an error, after which the token is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from pawl.core.runtime import DEAF, FIRST_RID, Call, Fault, FaultKind, Reply, Wakeup
from pawl.topology.endpoint import Endpoint
from pawl.transport.connect import asks_again, fault_of, is_plain_async, make_async, plain_port
from pawl.transport.wire import (
    ENDING,
    NOTHING,
    Greeting,
    PushNotification,
    ReplyError,
    new_reader,
    read_push,
    refusal_of,
    rid_of,
)

__all__ = ["Mux", "open_mux"]

_PATIENCE = 0.25
"""A request that waited this long while nothing at all came back condemns the connection."""

_SILENT = 2
"""So do this many shorter ones in a row."""


class _Request:
    __slots__ = ("answer", "call", "deadline", "rid", "sent_at", "taught")

    def __init__(
        self, call: Call | None, rid: int, answer: asyncio.Future[Any], sent_at: float, deadline: float
    ) -> None:
        self.call = call
        self.rid = rid
        self.answer = answer
        self.sent_at = sent_at
        self.deadline = deadline
        self.taught = False


class Mux(asyncio.Protocol):
    """The protocol object that takes over a connection after redis-py has made it.

    Args:
        loop: The event loop it belongs to.
        on_wakeup: Called with the token and message of each hand-off.
        on_end: Called once when the connection is gone.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_wakeup: Callable[[str, Wakeup], object],
        on_end: Callable[[Mux], object],
    ) -> None:
        self.channel: str = ""
        self.dead: bool = False
        self._loop = loop
        self._on_wakeup = on_wakeup
        self._on_end = on_end
        self._reader = new_reader()
        self._pending: deque[_Request] = deque()
        self._out: list[bytes] = []
        self._corked = False
        self._rid: int = FIRST_RID
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._silent = 0
        self._transport: asyncio.Transport | None = None
        self._subscribed: asyncio.Future[Any] | None = None
        self._maker: Any = None

    def take_over(self, maker: Any) -> None:
        """Become the protocol of the transport that a connection of redis.asyncio opened."""
        self._maker = maker
        transport: asyncio.Transport = maker._writer.transport
        self._transport = transport
        transport.set_protocol(self)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.resume_reading() if not transport.is_reading() else None

    # Requests ---------------------------------------------------------------------------------------------------

    def post(self, call: Call, timeout: float) -> asyncio.Future[Reply]:
        """Send a call; the future brings its reply, or ``Fault``."""
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._rid += 1
        sent_at = self._loop.time()
        request = _Request(call, self._rid, answer, sent_at, sent_at + timeout)
        self._enqueue(request, call.pack(self._rid))
        return answer

    def _enqueue(self, request: _Request, data: bytes) -> None:
        if self.dead or self._transport is None:
            request.answer.set_exception(Fault(FaultKind.UNREACHABLE, "the connection is gone"))
            return
        if self._corked or self._out:
            self._out.append(data)
        elif self._pending:
            # Others are under way: what is sent in this tick goes out in one write.
            self._out.append(data)
            self._loop.call_soon(self.flush)
        else:
            self._transport.write(data)
        self._pending.append(request)
        if self._timer is None:
            self._timer = self._loop.call_at(request.deadline, self._look)

    def flush(self) -> None:
        """Write what was joined."""
        self._corked = False
        out, self._out = self._out, []
        if out and not self.dead and self._transport is not None:
            self._transport.write(b"".join(out))

    def cast(self, call: Call) -> None:
        """Send behind all that was sent before, at once; the reply is dropped."""
        if self.dead:
            return
        answer = self.post(call, 1.0)
        answer.add_done_callback(_retrieve)
        self.flush()

    async def greet(self, greeting: Greeting, timeout: float) -> None:
        """Open the channel and check the server. Raises ``Fault``."""
        if self._transport is None:
            raise Fault(FaultKind.UNREACHABLE, "the connection is gone")
        now = self._loop.time()
        hello: asyncio.Future[Any] = self._loop.create_future()
        self._subscribed = self._loop.create_future() if greeting.channel else None
        self._enqueue(_Request(None, 0, hello, now, now + timeout), greeting.request)
        greeting.check_hello(await hello)
        if self._subscribed is None:
            self.channel = DEAF
            return
        try:
            async with asyncio.timeout(timeout):
                self.channel = greeting.check_subscribe(await self._subscribed)
        except TimeoutError:
            raise Fault(FaultKind.UNANSWERED, "no answer to SUBSCRIBE") from None

    # asyncio.Protocol -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse and hand out what came."""
        reader = self._reader
        reader.feed(data)
        self._heard_at = self._loop.time()
        self._silent = 0
        handed = 0
        try:
            while (reply := reader.gets()) is not NOTHING:
                handed += 1
                if type(reply) is PushNotification:
                    self._pushed(reply)
                elif isinstance(reply, ReplyError):
                    self._refused(reply)
                else:
                    self._answered(reply)
        except Exception as error:  # noqa: BLE001 - whatever broke, every request must learn of it
            self.close(
                Fault(FaultKind.NOT_REDIS, f"the stream of replies broke: {error}", maybe_applied=True)
            )
        if handed > 1 and not self._corked:
            # Several tasks wake now, in this order, before the flush: what they send goes out in one write.
            self._corked = True
            self._loop.call_soon(self.flush)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is under way; its callers ask again on a new connection."""
        text = f"the connection broke: {exc or 'closed by the server'}"
        self.close(Fault(FaultKind.UNANSWERED, text, maybe_applied=True))

    def _pushed(self, push: Any) -> None:
        found = read_push(push)
        if found is not None:
            self._on_wakeup(*found)
        elif self._subscribed is not None and not self._subscribed.done() and push[0] == b"subscribe":
            self._subscribed.set_result(push)

    def _answered(self, reply: Any) -> None:
        pending = self._pending
        rid = rid_of(reply)
        if rid is not None:
            while pending and pending[0].rid < rid:
                self._fail(pending.popleft(), "the reply was lost")
            if pending and pending[0].rid == rid and not (answer := pending.popleft().answer).done():
                answer.set_result(reply)
        elif pending and pending[0].rid == 0:
            # The greeting is first on a connection and carries no id.
            answer = pending.popleft().answer
            if not answer.done():
                answer.set_result(reply)

    def _refused(self, error: Any) -> None:
        text = str(error)
        subscribing = self._subscribed is not None and not self._subscribed.done()
        if subscribing and self._subscribed is not None and (not self._pending or self._pending[0].rid != 0):
            self._subscribed.set_result(error)
            return
        if not self._pending:
            return
        request = self._pending.popleft()
        if request.call is None:
            request.answer.set_result(error)
        elif text.startswith("NOSCRIPT") and not request.taught:
            self._teach(request)
        else:
            fault = refusal_of(text)
            if not request.answer.done():
                request.answer.set_exception(fault)
            if fault.kind in ENDING:
                self.close(Fault(FaultKind.UNANSWERED, text, maybe_applied=True))

    def _teach(self, request: _Request) -> None:
        call = request.call
        if call is None:
            return
        self._rid += 1
        request.rid = self._rid
        request.taught = True
        self._enqueue(request, call.pack_eval(request.rid))

    # Deadlines and the end --------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Fail what is overdue. One timer serves all requests of the connection."""
        self._timer = None
        now = self._loop.time()
        for request in self._pending:
            if request.deadline <= now and not request.answer.done():
                self._fail(request, f"no answer within {request.deadline - request.sent_at:.3g} s")
                if self._heard_at < request.sent_at:
                    self._silent += 1
                    if now - request.sent_at >= _PATIENCE or self._silent >= _SILENT:
                        self.close(Fault(FaultKind.UNANSWERED, "the server is silent", maybe_applied=True))
                        return
        waiting = [r.deadline for r in self._pending if not r.answer.done()]
        if waiting:
            self._timer = self._loop.call_at(min(waiting), self._look)

    @staticmethod
    def _fail(request: _Request, text: str) -> None:
        if not request.answer.done():
            request.answer.set_exception(Fault(FaultKind.UNANSWERED, text, maybe_applied=True))

    def close(self, fault: Fault | None = None) -> None:
        """Close the connection and fail what is under way; safe to repeat."""
        if self.dead:
            return
        self.dead = True
        why = fault or Fault(FaultKind.CLOSED, "the client is closed", final=True)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):
                self._transport.close()
        # redis-py's object would warn of an open connection that is ours to close.
        if self._maker is not None:
            self._maker._reader = self._maker._writer = None
        pending, self._pending = self._pending, deque()
        for request in pending:
            if not request.answer.done():
                request.answer.set_exception(why)
        if self._subscribed is not None and not self._subscribed.done():
            self._subscribed.set_exception(why)
            self._subscribed.add_done_callback(_retrieve)
        self._on_end(self)


def _retrieve(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()


async def open_mux(endpoint: Endpoint, mux: Mux, greeting: Greeting, timeout: float) -> None:
    """Connect, log in, and open the channel.

    Raises:
        Fault: It could not be done.
    """
    try:
        maker = await _open(endpoint, timeout)
    except Fault as fault:
        if not asks_again(endpoint, fault):
            raise
        maker = await _open(endpoint, timeout)
    mux.take_over(maker)
    try:
        await mux.greet(greeting, timeout)
    except BaseException:
        mux.close()
        raise


async def _open(endpoint: Endpoint, timeout: float) -> Any:
    maker = make_async(endpoint, timeout)
    try:
        await maker.connect()
    except (Exception, asyncio.CancelledError) as error:
        with contextlib.suppress(Exception):
            await maker.disconnect(nowait=True)
        if isinstance(error, asyncio.CancelledError):
            raise
        fault = fault_of(error, endpoint.shown)
        if fault.kind is FaultKind.UNREACHABLE and await is_plain_async(endpoint):
            fault = plain_port(endpoint.shown)
        raise fault from error
    return maker
