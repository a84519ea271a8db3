"""The history of names: who had them, with which fence, from when to when, and how it ended.

Only a client that was asked to keeps it. The scripts that grant and release know nothing of it, and neither does the
way of a client that keeps none: an engine that notes is a class of its own. What ended is put into a list here; the
upkeep writes it, together with renewals, within a quarter of a second. A grant that lasts longer than that is noted
while it lasts, so that one that nobody lives to end is known, too: the reader infers that it expired.

Rules:

1. An entry is known by the name's key and its fence, which is never given twice; noting it twice changes nothing.
   The holds of an explicit owner share a fence, and are distinguished by a digest of their tokens.
2. Times travel as ages, so that the server's clock dates them all.
3. What cannot be written is tried again for as long as there is room, then dropped and counted.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from pawl.core.acquire.neighbours import enrol
from pawl.core.keep.engine import Engine
from pawl.core.observe.inspect import read_info, text_of
from pawl.core.observe.operator import audit, setup_of
from pawl.core.observe.remote import office_of
from pawl.core.protocol.options import check_count
from pawl.core.protocol.runtime import Fault, FaultKind
from pawl.core.release.release import query
from pawl.core.state.session import label_of
from pawl.model import HistoryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawl.core.protocol.options import LockOptions
    from pawl.core.protocol.primitive import Primitive
    from pawl.core.protocol.runtime import Call, Reply, Runtime
    from pawl.core.state.records import Tenure
    from pawl.core.state.session import Setup
    from pawl.model import LockInfo

__all__ = ["LIFE_MS", "MOST_KEPT", "History", "NotingEngine", "Page", "history", "make_engine"]

log: logging.Logger = logging.getLogger("pawl.history")

MOST_KEPT = 1000
"""Entries of one name, at most."""

LIFE_MS = 7 * 86_400_000
"""How long a history lives after it was last written."""

_EVERY = 0.25
_MOST_NOTES = 50_000
_MOST_NAMES = 2_000
_NAMES_AT_ONCE = 100
_ROWS_AT_ONCE = 100
_RETRY = 1.0
_DENIED_FOR = 60.0
_LOOKS = 6
_BETWEEN_LOOKS = 0.2


class _Note(NamedTuple):
    """One grant, in seconds of this client's clock; ``ended_at`` is None while it lasts."""

    fence: int
    granted_at: float
    ended_at: float | None
    how: str
    kind: str
    tag: str
    who: str


def _weight(how: str) -> int:
    return 0 if how == "held" else 1 if how == "released" else 2


class History:
    """What one engine has still to write of the grants that it had.

    Attributes:
        armed: Whether the upkeep looks in again by itself; a caller that notes something while it is False rings.
        dropped: How many notes were given up.
    """

    def __init__(self, engine: Engine, setup: Setup) -> None:
        self._ref: ref[Engine] = ref(engine)
        self._setup: Setup = setup
        self.forget()

    def forget(self) -> None:
        """Begin anew: after a fork what is to be written is the parent's."""
        self.armed: bool = False
        self.dropped: int = 0
        self._fresh: deque[tuple[Primitive, _Note]] = deque(maxlen=_MOST_NOTES)
        self._pending: dict[str, dict[tuple[int, str], _Note]] = {}
        self._told: set[tuple[str, int, str]] = set()
        self._look_at: float = -inf
        self._told_of_denial: bool = False

    def note(self, engine: Engine, tenure: Tenure, how: str) -> None:
        """The present grant of a tenure ended. From any thread, and in any lock."""
        if tenure.degraded:
            return
        note = _note_of(tenure, engine.runtime.now(), how)
        self._fresh.append((tenure.primitive, note))
        if not self.armed and engine.upkeep_runs:
            self.armed = True
            engine.runtime.nudge()

    def sleep_until(self, engine: Engine, now: float) -> float:
        """When the upkeep must look in again; infinity if there is nothing to note."""
        # In this order: who notes something after this line rings, and what was noted before is seen.
        self.armed = False
        if not (self._fresh or self._pending or engine.schedule.busy()):
            return inf
        self.armed = True
        return max(now, self._look_at)

    def due(self, engine: Engine, now: float) -> list[Page]:
        """What to write now; the outcomes go to ``answered``."""
        if now < self._look_at:
            return []
        self._look_at = now + _EVERY
        self._take_lasting(engine, now)
        while self._fresh:
            primitive, note = self._fresh.popleft()
            if self._setup.make(primitive.kind, primitive.name) is not None:
                self._put(primitive.key, note)
        return self._pages(now)

    def answered(self, pages: Sequence[Page], outcomes: Sequence[Reply | Fault], now: float) -> None:
        """Take the outcomes of what ``due`` gave into account."""
        for page, outcome in zip(pages, outcomes, strict=True):
            if not isinstance(outcome, Fault):
                continue
            if outcome.kind is FaultKind.DENIED and not self._told_of_denial:
                self._told_of_denial = True
                log.warning(
                    "this user has no permission to write histories (%s): locks work, history() does not",
                    outcome.text,
                )
            if outcome.final or outcome.kind in (FaultKind.DENIED, FaultKind.WRONG_KEY, FaultKind.SCRIPT):
                self.dropped += len(page.notes)
                log.debug("%d entries of a history could not be written (%s)", len(page.notes), outcome.text)
                self._look_at = now + (_DENIED_FOR if outcome.kind is FaultKind.DENIED else _EVERY)
                continue
            self._look_at = max(self._look_at, now + _RETRY)
            for note in page.notes:
                self._put(page.key, note)

    def leave(self, engine: Engine) -> None:
        """Have all that is to be written written, because the client closes."""
        self._look_at = -inf
        while pages := self.due(engine, engine.runtime.now()):
            for page in pages:
                engine.post(page.call, _RETRY)
            self._look_at = -inf

    def _take_lasting(self, engine: Engine, now: float) -> None:
        lasting: set[tuple[str, int, str]] = set()
        for tenure in engine.schedule.all():
            # A hand-over changes the fence and the owner together: neither of two of them is half noted.
            number, note = tenure.used, _note_of(tenure, None, "held")
            if not tenure.live or tenure.who is None or tenure.degraded or tenure.used != number:
                continue
            spot = tenure.primitive.key, note.fence, note.tag
            if spot in self._told:
                lasting.add(spot)
            elif now - note.granted_at >= _EVERY:
                lasting.add(spot)
                self._fresh.append((tenure.primitive, note))
        self._told = lasting

    def _put(self, key: str, note: _Note) -> None:
        notes = self._pending.get(key)
        if notes is None:
            if len(self._pending) >= _MOST_NAMES:
                self.dropped += 1
                return
            notes = self._pending[key] = {}
        spot = note.fence, note.tag
        before = notes.get(spot)
        if before is None or _weight(before.how) < _weight(note.how):
            notes[spot] = note
        if len(notes) > self._setup.history:
            del notes[min(notes)]

    def _pages(self, now: float) -> list[Page]:
        pages: list[Page] = []
        for key in list(self._pending)[:_NAMES_AT_ONCE]:
            notes = sorted(self._pending.pop(key).values())
            for start in range(0, len(notes), _ROWS_AT_ONCE):
                rows = notes[start : start + _ROWS_AT_ONCE]
                lines = "".join(_line(row, now) for row in rows)
                call = self._setup.calls.remember(key, self._setup.history, LIFE_MS, lines)
                pages.append(Page(key, rows, call))
        return pages


class Page(NamedTuple):
    """Some notes of one name, and the call that writes them."""

    key: str
    notes: list[_Note]
    call: Call


def _note_of(tenure: Tenure, ended_at: float | None, how: str) -> _Note:
    public = tenure.token.partition("@")[2]
    label = label_of(tenure.who)
    who = f"{public.rpartition('/')[0]}/{label}" if label else public
    # Several holds of one owner have one fence. The digest distinguishes them, and shows nothing of the token.
    shared = not tenure.primitive.transferable
    tag = blake2b(tenure.token.encode(), digest_size=6).hexdigest() if shared else "-"
    return _Note(
        tenure.fence + tenure.used, tenure.granted_at, ended_at, how, tenure.primitive.kind, tag, who
    )


def _line(note: _Note, now: float) -> str:
    ended = "-" if note.ended_at is None else _age(note.ended_at, now)
    # A thread may have any name.
    who = note.who.replace("\n", " ")
    return f"{note.fence} {_age(note.granted_at, now)} {ended} {note.how} {note.kind} {note.tag} {who}\n"


def _age(at: float, now: float) -> int:
    return max(0, int((now - at) * 1000))


class NotingEngine(Engine):
    """An engine that keeps histories: it notes each end of a grant, wherever that comes about."""

    def __init__(self, runtime: Runtime, client: object, setup: Setup) -> None:
        super().__init__(runtime, client, setup)
        self._history: History = History(self, setup)
        self.history: History | None = self._history

    def forget_holder(self, tenure: Tenure, who: object) -> None:
        """See ``Engine``; its last user is done with it."""
        if who is not None and tenure.who is who:
            self._history.note(self, tenure, "released")
        super().forget_holder(tenure, who)

    def count_loss(self, tenure: Tenure) -> None:
        """See ``Engine``; and how it ended is noted."""
        super().count_loss(tenure)
        self._history.note(self, tenure, str(tenure.reason))

    def after_fork(self) -> None:
        """See ``Engine``."""
        super().after_fork()
        self._history.forget()


def make_engine(runtime: Runtime, client: object, setup: Setup | None) -> Engine:
    """The engine of a client: one that keeps histories only if it was asked for."""
    if setup is not None and setup.history:
        engine: Engine = NotingEngine(runtime, client, setup)
    else:
        engine = Engine(runtime, client, setup)
    enrol(engine)
    return engine


# Reading ------------------------------------------------------------------------------------------------------------


async def history(
    engine: Engine, primitive: Primitive, options: LockOptions, limit: int
) -> list[HistoryEntry]:
    """The newest entries of a name's history, the newest first."""
    check_count(limit, "limit", 1, MOST_KEPT)
    if (service := office_of(engine)) is not None:
        return await service.history(primitive, options, limit)
    setup = setup_of(engine, f"history of {primitive.name!r}")
    call = setup.calls.recall(primitive.key, limit)
    entries: list[HistoryEntry] = []
    for look in range(_LOOKS):
        if look:
            # A grant that is over, and whose end is not written: it may be on its way.
            await engine.runtime.pause(_BETWEEN_LOOKS)
        # In this order: what is held afterwards and was granted before, was held all the time.
        reply, _ = await query(engine, call, options, primitive.name, "history")
        entries = [_entry_of(primitive.name, text_of(line)) for line in reply[3]]
        if all(entry.how != "held" for entry in entries):
            break
        answer, _ = await query(engine, primitive.inspect(0), options, primitive.name, "history")
        info = read_info(primitive, answer)
        newest = max(entry.fence for entry in entries)
        entries = [
            entry if entry.fence == newest and _lasts(entry, info) else _inferred(entry) for entry in entries
        ]
        if all(entry.how != "expired" or entry.ended is not None for entry in entries):
            break
    return (await _forced(engine, options, entries))[::-1]


def _entry_of(name: str, line: str) -> HistoryEntry:
    fence, granted_ms, ended_ms, how, kind, _, who = line.split(" ", 6)
    ended = None if ended_ms == "-" else int(ended_ms) / 1000
    return HistoryEntry(
        name=name, kind=kind, who=who, fence=int(fence), granted=int(granted_ms) / 1000, ended=ended, how=how
    )


def _lasts(entry: HistoryEntry, info: LockInfo) -> bool:
    """Whether the newest grant is the one that the name has now; its fences are a block from ``info.fence`` on."""
    if not info.holder or info.foreign or info.fence is None or entry.fence < info.fence:
        return False
    holders = [holder.holder for holder in info.holders] or [info.holder]
    return entry.who.rpartition("/")[0] in {holder.rpartition("/")[0] for holder in holders}


def _inferred(entry: HistoryEntry) -> HistoryEntry:
    return replace(entry, how="expired") if entry.how == "held" else entry


async def _forced(engine: Engine, options: LockOptions, entries: list[HistoryEntry]) -> list[HistoryEntry]:
    """Say which losses were an operator's doing: the audit log has the fence that the name rose to."""
    if not any(entry.how in ("taken", "expired") for entry in entries):
        return entries
    name = entries[0].name
    for done in await audit(engine, options, 1000):
        if done.name != name or done.outcome != "released" or done.fence is None:
            continue
        index = max((i for i, entry in enumerate(entries) if entry.fence < done.fence), default=None)
        if index is not None and entries[index].how in ("taken", "expired"):
            ended = entries[index].ended
            entries[index] = replace(entries[index], how="forced", ended=done.at if ended is None else ended)
    return entries
