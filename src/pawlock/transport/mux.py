"""One connection of one event loop, shared by all its tasks: what they send in one turn goes out in one write.

Whose an answer is, ``conn`` knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from pawlock._system import monotonic
from pawlock.core.faults import or_raise
from pawlock.core.runtime import Call, Fault, FaultKind, Wakeup
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.conn import Conn, Request, Words, read_push
from pawlock.transport.connect import Greeting, asks_again, fault_of, login_of_task, opened
from pawlock.transport.link import refused

__all__ = ["Asked", "Mux", "ask_async", "nobody", "open_mux"]

_MOST_HEARD = 100
"""Channels of other programs that are heard at once; with one more, who waits for the first of them polls."""


class Asked(Request):
    """A request of a task.

    Attributes:
        future: Its outcome is its result, also if that is a ``Fault``. Cancelled: nobody waits for it any more.
        sent_at: When it was sent.
        until: When it counts as unanswered.
    """

    sent_at: float = inf
    until: float = inf

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Any] = asyncio.Future(loop=loop)

    def answer(self, outcome: Any) -> None:
        """Give it an outcome, unless it has one, and let its task go on in the next turn of the loop."""
        if not self.future.done():
            self.future.set_result(outcome)


class Mux(asyncio.Protocol):
    """The protocol object of a connection; made by ``open_mux``.

    Args:
        loop: The event loop it belongs to.
        on_wakeup: Called with the token and message of each hand-off.
        on_end: Called when the connection is gone.

    Attributes:
        patience: A request that waited so many seconds while nothing at all came back closes the connection.
    """

    patience: float = 0.25

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_wakeup: Callable[[str, Wakeup], object],
        on_end: Callable[[Mux], object],
    ) -> None:
        self.channel: str = ""
        self.shown: str = ""
        self.dead: bool = False
        self.conn: Conn[Asked] = Conn(lambda: Asked(loop))
        self._loop = loop
        self._on_wakeup = on_wakeup
        self._on_end = on_end
        self._out: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at: float = inf
        self._heard_at = 0.0
        self._transport: asyncio.Transport | None = None
        # The channels of other programs that are heard, the oldest first.
        self._hears: dict[bytes, None] = {}

    # Requests ---------------------------------------------------------------------------------------------------

    def ask(self, call: Call, timeout: float) -> asyncio.Future[Any]:
        """Send a call; awaited, it brings its outcome, which may be a ``Fault``."""
        request = Asked(self._loop)
        self._start((request,), self.conn.send(call, request), timeout)
        return request.future

    def start(self, what: Sequence[Call | Words], timeout: float) -> list[asyncio.Future[Any]]:
        """The same for several scripts and commands: they go out together."""
        requests = [Asked(self._loop) for _ in what]
        self._start(requests, self.conn.put(what, requests), timeout)
        return [request.future for request in requests]

    async def exchange(self, what: Sequence[Call | Words], timeout: float) -> list[Any]:
        """Send several together, and wait until each has an outcome, which may be a ``Fault``."""
        return [await future for future in self.start(what, timeout)]

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
        self.start(commands, max(1.0, self.patience))

    def _start(self, requests: Sequence[Asked], data: bytes, timeout: float) -> None:
        if self.dead or self._transport is None:
            self.conn.fail(Fault(FaultKind.UNREACHABLE, "the connection is gone"))
            return
        now = monotonic()
        until = now + timeout
        for request in requests:
            request.sent_at, request.until = now, until
        if self._out:
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

    # asyncio.Protocol -------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand out what came."""
        conn = self.conn
        self._heard_at = monotonic()
        try:
            conn.feed(data)
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
            fault = Fault(FaultKind.NOT_REDIS, f"the stream of replies broke: {error}", maybe_applied=True)
            fault.__cause__ = error.with_traceback(None)
            self.close(fault)
        except BaseException:
            self.close(_unanswered("interrupted by a signal"))
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is under way; its callers ask again on a new connection."""
        cause = exc or ConnectionResetError(errno.ECONNRESET, "closed by the server")
        fault = _unanswered(f"the connection broke: {cause}")
        fault.__cause__ = cause
        self.close(fault)

    # Deadlines and the end --------------------------------------------------------------------------------------

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = at
        self._timer = None if at == inf else self._loop.call_later(at - monotonic(), self._look)

    def _look(self) -> None:
        """Fail what is overdue. One timer serves all requests of the connection."""
        now, at = monotonic(), inf
        for request in self.conn.pending:
            if request.until <= now:
                request.answer(_unanswered(f"no answer within {request.until - request.sent_at:.3g} s"))
            if not request.future.done():
                at = min(at, request.until)
            elif request.sent_at > self._heard_at:
                at = min(at, request.sent_at + self.patience)
        if at <= now:
            self.close(_unanswered("the server is silent"))
        else:
            self._look_at(at)

    async def drain_replies(self, timeout: float) -> None:
        """Wait for the last answer under way: a socket closed on top of it may take the request back as well."""
        if self.conn.pending and not self.dead:
            # Answered behind all the others, and allowed by the rules of a user of pawlock.
            await self.exchange([(b"ECHO", b"")], timeout)

    def close(self, fault: Fault | None = None) -> None:
        """Close the connection and fail what is under way; to repeat it goes on where a signal handler raised."""
        self.dead = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            # Nothing is left to be sent. To TLS, a closing side would wait for the other one.
            with contextlib.suppress(RuntimeError):
                self._transport.abort()
        self.conn.fail(fault or Fault(FaultKind.CLOSED, "the client is closed", final=True))
        self._on_end(self)


def _unanswered(text: str) -> Fault:
    return Fault(FaultKind.UNANSWERED, text, maybe_applied=True)


async def open_mux(
    endpoint: Endpoint, make: Callable[[], Mux], channel: str | None, timeout: float, *, first: bool = False
) -> Mux:
    """Connect, log in, and open the channel.

    Args:
        endpoint: Where to.
        make: Makes the object that is to be connected.
        channel: The channel on which it will hear hand-offs; see ``Greeting``.
        timeout: Seconds for the connect and for the login; all of it takes twice that at most.
        first: True if this client was never connected before.

    Raises:
        Fault: It could not be done.
    """
    try:
        async with asyncio.timeout(timeout * 2):
            try:
                return await _open(endpoint, make(), channel, timeout, first=first)
            except Fault as fault:
                if not asks_again(endpoint, fault):
                    raise
                old = fault.kind is FaultKind.UNSUPPORTED
            return await _open(endpoint, make(), channel, timeout, first=first, old=old)
    except TimeoutError:
        text = f"{endpoint.shown}: no connection within {timeout * 2:.3g} s"
        raise Fault(FaultKind.UNREACHABLE, text) from None


async def _open(
    endpoint: Endpoint, mux: Mux, channel: str | None, timeout: float, *, first: bool, old: bool = False
) -> Mux:
    greeting = Greeting(endpoint, await login_of_task(endpoint), channel, first=first, old=old)
    mux.shown = endpoint.shown
    try:
        await opened(endpoint, timeout, mux)
        answers = mux.start(greeting.commands, timeout)
        for command, answer in zip(greeting.commands, answers, strict=True):
            greeting.take(command, await answer)
    except BaseException as error:
        mux.close()
        if isinstance(error, Fault) and error.maybe_applied:
            raise fault_of(error.__cause__ or error, endpoint.shown) from error
        raise
    mux.channel = greeting.heard
    return mux


async def ask_async(endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> Any:
    """Connect to a node, ask it one thing and disconnect. Raises ``Fault``."""
    loop = asyncio.get_running_loop()
    mux = await open_mux(endpoint, lambda: Mux(loop, nobody, nobody), None, timeout)
    try:
        (reply,) = await mux.exchange([tuple([word.encode() for word in words])], timeout)
        return refused(or_raise(reply), endpoint)
    finally:
        mux.close()


def nobody(*_: object) -> None:
    """Nobody is woken through a connection, or told of its end."""
