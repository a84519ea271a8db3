"""One connection of one thread: packed bytes out, replies in, hand-off messages on the same socket.

A reply is matched by the request id that the script echoes, not by its position alone: after a lost or doubled reply
the next one would otherwise be taken for another request's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import Any

from pawlock.core.protocol.outcomes import Outcome, Unexpected
from pawlock.core.protocol.runtime import DEAF, FIRST_RID, Call, Fault, FaultKind, Wakeup
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.connect import asks_again, connected, fault_of, is_own, login_of
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

__all__ = ["WOULD_BLOCK", "Link", "Stream"]

_CHUNK = 65536
# Room for a reply and a hand-off message, and little enough that Python keeps it in its small-object pools.
_ONE_REPLY = 440
_KEPT_MESSAGES = 64
_SLACK = 0.005
_AT_ONCE = 4096
"""A request below this is taken by the socket in one step: nothing else is unsent."""

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
        self._reader = new_reader()
        self._sock = connected(endpoint, timeout)
        self._kernel_timeouts = (
            type(self._sock) is socket.socket and self._sock.__class__.__module__ == "socket"
        )
        self._poll = select.poll()
        self._poll.register(self._sock.fileno(), select.POLLIN)
        # Bound once: these are the steps of every request.
        self._send: Callable[[bytes], int | None] = self._sock.sendall
        self._send_some: Callable[[bytes], int] = self._sock.send
        self._receive: Callable[[int], bytes] = self._sock.recv
        if not self._kernel_timeouts:
            self._sock.settimeout(0)
            self._send_some, self._receive = self._send_polled, self._receive_polled
        try:
            for words, must in login_of(endpoint):
                step_end = min(end, monotonic() + timeout)
                self.put(pack(*words), step_end)
                reply = self.next_reply(step_end)
                if must and isinstance(reply, ReplyError):
                    raise fault_of(reply, endpoint.shown)
        except BaseException as error:
            self.close()
            if isinstance(error, Fault) or not is_own(error):
                raise
            raise fault_of(error, endpoint.shown) from error

    def put(self, data: bytes, end: float) -> None:
        """Send until ``end``, however slowly the other side takes it."""
        while data:
            self._limit(end)
            data = data[self._send_some(data) :]

    def _limit(self, end: float) -> None:
        """Let the next step on the socket last until ``end``: the kernel counts each step anew."""
        left = end - monotonic()
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, "timed out")
        if not left <= self._timeout <= left + _SLACK:
            self._set_timeout(left)

    def next_reply(self, end: float, *, push: bool = False) -> Any:
        """The next reply, or the next push message; waits for it until ``end``."""
        gets = self._reader.gets
        while True:
            reply = gets()
            if reply is NOTHING:
                self._limit(end)
                self._reader.feed(self._chunk(_CHUNK))
            elif type(reply) is PushNotification:
                if push:
                    return reply
                self._keep(reply)
            else:
                return reply

    def _chunk(self, most: int) -> bytes:
        chunk = self._receive(most)
        if not chunk:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        return chunk

    def _keep(self, push: Any) -> None:
        """Take what the server sent without being asked."""

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

    _sure = 0
    """Of a batch: up to where it is certain which answer is whose."""

    def __init__(self, endpoint: Endpoint, channel: str, timeout: float, *, first: bool) -> None:
        self.busy: bool = False
        self.waiting: bool = False
        self.pid: int = os.getpid()
        self.rid: int = FIRST_RID
        self._early: dict[str, Wakeup] = {}
        # The channel of another program that is heard, beside the own one; whether its list had something just now.
        self._hears: str = ""
        self._rang = False
        end = monotonic() + 2 * timeout
        super().__init__(endpoint, timeout, end)
        # Bound once: these are the steps of every request.
        self._feed = self._reader.feed
        self._gets = self._reader.gets
        try:
            self.channel: str = self._do_handshake(
                Handshake(channel, endpoint, first=first), min(end, monotonic() + timeout)
            )
        except BaseException as error:
            self.close()
            if isinstance(error, Fault) or not is_own(error):
                raise
            raise fault_of(error, endpoint.shown) from error

    def _do_handshake(self, handshake: Handshake, end: float) -> str:
        """Do the handshake; returns the channel that is heard."""
        self.put(handshake.request, end)
        handshake.check_hello(self.next_reply(end))
        return handshake.check_subscribe(self.next_reply(end, push=True)) if handshake.channel else DEAF

    # Requests ---------------------------------------------------------------------------------------------------

    def ask(self, call: Call, timeout: float) -> Outcome:
        """Run one script. Raises ``Fault``; the link is dead afterwards unless the server itself refused."""
        self.busy = True
        try:
            end = monotonic() + timeout
            if timeout != self._timeout:
                self._set_timeout(timeout)
            self.rid = rid = self.rid + 1
            word = b"%d" % rid
            data = b"".join((call[0].evalsha, call[1], b"$10\r\n", word, b"\r\n"))  # Call.pack
            if len(data) < _AT_ONCE and self._kernel_timeouts:
                self._send(data)
            else:
                self.put(data, end)
            chunk = self._receive(_ONE_REPLY)
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
            self._feed(chunk)
            # Nearly always this is it; whatever else came is sorted out with more care.
            reply = self._gets()
            if type(reply) is not list or len(reply) < 2 or reply[1] != word:  # pyright: ignore[reportUnknownArgumentType]
                return self._reply_to(call, rid, reply, end)
        except BaseException as error:
            self._give_up(error, timeout)
            raise
        finally:
            self.busy = False
        try:
            return call[0].read[reply[0]](reply[2:])  # pyright: ignore[reportUnknownArgumentType] - Call.answer
        except (AttributeError, IndexError, TypeError, ValueError):
            return Unexpected(reply)  # pyright: ignore[reportUnknownArgumentType]

    def _give_up(self, error: BaseException, timeout: float) -> None:
        """Close after whatever broke a call, and raise the ``Fault`` that it amounts to, if it is the link's own."""
        if isinstance(error, Fault):
            return
        self.close()
        if is_own(error):
            raise _broken(error, timeout) from error

    def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """Run several scripts in one write; one outcome each."""
        end = monotonic() + timeout
        self.busy = True
        try:
            outcomes = self._exchange(calls, timeout, end)
        finally:
            self.busy = False
        # None: the server did not know the script; one EVAL teaches it, and the rest run as usual.
        return [self._again(call, end) if o is None else o for call, o in zip(calls, outcomes, strict=True)]

    def _exchange(self, calls: Sequence[Call], timeout: float, end: float) -> list[Outcome | Fault | None]:
        outcomes: list[Outcome | Fault | None] = []
        self._sure = 0
        lost = Fault(FaultKind.UNANSWERED, "the reply was lost", maybe_applied=True)
        try:
            first = self.rid + 1
            self.rid += len(calls)
            self.put(b"".join([call.pack(first + i) for i, call in enumerate(calls)]), end)
            while len(outcomes) < len(calls):
                self._collect(outcomes, calls, first, lost, end)
        except BaseException as error:
            self.close()
            if not is_own(error):
                raise
            outcomes[self._sure :] = [_broken(error, timeout)] * (len(calls) - self._sure)
        if any(isinstance(outcome, Fault) and outcome.kind in ENDS_CONNECTION for outcome in outcomes):
            self.close()
        return outcomes

    def _collect(
        self, outcomes: list[Outcome], calls: Sequence[Call], first: int, lost: Fault, end: float
    ) -> None:
        reply = self._gets()
        if reply is NOTHING or type(reply) is PushNotification:  # pyright: ignore[reportUnknownArgumentType]
            if reply is not NOTHING:
                self._keep(reply)
            reply = self.next_reply(end)
        if isinstance(reply, ReplyError):
            text = str(reply)
            outcomes.append(None if text.startswith("NOSCRIPT") else refusal_of(text))
            return
        rid = rid_of(reply)
        index = -1 if rid is None else rid - first
        if index > len(outcomes):
            # Errors carry no number: of those since the last answer with one it is not known whose they are.
            outcomes[self._sure :] = [lost] * (index - self._sure)
        if index == len(outcomes):
            outcomes.append(calls[index].answer(reply))
            self._sure = len(outcomes)

    def _again(self, call: Call, end: float) -> Outcome | Fault:
        if self.dead:
            return Fault(FaultKind.UNANSWERED, "the connection broke")
        try:
            return self.ask(call, max(0.001, end - monotonic()))
        except Fault as fault:
            return fault

    def _reply_to(self, call: Call, rid: int, reply: Any, end: float) -> Outcome:
        while True:
            if reply is NOTHING or type(reply) is PushNotification:
                if reply is not NOTHING:
                    self._keep(reply)
                reply = self.next_reply(end)
            answered = rid_of(reply)
            if answered == rid:
                return call.answer(reply)
            if answered is not None and answered > rid:
                self.close()
                raise Fault(FaultKind.UNANSWERED, "the reply was lost", maybe_applied=True)
            if isinstance(reply, ReplyError):
                text = str(reply)
                if not text.startswith("NOSCRIPT"):
                    fault = refusal_of(text)
                    if fault.kind in ENDS_CONNECTION:
                        self.close()
                    raise fault
                self.rid = rid = self.rid + 1
                self.put(call.pack_eval(rid), end)
            reply = NOTHING

    # Hand-off messages ------------------------------------------------------------------------------------------

    def _keep(self, push: Any) -> None:
        if self._hears and push[0] == b"message" and push[1] == self._hears.encode():
            self._early[self._hears] = Wakeup(0, 0)
            return
        found = read_push(push)
        if found is not None:
            if len(self._early) >= _KEPT_MESSAGES:
                # Messages for tokens that gave up; a lost message is only a lost hint.
                self._early.clear()
            self._early[found[0]] = found[1]

    def hear(self, hears: tuple[str, str], seconds: float) -> bool:
        """Sleep until another program sends what wakes its waiters, for at most so many seconds.

        Returns:
            False if nothing can be heard now.
        """
        how, where = hears
        end = monotonic() + 1.0
        self.busy = self.waiting = True
        try:
            if how == "push":
                if self._rang:
                    # It stays in the list for a while: who asked in vain must not ask on and on.
                    self._rang = False
                    return False
                list_ = where.encode()
                # From the list to itself: it is not for this waiter alone.
                self.put(pack(b"BLMOVE", list_, list_, b"LEFT", b"LEFT", b"%.3f" % seconds), end)
                found = self.next_reply(end + seconds)
                self._rang = type(found) is bytes
                return not isinstance(found, ReplyError)
            if where != self._hears and not self._subscribe(where, end):
                return False
        except BaseException as error:
            self._give_up(error, seconds)
            raise
        finally:
            self.busy = self.waiting = False
        self.wait(where, seconds)
        return True

    def _subscribe(self, channel: str, end: float) -> bool:
        word = channel.encode()
        before, self._hears = self._hears, ""
        self.put((pack(b"UNSUBSCRIBE", before.encode()) if before else b"") + pack(b"SUBSCRIBE", word), end)
        while type(reply := self.next_reply(end, push=True)) is PushNotification:
            if reply[:2] == [b"subscribe", word]:
                self._hears = channel
                return True
            self._keep(reply)
        return False

    def wait(self, token: str, timeout: float) -> Wakeup | None:
        """Sleep until the hand-off message of ``token`` comes, at most ``timeout`` seconds; then None."""
        end = monotonic() + timeout
        self.busy = self.waiting = True
        try:
            # The message may have come in the same packet as the last reply.
            self._sort()
            while True:
                found = self._early.pop(token, None)
                if found is not None or self.dead:
                    return found
                left = end - monotonic()
                if left <= 0:
                    return None
                # The kernel's own timeout serves a long wait with one call less than poll() and recv().
                if (self._kernel_timeouts and left >= self._timeout - _SLACK) or self._readable(left):
                    with contextlib.suppress(BlockingIOError):
                        self._pull()
        except BaseException as error:
            self.close()
            if not is_own(error):
                raise
            # A broken link is noticed by the question that follows a wait without a message.
            return None
        finally:
            self.busy = self.waiting = False

    def _readable(self, seconds: float) -> bool:
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        return bool(self._poll.poll(int(seconds * 1000) + 1))

    def _pull(self) -> None:
        self._reader.feed(self._chunk(_CHUNK))
        self._sort()

    def _sort(self) -> None:
        while (reply := self._reader.gets()) is not NOTHING:
            if type(reply) is PushNotification:
                self._keep(reply)

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
