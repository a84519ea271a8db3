"""Readers and writers of several independent masters: what is sent to each of them."""

from __future__ import annotations

from pawlock.core.protocol.options import DAY_MS
from pawlock.core.protocol.outcomes import RELEASED
from pawlock.core.protocol.primitive import Primitive
from pawlock.core.protocol.quorum import QuorumCall, WatchCall, watch_call
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import load, pack_words
from pawlock.primitives.permits import EXCLUSIVE, NO_LIMIT, SHARED, Permits
from pawlock.primitives.redlock import PLAIN_RELEASE, quorum_call
from pawlock.primitives.replies import VOTE

__all__ = ["SCRIPTS", "QuorumRwlock"]

_SHARE = load("pawlock.primitives.redlock", "share", read=VOTE)
_NOTE = load("pawlock.primitives.redlock", "note", read=VOTE)

SCRIPTS = (_SHARE, _NOTE, *(load("pawlock.primitives.permits", name) for name in ("leave", "renew")))
"""What an acquisition may send."""


class QuorumRwlock(Permits):
    """One side of a read-write lock, on one node of several. Immutable; shared by all threads and tasks.

    On each node lies what a single server would have, so renewals (which carry a downgrade), releases and looks are the
    same scripts. Only a vote is another one: nobody queues. A waiting writer leaves an intent of 0.6 s instead, which
    keeps new readers out.

    Args:
        kind: ``"rwlock.read"`` or ``"rwlock.write"``.
        name: The name as the user gave it.
        key: Its key.
        mode: ``SHARED`` or ``EXCLUSIVE``.
        fence_ms: How long its fence is kept after the last use.
    """

    advice = "release the read lease first"

    __slots__ = ("_intent", "_name", "_name_fence", "_some_holds")

    def __init__(self, kind: str, name: str, key: str, mode: str, fence_ms: int = DAY_MS) -> None:
        super().__init__(kind, name, key, "rwlock", mode, NO_LIMIT, fence_ms=fence_ms)
        self._name = key
        self._name_fence = pack_words(self.key.encode(), f"{self.key}:fence".encode())
        self._intent = pack_words(f"{self.key}:intent".encode())
        self._some_holds = pack_words(f"{self.key}:holds".encode())

    def grant(
        self,
        token: str,
        ttl_ms: int,
        block: int,  # noqa: ARG002 - each holder has one fence
        hint: int,
        *,
        clock: bool,  # noqa: ARG002 - it is returned in any case
        wait: bool,
        again: bool = False,
    ) -> QuorumCall:
        """Ask a node for its vote; see ``share.lua``."""
        word = token.encode()
        how = b"2" if again else b"1" if wait else b"0"
        dead = pack_words(f"{self.key}:dead:{token}".encode())
        args = pack_words(word, self.mode.encode(), b"%d" % ttl_ms, b"%d" % hint, how, b"%d" % self.fence_ms)
        return quorum_call((_SHARE, b"".join((self._name_fence, self._intent, dead, self._some_holds, args))))

    def ratify(self, token: str, fence: int, block: int) -> Call:  # noqa: ARG002 - each holder has one fence
        """Write the fence of a grant back; see ``note.lua``."""
        args = pack_words(token.encode(), self.mode.encode(), b"%d" % fence, b"%d" % self.fence_ms)
        return Call(_NOTE, self._name_fence + self._some_holds + args)

    def watch(self) -> WatchCall:
        """Ask a node whether anybody holds, or keeps readers out, and to notify of changes."""
        permits = self.key.encode()
        return watch_call(permits) if self.mode == EXCLUSIVE else watch_call(permits, permits + b":intent")

    def acquire(
        self,
        token: str,
        ttl_ms: int,
        ticket_ms: int,  # noqa: ARG002 - nobody queues
        *,
        wait: bool,
        block: int,
        channel: str,  # noqa: ARG002
        max_waiters: int,  # noqa: ARG002
    ) -> Call:
        """The same as ``grant`` without a proposed fence."""
        return self.grant(token, ttl_ms, block, 0, clock=True, wait=wait)

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Give a node's vote back; see ``leave.lua`` of permits."""
        call: QuorumCall = quorum_call(super().leave(token, tomb_ms, close_ms))
        call.expected, call.plain = PLAIN_RELEASE, RELEASED
        return call

    def of(self, kind: str, mode: str, beside: str = "") -> QuorumRwlock:  # noqa: ARG002 - there is no upgrade
        """The same name in another mode."""
        return QuorumRwlock(kind, self.name, self._name, mode, self.fence_ms)

    def raised_by(self, held: Primitive, token: str) -> None:  # noqa: ARG002
        """Never: a reader that may upgrade would have to be known as that reader by a majority."""
        return

    def lowered(self) -> QuorumRwlock | None:
        """A reader, for a writer."""
        return self.of(self.kind, SHARED) if self.mode == EXCLUSIVE else None
