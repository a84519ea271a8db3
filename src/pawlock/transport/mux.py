"""One connection of one event loop, shared by all its tasks: what they send in one turn goes out in one write.

Whose an answer is, ``conn`` knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from pawlock.core.protocol.runtime import Call, Fault, FaultKind, Wakeup
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.conn import Conn, Request
from pawlock.transport.connect import asks_again, fault_of, is_plain_async, make_async, plain_port
from pawlock.transport.wire import NOTHING, Handshake, read_push

__all__ = ["Asked", "Mux", "ask_async", "open_connection", "open_mux", "retrieve"]

_PATIENCE = 0.25
"""A request that waited this long while nothing at all came back closes the connection."""

_MOST_HEARD = 100
"""Channels of other programs that are heard at once; with one more, who waits for the first of them polls."""


class Asked(Request):
    """A request of a task; awaited by one, it brings its outcome, or raises ``Fault``.

    To ``asyncio.Task`` it is a future, but one that may wake its task at once. An ``asyncio.Future`` would do so in the
    next turn of the loop, with one more look for readable sockets between the reply and the task.

    Attributes:
        sent_at: When it was sent.
        until: When it counts as unanswered.
    """

    __slots__ = ("_asyncio_future_blocking", "_callbacks", "_cancel", "_loop", "sent_at", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Call | None, word: bytes) -> None:
        super().__init__(call, word)
        self._loop = loop
        self._asyncio_future_blocking = False
        self._callbacks: list[tuple[Callable[[Asked], object], Context | None]] = []
        self._cancel: asyncio.CancelledError | None = None
        self.sent_at: float = inf
        self.until: float = inf

    def answer(self, outcome: Any) -> None:
        """Give it an outcome, unless it has one, and let its task go on in the next turn of the loop."""
        if self.outcome is NOTHING:
            self.outcome = outcome
        self.wake_soon()

    def wake(self) -> None:
        """Let its task take the next step, now: only where no task of the loop runs."""
        if len(self._callbacks) == 1 and self._callbacks[0][1] is not None:
            callback, context = self._callbacks.pop()
            context.run(callback, self)
        else:
            self.wake_soon()

    def wake_soon(self) -> None:
        """Let its task take the next step in the next turn of the loop; from anywhere, any number of times."""
        while self._callbacks:
            callback, context = self._callbacks[0]
            self._loop.call_soon(callback, self, context=context)
            # After that: a signal handler may have raised before the loop knew of it, and then it is done again.
            del self._callbacks[0]

    def __await__(self) -> Generator[Any, None, Any]:
        if self.outcome is NOTHING:
            self._asyncio_future_blocking = True
            yield self
        if not isinstance(self.outcome, Fault):
            return self.outcome
        try:
            raise self.outcome
        finally:
            # The fault has this frame: the two would keep each other alive, and what the callers' frames hold.
            del self

    # What asyncio.Task asks of a future -------------------------------------------------------------------------

    def add_done_callback(
        self, callback: Callable[[Asked], object], *, context: Context | None = None
    ) -> None:
        """Call back once it has an outcome."""
        self._callbacks.append((callback, context))
        if self.outcome is not NOTHING:
            self.wake_soon()

    def cancel(self, msg: Any = None) -> bool:
        """Give it up: its task is cancelled; False if it has an outcome."""
        if self.outcome is not NOTHING:
            return False
        self._cancel = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self.answer(_unanswered("it was given up"))
        return True

    def result(self) -> None:
        """Raise what its task was cancelled with."""
        if self._cancel is not None:
            raise self._cancel


class Mux(asyncio.Protocol):
    """The protocol object that takes over a connection after redis-py has made it.

    Args:
        loop: The event loop it belongs to.
        on_wakeup: Called with the token and message of each hand-off.
        on_end: Called when the connection is gone.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_wakeup: Callable[[str, Wakeup], object],
        on_end: Callable[[Mux], object],
    ) -> None:
        self.channel: str = ""
        self.shown: str = ""
        self.dead: bool = False
        self._loop = loop
        self._on_wakeup = on_wakeup
        self._on_end = on_end
        self.conn: Conn[Asked] = Conn(partial(Asked, loop))
        self._out: list[bytes] = []
        # Whether tasks go on at present, so that what they send goes out in one write.
        self._waking = False
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at: float = inf
        self._heard_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._secure = False
        self._gone: asyncio.Event = asyncio.Event()
        # The channels of other programs that are heard, the oldest first.
        self._hears: dict[bytes, None] = {}
        self._maker: Any = None

    def take_over(self, maker: Any) -> None:
        """Become the protocol of the transport that a connection of redis.asyncio opened."""
        self._maker = maker
        transport: asyncio.Transport = maker._writer.transport  # noqa: SLF001 - redis-py's, which made the connection
        self._transport = transport
        transport.set_protocol(self)
        self._secure = transport.get_extra_info("ssl_object") is not None
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.resume_reading() if not transport.is_reading() else None

    # Requests ---------------------------------------------------------------------------------------------------

    def ask(self, call: Call, timeout: float) -> Asked:
        """Send a call; awaited, it brings its reply, or ``Fault``."""
        request, data = self.conn.send(call)
        self._start((request,), data, timeout)
        return request

    def ask_many(self, calls: Sequence[Call], timeout: float) -> list[Asked]:
        """The same for several: they go out together."""
        return self.start([self.conn.send(call) for call in calls], timeout)

    async def exchange(self, sent: Sequence[tuple[Asked, bytes]], timeout: float) -> None:
        """Send requests together, and wait until each has an outcome, which may be a ``Fault``."""
        self.start(sent, timeout)
        for request, _ in sent:
            with contextlib.suppress(Fault):
                await request

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
        self.start([self.conn.command(*words) for words in commands], 1.0)

    def start(self, sent: Sequence[tuple[Asked, bytes]], timeout: float) -> list[Asked]:
        """Send requests together, and see to it that each has an outcome in time."""
        requests = [request for request, _ in sent]
        self._start(requests, b"".join([data for _, data in sent]), timeout)
        return requests

    def _start(self, requests: Sequence[Asked], data: bytes, timeout: float) -> None:
        if self.dead or self._transport is None:
            self._fail(Fault(FaultKind.UNREACHABLE, "the connection is gone"))
            return
        now = monotonic()
        until = now + timeout
        for request in requests:
            request.sent_at, request.until = now, until
        if self._out or self._waking:
            self._out.append(data)
        elif len(self.conn.pending) > len(requests):
            # Others are under way: what is sent in this turn of the loop goes out in one write.
            self._loop.call_soon(self.flush)
            self._out.append(data)
        else:
            self._transport.write(data)
        if until < self._looks_at:
            self._look_at(until)

    def flush(self) -> None:
        """Write what was joined."""
        out, self._out = self._out, []
        if out and not self.dead and self._transport is not None:
            self._transport.write(b"".join(out))

    async def do_handshake(self, handshake: Handshake, timeout: float) -> None:
        """Open the channel and check the server. Raises ``Fault``."""
        sent = [self.conn.command(*words) for words in handshake.commands]
        self.start(sent, timeout)
        for check, (request, _) in zip(handshake.checks, sent, strict=True):
            check(await request)
        self.channel = handshake.heard

    # asyncio.Protocol -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Hand out what came."""
        conn = self.conn
        self._heard_at = monotonic()
        try:
            if conn.feed(data):
                self._wake()
            while conn.messages:
                found = read_push(conn.messages.popleft(), self._hears)
                if found is not None:
                    self._on_wakeup(*found)
            if conn.resend:
                # Behind what was joined: in the order in which they are under way.
                self._out += conn.resend
                conn.resend.clear()
                self.flush()
            if conn.over is not None:
                self.close(conn.over)
        except Exception as error:  # noqa: BLE001 - whatever broke, every request must learn of it
            self.close(
                Fault(FaultKind.NOT_REDIS, f"the stream of replies broke: {error}", maybe_applied=True)
            )
        except BaseException:
            self.close(_unanswered("interrupted by a signal"))
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is under way; its callers ask again on a new connection."""
        self._gone.set()
        self.close(_unanswered(f"the connection broke: {exc or 'closed by the server'}"))

    def _wake(self) -> None:
        """Let tasks go on, in the order of their replies."""
        answered = self.conn.answered
        if self._secure:
            # With TLS, data may come while a task runs, and no other can be let run then.
            for request in answered:
                request.wake_soon()
        else:
            self._waking = len(answered) > 1
            try:
                for request in answered:
                    request.wake()
            finally:
                self._waking = False
                self.flush()
        # Only now: where a signal handler raised before, or ended a task, the others learn of it by the close.
        answered.clear()

    def _fail(self, fault: Fault) -> None:
        for request in self.conn.fail(fault):
            request.wake_soon()
        self.conn.answered.clear()

    # Deadlines and the end --------------------------------------------------------------------------------------

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = at
        self._timer = None if at == inf else self._loop.call_later(at - monotonic(), self._look)

    def _look(self) -> None:
        """Fail what is overdue. One timer serves all requests of the connection."""
        now, at = monotonic(), inf
        for request in list(self.conn.pending):
            if request.until <= now:
                request.answer(_unanswered(f"no answer within {request.until - request.sent_at:.3g} s"))
            if request.outcome is NOTHING:
                at = min(at, request.until)
            elif request.sent_at > self._heard_at:
                at = min(at, request.sent_at + _PATIENCE)
        if at <= now:
            self.close(_unanswered("the server is silent"))
        else:
            self._look_at(at)

    async def drain_replies(self, timeout: float) -> None:
        """Wait for the last answer under way: a socket closed on top of it may take the request back as well."""
        if self.conn.pending and not self.dead:
            # Answered behind all the others.
            await self.exchange((self.conn.command(b"PING"),), timeout)

    def close(self, fault: Fault | None = None) -> None:
        """Close the connection and fail what is under way; to repeat it goes on where a signal handler raised."""
        self.dead = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):
                self._transport.close()
        # redis-py's object would warn of an open connection that is ours to close.
        if self._maker is not None:
            self._maker._reader = self._maker._writer = None  # noqa: SLF001 - redis-py's, which made the connection
        self._fail(fault or Fault(FaultKind.CLOSED, "the client is closed", final=True))
        self._on_end(self)

    async def wait_closed(self, timeout: float) -> None:
        """After ``close``: wait for the server's part in the end of TLS. A loop that ended before would warn of it."""
        if not self._secure or self._transport is None:
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
    mux.shown = endpoint.shown
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


async def ask_async(endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> Any:
    """Connect to a node, ask it one thing and disconnect. Raises ``Fault``."""
    connection = await open_connection(endpoint, timeout)
    try:
        await connection.send_command(*words)
        return await connection.read_response()
    except Exception as error:
        raise fault_of(error, endpoint.shown) from error
    finally:
        await connection.disconnect(nowait=True)
