"""What a client has still to write of the history of names.

Only a client that was asked to keeps it. The scripts that grant and release know nothing of it, and neither does the
way of a client that keeps none: an engine that does is a class of its own. What ended is put into a list here; the
maintenance writes it, together with renewals, within a quarter of a second. A grant that lasts longer than that is
noted while it lasts, so that one that nobody lives to end is known, too: the reader infers that it expired.

Rules:

1. An entry is known by the name's key and its fence, which is never given twice; noting it twice changes nothing.
   The holds of an explicit owner share a fence, and are distinguished by a digest of their tokens.
2. Times travel as ages, so that the server's clock dates them all.
3. What cannot be written is tried again for as long as there is room, then dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.state.client import ClientState
from pawlock.core.state.session import label_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pawlock.core.protocol.carrier import Request
    from pawlock.core.protocol.outcomes import Outcome
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.state.records import ServerLease
    from pawlock.core.state.session import Setup

__all__ = ["LIFE_MS", "MOST_KEPT", "History", "Page"]

log: logging.Logger = logging.getLogger("pawlock.history")

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
        armed: Whether the maintenance looks in again by itself; a caller that notes something while it is False nudges
            it.
    """

    def __init__(self, engine: ClientState, setup: Setup) -> None:
        self._setup: Setup = setup
        self.forget(engine)

    def forget(self, engine: ClientState) -> None:
        """Begin anew: after a fork what is to be written is the parent's."""
        # The end of the client writes what is left, while the maintenance thread may be at it.
        self._turn: AbstractContextManager[object] = engine.runtime.mutex()
        self.armed: bool = False
        self._unwritten: deque[tuple[Primitive, _Note]] = deque(maxlen=_MOST_NOTES)
        self._pending: dict[str, dict[tuple[int, str], _Note]] = {}
        self._noted: set[tuple[str, int, str]] = set()
        self._look_at: float = -inf
        self._logged_denial: bool = False

    def note(self, engine: ClientState, server_lease: ServerLease, how: str) -> None:
        """The present grant of a server lease ended. From any thread, and in any lock."""
        if server_lease.degraded:
            return
        note = _note_of(server_lease, engine.runtime.now(), how)
        self._unwritten.append((server_lease.primitive, note))
        if not self.armed and engine.activity.maintenance_runs:
            self.armed = True
            engine.runtime.nudge()

    def sleep_until(self, engine: ClientState, now: float) -> float:
        """When the maintenance must look in again; infinity if there is nothing to note."""
        # In this order: what is noted after this line nudges the maintenance, and what was noted before is seen.
        self.armed = False
        if not (self._unwritten or self._pending or engine.leases.schedule.busy()):
            return inf
        self.armed = True
        return max(now, self._look_at)

    def due(self, engine: ClientState, now: float) -> list[Page]:
        """What to write now; each outcome goes to ``answered``."""
        with self._turn:
            if now < self._look_at:
                return []
            self._look_at = now + _EVERY
            self._take_lasting(engine, now)
            while self._unwritten:
                primitive, note = self._unwritten.popleft()
                if self._setup.make(primitive.kind, primitive.name) is not None:
                    self._put(primitive.key, note)
            return self._pages(now)

    def answered(self, engine: ClientState, page: Page, outcome: Outcome | Fault) -> None:
        """Take the outcome of a page that ``due`` gave into account."""
        if not isinstance(outcome, Fault):
            return
        now, denied = engine.runtime.now(), outcome.kind is FaultKind.DENIED
        if denied and not self._logged_denial:
            self._logged_denial = True
            text = "this user has no permission to write histories (%s): locks work, history() does not"
            log.warning(text, outcome.text)
        if outcome.final or denied or outcome.kind in (FaultKind.WRONG_KEY, FaultKind.SCRIPT):
            log.debug("%d entries of a history could not be written (%s)", len(page.notes), outcome.text)
            self._look_at = now + (_DENIED_FOR if denied else _EVERY)
            return
        self._look_at = max(self._look_at, now + _RETRY)
        with self._turn:
            for note in page.notes:
                self._put(page.key, note)

    def leave(self, engine: ClientState) -> None:
        """Have all that is to be written written, because the client closes."""
        self._look_at = -inf
        while pages := self.due(engine, engine.runtime.now()):
            for page in pages:
                engine.post(page.call, _RETRY)
            self._look_at = -inf

    def _take_lasting(self, engine: ClientState, now: float) -> None:
        lasting: set[tuple[str, int, str]] = set()
        for server_lease in engine.leases.schedule.all():
            # A hand-over changes the fence and the owner together: neither of two of them is half noted.
            number, note = server_lease.used, _note_of(server_lease, None, "held")
            if (
                not server_lease.live
                or server_lease.owner.who is None
                or server_lease.degraded
                or server_lease.used != number
            ):
                continue
            entry = server_lease.primitive.key, note.fence, note.tag
            if entry in self._noted:
                lasting.add(entry)
            elif now - note.granted_at >= _EVERY:
                lasting.add(entry)
                self._unwritten.append((server_lease.primitive, note))
        self._noted = lasting

    def _put(self, key: str, note: _Note) -> None:
        notes = self._pending.get(key)
        if notes is None:
            if len(self._pending) >= _MOST_NAMES:
                return
            notes = self._pending[key] = {}
        entry = note.fence, note.tag
        before = notes.get(entry)
        if before is None or _weight(before.how) < _weight(note.how):
            notes[entry] = note
        if len(notes) > self._setup.history:
            notes.pop(min(notes), None)

    def _pages(self, now: float) -> list[Page]:
        pages: list[Page] = []
        for key in list(self._pending)[:_NAMES_AT_ONCE]:
            found = self._pending.pop(key)
            notes = [found[entry] for entry in sorted(found)]
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
    call: Request


def _note_of(server_lease: ServerLease, ended_at: float | None, how: str) -> _Note:
    public = server_lease.token.partition("@")[2]
    label = label_of(server_lease.owner.who)
    who = f"{public.rpartition('/')[0]}/{label}" if label else public
    # Several holds of one owner have one fence. The digest distinguishes them, and shows nothing of the token.
    shared = not server_lease.primitive.transferable
    tag = blake2b(server_lease.token.encode(), digest_size=6).hexdigest() if shared else "-"
    return _Note(
        server_lease.fence + server_lease.used,
        server_lease.owner.granted_at,
        ended_at,
        how,
        server_lease.primitive.kind,
        tag,
        who,
    )


def _line(note: _Note, now: float) -> str:
    ended = "-" if note.ended_at is None else _age(note.ended_at, now)
    # A thread may have any name.
    who = note.who.replace("\n", " ")
    return f"{note.fence} {_age(note.granted_at, now)} {ended} {note.how} {note.kind} {note.tag} {who}\n"


def _age(at: float, now: float) -> int:
    return max(0, int((now - at) * 1000))
