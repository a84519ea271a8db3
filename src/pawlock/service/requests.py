"""One request: who sends it, what it may do, its body, and its response when it is repeated."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi import Request, Response
from pydantic import BaseModel, ValidationError

from pawlock._key_text import read_key
from pawlock.runtimes.shared import secret
from pawlock.service import leases
from pawlock.service.access import Access, Principal
from pawlock.service.problems import Problem
from pawlock.service.spaces import KEY, Space, Spaces, known_kinds
from pawlock.service.store.replies import Answered, KeyReused

__all__ = [
    "GONE", "MOST_TTL", "MOST_WAIT", "Attempt", "RequestContext", "State", "answer", "plain", "segment",
]  # fmt: skip

_ONCE_FOR_MS = 600_000
MOST_TTL = 3600.0
"""The longest ttl of a lease or session, in seconds."""
MOST_WAIT = 60.0
"""The longest wait of one request in seconds: proxies cut connections after about as long."""
_MOST_BODY = 16384
_LONGEST_KEY = 200
_LONGEST_SEGMENT = 2000
"""A name has 200 bytes; escaped it is longer."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SESSION = re.compile(r"s(\d{4,9})-[A-Za-z0-9]{16,64}")
GONE = 499
"""The status that nginx logs for a client that disconnected; nobody reads it."""

M = TypeVar("M", bound=BaseModel)


class Attempt(NamedTuple):
    """One try of a request.

    Attributes:
        token: The owner token of what it acquires: the same at each try with one ``Idempotency-Key``.
        again: Whether an earlier try may have had an effect.
        give_up: Abandons the try; False if a later try, maybe at another instance, continues with the token, which must
            not be used any more. None: there can be no other try.
    """

    token: str
    again: bool = False
    give_up: Callable[[], Awaitable[bool]] | None = None


Work = Callable[[Attempt], Awaitable[Any]]
"""What a request does; its result is the content of the answer."""


@dataclass(slots=True)
class State:
    """The state of one instance: nothing that another instance needs.

    Attributes:
        spaces: The namespaces.
        access: The tokens.
        draining: True once it was asked to shut down.
        in_progress: Idempotency keys of requests that are going on here.
    """

    spaces: Spaces
    access: Access
    draining: bool = False
    in_progress: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(json.dumps(content), status, headers, "application/json")


def segment(raw: str) -> str:
    """A part of a path as text. It is split before it is decoded, so ``%2F`` is part of a name.

    Raises:
        Problem: It is no text, longer than any name, or would mean another path to a proxy.
    """
    if len(raw) > _LONGEST_SEGMENT:
        # Before an error repeats it.
        text = f"a namespace or name must be at most 200 bytes, got {len(raw)} characters in the path"
        raise Problem(400, "BAD_PATH", text)
    try:
        return plain(unquote_to_bytes(raw).decode())
    except UnicodeDecodeError:
        raise Problem(400, "BAD_PATH", "the path is not UTF-8") from None


def plain(text: str) -> str:
    """A namespace or a name, which is what was given: nothing normalizes it.

    Raises:
        Problem: It is none, or would mean another path to a proxy.
    """
    if text in ("", ".", "..") or _CONTROL.search(text):
        raise Problem(400, "BAD_PATH", "a path segment is empty, is a dot segment, or has control characters")
    return text


class RequestContext:
    """An authorized request, with its namespace and session.

    Attributes:
        request: The request.
        state: The instance.
        who: Who sends it.
        space: The namespace it is for.
        session: Its session, or ``""``.
        gone: True once the client went away.
    """

    __slots__ = ("_named", "_role", "body", "gone", "request", "session", "space", "state", "who")

    def __init__(self, request: Request, role: str, namespace: str | None = None) -> None:
        self.request: Request = request
        self.state: State = request.app.state.pawlock
        self.who: Principal = self.state.access.who(self.header("authorization"))
        self.state.access.spend(self.who)
        named = segment(request.path_params["namespace"]) if namespace is None else namespace
        self._role, self._named = role, named
        self._check(self.who)
        if self.state.draining:
            raise Problem(503, "DRAINING", "this instance is shutting down: use another one", retry_after=1)
        self.space: Space = self.state.spaces.of(named)
        self.session: str = self.header("pawlock-session") or ""
        if self.session and not 0 < (self.session_ttl_ms or 0) <= MOST_TTL * 1000:
            # Anybody can write the header: a client that may not open such a session has none.
            raise leases.session_over()
        self.gone: bool = False
        self.body: bytes = b""

    def _check(self, who: Principal) -> None:
        if not who.may(self._role, self._named):
            text = f"the token {who.id!r} has no role {self._role} in the namespace {self._named!r}"
            raise Problem(403, "FORBIDDEN", text)

    def check_again(self) -> None:
        """Check again that its token may do this: for what continues long after it was authorized.

        Raises:
            Problem: 401 or 403; the token was taken out of the file, has expired, or may do less now.
        """
        self._check(self.state.access.who(self.header("authorization")))

    def spec(self, permits: int | None = None, n: int = 1, *also: str) -> leases.LeaseSpec:
        """The lease that its path is about.

        Args:
            permits: For a semaphore, how many there are.
            n: For a semaphore, how many this lease has.
            also: Kinds that it takes beside those that can be held through the service.

        Raises:
            Problem: There is no such kind, it is no name, or the token may not lock the key.
            ConfigurationError: It can never be a key.
        """
        kind, name = (segment(self.request.path_params[part]) for part in ("kind", "name"))
        if kind not in (*known_kinds(), *also):
            raise Problem(
                404, "NO_SUCH_KIND", f"unknown kind {kind!r:.40}; known: {', '.join(known_kinds())}"
            )
        if kind == KEY:
            self.check_key(read_key(name).key)
        return leases.LeaseSpec(kind, name, permits, n)

    def check_key(self, key: str) -> None:
        """Check that its token may lock a key of other programs: its namespaces say nothing about that.

        Raises:
            Problem: 403; no pattern under ``keys`` of the token has it.
        """
        if not self.who.may_lock(key):
            text = f"the token {self.who.id!r} may not lock the key {key!r}: its entry lists the keys that it may lock"
            raise Problem(403, "FORBIDDEN", text)

    def header(self, name: str) -> str | None:
        """A header; of a repeated one, the first."""
        return self.request.headers.get(name)

    @property
    def session_ttl_ms(self) -> int | None:
        """The ttl of its session, which the session's own name says; None without one."""
        found = _SESSION.fullmatch(self.session)
        return int(found[1]) if found else None

    async def read(self, model: type[M], times: int = 1) -> M:
        """The body.

        Args:
            model: What it says.
            times: How many times as large as a body it may be.

        Raises:
            Problem: 413, 400 or 422.
            ClientDisconnect: It went away.
        """
        limit = _MOST_BODY * times
        length = self.header("content-length") or "0"
        too_large = Problem(413, "BODY_TOO_LARGE", f"the body must be at most {limit} bytes")
        if length.isdigit() and int(length) > limit:
            raise too_large
        async for chunk in self.request.stream():
            self.body += chunk
            if len(self.body) > limit:
                raise too_large
        try:
            return model.model_validate_json(self.body or b"{}")
        except ValidationError as error:
            raise _invalid_body(error) from None

    def mark_of(self, identifier: str) -> str:
        """How the tokens end of what an identifier of this client holds.

        Nobody else can make it, or read the identifier out of it: it is keyed by the client's own credential.
        """
        digest = hmac.new(self.who.hash.encode(), identifier.encode(), hashlib.sha256).hexdigest()[:32]
        return f":http/{self.who.id}/{digest}"

    def new_token(self, holder: str | None, mark: str = "") -> str:
        """An owner token for what it acquires, with the holder that others see."""
        client = self.request.client
        host = holder or (re.sub(r"[^A-Za-z0-9._:-]", "_", client.host)[:64] if client else "unknown")
        return f"{secret()}@{host}{mark or f':http/{self.who.id}'}"

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[RequestContext]:
        """Cancel the caller's task once the client goes away.

        Raises:
            Problem: Its token ended meanwhile: it could neither renew nor release what it would be granted.
        """
        task = asyncio.current_task()
        watcher = asyncio.get_running_loop().create_task(self._watch(task))
        try:
            yield self
            self.check_again()
        finally:
            watcher.cancel()

    async def _watch(self, task: asyncio.Task[Any] | None) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if task is not None:
            task.cancel()

    async def is_gone(self) -> bool:
        """Whether the client has disconnected: nobody would read the answer."""
        self.gone = self.gone or await self.request.is_disconnected()
        return self.gone

    async def once(self, token: str, do: Work, *, keep: bool = False) -> Response:
        """Run it, or replay the earlier response to the same ``Idempotency-Key``.

        Args:
            token: The owner token, unless an earlier request with the key has set one.
            do: Runs it; returns the content of a 200.
            keep: True for what may continue in the background after an error: the next try then has the same token.
        """
        key = self.header("idempotency-key")
        if key is None:
            return await self.unless_gone(do(Attempt(token)))
        if not 0 < len(key) <= _LONGEST_KEY:
            raise Problem(
                400, "BAD_IDEMPOTENCY_KEY", f"Idempotency-Key must be 1 to {_LONGEST_KEY} characters"
            )
        request_key = (self.who.id, self.space.namespace, key)
        if request_key in self.state.in_progress:
            raise Problem(
                409,
                "IDEMPOTENCY_KEY_IN_USE",
                "the first request with this Idempotency-Key is still running",
                retry_after=1,
            )
        self.state.in_progress.add(request_key)
        try:
            return await self._with_key(key, token, do, keep=keep)
        finally:
            self.state.in_progress.discard(request_key)

    async def _with_key(self, key: str, token: str, do: Work, *, keep: bool) -> Response:
        path = self.request.scope["path"]
        text = b"\0".join((self.request.method.encode(), path.encode(), self.session.encode(), self.body))
        digest = hashlib.sha256(text).hexdigest()
        store, who = self.space.store, self.who.id
        found = await leases.call(
            self.space, store.once(who, key, digest, token, _ONCE_FOR_MS), "read an idempotency key"
        )
        if isinstance(found, KeyReused):
            raise Problem(
                422,
                "IDEMPOTENCY_KEY_REUSED",
                "this Idempotency-Key was used for a different request: use a new one",
            )
        if isinstance(found, Answered):
            return Response(found.body, found.status, {"Idempotent-Replayed": "true"}, "application/json")
        begun, number = found.token, found.attempt
        back = store.answered(who, key, begun, number, "", "", _ONCE_FOR_MS)

        async def give_up() -> bool:
            taken_back = await leases.call(self.space, back, "take a request back")
            return bool(taken_back.alone)

        attempt = Attempt(token if found.first else begun, not found.first, give_up)
        try:
            response = await self.unless_gone(do(attempt))
        except BaseException:
            if not keep:
                # A failed request may be retried with the same key.
                self.space.engine.post(back)
            raise
        if response.status_code != HTTPStatus.OK:
            if not keep:
                self.space.engine.post(back)
            return response
        body = bytes(response.body).decode()
        kept = store.answered(who, key, begun, number, "200", body, _ONCE_FOR_MS)
        await leases.call(self.space, kept, "keep an answer")
        return response

    async def unless_gone(self, work: Awaitable[Any]) -> Response:
        """Run something that ends early if the client disconnects; its result is the content of a 200."""
        try:
            return answer(await work)
        except asyncio.CancelledError:
            if not self.gone:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return Response(status_code=GONE)


def _invalid_body(error: ValidationError) -> Problem:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found and found[0]["type"] == "json_invalid":
        return Problem(400, "BAD_JSON", "the body is not JSON")
    problems = [{"field": ".".join(map(str, one["loc"])), "problem": one["msg"]} for one in found[:20]]
    text = "; ".join(f"{one['field'] or 'body'}: {one['problem']}" for one in problems)
    return Problem(422, "BAD_BODY", text[:500], errors=problems)
