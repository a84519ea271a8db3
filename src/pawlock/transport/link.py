"""One connection of one thread: it sends, and sleeps until the answer or a hand-off message is there.

Whose an answer is, ``conn`` knows.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import monotonic
from typing import Any

from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import Call, Fault, FaultKind, Wakeup
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.conn import Conn, Request
from pawlock.transport.connect import asks_again, connected, fault_of, is_own, login_of
from pawlock.transport.wire import NOTHING, Handshake, ReplyError, read_push

__all__ = ["WOULD_BLOCK", "Link", "Stream", "ask_sync"]

_CHUNK = 4096
_SLACK = 0.005

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket that never blocks raises instead."""


class Stream:
    """A connection, logged in: bytes go out and replies come in, each step until a time on the monotonic clock.

    A time-out has a number here as every error of the system: what a signal handler raises during a step has none.

    Args:
        endpoint: Where to.
        timeout: Seconds for the connect and for each answer of the login, however slowly it comes.
        end: When all of it must be over, on the monotonic clock.

    Raises:
        Fault: It could not be made.
    """

    def __init__(self, endpoint: Endpoint, timeout: float, end: float = inf) -> None:
        self.shown: str = endpoint.shown
        try:
            self._open(endpoint, timeout, end)
        except Fault as fault:
            if not asks_again(endpoint, fault):
                raise
            self._open(endpoint, timeout, end)

    def _open(self, endpoint: Endpoint, timeout: float, end: float) -> None:
        self.dead: bool = False
        self._timeout = -1.0
        self._sock = connected(endpoint, timeout)
        self._kernel_timeouts = (
            type(self._sock) is socket.socket and self._sock.__class__.__module__ == "socket"
        )
        self._poll = select.poll()
        self._poll.register(self._sock.fileno(), select.POLLIN)
        # Bound once: these are the steps of every request.
        self._send: Callable[[bytes], int] = self._sock.send
        self._receive: Callable[[int], bytes] = self._sock.recv
        if not self._kernel_timeouts:
            self._sock.settimeout(0)
            self._send, self._receive = self._send_polled, self._receive_polled
        self.conn: Conn[Any] = Conn(Request)
        try:
            self._log_in(endpoint, timeout, end)
        except BaseException as error:
            self.close()
            if isinstance(error, Fault) or not is_own(error):
                raise
            raise fault_of(error, endpoint.shown) from error

    def _log_in(self, endpoint: Endpoint, timeout: float, end: float) -> None:
        for words, must in login_of(endpoint):
            reply = self.command(*words, end=min(end, monotonic() + timeout))
            if must and isinstance(reply, ReplyError):
                raise fault_of(reply, endpoint.shown)

    def command(self, *words: bytes, end: float) -> Any:
        """Send a command, and wait until ``end`` for its reply, which may be an error."""
        sent = self.conn.command(*words)
        self.talk([sent], end)
        return sent[0].outcome

    def talk(self, sent: Sequence[tuple[Request, bytes]], end: float) -> None:
        """Send requests in one write, and read until ``end`` until all of them are answered."""
        self._limit(end)
        self._talk(sent, b"".join([data for _, data in sent]), end)

    def _talk(self, sent: Sequence[tuple[Request, bytes]], data: bytes, end: float) -> None:
        """The same, where the limit is set, and what is to be sent is joined."""
        gone = self._send(data)
        if gone < len(data):
            self.put(data[gone:], end)
        # The write took no time, nearly always: its limit serves for the answer, too.
        self._take(end)
        if sent[-1][0].outcome is NOTHING or len(sent) > 1:
            self._finish(sent, end)

    def _finish(self, sent: Sequence[tuple[Request, bytes]], end: float) -> None:
        """Read until ``end`` until all of them are answered."""
        for request, _ in sent:
            while request.outcome is NOTHING:
                self._limit(end)
                self._take(end)

    def pushes(self, end: float) -> Iterator[Any]:
        """What the server sent without being asked; waits for it until ``end``."""
        while not self.conn.messages:
            self._limit(end)
            self._take(end)
        while self.conn.messages:
            yield self.conn.messages.popleft()

    def put(self, data: bytes, end: float) -> None:
        """Send until ``end``, however slowly the other side takes it."""
        while data:
            self._limit(end)
            data = data[self._send(data) :]

    def _limit(self, end: float) -> None:
        """Let the next step on the socket last until ``end``: the kernel counts each step anew."""
        left = end - monotonic()
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, "timed out")
        if not left <= self._timeout <= left + _SLACK:
            # For the steps that follow soon as well.
            self._set_timeout(left + _SLACK / 2)

    def _take(self, end: float) -> None:
        """Take what comes next."""
        chunk = self._receive(_CHUNK)
        if not chunk:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        conn = self.conn
        conn.feed(chunk)
        conn.answered.clear()
        if conn.resend:
            self.put(b"".join(conn.resend), end)
            conn.resend.clear()

    # A time-out that Python counts has no number: such a socket never blocks, and is polled.

    def _send_polled(self, data: bytes) -> int:
        while True:
            try:
                return self._sock.send(data)
            except WOULD_BLOCK as blocked:
                self._await(blocked, select.POLLOUT)

    def _receive_polled(self, size: int) -> bytes:
        while True:
            try:
                return self._sock.recv(size)
            except WOULD_BLOCK as blocked:
                self._await(blocked, select.POLLIN)

    def _await(self, blocked: OSError, wanted: int) -> None:
        if isinstance(blocked, ssl.SSLError):
            wanted = select.POLLIN if isinstance(blocked, ssl.SSLWantReadError) else select.POLLOUT
        ready = select.poll()
        ready.register(self._sock.fileno(), wanted)
        if not ready.poll(int(self._timeout * 1000) + 1):
            raise TimeoutError(errno.ETIMEDOUT, "timed out") from None

    def _set_timeout(self, timeout: float) -> None:
        self._timeout = timeout
        if self._kernel_timeouts:
            # Timeouts kept by the kernel spare the poll() that Python makes before each call on a timed socket.
            value = struct.pack("ll", int(timeout), int(timeout % 1 * 1_000_000) or 1)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def close(self) -> None:
        """Close the socket; safe to repeat, also after a fork (the parent's connection stays open)."""
        self.dead = True
        self._sock.close()

    def __del__(self) -> None:
        sock = getattr(self, "_sock", None)
        if sock is not None:
            sock.close()


async def ask_sync(endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> Any:
    """Ask a node one thing, blocking; raises ``Fault``."""
    with contextlib.closing(Stream(endpoint, timeout, monotonic() + 2 * timeout)) as stream:
        end = monotonic() + timeout
        try:
            reply = stream.command(*[word.encode() for word in words], end=end)
        except Exception as error:
            if not is_own(error):
                raise
            raise fault_of(error, endpoint.shown) from error
    if isinstance(reply, ReplyError):
        fault = classify(str(reply))
        raise Fault(fault.kind, f"{endpoint.shown}: {fault.text}")
    return reply


class Link(Stream):
    """A connected link. Used by one caller at a time; dead after any failure.

    Args:
        endpoint: Where to.
        channel: The channel on which it will hear hand-offs; "" for a link that need not hear any.
        timeout: Seconds for the connect and each answer of the handshake; all of it takes twice that at most.
        first: True if this client was never connected before.

    Attributes:
        busy: Whether its thread uses it now; nobody else takes it over then.
        waiting: Whether its thread waits on it for a message.

    Raises:
        Fault: It could not be made.
    """

    def __init__(self, endpoint: Endpoint, channel: str, timeout: float, *, first: bool) -> None:
        self.busy: bool = False
        self.waiting: bool = False
        # The channel of another program that is heard, beside the own one; whether its list had something just now.
        self._hears: bytes = b""
        self._rang = False
        self._handshake = Handshake(channel, endpoint, first=first)
        super().__init__(endpoint, timeout, monotonic() + 2 * timeout)
        self.channel: str = self._handshake.heard

    def _log_in(self, endpoint: Endpoint, timeout: float, end: float) -> None:
        super()._log_in(endpoint, timeout, end)
        end = min(end, monotonic() + timeout)
        sent = [self.conn.command(*words) for words in self._handshake.commands]
        self.put(b"".join([data for _, data in sent]), end)
        for check, (request, _) in zip(self._handshake.checks, sent, strict=True):
            # One by one: what is no server that can be used may not answer all of them.
            self._finish([(request, b"")], end)
            check(request.outcome)

    # Requests ---------------------------------------------------------------------------------------------------

    def ask(self, call: Call, timeout: float) -> Outcome:
        """Run one script. Raises ``Fault``; the link is dead afterwards unless the server itself refused."""
        sent = self.conn.send(call)
        self._exchange((sent,), sent[1], timeout)
        outcome = sent[0].outcome
        if type(outcome) is not Fault:
            return outcome
        try:
            raise outcome
        finally:
            # The fault has this frame: the two would keep each other alive, and what the callers' frames hold.
            del outcome, sent

    def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """Run several scripts in one write; one outcome each."""
        sent = [self.conn.send(call) for call in calls]
        self.exchange(sent, timeout)
        return [request.outcome for request, _ in sent]

    def exchange(self, sent: Sequence[tuple[Request, bytes]], timeout: float) -> None:
        """Send requests in one write, and wait until each has an outcome, which may be a ``Fault``."""
        if sent:
            self._exchange(sent, b"".join([data for _, data in sent]), timeout)

    def _exchange(self, sent: Sequence[tuple[Request, bytes]], data: bytes, timeout: float) -> None:
        self.busy = True
        try:
            if not timeout <= self._timeout <= timeout + _SLACK:
                self._set_timeout(timeout + _SLACK / 2)
            self._talk(sent, data, monotonic() + timeout)
            if self.conn.over is not None:
                self.close()
        except BaseException as error:
            # Whatever else comes on it is not to be taken for the answer to a later request.
            self.close()
            if not is_own(error):
                raise
            self.conn.fail(_broken(error, timeout)).clear()
        finally:
            self.busy = False

    # Hand-off messages ------------------------------------------------------------------------------------------

    def hear(self, hears: tuple[str, str], seconds: float) -> bool:
        """Sleep until another program sends what wakes its waiters, for at most so many seconds.

        Returns:
            False if nothing can be heard now.
        """
        how, where = hears
        word = where.encode()
        self.waiting = True
        try:
            if how == "push":
                if self._rang:
                    # It stays in the list for a while: who asked in vain must not ask on and on.
                    self._rang = False
                    return False
                # From the list to itself: it is not for this waiter alone.
                move = self.conn.command(b"BLMOVE", word, word, b"LEFT", b"LEFT", b"%.3f" % seconds)
                self.exchange([move], seconds + 1.0)
                self._rang = type(move[0].outcome) is bytes
                return self._rang or move[0].outcome is None
            if word != self._hears:
                commands = [(b"UNSUBSCRIBE", self._hears), (b"SUBSCRIBE", word)]
                sent = [self.conn.command(*words) for words in commands if words[1]]
                self._hears = b""
                self.exchange(sent, 1.0)
                if isinstance(sent[-1][0].outcome, (Fault, ReplyError)):
                    return False
                self._hears = word
        finally:
            self.waiting = False
        self.wait(where, seconds)
        return True

    def wait(self, token: str, timeout: float) -> Wakeup | None:
        """Sleep until the hand-off message of ``token`` comes, at most ``timeout`` seconds; then None."""
        end = monotonic() + timeout
        self.busy = self.waiting = True
        try:
            while True:
                # It may have come in the same packet as the last reply.
                found = self._message_of(token)
                if found is not None or self.dead:
                    return found
                left = end - monotonic()
                if left <= 0:
                    return None
                if self._readable(left):
                    # What is there is read at once, so the limit of the last step serves as well as any.
                    self._take(end)
        except BaseException as error:
            self.close()
            if not is_own(error):
                raise
            # A broken link is noticed by the question that follows a wait without a message.
            return None
        finally:
            self.busy = self.waiting = False

    def _message_of(self, token: str) -> Wakeup | None:
        """The message of a token, if it came; the others are for tokens that gave up."""
        while self.conn.messages:
            push = self.conn.messages.popleft()
            found = read_push(push, (self._hears,))
            if found is not None and found[0] == token:
                return found[1]
        return None

    def _readable(self, seconds: float) -> bool:
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        return bool(self._poll.poll(int(seconds * 1000) + 1))

    def interrupt(self) -> None:
        """Wake a caller that waits on this link, from another thread; the link is dead then."""
        self.dead = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def _broken(error: BaseException, timeout: float) -> Fault:
    if isinstance(error, (BlockingIOError, TimeoutError)):
        return Fault(FaultKind.UNANSWERED, f"no answer within {timeout:.3g} s", maybe_applied=True)
    if isinstance(error, OSError):
        return Fault(FaultKind.UNANSWERED, f"the connection broke: {error}", maybe_applied=True)
    return Fault(FaultKind.NOT_REDIS, f"the stream of replies broke: {error}", maybe_applied=True)
