"""What a master tells of a key between its answers, byte by byte, and when it is due to ask."""

from __future__ import annotations

from collections import deque
from itertools import product
from typing import Any

from pawlock.core.protocol.outcomes import AS_ASKED, Busy, Present
from pawlock.core.protocol.quorum import WatchCall, watch_call
from pawlock.core.protocol.runtime import FIRST_RID, Fault, FaultKind
from pawlock.core.quorum.hints import Hints
from pawlock.primitives.redlock import QuorumMutex
from pawlock.transport.node import NodeLink, Question
from pawlock.transport.wire import new_reader, pack


class _Socket:
    """Gives what a test put in, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def recv(self, _: int) -> bytes:
        if not self.pieces:
            raise BlockingIOError
        return self.pieces.pop(0)


class _Votes:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def add(self, index: int, outcome: Any) -> bool:
        self.seen.append((index, outcome))
        return False

    late = add

    def patience(self) -> float:
        return 0.0

    def reply(self) -> Any:
        return []


def link_over(sock: _Socket) -> NodeLink:
    """A link of the only node that reads from there."""
    link = NodeLink.__new__(NodeLink)
    link.__dict__.update(
        index=0, dead=False, tracks=None, native=None, slowest=0.0, heard_at=0.0, unsent=b"",
        _reader=new_reader(), _half=None, _whole=True, _secure=False, _watchers={}, _read=sock.recv,
        numbers=iter(range(FIRST_RID + 1, FIRST_RID + 100)),
    )  # fmt: skip
    link.pending = deque()
    return link


PUSH = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$9\r\npawlock:n\r\n"
EVERYTHING = b">2\r\n$10\r\ninvalidate\r\n_\r\n"


def test_a_hint_between_answers_is_taken_for_none_of_them() -> None:
    for push, cut in product((PUSH, EVERYTHING), range(1, 70, 7)):
        _take_apart(push, cut)


def _take_apart(push: bytes, cut: int) -> None:
    sock = _Socket()
    link = link_over(sock)
    hints, votes = Hints([None]), _Votes()
    call = watch_call(b"pawlock:n")
    link.watch(call, hints, 0.0)
    link.pending.clear()
    grant = QuorumMutex("lock", "n", "pawlock:n").grant("t@h", 1000, 1, 0, clock=False, wait=True)
    expected: list[bytes] = []
    for rid in (FIRST_RID + 1, FIRST_RID + 2):
        yes = b"*2\r\n$1\r\nH\r\n$10\r\n%d\r\n" % rid
        question = Question(votes, 1, 0.0, 1.0)  # type: ignore[arg-type]
        question.plain = AS_ASKED
        link.pending.append((rid, grant, question, False, yes))
        expected.append(yes)
    stream = expected[0] + push + expected[1]
    sock.pieces = [stream[:cut], stream[cut:]]
    while sock.pieces:
        link.pull(0.0)
    assert [index for index, _ in votes.seen] == [0, 0]
    assert all(outcome is AS_ASKED for _, outcome in votes.seen)
    assert not link.pending
    assert hints.due
    assert link._whole


def test_what_a_watch_sends_and_what_refuses_it() -> None:
    link = link_over(_Socket())
    call = watch_call(b"a", b"bc")
    assert isinstance(call, WatchCall)
    assert call.pack(7) == pack(b"CLIENT", b"CACHING", b"YES") + pack(b"EXISTS", b"a", b"bc")
    hints = Hints([None])
    first = link.watch(call, hints, 0.0)
    assert first.startswith(pack(b"CLIENT", b"TRACKING", b"ON", b"OPTIN", b"NOLOOP"))
    assert link.watch(call, hints, 0.0) == b""
    link.unwatch(call.keys, hints)
    link.unwatch(call.keys, hints)
    assert not link._watchers


def test_a_majority_must_say_so() -> None:
    rung: list[bool] = []
    hints = Hints([None] * 5)
    hints.on_due(lambda: rung.append(True))
    hints.add(0, Present(0))
    hints.add(1, Present(1))
    hints.hint(0)
    hints.hint(2)
    assert (hints.due, len(rung)) == (False, 0)
    hints.hint(1)
    assert (hints.due, len(rung)) == (True, 1)


def test_a_master_without_a_vote_does_not_count() -> None:
    """One that is barred after a restart says all the time that the name is free."""
    barred, slow = (
        Fault(FaultKind.UNREACHABLE, "restarted"),
        Fault(FaultKind.UNANSWERED, "late", maybe_applied=True),
    )
    hints = Hints([barred, slow, Busy(5, foreign=False, holder="x")])
    hints.hint(0)
    hints.hint(2)
    assert not hints.due
    hints.hint(1)
    assert hints.due
