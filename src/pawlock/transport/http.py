"""HTTP/1.1 as far as a client of ``pawlock serve`` needs it: one request, one answer of known length, and again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple, TypeAlias, cast

from pawlock._outsider import let_out
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.errors import WrongKey
from pawlock.topology.endpoint import Service
from pawlock.transport.connect import BoundedSocket

__all__ = ["AsyncWire", "Question", "Wire", "context_of"]

_MOST = 32 * 1024 * 1024
_IDLE = 60.0
"""Seconds after which a connection that nothing uses is given up: a service, or a balancer, drops it soon after."""
_BY_STATUS = {
    401: FaultKind.DENIED,
    403: FaultKind.DENIED,
    404: FaultKind.UNSUPPORTED,
    413: FaultKind.SCRIPT,
    422: FaultKind.SCRIPT,
    501: FaultKind.UNSUPPORTED,
}


def context_of(service: Service) -> ssl.SSLContext | None:
    """What TLS is spoken with; None for plain HTTP."""
    if not service.secure:
        return None
    context = ssl.create_default_context(cafile=service.ca)
    if service.certificate:
        context.load_cert_chain(service.certificate, service.key)
    return context


class Question(NamedTuple):
    """What is asked for.

    Attributes:
        path: The path, and the query if there is one.
        content: What is sent along; None: nothing is, and the method is GET instead of POST.
        key: The ``Idempotency-Key``; ``""``: none.
    """

    path: str
    content: Mapping[str, Any] | None = None
    key: str = ""


def _request(service: Service, question: Question) -> bytes:
    method, body = "GET", b""
    # A zone is of this machine alone, and no part of the name.
    host = service.host.partition("%")[0]
    host = f"[{host}]" if ":" in host else host
    if question.content is not None:
        method, body = "POST", json.dumps(question.content).encode()
    again = f"Idempotency-Key: {question.key}\r\n" if question.key else ""
    head = (
        f"{method} {question.path} HTTP/1.1\r\nHost: {host}:{service.port}\r\n{again}"
        f"Authorization: Bearer {service.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _length(head: bytes) -> tuple[int, int]:
    """The status of an answer, and the length of its body."""
    lines = head.split(b"\r\n")
    try:
        status = int(lines[0].split(b" ", 2)[1])
        answer = next(line for line in lines[1:] if line.lower().startswith(b"content-length:"))
        length = int(answer.partition(b":")[2])
    except (IndexError, ValueError, StopIteration):
        raise Fault(FaultKind.NOT_REDIS, "the answer does not come from pawlock serve") from None
    if length > _MOST:
        raise Fault(FaultKind.NOT_REDIS, "the answer is too large to come from pawlock serve")
    return status, length


def _content(status: int, body: bytes | bytearray) -> Any:
    try:
        content = json.loads(body)
    except ValueError:
        raise Fault(FaultKind.NOT_REDIS, f"HTTP {status}, and no JSON") from None
    if status == 200:
        return content
    problem = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    answer = problem.get("detail", "")
    if problem.get("code") == WrongKey.code:
        raise Fault(FaultKind.WRONG_KEY, str(answer))
    kind = _BY_STATUS.get(status, FaultKind.NOT_READY)
    raise Fault(kind, f"{answer or 'HTTP error'} ({status})", final=kind is FaultKind.UNSUPPORTED)


def _unreachable(service: Service, error: BaseException, *, sent: bool) -> Fault:
    kind = FaultKind.UNANSWERED if sent else FaultKind.UNREACHABLE
    return Fault(kind, f"{service.shown}: {str(error) or type(error).__name__}", maybe_applied=sent)


class Wire:
    """A connection of one thread.

    Args:
        service: Where the service is.
        context: What TLS is spoken with.
        timeout: Seconds for connecting.
    """

    def __init__(self, service: Service, context: ssl.SSLContext | None, timeout: float) -> None:
        self._service = service
        self._used = time.monotonic()
        self.dead: bool = False
        try:
            found = socket.create_connection((service.host, service.port), timeout)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = context.wrap_socket(found, server_hostname=service.host) if context else found
        except OSError as error:
            let_out(error)
            raise _unreachable(service, error, sent=False) from error

    def ask(self, question: Question, timeout: float) -> Any:
        """Ask one thing.

        Raises:
            Fault: There was no answer, or it was no success.
        """
        self._used = inf
        try:
            # One deadline for the whole answer, however slowly it comes.
            sock = BoundedSocket(self._socket, timeout)
            sock.sendall(_request(self._service, question))
            data = b""
            while (end := data.find(b"\r\n\r\n")) < 0:
                data += _more(sock, len(data))
                if len(data) > _MOST:
                    raise Fault(FaultKind.NOT_REDIS, "the answer does not come from pawlock serve")
            status, length = _length(data[:end])
            body = bytearray(data[end + 4 :])
            while len(body) < length:
                body += _more(sock, len(body))
        except Fault:
            self.close()
            raise
        except OSError as error:
            self.close()
            let_out(error)
            raise _unreachable(self._service, error, sent=True) from error
        except BaseException:
            # Interrupted in the middle: what comes next on it would be taken for the next answer.
            self.close()
            raise
        self._used = time.monotonic()
        return _content(status, body)

    def is_stale(self) -> bool:
        """Whether it was idle for so long that the other side may have dropped it."""
        return time.monotonic() - self._used > _IDLE

    def close(self) -> None:
        """Close it; from any thread, also from one that does not use it: who reads from it is woken."""
        self.dead = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __del__(self) -> None:
        # With its thread. In a child after a fork this closes the copy alone.
        found = getattr(self, "_socket", None)
        if found is not None:
            found.close()


def _more(sock: BoundedSocket, had: int) -> bytes:
    more = sock.recv(65536)
    if not more:
        raise ConnectionError(f"the connection ended after {had} bytes of the answer")
    return more


_Pair: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Idle(NamedTuple):
    """A connection that nothing uses, and the loop's time since when."""

    pair: _Pair
    since: float


class AsyncWire:
    """The connections of one event loop: each request has one to itself while it lasts.

    Args:
        service: Where the service is.
        context: What TLS is spoken with.
    """

    def __init__(self, service: Service, context: ssl.SSLContext | None) -> None:
        self._service = service
        self._context = context
        self._idle: deque[_Idle] = deque()
        """The one that was used last at the end: it is taken first, so that those not needed grow old."""
        self._sweeping: asyncio.TimerHandle | None = None

    async def ask(self, question: Question, timeout: float) -> Any:
        """Ask one thing; see ``Wire.ask``."""
        sent = False
        pair: _Pair | None = None
        try:
            async with asyncio.timeout(timeout):
                pair = await self._take()
                reader, writer = pair
                sent = True
                writer.write(_request(self._service, question))
                status, length = _length(await reader.readuntil(b"\r\n\r\n"))
                body = await reader.readexactly(length)
        except BaseException as error:
            if pair is not None:
                pair[1].close()
            if isinstance(error, (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError)):
                raise _unreachable(self._service, error, sent=sent) from error
            raise
        self._idle.append(_Idle(pair, asyncio.get_running_loop().time()))
        if self._sweeping is None:
            self._sweep()
        return _content(status, body)

    async def _take(self) -> _Pair:
        while self._idle:
            reader, writer = self._idle.pop().pair
            if not writer.is_closing() and not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._service.host, self._service.port, ssl=self._context)

    def _sweep(self) -> None:
        """Close those that were idle for too long, and look again when the next one will have been."""
        loop = asyncio.get_running_loop()
        while self._idle and loop.time() - self._idle[0].since >= _IDLE:
            self._idle.popleft().pair[1].close()
        self._sweeping = loop.call_at(self._idle[0].since + _IDLE, self._sweep) if self._idle else None

    def close(self) -> None:
        """Close those that are idle."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        while self._idle:
            self._idle.pop().pair[1].close()
