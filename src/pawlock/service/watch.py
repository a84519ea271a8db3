"""The event stream of a namespace: one poll a second, shared by all its watchers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pawlock.errors import PawlockError
from pawlock.runtimes.shared import now
from pawlock.service import schemas
from pawlock.service.inspection import shown
from pawlock.service.problems import Problem
from pawlock.service.requests import RequestContext
from pawlock.service.spaces import Space

__all__ = ["Holds", "Watch", "events", "router"]

log: logging.Logger = logging.getLogger("pawlock.service")
router: APIRouter = APIRouter(prefix="/v1/ns/{namespace}")

_EVERY = 1.0
_SELDOM = 20.0
"""Seconds between two snapshots while nobody watches: the chart of the last hour has no hole then."""
_REMEMBERED_FOR = 3600.0
_MINUTES = 61
_MOST_HOLDS = 50
_LEAST_HOLDS = 3
_MOST_NAMES = 5000
_STUCK_TIMES = 10
_STUCK_LEAST = 60.0
_STUCK_UNKNOWN = 3600.0
"""Seconds after which a hold counts as stuck where nothing is known of how long it usually lasts."""
_REMEMBERED = 500
_MOST_WATCHERS = 1000
"""Streams of one namespace on this instance, of all clients."""


class Holds:
    """How long locks are usually held, from the holds that were seen to end.

    A lock with too few observations is compared with its kind as a whole. A hold is stuck when it lasts far longer than
    usual: ten times the median of the recent ones, and at least a minute.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def ended(self, key: str, seconds: float) -> None:
        """One hold ended after so long."""
        for whose in (key, key.partition("\0")[0]):
            found = self._seen.setdefault(whose, deque(maxlen=_MOST_HOLDS))
            found.append(seconds)
            self._seen.move_to_end(whose)
        if len(self._seen) > _MOST_NAMES:
            self._seen.popitem(last=False)

    def usual(self, key: str) -> float | None:
        """The median of the recent holds in seconds; None with too few observations."""
        for whose in (key, key.partition("\0")[0]):
            if len(found := self._seen.get(whose, ())) >= _LEAST_HOLDS:
                return sorted(found)[len(found) // 2]
        return None

    def assess(self, key: str, age: float | None) -> tuple[float | None, bool]:
        """How long this name is usually held, and whether it is stuck now."""
        usual = self.usual(key)
        least = _STUCK_UNKNOWN if usual is None else max(_STUCK_LEAST, _STUCK_TIMES * usual)
        return usual, age is not None and age >= least


class Watch:
    """Polls one namespace while anybody watches it, and at longer intervals for an hour after that.

    Args:
        space: The namespace.
        in_use: Whether the namespace is still in use: watching does not keep it open.
    """

    def __init__(self, space: Space, in_use: Callable[[], bool] = lambda: True) -> None:
        self.space = space
        self.hour: deque[tuple[int, int, int]] = deque(maxlen=_MINUTES)
        """Of each minute: when it began, the most names that were held and the most that waited."""
        self._in_use = in_use
        self._holds = Holds()
        self._first_seen: dict[str, tuple[object, float]] = {}
        self._seen_by: float = now()
        self.recent: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._locks: dict[str, dict[str, Any]] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def join(self) -> asyncio.Queue[str | None]:
        """Add a watcher; its queue gets what is to be sent, and None at the end.

        Raises:
            Problem: There are too many watchers.
        """
        if len(self._listeners) >= _MOST_WATCHERS:
            raise Problem(
                429, "WATCHER_LIMIT", f"this namespace already has {_MOST_WATCHERS} watchers", retry_after=5
            )
        # Each snapshot is the whole picture, and may be megabytes: who is behind needs the latest one alone.
        queue: asyncio.Queue[str | None] = asyncio.Queue(1)
        self._listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look(), name="pawlock-watch")
        elif self._locks or self.recent:
            queue.put_nowait(self._snapshot())
            self._wake.set()
        return queue

    def leave(self, queue: asyncio.Queue[str | None]) -> None:
        """Remove a watcher."""
        self._listeners.discard(queue)

    def _snapshot(self) -> str:
        state = {"locks": list(self._locks.values()), "recent": list(self.recent), "hour": list(self.hour)}
        return _event("snapshot", {**state, "now": time.time()})

    async def _look(self) -> None:
        self._locks = {}
        try:
            first = True
            while self._in_use() and (self._listeners or now() - self._seen_by < _REMEMBERED_FOR):
                began = now()
                try:
                    found = {f"{one.kind}\0{one.name}": shown(one) for one in await self.space.locks()}
                except PawlockError as error:
                    self._publish(_event("trouble", {"code": error.code, "detail": error.text}))
                else:
                    if not first:
                        self.recent.extend(_changes(self._locks, found))
                    self._mark_stuck(found)
                    self._note_minute(found)
                    self._locks, first = found, False
                    self._publish(self._snapshot())
                if self._listeners:
                    self.space.used_at = self._seen_by = now()
                await self._sleep(now() - began)
        finally:
            self._publish(None)

    def _mark_stuck(self, found: dict[str, dict[str, Any]]) -> None:
        """Record in each hold since when it was seen, and whether it is stuck."""
        at, seen = time.time(), dict[str, tuple[object, float]]()
        for key, lock in found.items():
            fence, since = self._first_seen.get(key, (None, at))
            if fence != lock["fence"]:
                since = at
            seen[key] = lock["fence"], min(since, lock["since"] or since)
            lock["usual"], lock["stuck"] = self._holds.assess(key, at - seen[key][1])
            lock["seen_since"] = seen[key][1]
        for key, (fence, since) in self._first_seen.items():
            if key not in seen or seen[key][0] != fence:
                self._holds.ended(key, at - since)
        self._first_seen = seen

    def _note_minute(self, found: dict[str, dict[str, Any]]) -> None:
        minute = int(time.time()) // 60 * 60
        held, waiting = len(found), sum(lock["queue_length"] for lock in found.values())
        if self.hour and self.hour[-1][0] == minute:
            _, most_held, most_waiting = self.hour.pop()
            held, waiting = max(held, most_held), max(waiting, most_waiting)
        self.hour.append((minute, held, waiting))

    async def _sleep(self, took: float) -> None:
        # On a server with many keys a look takes long: it is to have as long a rest.
        await asyncio.sleep(max(0.0, took - _EVERY))
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), _EVERY if self._listeners else _SELDOM)

    def _publish(self, text: str | None) -> None:
        for queue in list(self._listeners):
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(text)

    def end(self) -> None:
        """Disconnect all watchers."""
        if self._task is not None:
            self._task.cancel()


def _changes(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    at = time.time()
    found: list[dict[str, Any]] = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        lock = new or old
        if lock is None or (old and new and old["fence"] == new["fence"]):
            continue
        what = "acquired" if old is None else "freed" if new is None else "passed on"
        found.append(
            {
                "at": at, "what": what, "kind": lock["kind"], "name": lock["name"], "holder": lock["holder"],
                "fence": lock["fence"],
            }
        )  # fmt: skip
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
                # RequestContext for again, it says why.
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


@router.get(
    "/events",
    tags=["looks"],
    summary="Watch a namespace (server-sent events)",
    openapi_extra=schemas.stream(),
    response_class=_Events,
)
async def events(request: Request) -> Response:
    """A stream of ``snapshot`` events, one per second: the current ``locks``, and the changes in ``recent``."""
    ctx = RequestContext(request, "read")
    watches: dict[str, Watch] = request.app.state.watches
    watch = watches.get(ctx.space.namespace)
    if watch is None or watch.space is not ctx.space:
        for name in [name for name, one in watches.items() if not ctx.state.spaces.has(one.space)]:
            # Of namespaces that were closed meanwhile.
            watches.pop(name).end()
        watch = Watch(ctx.space, partial(ctx.state.spaces.has, ctx.space))
        watches[ctx.space.namespace] = watch
    queue = watch.join()
    return _Stream(queue, ctx, partial(watch.leave, queue))
