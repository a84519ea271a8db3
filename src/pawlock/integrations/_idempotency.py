"""The ``Idempotency-Key`` header for ASGI applications: a request is handled once, and replayed when it is repeated."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, Literal, NamedTuple

import pawlock
from pawlock.integrations._names import check_client

__all__ = ["Idempotency", "is_final"]

log: logging.Logger = logging.getLogger("pawlock.integrations.asgi")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]
End = Callable[[int, Headers, bytes | None], Awaitable[bool]]

_MOST = 65536
"""The most bytes of a value of ``once``."""

_LONGEST_KEY = 255
_BODY = 1 << 20
_DAY = 86400.0
_MARK = "pawlock_http"
_UNKEPT = ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers")
"""Extensions with which a response is sent in other messages than those that are kept."""

_HEADERS = (
    "cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "etag",
    "last-modified", "location", "vary",
)  # fmt: skip
_AGAIN = {401, 403, 407, 408, 409, 421, 423, 425, 429}
_BODILESS = {204, 304}


def is_final(status: int) -> bool:
    """Whether a response is stored by default: not an error of the server, nor one that asks for another attempt.

    Args:
        status: The status of the response.

    Returns:
        False for 5xx, and for 401, 403, 407, 408, 409, 421, 423, 425 and 429: the same request may succeed later.
    """
    return status < 500 and status not in _AGAIN


class _Problem(NamedTuple):
    status: int
    code: str
    title: str
    again: bool = False


_MISSING = _Problem(400, "IDEMPOTENCY_KEY_MISSING", "the Idempotency-Key header is required")
_MALFORMED = _Problem(
    400, "IDEMPOTENCY_KEY_MALFORMED", "Idempotency-Key must be given once, with 1 to 255 characters"
)
_LONG = _Problem(413, "BODY_TOO_LARGE", "the body is too large for a request with an Idempotency-Key")
_OTHER = _Problem(422, "IDEMPOTENCY_KEY_REUSED", "this Idempotency-Key was used for another request")
_RUNNING = _Problem(
    409, "IDEMPOTENCY_KEY_IN_USE", "a request with this Idempotency-Key is being handled", again=True
)
_NOT_KEPT = _Problem(
    409, "RESPONSE_NOT_KEPT", "this request was handled; its response was too large to be kept"
)
_AWAY = _Problem(
    503, "IDEMPOTENCY_UNAVAILABLE", "the server that keeps idempotency keys cannot be reached", again=True
)
_LOST = _Problem(
    500,
    "LEASE_LOST",
    "the lease was lost while the request was handled: it may have been handled, or be repeated",
)


class Idempotency:
    """ASGI middleware: requests with the same ``Idempotency-Key`` are handled once, and get the same response.

    For FastAPI and Starlette: ``app.add_middleware(Idempotency, client=client, caller=...)``; for others:
    ``app = Idempotency(app, client=client, caller=...)``. A request with a key that is new is handled, and its response
    is recorded before it is sent. A repeated one gets that response, with ``Idempotent-Replayed: true``. The handler
    finds the fencing token in ``request.state.fence``, and the lease in ``request.state.lease``.

    Args:
        app: The application.
        client: The client of the application; it stays open.
        caller: Who sends a request, from its scope: text that is the same for all requests of one user and no other, as
            a user's id or the ``Authorization`` header. Two callers with the same key do not see each other's
            responses. None: the request is handled without regard to its key.
        methods: The methods that are guarded; default POST and PATCH.
        missing: What happens with a guarded request without the header: ``"pass"`` handles it (default), ``"refuse"``
            answers 400.
        keep: Seconds for which a response is kept, from 0.05 to 366 days; default a day.
        wait: Seconds that a request waits for one with the same key that is being handled; default 0: 409 at once.
        max_body: Bytes of the body of a guarded request, which is read before it is handled; default 1 MiB. A longer
            one is answered with 413.
        store: Whether a response with this status is recorded; default ``is_final``. The key of one that is not
            recorded is free at once.
        headers: The headers of a response that are recorded, in lower case. Cookies are not among the default ones.
        retry_after: Seconds of the ``Retry-After`` header, at least 1; default 1.
        prefix: What the names of the keys begin with; default ``"http"``. Applications with one namespace need
            different ones.
        ttl: Seconds after a crash until the request can be repeated; default that of the client, 30.

    Raises:
        ConfigurationError: An option that can never work.
        NotSupported: Independent masters (Redlock) have no ``once``.
    """

    def __init__(
        self,
        app: Application,
        *,
        client: pawlock.AsyncClient,
        caller: Callable[[Scope], str | None],
        methods: Collection[str] = ("POST", "PATCH"),
        missing: Literal["pass", "refuse"] = "pass",
        keep: float = _DAY,
        wait: float = 0.0,
        max_body: int = _BODY,
        store: Callable[[int], bool] = is_final,
        headers: Collection[str] = _HEADERS,
        retry_after: float = 1.0,
        prefix: str = "http",
        ttl: float | None = None,
    ) -> None:
        check_client(client)
        _check(caller, missing, max_body, retry_after)
        self._app = app
        self._client = client
        self._caller = caller
        self._methods = {one.upper() for one in methods}
        self._missing = missing
        self._max_body = max_body
        self._prefix = prefix
        self._retry_after = str(max(1, math.ceil(retry_after)))
        self._options: dict[str, Any] = {"keep": keep, "wait": wait > 0, "timeout": wait}
        if ttl is not None:
            self._options["ttl"] = ttl
        self._stores = store
        self._headers = frozenset(one.lower().encode() for one in headers)
        self._once(self._name_of("", b""))  # an option that can never work is an error here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or replay what came of it; called by the server."""
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name.lower() == b"idempotency-key"]
        caller = self._caller(scope)
        if caller is None or (not given and self._missing == "pass"):
            await self._app(scope, receive, send)
            return
        key = given[0].strip().strip(b'"') if len(given) == 1 else b""
        if not 0 < len(key) <= _LONGEST_KEY:
            await self._refuse(send, _MALFORMED if given else _MISSING)
            return
        body = await _read(receive, self._max_body)
        if body is None:  # the client is gone, and nothing was begun
            return
        if len(body) > self._max_body:
            await self._refuse(send, _LONG)
            return
        about = f"{scope['method']}\0{scope['path']}\0".encode() + scope.get("query_string", b"") + b"\0"
        digest = hashlib.sha256(about + hashlib.sha256(body).digest()).hexdigest()
        await self._guard(self._name_of(caller, key), digest, _Exchange(scope, receive, send, body))

    def _name_of(self, caller: str, key: bytes) -> str:
        # The caller's length keeps apart what could be read as another caller with another key.
        who = caller.encode("utf-8", "surrogatepass")
        return f"{self._prefix}:{hashlib.sha256(b'%d:%s:%s' % (len(who), who, key)).hexdigest()}"

    def _once(self, name: str) -> pawlock.AsyncOnce:
        return self._client.once(name.replace("{", "{{").replace("}", "}}"), **self._options)

    async def _guard(self, name: str, digest: str, exchange: _Exchange) -> None:
        send = exchange.send
        try:
            async with AsyncExitStack() as stack:
                try:
                    state = await stack.enter_async_context(self._once(name))
                except pawlock.NotAcquired:
                    state = None
                except (pawlock.BackendError, pawlock.ClientClosed) as error:
                    log.warning("a request is refused: idempotency keys cannot be looked up (%s)", str(error))
                    await self._refuse(send, _AWAY)
                    return
                if isinstance(state, pawlock.AsyncStarted):
                    await self._handle(state, digest, exchange)
                elif isinstance(state, pawlock.Done):
                    await self._replay(state.value, digest, send)
                else:
                    await self._refuse(send, _RUNNING)
        except pawlock.LeaseLost as error:
            if error.name != name or exchange.begun:
                raise
            await self._refuse(send, _LOST)

    async def _handle(self, state: pawlock.AsyncStarted, digest: str, exchange: _Exchange) -> None:
        async def end(status: int, headers: Headers, body: bytes | None) -> bool:
            try:
                if self._stores(status):
                    kept = [(key, value) for key, value in headers if key.lower() in self._headers]
                    stored = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in kept]
                    await state.finish(_record(_Response(digest, status, stored, body)))
                else:
                    await state.abandon()
            except (pawlock.LeaseLost, pawlock.NotHeld):
                if exchange.begun:
                    raise
                exchange.begun = True
                await self._refuse(exchange.send, _LOST)
                return False
            except pawlock.PawlockError as error:
                # The work is done, and its caller is to know: only a repeated request may be handled again.
                log.warning("a response may not have been recorded: %s", str(error))
            return True

        try:
            await exchange.run(self._app, state, end)
        except Exception:
            await exchange.cut_off()
            raise
        if not await exchange.cut_off():
            await state.abandon()

    async def _replay(self, value: object, digest: str, send: Send) -> None:
        found = _read_record(value)
        if found is None:
            await self._refuse(send, _NOT_KEPT)
        elif found.request != digest:
            await self._refuse(send, _OTHER)
        elif found.body is None:
            await self._refuse(send, _NOT_KEPT)
        else:
            headers = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in found.headers]
            await _answer(send, found.status, [*headers, (b"idempotent-replayed", b"true")], found.body)

    async def _refuse(self, send: Send, problem: _Problem) -> None:
        fields = {"title": problem.title, "status": problem.status, "code": problem.code}
        headers = [(b"content-type", b"application/problem+json")]
        if problem.again:
            headers.append((b"retry-after", self._retry_after.encode()))
        await _answer(send, problem.status, headers, json.dumps(fields).encode())

    def __repr__(self) -> str:
        return f"<Idempotency {sorted(self._methods)} of {self._app!r}>"


def _check(caller: object, missing: str, max_body: int, retry_after: float) -> None:
    if not callable(caller):
        raise pawlock.ConfigurationError(f"caller must be a function of the scope, got {caller!r:.40}")
    if missing not in ("pass", "refuse"):
        raise pawlock.ConfigurationError(f"missing must be 'pass' or 'refuse', got {missing!r:.40}")
    if not math.isfinite(retry_after):
        raise pawlock.ConfigurationError(f"retry_after must be a number of seconds, got {retry_after!r:.40}")
    if isinstance(max_body, bool) or max_body < 0:
        raise pawlock.ConfigurationError(
            f"max_body must be a number of bytes, 0 or more, got {max_body!r:.40}"
        )


class _Exchange:
    """One guarded request: its response is held back until it is recorded, or is too long for that.

    Attributes:
        send: Sends to the client.
        begun: Whether anything was sent to the client.
        ended: Whether the response was complete.

    Args:
        scope: The request.
        receive: Receives from the client; the body was read.
        send: Sends to the client.
        body: The body.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        self.send: Send = send
        self.begun = False
        self.ended = False
        self._gone = False
        self._scope = scope
        self._receive = receive
        self._body: bytes | None = body
        self._shown = asyncio.Event()
        self._held: list[Message] = []
        self._start: Message = {}
        self._kept = bytearray()
        self._end: End | None = None

    async def run(self, app: Application, state: pawlock.AsyncStarted, end: End) -> None:
        """Have it handled.

        Args:
            app: The application.
            state: What was started.
            end: Called with the whole response before its end is sent; says whether it is to be sent.
        """
        self._end = end
        scope = self._scope
        scope.setdefault("state", {}).update(lease=state.lease, fence=state.fence)
        if scope.get("extensions"):
            extensions = scope["extensions"].items()
            scope["extensions"] = {key: value for key, value in extensions if key not in _UNKEPT}
        await app(scope, self._receive_next, self._take)

    async def _receive_next(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # That the client is gone is no reason to stop: the response is recorded for when it comes back.
        await self._shown.wait()
        message = await self._receive()
        self._gone = self._gone or message["type"] == "http.disconnect"
        return message

    async def cut_off(self) -> bool:
        """End a response that was too long to be kept, and of which the client did not want the rest.

        It was handled, as far as anybody can know: repeated, it would be handled twice.

        Returns:
            Whether the response is complete, or ended hereby.
        """
        if self._end is not None and not self.ended and self.begun and self._gone:
            self.ended = True
            await self._end(self._start["status"], self._start.get("headers", []), None)
        return self.ended

    async def _take(self, message: Message) -> None:
        if self.ended or message["type"] not in ("http.response.start", "http.response.body"):
            await self.send(message)
            return
        self._held.append(message)
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._kept += message.get("body", b"")[: _MOST + 1 - len(self._kept)]
        if not message.get("more_body", False):
            await self._finish()
        elif len(self._kept) > _MOST:
            await self._show()

    async def _finish(self) -> None:
        assert self._end is not None  # noqa: S101
        self.ended = True
        body = None if len(self._kept) > _MOST else bytes(self._kept)
        try:
            wanted = await self._end(self._start["status"], self._start.get("headers", []), body)
        finally:
            self._shown.set()
        if wanted:
            await self._show()

    async def _show(self) -> None:
        """Send what was held back."""
        self.begun = True
        self._shown.set()
        held, self._held = self._held, []
        for message in held:
            try:
                await self.send(message)
            except OSError:  # what a server raises when the client is gone
                self._gone = True
                raise


class _Response(NamedTuple):
    request: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes | None


def _record(made: _Response) -> bytes:
    """A response as the value of ``once``: a line of JSON, and the body if there is room for it."""
    fields = {_MARK: 1, "request": made.request, "status": made.status}
    if made.body is not None:
        head = json.dumps({**fields, "headers": made.headers}).encode() + b"\n"
        if len(head) + len(made.body) <= _MOST:
            return head + made.body
    return json.dumps({**fields, "headers": None}).encode() + b"\n"


def _read_record(value: object) -> _Response | None:
    """What was recorded; None if it was not by this middleware."""
    head, _, body = value.partition(b"\n") if isinstance(value, bytes) else (b"", b"", b"")
    try:
        fields: Any = json.loads(head)
        if fields[_MARK] != 1:
            return None
        headers = fields["headers"]
        kept = [] if headers is None else [(str(key), str(text)) for key, text in headers]
        return _Response(
            str(fields["request"]), int(fields["status"]), kept, None if headers is None else body
        )
    except (ValueError, TypeError, KeyError):
        return None


async def _read(receive: Receive, most: int) -> bytes | None:
    """The body, or as much of it as shows that it is too long; None when the client is gone."""
    body = bytearray()
    while len(body) <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return bytes(body)


async def _answer(send: Send, status: int, headers: Headers, body: bytes) -> None:
    sized = [] if status in _BODILESS else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *sized]})
    await send({"type": "http.response.body", "body": body})
