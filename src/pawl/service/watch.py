"""What happens in a namespace, as it is seen by looking once a second, however many look on."""

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

from pawl.errors import PawlError
from pawl.runtimes.shared import now
from pawl.service import schemas
from pawl.service.looks import all_names, shown
from pawl.service.problems import Problem
from pawl.service.requests import Asked
from pawl.service.spaces import Space

__all__ = ["Holds", "Watch", "events", "router"]

log: logging.Logger = logging.getLogger("pawl.service")
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
"""Streams of one namespace on this instance, of all clients; each of them has its share, see `Limits.streams`."""


class Holds:
    """How long names are usually held, from the holds that were seen to end.

    A name of which nothing is known yet is judged by its kind as a whole. A hold is stuck when it lasts far longer than
    is usual: ten times the middle one of the last ones, and a minute at least.
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
        """The middle one of the last holds in seconds; None if nothing is known."""
        for whose in (key, key.partition("\0")[0]):
            if len(found := self._seen.get(whose, ())) >= _LEAST_HOLDS:
                return sorted(found)[len(found) // 2]
        return None

    def judge(self, key: str, age: float | None) -> tuple[float | None, bool]:
        """How long this name is usually held, and whether it is stuck now."""
        usual = self.usual(key)
        least = _STUCK_UNKNOWN if usual is None else max(_STUCK_LEAST, _STUCK_TIMES * usual)
        return usual, age is not None and age >= least


class Watch:
    """Looks at one namespace while anybody looks on, and now and then for an hour after that.

    Args:
        space: The namespace.
        still: Whether the namespace is in use yet: who watches keeps none.
    """

    def __init__(self, space: Space, still: Callable[[], bool] = lambda: True) -> None:
        self.space = space
        self.hour: deque[tuple[int, int, int]] = deque(maxlen=_MINUTES)
        """Of each minute: when it began, the most names that were held and the most that waited."""
        self._still = still
        self._holds = Holds()
        self._first_seen: dict[str, tuple[object, float]] = {}
        self._seen_by: float = now()
        self.recent: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._locks: dict[str, dict[str, Any]] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def join(self) -> asyncio.Queue[str | None]:
        """Look on; the queue gets what is to be sent, and None at the end.

        Raises:
            Problem: Too many look on.
        """
        if len(self._listeners) >= _MOST_WATCHERS:
            raise Problem(
                429, "WATCHER_LIMIT", f"this namespace already has {_MOST_WATCHERS} watchers", retry_after=5
            )
        # Each snapshot is the whole picture, and may be megabytes: who is behind needs the latest one alone.
        queue: asyncio.Queue[str | None] = asyncio.Queue(1)
        self._listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look(), name="pawl-watch")
        elif self._locks or self.recent:
            queue.put_nowait(self._snapshot())
            self._wake.set()
        return queue

    def leave(self, queue: asyncio.Queue[str | None]) -> None:
        """Look on no more."""
        self._listeners.discard(queue)

    def _snapshot(self) -> str:
        state = {"locks": list(self._locks.values()), "recent": list(self.recent), "hour": list(self.hour)}
        return _event("snapshot", {**state, "now": time.time()})

    async def _look(self) -> None:
        self._locks = {}
        try:
            first = True
            while self._still() and (self._listeners or now() - self._seen_by < _REMEMBERED_FOR):
                try:
                    found = {f"{one.kind}\0{one.name}": shown(one) for one in await all_names(self.space)}
                except PawlError as error:
                    self._tell(_event("trouble", {"code": error.code, "detail": error.text}))
                else:
                    if not first:
                        self.recent.extend(_changes(self._locks, found))
                    self._judge(found)
                    self._note_minute(found)
                    self._locks, first = found, False
                    self._tell(self._snapshot())
                if self._listeners:
                    self.space.used_at = self._seen_by = now()
                await self._sleep()
        finally:
            self._tell(None)

    def _judge(self, found: dict[str, dict[str, Any]]) -> None:
        """Say of each hold since when it is seen, and whether that is long for its name."""
        at, seen = time.time(), dict[str, tuple[object, float]]()
        for key, lock in found.items():
            fence, since = self._first_seen.get(key, (None, at))
            if fence != lock["fence"]:
                since = at
            seen[key] = lock["fence"], min(since, lock["since"] or since)
            lock["usual"], lock["stuck"] = self._holds.judge(key, at - seen[key][1])
            lock["seen_since"] = seen[key][1]
        for key, (fence, since) in self._first_seen.items():
            if key not in seen or seen[key][0] != fence:
                self._holds.ended(key, at - since)
        self._first_seen = seen

    def _note_minute(self, found: dict[str, dict[str, Any]]) -> None:
        minute = int(time.time()) // 60 * 60
        held, waiting = len(found), sum(lock["queue_length"] for lock in found.values())
        if self.hour and self.hour[-1][0] == minute:
            _, most, crowd = self.hour.pop()
            held, waiting = max(held, most), max(waiting, crowd)
        self.hour.append((minute, held, waiting))

    async def _sleep(self) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), _EVERY if self._listeners else _SELDOM)

    def _tell(self, text: str | None) -> None:
        for queue in list(self._listeners):
            if queue.full():
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
        asked: Who reads.
        end: Called once at the end, however it comes: also if nothing was ever sent.
    """

    def __init__(self, queue: asyncio.Queue[str | None], asked: Asked, end: Callable[[], object]) -> None:
        self._queue = queue
        self._asked = asked
        self._end = end
        super().__init__(self._texts(), headers={"X-Accel-Buffering": "no"})

    async def _texts(self) -> AsyncGenerator[str]:
        while (text := await self._queue.get()) is not None:
            try:
                self._asked.check_again()
            except Problem:
                # Asked for again, it says why.
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
    asked = Asked(request, "read")
    watches: dict[str, Watch] = request.app.state.watches
    watch = watches.get(asked.space.namespace)
    if watch is None or watch.space is not asked.space:
        for name in [name for name, one in watches.items() if not asked.state.spaces.has(one.space)]:
            # Of namespaces that were closed meanwhile.
            watches.pop(name).end()
        watch = Watch(asked.space, partial(asked.state.spaces.has, asked.space))
        watches[asked.space.namespace] = watch
    asked.state.access.look_on(asked.who)
    try:
        queue = watch.join()
    except Problem:
        asked.state.access.look_away(asked.who)
        raise
    return _Stream(queue, asked, lambda: _leave(asked, watch, queue))


def _leave(asked: Asked, watch: Watch, queue: asyncio.Queue[str | None]) -> None:
    watch.leave(queue)
    asked.state.access.look_away(asked.who)
