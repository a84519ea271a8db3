"""The history of what this service grants, for `pawlock serve --history`: written in the background, a few times a second.

An instance that ends a lease may not be the one that granted it, and knows neither its fence nor when it began. Each
grant is therefore noted with a digest of its token, by which its end finds it. An expiry or a force release is
inferred when the history is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pawlock.core.protocol.names import check_namespace
from pawlock.core.protocol.runtime import Fault
from pawlock.core.state.history import LIFE_MS
from pawlock.primitives.session import SessionKeys

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from pawlock.core.keep.engine import Engine

__all__ = ["HistoryWriter", "Space"]

log: logging.Logger = logging.getLogger("pawlock.service")

_EVERY = 0.25
_MOST = 10_000
_TRIES = 5
_KINDS = frozenset({"lock", "rlock", "fair_lock", "key"})


class _Note(NamedTuple):
    key: str
    token: str
    kind: str
    fence: int
    at: float
    until: float = 0.0
    """Not to be written before that: another instance noted its grant, and may be about to write it."""
    tries: int = 0

    def line(self, now: float) -> str:
        """As the script takes it."""
        tag = blake2b(self.token.encode(), digest_size=6).hexdigest()
        age, who = max(0, int((now - self.at) * 1000)), self.token.partition("@")[2]
        if self.fence:
            return f"{self.fence} {age} - held {self.kind} {tag} {who}\n"
        return f"0 0 {age} released {self.kind} {tag} {who}\n"


class Space(Protocol):
    """The namespace, as far as its history needs it."""

    @property
    def engine(self) -> Engine:
        """The engine of the present loop."""
        ...

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        ...


class HistoryWriter:
    """Writes the history of one namespace for one instance, in the background.

    Args:
        namespace: The namespace.
        limit: How many entries of each name are kept; 0: none, and nothing is noted.
        now: The clock.
        space: What sends and runs for it.
    """

    def __init__(self, namespace: str, limit: int, now: Callable[[], float], space: Space) -> None:
        self._space = space
        self._limit = limit
        self._now = now
        self._calls = SessionKeys(check_namespace(namespace))
        self._notes: list[_Note] = []
        self._known: OrderedDict[str, None] = OrderedDict()
        self._busy = False

    def granted(self, key: str, kind: str, token: str, fence: int) -> None:
        """A name was granted, or a lease that was noted before was renewed."""
        if self._limit and kind in _KINDS and token not in self._known:
            self._known[token] = None
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
            self._note(_Note(key, token, kind, fence, self._now()))

    def ended(self, key: str, kind: str, token: str) -> None:
        """A lease was given back."""
        if self._limit and kind in _KINDS:
            at, mine = self._now(), token in self._known
            self._known.pop(token, None)
            self._note(_Note(key, token, kind, 0, at, 0.0 if mine else at + 3 * _EVERY))

    def _note(self, note: _Note) -> None:
        if len(self._notes) < _MOST:
            self._notes.append(note)
        if not self._busy:
            self._busy = True
            self._space.in_background(self._write())

    async def _write(self) -> None:
        try:
            while self._notes:
                await asyncio.sleep(_EVERY)
                await self.flush(self._now())
        finally:
            self._busy = False

    async def flush(self, until: float = inf) -> None:
        """Write what is pending; what fails is retried a few times.

        Args:
            until: Entries that must not be written before this time stay pending.
        """
        by_key: dict[str, list[_Note]] = {}
        for note in self._notes:
            if note.until <= until:
                by_key.setdefault(note.key, []).append(note)
        self._notes = [note for note in self._notes if note.until > until]
        if not by_key:
            return
        now = self._now()
        calls = [
            self._calls.remember(key, self._limit, LIFE_MS, "".join(one.line(now) for one in mine))
            for key, mine in by_key.items()
        ]
        outcomes = await self._space.engine.runtime.call_many(calls, 1.0)
        for mine, outcome in zip(by_key.values(), outcomes, strict=True):
            if not isinstance(outcome, Fault):
                continue
            again = [one._replace(tries=one.tries + 1) for one in mine if one.tries < _TRIES]
            if len(again) < len(mine):
                log.warning("%d entries of histories could not be written: %s", len(mine), outcome.text)
            self._notes += again
