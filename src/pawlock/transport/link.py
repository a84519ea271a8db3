"""One connection of one thread: it sends, and sleeps until the answer or a hand-off message is there.

Whose an answer is, ``conn`` knows.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from pawlock._system import ENDED, POLLIN, POLLOUT, TIMED, check_greenlets, monotonic, poll
from pawlock.core.faults import classify, or_raise
from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Call, Fault, FaultKind, Wakeup, run
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.conn import NOTHING, Conn, ReplyError, Request, Words, read_push
from pawlock.transport.connect import Greeting, asks_again, connected, fault_of, is_own, login_of

__all__ = ["WOULD_BLOCK", "Link", "Turn", "ask_sync", "by_turns", "refused"]

A = TypeVar("A")
B = TypeVar("B")

_CHUNK = 4096
_SLACK = 0.005

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket that never blocks raises instead."""


class Link:
    """A connected link. Used by one caller at a time; dead after any failure.

    A time-out has a number here as every error of the system: what a signal handler raises during a step has none.

    Args:
        endpoint: Where to.
        channel: The channel on which it will hear hand-offs; see ``Greeting``.
        timeout: Seconds for the connect and for the login, however slowly its answers come.
        first: True if this client was never connected before.

    Attributes:
        waiting: Whether its thread waits on it for a message.
        old: Whether it speaks RESP2.

    Raises:
        Fault: It could not be made.
    """

    conn: Conn[Any]
    channel: str

    def __init__(
        self, endpoint: Endpoint, channel: str | None, timeout: float, *, first: bool = False
    ) -> None:
        check_greenlets()
        self.shown: str = endpoint.shown
        self.waiting: bool = False
        # The channel of another program that is heard, beside the own one; whether its list had something just now.
        self._hears: bytes = b""
        self._rang = False
        try:
            self._open(endpoint, channel, timeout, first=first)
        except Fault as fault:
            if not asks_again(endpoint, fault):
                raise
            self._open(endpoint, channel, timeout, first=first, old=fault.kind is FaultKind.UNSUPPORTED)

    def _open(
        self, endpoint: Endpoint, channel: str | None, timeout: float, *, first: bool, old: bool = False
    ) -> None:
        greeting = Greeting(endpoint, login_of(endpoint), channel, first=first, old=old)
        self.dead: bool = False
        self.old: bool = old
        self._timeout = -1.0
        self.conn = Conn(Request)
        self._sock = connected(endpoint, timeout)
        self._poll = poll()
        self._poll.register(self._sock.fileno(), POLLIN | ENDED)
        # Bound once: these are the steps of every request.
        self._write: Callable[[bytes], object] = self._sock.sendall
        self._receive: Callable[[int], bytes] = self._sock.recv
        if type(self._sock) is not TIMED:
            self._sock.settimeout(0)
            self._write, self._receive = self._write_polled, self._receive_polled
        requests = [Request() for _ in greeting.commands]
        try:
            end = self._send(greeting.commands, requests, timeout)
            for command, request in zip(greeting.commands, requests, strict=True):
                # One by one: what is no server that can be used may not answer all of them.
                self._finish(request, end)
                greeting.take(command, request.outcome)
        except BaseException as error:
            self.close()
            if isinstance(error, Fault) or not is_own(error):
                raise
            raise fault_of(error, endpoint.shown) from error
        self.channel = greeting.heard

    # Requests ---------------------------------------------------------------------------------------------------

    def ask(self, call: Call, timeout: float) -> Outcome:
        """Run one script. Raises ``Fault``; the link is dead afterwards unless the server itself refused."""
        request = Request()
        try:
            if not timeout <= self._timeout <= timeout + _SLACK:
                self._set_timeout(timeout + _SLACK / 2)
            end = monotonic() + timeout
            conn = self.conn
            self._write(conn.send(call, request))
            # The write took no time, nearly always: its limit serves for the answer, too.
            conn.feed(self._receive(_CHUNK))
            if request.outcome is NOTHING:
                self._resend()
                self._finish(request, end)
        except BaseException as error:
            if not self._break(error, timeout):
                raise
        outcome = request.outcome
        if type(outcome) is not Fault:
            return outcome
        if self.conn.over is not None:
            self.close()
        try:
            raise outcome
        finally:
            # The fault has this frame: the two would keep each other alive, and what the callers' frames hold.
            del outcome, request

    def exchange(self, what: Sequence[Call | Words], timeout: float) -> list[Any]:
        """Send scripts and commands in one write; what each is answered with, which may be a ``Fault``."""
        return run(self.exchange_now(what, timeout, turns=False))

    async def exchange_now(self, what: Sequence[Call | Words], timeout: float, *, turns: bool) -> list[Any]:
        """The same where it is awaited; as one of several ``by_turns`` it suspends while there is nothing to be read."""
        requests = [Request() for _ in what]
        try:
            end = self._send(what, requests, timeout)
            for request in requests:
                while turns and request.outcome is NOTHING:
                    await Turn()
                    # What is there counts, also where another one's turn took too long.
                    if self._readable(0.0):
                        self._take()
                    else:
                        self._limit(end)
                self._finish(request, end)
        except BaseException as error:
            if not self._break(error, timeout):
                raise
        if self.conn.over is not None:
            self.close()
        return [request.outcome for request in requests]

    def command(self, *words: str, timeout: float) -> Any:
        """The reply to a command, which may be an error. Raises ``Fault``."""
        return or_raise(self.exchange([tuple([word.encode() for word in words])], timeout)[0])

    def _send(self, what: Sequence[Call | Words], requests: Sequence[Request], timeout: float) -> float:
        """Send them; until when they are to be answered."""
        end = monotonic() + timeout
        data = self.conn.put(what, requests)
        self._limit(end)
        self._write(data)
        return end

    def _finish(self, request: Request, end: float) -> None:
        """Read until ``end`` until a request is answered."""
        while request.outcome is NOTHING:
            self._limit(end)
            self._take()

    def _limit(self, end: float) -> None:
        """Let the next step on the socket last until ``end``: the kernel counts each step anew."""
        left = end - monotonic()
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, "timed out")
        if not left <= self._timeout <= left + _SLACK:
            # For the steps that follow soon as well.
            self._set_timeout(left + _SLACK / 2)

    def _take(self) -> None:
        """Take what comes next."""
        chunk = self._receive(_CHUNK)
        if not chunk:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        self.conn.feed(chunk)
        self._resend()

    def _resend(self) -> None:
        resend = self.conn.resend
        if resend:
            self._write(b"".join(resend))
            resend.clear()

    def _break(self, error: BaseException, timeout: float) -> bool:
        """Whatever else comes on it is not to be taken for the answer to a later request.

        Returns:
            Whether it was its own error, and all that is under way has an outcome.
        """
        self.close()
        if not is_own(error):
            return False
        kind, text = FaultKind.UNANSWERED, f"the connection broke: {error}"
        if isinstance(error, (BlockingIOError, TimeoutError)):
            text = f"no answer within {timeout:.3g} s"
        elif not isinstance(error, OSError):
            kind, text = FaultKind.NOT_REDIS, f"the stream of replies broke: {error}"
        self.conn.fail(Fault(kind, text, maybe_applied=True))
        return True

    # A time-out that Python counts has no number: such a socket never blocks, and is polled.

    def _write_polled(self, data: bytes) -> None:
        while data:
            data = data[self._polled(self._sock.send, data, POLLOUT) :]

    def _receive_polled(self, size: int) -> bytes:
        return self._polled(self._sock.recv, size, POLLIN)

    def _polled(self, step: Callable[[A], B], what: A, wanted: int) -> B:
        while True:
            try:
                return step(what)
            except WOULD_BLOCK as blocked:
                if isinstance(blocked, ssl.SSLError):
                    wanted = POLLIN if isinstance(blocked, ssl.SSLWantReadError) else POLLOUT
            ready = poll()
            ready.register(self._sock.fileno(), wanted)
            if not ready.poll(int(self._timeout * 1000) + 1):
                raise TimeoutError(errno.ETIMEDOUT, "timed out")

    def _set_timeout(self, timeout: float) -> None:
        self._timeout = timeout
        if type(self._sock) is TIMED:
            # Timeouts kept by the kernel spare the poll() that Python makes before each call on a timed socket.
            value = struct.pack("ll", int(timeout), int(timeout % 1 * 1_000_000) or 1)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def is_over(self) -> bool:
        """Whether it is dead, or was ended from the other side while it was idle: by the server, or by a proxy."""
        if not self.dead and any(event & ENDED for _, event in self._poll.poll(0)):
            self.close()
        return self.dead

    def close(self) -> None:
        """Close the socket; safe to repeat, also after a fork (the parent's connection stays open)."""
        self.dead = True
        self._sock.close()

    def __del__(self) -> None:
        sock = getattr(self, "_sock", None)
        if sock is not None:
            sock.close()

    # Hand-off messages ------------------------------------------------------------------------------------------

    def hear(self, hears: tuple[str, str], seconds: float, most: float) -> bool:
        """Sleep until another program sends what wakes its waiters, for at most so many seconds.

        Args:
            hears: See ``Carrier.hear``.
            seconds: For how long.
            most: Seconds in which the server answers.

        Returns:
            False if nothing can be heard now.
        """
        how, where = hears
        word = where.encode()
        if how == "push":
            if self._rang:
                # It stays in the list for a while: who asked in vain must not ask on and on.
                self._rang = False
                return False
            self.waiting = True
            try:
                # From the list to itself: it is not for this waiter alone.
                move = b"BLMOVE", word, word, b"LEFT", b"LEFT", b"%.3f" % seconds
                (found,) = self.exchange([move], seconds + most)
            finally:
                self.waiting = False
            self._rang = type(found) is bytes
            return self._rang or found is None
        if word != self._hears:
            commands = [(b"UNSUBSCRIBE", self._hears)] if self._hears else []
            self._hears = b""
            if isinstance(self.exchange([*commands, (b"SUBSCRIBE", word)], most)[-1], (Fault, ReplyError)):
                return False
            self._hears = word
        self.wait(where, seconds)
        return True

    def wait(self, token: str, timeout: float) -> Wakeup | None:
        """Sleep until the hand-off message of ``token`` comes, at most ``timeout`` seconds; then None."""
        self.waiting = True
        try:
            end = monotonic() + timeout
            while (push := self.next_push(end)) is not None:
                found = read_push(push, (self._hears,))
                # The others are for tokens that gave up.
                if found is not None and found[0] == token:
                    return found[1]
        except BaseException as error:
            self.close()
            if not is_own(error):
                raise
            # A broken link is noticed by the question that follows a wait without a message.
        finally:
            self.waiting = False
        return None

    def next_push(self, end: float) -> Any:
        """The oldest message that nobody asked for; None if there is none until ``end``. Raises ``OSError``."""
        # It may have come in the same packet as the last reply.
        while not self.conn.messages:
            left = end - monotonic()
            if self.dead or left <= 0:
                return None
            if self._readable(left):
                # What is there is read at once, so the limit of the last step serves as well as any.
                self._take()
        return self.conn.messages.popleft()

    def _readable(self, seconds: float) -> bool:
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        return bool(self._poll.poll(int(seconds * 1000) + 1))

    def interrupt(self) -> None:
        """Wake a caller that waits on this link, from another thread; the link is dead then."""
        self.dead = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class Turn:
    """Awaited, it lets the others of ``by_turns`` go on."""

    def __await__(self) -> Generator[None]:
        yield


def by_turns(steps: Sequence[Coroutine[None, None, None]]) -> None:
    """Finish several operations in one thread: in its turn each waits for a millisecond, and awaits a ``Turn``."""
    going = [step.__await__() for step in steps]
    try:
        while going:
            going = [one for one in going if next(one, False) is None]
    finally:
        for step in steps:
            step.close()


async def ask_sync(endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> Any:
    """Ask a node one thing, blocking; raises ``Fault``."""
    with contextlib.closing(Link(endpoint, None, timeout)) as link:
        return refused(link.command(*words, timeout=timeout), endpoint)


def refused(reply: Any, endpoint: Endpoint) -> Any:
    """The reply of a node that was asked one thing. Raises ``Fault`` if it is an error."""
    if isinstance(reply, ReplyError):
        fault = classify(str(reply))
        raise Fault(fault.kind, f"{endpoint.shown}: {fault.text}")
    return reply
