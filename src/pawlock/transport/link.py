"""One connection of one thread: packed bytes out, replies in, hand-off messages on the same socket.

A reply is matched by the request id that the script echoes, not by its position alone: after a lost or doubled reply
the next one would otherwise be taken for another request's.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
from collections.abc import Sequence
from math import inf
from time import monotonic
from typing import Any

from pawlock._outsider import let_out
from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import DEAF, FIRST_RID, Call, Fault, FaultKind, Wakeup
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.connect import asks_again, fault_of, is_plain, make_sync, plain_port
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

__all__ = ["Link", "open_socket"]

_CHUNK = 65536
# Room for a reply and a hand-off message, and little enough that Python keeps it in its small-object pools.
_ONE_REPLY = 440
_KEPT_MESSAGES = 64
_SLACK = 0.005
_AT_ONCE = 4096
"""A request below this is taken by the socket in one step: nothing else is unsent."""
FREE: tuple[None] = (None,)


class Link:
    """A connected link. Used by one caller at a time; dead after any failure.

    A user takes what is in ``free`` out by ``del``, which is no call: no signal comes before the ``try``.

    Args:
        endpoint: Where to.
        channel: The channel on which it will hear hand-offs; "" for a link that need not hear any.
        timeout: Seconds for the connect and each answer of the handshake; all of it takes twice that at most.
        first: True if this client was never connected before.

    Raises:
        Fault: It could not be made.
    """

    _sure = 0
    """Of a batch: up to where it is certain which answer is whose."""

    def __init__(self, endpoint: Endpoint, channel: str, timeout: float, *, first: bool) -> None:
        self.free: list[None] = [None]
        self.dead: bool = False
        self.waiting: bool = False
        self.shown: str = endpoint.shown
        self.pid: int = os.getpid()
        self.rid: int = FIRST_RID
        self._reader = new_reader()
        self._early: dict[str, Wakeup] = {}
        # The channel of another program that is heard, beside the own one; whether its list had something just now.
        self._hears: str = ""
        self._rang = False
        self._timeout = -1.0
        end = monotonic() + 2 * timeout
        self._sock = open_socket(endpoint, timeout, end)
        # Bound once: these are the steps of every request.
        self._send = self._sock.sendall
        self._receive = self._sock.recv
        self._feed = self._reader.feed
        self._gets = self._reader.gets
        self._kernel_timeouts = (
            type(self._sock) is socket.socket and self._sock.__class__.__module__ == "socket"
        )
        self._poll = select.poll()
        self._poll.register(self._sock.fileno(), select.POLLIN)
        try:
            self.channel: str = self._do_handshake(
                Handshake(channel, endpoint, first=first), min(end, monotonic() + timeout)
            )
        except Fault:
            self.close()
            raise
        except OSError as error:
            self.close()
            let_out(error)
            raise fault_of(error, endpoint.shown) from error
        except BaseException:
            self.close()
            raise

    def _do_handshake(self, handshake: Handshake, end: float) -> str:
        """Do the handshake; returns the channel that is heard."""
        self.put(handshake.request, end)
        handshake.check_hello(self.next_reply(end))
        return handshake.check_subscribe(self.next_reply(end, push=True)) if handshake.channel else DEAF

    # Requests ---------------------------------------------------------------------------------------------------

    def ask(self, call: Call, timeout: float) -> Outcome:
        """Run one script. Raises ``Fault``; the link is dead afterwards unless the server itself refused."""
        free = self.free
        try:
            del free[0]
        except IndexError:
            raise Fault(FaultKind.UNREACHABLE, "the connection was taken for another thread") from None
        try:
            end = monotonic() + timeout
            if timeout != self._timeout:
                self._set_timeout(timeout)
            self.rid = rid = self.rid + 1
            word = b"%d" % rid
            data = b"".join((call[0].evalsha, call[1], b"$10\r\n", word, b"\r\n"))  # Call.pack
            if len(data) < _AT_ONCE:
                self._send(data)
            else:
                self.put(data, end)
            chunk = self._receive(_ONE_REPLY)
            if not chunk:
                raise ConnectionResetError("the server closed the connection")
            self._feed(chunk)
            # Nearly always this is it; whatever else came is sorted out with more care.
            reply = self._gets()
            if type(reply) is list and reply[1] == word:
                return call[0].read[reply[0]](reply[2:])  # pyright: ignore[reportUnknownArgumentType] - Call.answer
            return self._reply_to(call, rid, reply, end)
        except BaseException as error:
            self._give_up(error, timeout)
            raise
        finally:
            free += FREE

    def _give_up(self, error: BaseException, timeout: float) -> None:
        """Close after whatever broke a call, and raise the ``Fault`` that it amounts to."""
        if isinstance(error, Fault):
            return
        self.close()
        let_out(error)
        if isinstance(error, Exception):
            raise _broken(error, timeout) from error

    def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """Run several scripts in one write; one outcome each."""
        end = monotonic() + timeout
        free = self.free
        try:
            del free[0]
        except IndexError:
            return [Fault(FaultKind.UNREACHABLE, "the connection was taken for another thread")] * len(calls)
        try:
            outcomes = self._exchange(calls, timeout, end)
        finally:
            free += FREE
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
        except Exception as error:  # noqa: BLE001 - whatever broke, every request must learn of it
            self.close()
            let_out(error)
            outcomes[self._sure :] = [_broken(error, timeout)] * (len(calls) - self._sure)
        except BaseException:
            self.close()
            raise
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
        index = int(reply[1]) - first
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

    def put(self, data: bytes, end: float) -> None:
        """Send until ``end``, however slowly the other side takes it."""
        while data:
            self._limit(end)
            data = data[self._sock.send(data) :]

    def _limit(self, end: float) -> None:
        """Let the next step on the socket last until ``end``: the kernel counts each step anew."""
        left = end - monotonic()
        if left <= 0:
            raise TimeoutError
        if not left <= self._timeout <= left + _SLACK:
            self._set_timeout(left)

    def next_reply(self, end: float, *, push: bool = False) -> Any:
        """The next reply, or the next push message; waits for it until ``end``."""
        gets = self._reader.gets
        while True:
            reply = gets()
            if reply is NOTHING:
                self._limit(end)
                chunk = self._sock.recv(_CHUNK)
                if not chunk:
                    raise ConnectionResetError("the server closed the connection")
                self._reader.feed(chunk)
            elif type(reply) is PushNotification:
                if push:
                    return reply
                self._keep(reply)
            else:
                return reply

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
        self.waiting = True
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
            self.waiting = False
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
        self.waiting = True
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
        except Exception as error:  # noqa: BLE001 - whatever broke
            self.close()
            let_out(error)
            # A broken link is noticed by the question that follows a wait without a message.
            return None
        except BaseException:
            self.close()
            raise
        finally:
            self.waiting = False

    def _readable(self, seconds: float) -> bool:
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        return bool(self._poll.poll(int(seconds * 1000) + 1))

    def _pull(self) -> None:
        chunk = self._sock.recv(_CHUNK)
        if not chunk:
            raise ConnectionResetError("the server closed the connection")
        self._reader.feed(chunk)
        self._sort()

    def _sort(self) -> None:
        while (reply := self._reader.gets()) is not NOTHING:
            if type(reply) is PushNotification:
                self._keep(reply)

    # Socket -----------------------------------------------------------------------------------------------------

    def _set_timeout(self, timeout: float) -> None:
        self._timeout = timeout
        if self._kernel_timeouts:
            # Timeouts kept by the kernel spare the poll() that Python makes before each call on a timed socket.
            value = struct.pack("ll", int(timeout), int(timeout % 1 * 1_000_000) or 1)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        else:
            self._sock.settimeout(timeout)

    def interrupt(self) -> None:
        """Wake a caller that waits on this link, from another thread; the link is dead then."""
        self.dead = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; safe to repeat, also after a fork (the parent's connection stays open)."""
        self.dead = True
        self._sock.close()

    def __del__(self) -> None:
        sock = getattr(self, "_sock", None)
        if sock is not None:
            sock.close()


def _broken(error: Exception, timeout: float) -> Fault:
    if isinstance(error, (BlockingIOError, TimeoutError)):
        return Fault(FaultKind.UNANSWERED, f"no answer within {timeout:.3g} s", maybe_applied=True)
    if isinstance(error, OSError):
        return Fault(FaultKind.UNANSWERED, f"the connection broke: {error}", maybe_applied=True)
    return Fault(FaultKind.NOT_REDIS, f"the stream of replies broke: {error}", maybe_applied=True)


def open_socket(endpoint: Endpoint, timeout: float, end: float = inf) -> socket.socket:
    """A socket to a node, encrypted and logged in by redis-py.

    Args:
        endpoint: Where to.
        timeout: Seconds for the connect and for each answer of the handshake, however slowly it comes.
        end: When all of it must be over, on the monotonic clock.

    Raises:
        Fault: It could not be made.
    """
    try:
        return _open(endpoint, timeout, end)
    except Fault as fault:
        if not asks_again(endpoint, fault):
            raise
    return _open(endpoint, timeout, end)


def _open(endpoint: Endpoint, timeout: float, end: float) -> socket.socket:
    connection = make_sync(endpoint, timeout, end)
    try:
        connection.connect()
    except Exception as error:
        connection.disconnect()
        let_out(error)
        fault = fault_of(error, endpoint.shown)
        if fault.kind is FaultKind.UNREACHABLE and is_plain(endpoint):
            fault = plain_port(endpoint.shown)
        raise fault from error
    sock: socket.socket = connection._sock.sock  # noqa: SLF001 - redis-py's, which made the connection
    # The socket is ours from here on: redis-py would close it together with its connection object.
    connection._sock = None  # noqa: SLF001 - redis-py's, which made the connection
    if type(sock) is socket.socket:
        sock.settimeout(None)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
