"""One connection of one event loop, shared by all its tasks: writes joined per tick, replies matched by request id.

A reply is matched by the id that the script echoes. Error replies carry none. They come in the order of the requests,
so one belongs to the oldest, unless a reply before it was lost. So while several requests are under way, an error is
set aside until it is sure whose it is: until as many errors came as there are requests without an answer, to the next
answer with an id or to the last request. If they do not go up, nobody gets any, and all of them ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import Any

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import DEAF, FIRST_RID, Call, Fault, FaultKind, Wakeup
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.answer import Answer
from pawlock.transport.connect import asks_again, fault_of, is_plain_async, make_async, plain_port
from pawlock.transport.wire import (
    ENDS_CONNECTION,
    NOTHING,
    Handshake,
    PushNotification,
    ReplyError,
    new_reader,
    pack,
    read_push,
    refusal_of,
    rid_of,
)

__all__ = ["Mux", "open_connection", "open_mux", "retrieve"]

_PATIENCE = 0.25
"""A request that waited this long while nothing at all came back closes the connection."""

_MOST_IN_A_WRITE = 16
"""So many requests go out in one write: few enough that client and server work at the same time."""

_MOST_HEARD = 100
"""Channels of other programs that are heard at once; with one more, who waits for the first of them polls."""

_SILENT = 2
"""So do this many shorter ones in a row."""


class _Request(Answer[Any]):
    taught = False

    def __init__(
        self, loop: asyncio.AbstractEventLoop, call: Call | None, timeout: float, heard: int, rid: int
    ) -> None:
        self._loop = loop
        self.call = call
        self.rid = rid
        self.word = b"%d" % rid
        self.sent_at = monotonic()
        self.timeout = timeout
        # How often anything had come when it was sent.
        self.heard = heard


class Mux(asyncio.Protocol):
    """The protocol object that takes over a connection after redis-py has made it.

    Args:
        loop: The event loop it belongs to.
        on_wakeup: Called with the token and message of each hand-off; returns who is to be woken with it, if anybody.
        on_end: Called once when the connection is gone.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_wakeup: Callable[[str, Wakeup], Answer[Any] | None],
        on_end: Callable[[Mux], object],
    ) -> None:
        self.channel: str = ""
        self.dead: bool = False
        self._loop = loop
        self._on_wakeup = on_wakeup
        self._on_end = on_end
        self._reader = new_reader()
        self._pending: deque[_Request] = deque()
        # Error replies of which it is not sure yet whose they are.
        self._errors: list[Any] = []
        self._out: list[bytes] = []
        self._corked = False
        self._rid: int = FIRST_RID
        self._timer: asyncio.TimerHandle | None = None
        # The timeout that the timer was set for; infinite while there is none.
        self._looks_after: float = inf
        self._heard = 0
        self._eager = False
        self._silent = 0
        self._transport: asyncio.Transport | None = None
        self._gone: asyncio.Event = asyncio.Event()
        self._write: Callable[[bytes], object] = self._out.append
        self._subscribed: asyncio.Future[Any] | None = None
        # The channels of other programs that are heard, the oldest first.
        self._hears: dict[bytes, None] = {}
        self._maker: Any = None

    def take_over(self, maker: Any) -> None:
        """Become the protocol of the transport that a connection of redis.asyncio opened."""
        self._maker = maker
        transport: asyncio.Transport = maker._writer.transport  # noqa: SLF001 - redis-py's, which made the connection
        self._transport = transport
        self._write = transport.write
        transport.set_protocol(self)
        # Over TLS, asyncio may hand out data from within a task, where no other task can be let run.
        self._eager = transport.get_extra_info("ssl_object") is None
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.resume_reading() if not transport.is_reading() else None

    # Requests ---------------------------------------------------------------------------------------------------

    def ask(self, call: Call, timeout: float) -> Answer[Outcome]:
        """Send a call; awaited, it brings its reply, or ``Fault``."""
        self._rid = rid = self._rid + 1
        request = _Request(self._loop, call, timeout, self._heard, rid)
        data = b"".join((call[0].evalsha, call[1], b"$10\r\n", request.word, b"\r\n"))  # Call.pack
        if timeout < self._looks_after or self.dead:
            self._enqueue(request, data)
        elif self._corked and len(self._out) < _MOST_IN_A_WRITE:
            self._out.append(data)
            self._pending.append(request)
        elif not (self._corked or self._out or self._pending):
            # Nobody else asks: the server begins with it while its task goes on.
            self._write(data)
            self._pending.append(request)
        else:
            self._enqueue(request, data)
        return request

    def ask_many(self, calls: Sequence[Call], timeout: float) -> list[Answer[Outcome]]:
        """The same for several: they go out together."""
        corked, alone = self._corked, not self._pending
        self._corked = True
        try:
            return [self.ask(call, timeout) for call in calls]
        finally:
            self._corked = corked
            if not corked and alone:
                self.flush()
            elif not corked and self._out:
                # Others are under way: what is sent in this tick goes out in one write.
                self._loop.call_soon(self.flush)

    def hear(self, channel: str) -> None:
        """Have the messages of another program's channel come here too, as wake-ups for it; what fails is not heard."""
        word = channel.encode()
        if word in self._hears:
            return
        commands = [(b"SUBSCRIBE", word)]
        if len(self._hears) >= _MOST_HEARD:
            commands.append((b"UNSUBSCRIBE", next(iter(self._hears))))
            del self._hears[commands[1][1]]
        self._hears[word] = None
        for command in commands:
            self._rid += 1
            request = _Request(self._loop, None, 1.0, self._heard, self._rid)
            request.word = command[1]
            self._enqueue(request, pack(*command))

    def _enqueue(self, request: _Request, data: bytes) -> None:
        if self.dead or self._transport is None:
            request.fail(Fault(FaultKind.UNREACHABLE, "the connection is gone"))
            return
        if self._corked or self._out:
            self._out.append(data)
            if len(self._out) > _MOST_IN_A_WRITE:
                # The server begins with these while the rest is made.
                self._transport.write(b"".join(self._out))
                self._out.clear()
        elif self._pending:
            # Others are under way: what is sent in this tick goes out in one write.
            self._out.append(data)
            self._loop.call_soon(self.flush)
        else:
            self._transport.write(data)
        self._pending.append(request)
        if request.timeout < self._looks_after:
            # Nobody waits so long: the one timer goes off sooner.
            if self._timer is not None:
                self._timer.cancel()
            self._looks_after = request.timeout
            self._timer = self._loop.call_later(request.timeout, self._look)

    def flush(self) -> None:
        """Write what was joined."""
        self._corked = False
        out, self._out = self._out, []
        if out and not self.dead and self._transport is not None:
            self._transport.write(b"".join(out))

    async def do_handshake(self, handshake: Handshake, timeout: float) -> None:
        """Open the channel and check the server. Raises ``Fault``."""
        if self._transport is None:
            raise Fault(FaultKind.UNREACHABLE, "the connection is gone")
        hello = _Request(self._loop, None, timeout, 0, 0)
        self._subscribed = self._loop.create_future() if handshake.channel else None
        self._enqueue(hello, handshake.request)
        handshake.check_hello(await hello)
        if self._subscribed is None:
            self.channel = DEAF
            return
        try:
            async with asyncio.timeout(timeout):
                self.channel = handshake.check_subscribe(await self._subscribed)
        except TimeoutError:
            raise Fault(FaultKind.UNANSWERED, "no answer to SUBSCRIBE") from None

    # asyncio.Protocol -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse and hand out what came."""
        ready: list[Answer[Any]] = []
        handing: list[_Request] = []
        try:
            self._hand_out(data, ready, handing)
        except Exception as error:  # noqa: BLE001 - whatever broke, every request must learn of it
            self.close(
                Fault(FaultKind.NOT_REDIS, f"the stream of replies broke: {error}", maybe_applied=True)
            )
        except BaseException:
            self._cut_short(ready, handing)
            raise
        try:
            if len(ready) == 1 and self._eager and not self._pending:
                # Alone on the connection: what its task sends next has nothing to be joined with.
                ready[0].wake()
            elif ready:
                self._wake(ready)
        except BaseException:
            # A signal handler raised here, or ended a task that goes on from here: all learn of their replies.
            for request in ready:
                request.wake_soon()
            self._loop.call_soon(self.flush)
            raise

    def _hand_out(self, data: bytes, ready: list[Answer[Any]], handing: list[_Request]) -> None:
        """Give what came to those that asked for it; ``ready`` are to be woken, ``handing`` may be out of the queue."""
        reader, pending = self._reader, self._pending
        reader.feed(data)
        self._heard += 1
        self._silent = 0
        while (reply := reader.gets()) is not NOTHING:
            if type(reply) is list and pending and reply[1] == pending[0].word and not self._errors:
                # At any time it is in the queue, or among those that are woken: a signal handler may raise in between.
                request = pending[0]
                if not request.ended:
                    request.value = reply if request.call is None else request.call.answer(reply)  # pyright: ignore[reportUnknownArgumentType]
                    ready.append(request)
                    request.ended = True
                pending.popleft()
            elif type(reply) is PushNotification:  # pyright: ignore[reportUnknownArgumentType] - a list is Any
                waiter = self._pushed(reply)
                if waiter is not None:
                    ready.append(waiter)
            else:
                handing[:] = pending
                if isinstance(reply, ReplyError):
                    self._refused(reply)
                else:
                    self._answered(reply)

    def _cut_short(self, ready: list[Answer[Any]], handing: list[_Request]) -> None:
        """A signal handler raised in the middle of it: what was read may be lost, and nobody must wait for it."""
        for answer in ready:
            answer.ended = True
            answer.wake_soon()
        fault = _unanswered("interrupted by a signal")
        # Those that are in the queue end with the connection.
        for request in handing:
            if request not in self._pending:
                request.fail(fault)
        self.close(fault)

    def _wake(self, ready: list[Answer[Any]]) -> None:
        """Let tasks go on, in the order of their replies; what they send meanwhile goes out in one write."""
        self._corked = True
        if not self._eager:
            for request in ready:
                request.wake_soon()
            self._loop.call_soon(self.flush)
            return
        woken = 0
        try:
            for request in ready:
                woken += 1
                request.wake()
        finally:
            # Ctrl-C ends a task and goes on through here; the others must learn of their replies all the same.
            for request in ready[woken:]:
                request.wake_soon()
            self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is under way; its callers ask again on a new connection."""
        self._gone.set()
        text = f"the connection broke: {exc or 'closed by the server'}"
        self.close(Fault(FaultKind.UNANSWERED, text, maybe_applied=True))

    def _pushed(self, push: Any) -> Answer[Any] | None:
        if push[0] == b"message" and push[1] in self._hears:
            return self._on_wakeup(push[1].decode(), Wakeup(0, 0))
        found = read_push(push)
        if found is not None:
            return self._on_wakeup(*found)
        for request in self._pending:
            if request.call is None and request.word == push[1]:
                self._pending.remove(request)
                request.give(push)
                break
        if self._subscribed is not None and not self._subscribed.done() and push[0] == b"subscribe":
            self._subscribed.set_result(push)
        return None

    def _answered(self, reply: Any) -> None:
        pending = self._pending
        rid = rid_of(reply)
        if rid is None:
            # Of the handshake, which is answered in its turn.
            rid = next((request.rid for request in pending if request.call is None), None)
            if rid is None:
                return
        elif not pending or pending[0].rid > rid:
            return
        before: list[_Request] = []
        while pending and pending[0].rid < rid:
            before.append(pending.popleft())
        errors, self._errors = self._errors, []
        if pending and pending[0].rid == rid:
            request = pending.popleft()
            if request.give(reply if request.call is None else request.call.answer(reply)):
                request.wake_soon()
        sure = len(errors) == len(before)
        for index, request in enumerate(before):
            if sure:
                self._fail(request, errors[index])
            else:
                request.fail(_unanswered("the reply was lost"))

    def _refused(self, error: Any) -> None:
        subscribing = self._subscribed is not None and not self._subscribed.done()
        if subscribing and self._subscribed is not None and (not self._pending or self._pending[0].rid != 0):
            self._subscribed.set_result(error)
            return
        pending = self._pending
        if pending and pending[0].call is None:
            # The handshake, or a channel that may not be heard.
            request = pending.popleft()
            request.give(error)
            request.wake_soon()
            return
        self._errors.append(error)
        if len(self._errors) < len(pending):
            return
        errors, self._errors = self._errors, []
        for result in errors[: len(pending)]:
            # A fault of one may end the connection for all.
            if pending:
                self._fail(pending.popleft(), result)

    def _fail(self, request: _Request, error: Any) -> None:
        text = str(error)
        if text.startswith("NOSCRIPT") and not request.taught and not self.dead:
            self._teach(request)
            return
        fault = refusal_of(text)
        request.fail(fault)
        if fault.kind in ENDS_CONNECTION:
            self.close(Fault(FaultKind.UNANSWERED, text, maybe_applied=True))

    def _teach(self, request: _Request) -> None:
        call = request.call
        if call is None:
            return
        self._rid = request.rid = self._rid + 1
        request.word = b"%d" % self._rid
        request.taught = True
        self._enqueue(request, call.pack_eval(request.rid))

    # Deadlines and the end --------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Fail what is overdue. One timer serves all requests of the connection."""
        self._timer = None
        self._looks_after = inf
        now = monotonic()
        for request in self._pending:
            if request.sent_at + request.timeout <= now and not request.ended:
                request.fail(_unanswered(f"no answer within {request.timeout:.3g} s"))
                if self._heard == request.heard:
                    self._silent += 1
                    if now - request.sent_at >= _PATIENCE or self._silent >= _SILENT:
                        self.close(Fault(FaultKind.UNANSWERED, "the server is silent", maybe_applied=True))
                        return
        waiting = [r.sent_at + r.timeout for r in self._pending if not r.ended]
        if waiting:
            self._looks_after = max(0.0, min(waiting) - now)
            self._timer = self._loop.call_later(self._looks_after, self._look)

    async def drain_replies(self, timeout: float) -> None:
        """Wait for the last answer under way: a socket closed on top of it may take the request back as well."""
        if self._pending and not self.dead and not self._pending[-1].ended:
            heard: asyncio.Future[None] = self._loop.create_future()
            self._pending[-1].add_done_callback(lambda _: heard.cancel())
            await asyncio.wait({heard}, timeout=timeout)

    def close(self, fault: Fault | None = None) -> None:
        """Close the connection and fail what is under way; safe to repeat."""
        if self.dead and not self._pending:
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
            self._maker._reader = self._maker._writer = None  # noqa: SLF001 - redis-py's, which made the connection
        # Each stays there until it knows: whatever a signal handler raises here, the next close goes on with it.
        while self._pending:
            self._pending[0].fail(why)
            self._pending.popleft()
        if self._subscribed is not None and not self._subscribed.done():
            self._subscribed.set_exception(why)
            self._subscribed.add_done_callback(retrieve)
        self._on_end(self)

    async def wait_closed(self, timeout: float) -> None:
        """After ``close``: wait for the server's part in the end of TLS. A loop that ended before would warn of it."""
        if self._eager or self._transport is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()


def _unanswered(text: str) -> Fault:
    return Fault(FaultKind.UNANSWERED, text, maybe_applied=True)


def retrieve(answer: asyncio.Future[Any]) -> None:
    """Have asyncio not report an error that nobody waits for any more."""
    if not answer.cancelled():
        answer.exception()


async def open_mux(endpoint: Endpoint, mux: Mux, handshake: Handshake, timeout: float) -> None:
    """Connect, log in, and open the channel.

    Raises:
        Fault: It could not be done.
    """
    maker = await open_connection(endpoint, timeout)
    mux.take_over(maker)
    try:
        await mux.do_handshake(handshake, timeout)
    except BaseException:
        mux.close()
        raise


async def open_connection(endpoint: Endpoint, timeout: float) -> Any:
    """A connection of redis.asyncio, encrypted and logged in; a refused login is tried once more by a provider."""
    try:
        return await _open(endpoint, timeout)
    except Fault as fault:
        if not asks_again(endpoint, fault):
            raise
    return await _open(endpoint, timeout)


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
