"""The connection of a thread or loop to one of several masters, and the questions that are under way on it.

A question goes to all masters at once, under one number and, mostly, in the same bytes. Nobody waits for a master
once the question is decided; its answer is read with those of the next question. What is sent to a master goes behind
all that was sent before, so an undo cannot overtake what it undoes.
"""

from __future__ import annotations

import errno
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import inf
from time import monotonic
from typing import Any

from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.quorum import Ballot
from pawlock.core.protocol.runtime import FIRST_RID, Call, Fault, FaultKind
from pawlock.core.protocol.scripts import Script, pack_words
from pawlock.core.quorum.nodes import Incarnation
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.connect import is_own
from pawlock.transport.link import WOULD_BLOCK, Link
from pawlock.transport.wire import NOTHING, ProtocolError, PushNotification, ReplyError, rid_of

__all__ = ["WOULD_BLOCK", "NodeLink", "Question", "meet"]

_CHUNK = 4096
_PATIENCE = 0.25
"""A link that is silent for so long is given up. Not sooner: what was sent on it may still be carried out."""
_MOST_UNSENT = 1 << 20
_ECHO = b"*2\r\n$4\r\nECHO\r\n$10\r\n%d\r\n"
_UNKNOWN = Incarnation("", -inf)


class Question:
    """A question under way: counts the answers.

    Attributes:
        ballot: Who counts them; None: nobody wants to know.
        missing: How many nodes have not answered.
        decided: True once nobody needs to wait any more.
        sent_at: When it was sent.
        deadline: When who has not answered counts as failed.
    """

    __slots__ = ("ballot", "deadline", "decided", "missing", "sent_at")

    def __init__(self, ballot: Ballot | None, missing: int, sent_at: float, timeout: float) -> None:
        self.ballot: Ballot | None = ballot
        self.missing: int = missing
        self.decided: bool = ballot is None
        self.sent_at: float = sent_at
        self.deadline: float = sent_at + timeout

    def take(self, index: int, outcome: Outcome | Fault) -> None:
        """Count an answer."""
        self.missing -= 1
        ballot = self.ballot
        if ballot is None:
            return
        if self.decided:
            ballot.late(index, outcome)
        elif ballot.add(index, outcome) or not self.missing:
            self.decided = True
            self.on_decided()

    def listen_on(self) -> bool:
        """Whether it has more time, now that what it was given is up."""
        if self.ballot is None or (end := self.sent_at + self.ballot.patience()) <= self.deadline:
            return False
        self.deadline = end
        return True

    def on_decided(self) -> None:
        """It was decided just now."""


Pending = tuple[int, Call, Question, bool]
"""A request under way: number, call, question, and whether it loads the call's script."""


class NodeLink(Link):
    """A link that never blocks once it is made: requests are posted, replies are read as they come.

    Attributes:
        index: Which node it leads to.
        numbers: Where numbers of requests come from, each above all before; the links of a caller share them.
        unsent: What the socket did not take yet.
        heard_at: When anything came last.
        incarnation: Which incarnation of the node it leads to.
        slowest: The longest that an answer took, in seconds, since that was last asked for.
    """

    def __init__(self, endpoint: Endpoint, channel: str, timeout: float, *, first: bool, index: int) -> None:
        super().__init__(endpoint, channel, timeout, first=first)
        self.index: int = index
        self.pending: deque[Pending] = deque()
        self.unsent: bytes = b""
        self.heard_at: float = 0.0
        self.numbers: Iterator[int] = count(FIRST_RID + 1)
        self.incarnation: Incarnation = _UNKNOWN
        self.slowest: float = 0.0
        self._half: Any = None
        # Bound once: these are the steps of every request.
        self.write: Callable[[bytes], int] = self._sock.send
        self._read = self._sock.recv
        self._secure = isinstance(self._sock, ssl.SSLSocket)

    def learn(self, scripts: Sequence[Script], end: float) -> None:
        """Load scripts. Raises ``OSError`` if the connection breaks.

        Nobody may be there to read that a node which answered late did not know a script; one that refuses to load is
        taught when the script is first needed.

        Args:
            scripts: What the node is to know.
            end: When the answers must be here, on the monotonic clock.
        """
        for script in scripts:
            self.put(b"*3\r\n" + pack_words(b"SCRIPT", b"LOAD", script.source), end)
        for _ in scripts:
            self.next_reply(end)

    def stop_blocking(self) -> None:
        """From here on the socket returns at once."""
        self._sock.settimeout(0)

    def fileno(self) -> int:
        """The socket's number, for a poll."""
        return self._sock.fileno()

    def silent_since(self, now: float) -> bool:
        """Whether a request is overdue and nothing at all has come since it was sent."""
        question = self.pending[0][2]
        overdue = now > question.deadline and now > question.sent_at + _PATIENCE
        return overdue and self.heard_at < question.sent_at

    # Sending ----------------------------------------------------------------------------------------------------

    def push(self, data: bytes = b"") -> None:
        """Write what the socket takes now; raises ``OSError`` if the node takes nothing any more."""
        if self.unsent:
            data = self.unsent + data
        try:
            sent = self.write(data)
        except WOULD_BLOCK:
            sent = 0
        self.unsent = data[sent:] if sent < len(data) else b""
        if len(self.unsent) > _MOST_UNSENT:
            raise OSError(errno.ENOBUFS, "the node accepts no more requests")

    # Receiving --------------------------------------------------------------------------------------------------

    def pull(self, now: float) -> None:
        """Read what came and count it; raises ``OSError`` if the connection is broken."""
        while True:
            try:
                chunk = self._read(_CHUNK)
            except WOULD_BLOCK:
                return
            self.heard_at = now
            if self.pending:
                question = self.pending[0][2]
                if not question.decided and (took := now - question.sent_at) > self.slowest:
                    self.slowest = took
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "the node closed the connection")
            self._parse(chunk)
            if len(chunk) < _CHUNK and not self._secure:
                return

    def _parse(self, chunk: bytes) -> None:
        self._reader.feed(chunk)
        while (reply := self._reader.gets()) is not NOTHING:
            if type(reply) is not PushNotification:
                self._deal(reply)

    def _deal(self, reply: Any) -> None:
        pending = self.pending
        if pending and pending[0][3]:
            self._taught(reply)
            return
        if isinstance(reply, ReplyError):
            # An error names no request: it belongs to the oldest, unless a reply before it was lost.
            if pending:
                self._refused(str(reply))
            return
        rid = rid_of(reply)
        while rid is not None and pending and pending[0][0] <= rid:
            number, call, question, _ = pending.popleft()
            lost = Fault(FaultKind.UNANSWERED, "the reply was lost", maybe_applied=True)
            question.take(self.index, call.answer(reply) if number == rid else lost)

    def _refused(self, text: str) -> None:
        _, call, question, _ = self.pending.popleft()
        gives_back = call.script.name == "leave"
        if text.startswith("NOSCRIPT") and (gives_back or not self.pending):
            # A vote only while nothing was sent behind it: that may be its undo, which must not go ahead.
            self._resend(call, question)
        elif text.startswith("NOSCRIPT"):
            # For the next vote; this one is not given.
            self._teach(call, question)
            question.take(self.index, Fault(FaultKind.NOT_READY, "the script was not loaded"))
        else:
            fault = classify(text)
            # With others under way it is not quite sure whose it is: so the vote is taken back.
            fault.maybe_applied = bool(self.pending)
            question.take(self.index, fault)

    def _taught(self, reply: Any) -> None:
        """A script was loaded, or not: two answers, that of the command and the number that was sent behind it."""
        if self._half is None:
            self._half = reply
            return
        self._half = None
        if reply != b"%d" % self.pending.popleft()[0]:
            raise OSError(errno.EPROTO, "a reply was lost")

    def _teach(self, call: Call, question: Question) -> None:
        """Load a script; its answer has no number, so one is sent behind it."""
        rid = next(self.numbers)
        nobody = Question(None, 1, question.sent_at, question.deadline - question.sent_at)
        self.pending.append((rid, call, nobody, True))
        load = b"*3\r\n" + pack_words(b"SCRIPT", b"LOAD", call.script.source)
        self.push(load + _ECHO % rid)

    def _resend(self, call: Call, question: Question) -> None:
        rid = next(self.numbers)
        self.pending.append((rid, call, question, False))
        self.push(call.pack_eval(rid))

    def read_late_replies(self, now: float) -> bool:
        """Read what came, where no group does; True if more may come. A link that breaks is closed."""
        if self.pending and not self.dead and not self.silent_since(now):
            try:
                self.pull(now)
            except (OSError, ProtocolError) as error:
                self.fail(Fault(FaultKind.UNANSWERED, f"the connection broke: {error}", maybe_applied=True))
            else:
                return bool(self.pending)
        return False

    def drain_replies(self, end: float, clock: Callable[[], float]) -> None:
        """Wait until ``end`` for outstanding replies, where no group does; raises ``OSError`` if it breaks."""
        while not self.dead and self.pending and not self.silent_since(now := clock()) and now < end:
            self._readable(end - now)
            self.pull(clock())

    def unanswered(self, question: Question) -> bool:
        """Whether this node has still to answer a question."""
        return any(entry[2] is question for entry in self.pending)

    def fail(self, fault: Fault) -> None:
        """Close, and count what is under way as not answered."""
        self.close()
        pending, self.pending = self.pending, deque()
        for entry in pending:
            entry[2].take(self.index, fault)


def meet(
    endpoint: Endpoint, index: int, probe: Call, scripts: Sequence[Script], timeout: float, *, first: bool
) -> tuple[NodeLink, str]:
    """Connect to a node and hear what it says of itself; blocks.

    Args:
        endpoint: Where it is.
        index: Which of the nodes.
        probe: What to ask.
        scripts: What the node is to know.
        timeout: Seconds for the connect and for each answer.
        first: True if this client was never connected to it before.

    Raises:
        Fault: It could not be done.
    """
    link = NodeLink(endpoint, "", timeout, first=first, index=index)
    try:
        info: str = link.ask(probe, timeout).info
        asked_at = monotonic()
        link.learn(scripts, asked_at + timeout)
        link.slowest = monotonic() - asked_at
        link.stop_blocking()
    except BaseException as error:
        link.close()
        if isinstance(error, Fault) or not is_own(error):
            raise
        raise Fault(FaultKind.UNREACHABLE, f"the connection broke: {error}") from error
    return link, info
