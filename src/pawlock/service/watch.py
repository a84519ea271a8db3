"""The event stream of a namespace: one poll a second, shared by all its watchers."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, cast

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pawlock._system import now
from pawlock.errors import PawlockError
from pawlock.service import schemas
from pawlock.service.inspection import shown
from pawlock.service.problems import Problem, problem_of
from pawlock.service.requests import RequestContext
from pawlock.service.spaces import Space

__all__ = ["Watch", "events", "router"]

router: APIRouter = APIRouter(prefix="/v1/ns/{namespace}")

_EVERY = 1.0
_REMEMBERED = 500
_MOST_WATCHERS = 1000
"""Streams of one namespace on this instance, of all clients."""


class Watch:
    """Polls one namespace while anybody watches it.

    Args:
        space: The namespace.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._recent: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._locks: dict[str, dict[str, Any]] | None = None
        self._task: asyncio.Task[None] | None = None

    def join(self) -> asyncio.Queue[str | None]:
        """Add a watcher; its queue gets what is to be sent, and None at the end.

        Raises:
            Problem: There are too many watchers.
        """
        if len(self._listeners) >= _MOST_WATCHERS:
            text = f"this namespace already has {_MOST_WATCHERS} watchers"
            raise Problem(429, "WATCHER_LIMIT", text, retry_after=5)
        # Each snapshot is the whole picture, and may be megabytes: who is behind needs the latest one alone.
        queue: asyncio.Queue[str | None] = asyncio.Queue(1)
        self._listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look(), name="pawlock-watch")
        elif self._locks is not None:
            queue.put_nowait(self._snapshot(self._locks))
        return queue

    def leave(self, queue: asyncio.Queue[str | None]) -> None:
        """Remove a watcher."""
        self._listeners.discard(queue)

    def _snapshot(self, locks: dict[str, dict[str, Any]]) -> str:
        state = {"locks": list(locks.values()), "recent": list(self._recent), "now": time.time()}
        return _event("snapshot", state)

    async def _look(self) -> None:
        self._locks = None
        try:
            while self._listeners:
                began = self.space.used_at = now()
                try:
                    found = {f"{one.kind}\0{one.name}": shown(one) for one in await self.space.locks()}
                except PawlockError as error:
                    self._publish(_event("trouble", {"code": error.code, "detail": problem_of(error).detail}))
                else:
                    _note_first_seen(found, self._locks or {})
                    if self._locks is not None:
                        self._recent.extend(_changes(self._locks, found))
                    self._locks = found
                    self._publish(self._snapshot(found))
                # A scan of many keys takes long: rest for as long.
                await asyncio.sleep(max(_EVERY, now() - began))
        finally:
            self._publish(None)

    def _publish(self, text: str | None) -> None:
        for queue in list(self._listeners):
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(text)

    def end(self) -> None:
        """Disconnect all watchers."""
        if self._task is not None:
            self._task.cancel()


def _note_first_seen(found: dict[str, dict[str, Any]], before: dict[str, dict[str, Any]]) -> None:
    """Record in each hold since when it was seen: of another program's, nothing else is known."""
    at = time.time()
    for key, lock in found.items():
        old = before.get(key)
        seen = old["seen_since"] if old and old["fence"] == lock["fence"] else at
        lock["seen_since"] = min(seen, lock["since"] or seen)


def _changes(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    at = time.time()
    found: list[dict[str, Any]] = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        lock = new or old
        if lock is None or (old and new and old["fence"] == new["fence"]):
            continue
        what = "acquired" if old is None else "freed" if new is None else "passed on"
        shared = {part: lock[part] for part in ("kind", "name", "holder", "fence")}
        found.append({"at": at, "what": what, **shared})
    return found


class _Events(StreamingResponse):
    media_type = "text/event-stream"


class _Stream(_Events):
    """What comes into a queue, until None does, the client goes away, or its token may no longer read this.

    Args:
        queue: The queue.
        ctx: The request of the reader.
        end: Called once at the end, however it comes: also if nothing was ever sent.
    """

    def __init__(
        self, queue: asyncio.Queue[str | None], ctx: RequestContext, end: Callable[[], object]
    ) -> None:
        self._queue = queue
        self._ctx = ctx
        self._end = end
        super().__init__(self._texts(), headers={"X-Accel-Buffering": "no"})

    async def _texts(self) -> AsyncGenerator[str]:
        while (text := await self._queue.get()) is not None:
            try:
                self._ctx.check_again()
            except Problem:
                # The next request gets the reason.
                return
            yield text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def _described() -> dict[str, Any]:
    described = schemas.operation(None)
    described["responses"]["200"] = {
        "description": "Events of type `snapshot`, one per second, until the client disconnects.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return described


@router.get(
    "/events",
    tags=["looks"],
    summary="Watch a namespace (server-sent events)",
    openapi_extra=_described(),
    response_class=_Events,
)
async def events(request: Request) -> Response:
    """A stream of ``snapshot`` events, one per second: the current ``locks``, and the changes in ``recent``."""
    ctx = RequestContext(request, "read")
    watch = cast("Watch | None", ctx.space.watch)
    if watch is None:
        watch = ctx.space.watch = Watch(ctx.space)
    queue = watch.join()
    return _Stream(queue, ctx, partial(watch.leave, queue))
