"""What happens in a namespace, as it is seen by looking once a second, however many look on."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pawl.errors import PawlError
from pawl.runtimes.shared import now
from pawl.service import schemas
from pawl.service.looks import all_names, shown
from pawl.service.problems import Problem
from pawl.service.requests import Asked
from pawl.service.spaces import Space

__all__ = ["Watch", "events", "router"]

log: logging.Logger = logging.getLogger("pawl.service")
router: APIRouter = APIRouter(prefix="/v1/ns/{namespace}")

_EVERY = 1.0
_REMEMBERED = 500
_BEHIND = 64
_MOST_WATCHERS = 1000
"""Streams of one namespace on this instance, of all clients; each of them has its share, see `Limits.streams`."""


class Watch:
    """Looks at one namespace while anybody looks on.

    Args:
        space: The namespace.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.recent: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._locks: dict[str, dict[str, Any]] = {}
        self._task: asyncio.Task[None] | None = None

    def join(self) -> asyncio.Queue[str | None]:
        """Look on; the queue gets what is to be sent, and None at the end.

        Raises:
            Problem: Too many look on.
        """
        if len(self._listeners) >= _MOST_WATCHERS:
            raise Problem(
                429, "WATCHER_LIMIT", f"{_MOST_WATCHERS} look at this namespace already", retry_after=5
            )
        queue: asyncio.Queue[str | None] = asyncio.Queue(_BEHIND)
        self._listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look(), name="pawl-watch")
        elif self._locks or self.recent:
            queue.put_nowait(self._snapshot())
        return queue

    def leave(self, queue: asyncio.Queue[str | None]) -> None:
        """Look on no more."""
        self._listeners.discard(queue)

    def _snapshot(self) -> str:
        return _event("snapshot", {"locks": list(self._locks.values()), "recent": list(self.recent)})

    async def _look(self) -> None:
        self._locks = {}
        try:
            first = True
            while self._listeners:
                try:
                    found = {f"{one.kind}\0{one.name}": shown(one) for one in await all_names(self.space)}
                except PawlError as error:
                    self._tell(_event("trouble", {"code": error.code, "detail": str(error)}))
                else:
                    if not first:
                        self.recent.extend(_changes(self._locks, found))
                    self._locks, first = found, False
                    self._tell(self._snapshot())
                self.space.used_at = now()
                await asyncio.sleep(_EVERY)
        finally:
            self._tell(None)

    def _tell(self, text: str | None) -> None:
        for queue in list(self._listeners):
            if queue.full():
                # Who reads too slowly gets the latest picture instead of a growing heap.
                queue.get_nowait()
            queue.put_nowait(text)

    def end(self) -> None:
        """Send everybody away."""
        if self._task is not None:
            self._task.cancel()


def _changes(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    at = time.time()
    found: list[dict[str, Any]] = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        told = new or old
        if told is None or (old and new and old["fence"] == new["fence"]):
            continue
        what = "acquired" if old is None else "freed" if new is None else "passed on"
        found.append(
            {
                "at": at, "what": what, "kind": told["kind"], "name": told["name"], "holder": told["holder"],
                "fence": told["fence"],
            }
        )  # fmt: skip
    return found


class _Stream(StreamingResponse):
    """What comes into a queue, until None does or the client goes away.

    Args:
        queue: The queue.
        end: Called once at the end, however it comes: also if nothing was ever sent.
    """

    media_type = "text/event-stream"

    def __init__(self, queue: asyncio.Queue[str | None], end: Callable[[], object]) -> None:
        self._queue = queue
        self._end = end
        super().__init__(self._texts(), headers={"X-Accel-Buffering": "no"})

    async def _texts(self) -> AsyncGenerator[str]:
        while (text := await self._queue.get()) is not None:
            yield text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


@router.get(
    "/events",
    tags=["looks"],
    summary="What happens, as server-sent events",
    openapi_extra=schemas.stream(),
    response_class=_Stream,
)
async def events(request: Request) -> Response:
    """A stream of ``snapshot`` events, one a second: ``locks`` as of now, and what changed in ``recent``."""
    asked = Asked(request, "read")
    watches: dict[str, Watch] = request.app.state.watches
    watch = watches.get(asked.space.namespace)
    if watch is None or watch.space is not asked.space:
        watch = watches[asked.space.namespace] = Watch(asked.space)
    asked.state.access.look_on(asked.who)
    try:
        queue = watch.join()
    except Problem:
        asked.state.access.look_away(asked.who)
        raise
    return _Stream(queue, lambda: _leave(asked, watch, queue))


def _leave(asked: Asked, watch: Watch, queue: asyncio.Queue[str | None]) -> None:
    watch.leave(queue)
    asked.state.access.look_away(asked.who)
