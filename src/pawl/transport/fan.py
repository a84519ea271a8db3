"""The connections of one thread to several masters: one write to each, then whoever answers first.

No node is waited for once a question is decided; its answer is read with those of the next question. What is sent to
a node goes behind all that was sent before, so an undo cannot overtake what it undoes.
"""

from __future__ import annotations

import select
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pawl.core.faults import classify
from pawl.core.quorum import NOT_ASKED, Ballot, Question
from pawl.core.runtime import Call, Fault, FaultKind, Reply
from pawl.core.scripts import Script, pack_words
from pawl.topology.endpoint import Endpoint
from pawl.transport.link import Link
from pawl.transport.wire import NOTHING, PushNotification, ReplyError, rid_of

__all__ = ["Fan", "NodeLink"]

_CHUNK = 65536
_MOST_UNSENT = 1 << 20
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Asked:
    """A question under way."""

    __slots__ = ("ballot", "done", "missing")

    def __init__(self, ballot: Ballot | None) -> None:
        self.ballot: Ballot | None = ballot
        self.missing: int = 0
        self.done: bool = ballot is None

    def take(self, index: int, outcome: Reply | Fault) -> None:
        """Count an answer."""
        self.missing -= 1
        if self.ballot is None:
            return
        if self.done:
            self.ballot.late(index, outcome)
        elif self.ballot.add(index, outcome):
            self.done = True


class NodeLink(Link):
    """A link that never blocks once it is made: requests are posted, replies are read as they come."""

    def __init__(self, endpoint: Endpoint, channel: str, timeout: float, *, first: bool) -> None:
        super().__init__(endpoint, channel, timeout, first=first)
        self._pending: deque[tuple[int, Call, _Asked, float]] = deque()
        self._unsent = b""
        self.heard_at: float = 0.0

    def teach(self, scripts: Sequence[Script]) -> None:
        """Load scripts: nobody may be there to read that a node which answered late did not know one.

        Raises ``OSError`` if the connection breaks; a node that refuses is taught when a script is first needed.
        """
        for script in scripts:
            self._sock.sendall(b"*3\r\n" + pack_words(b"SCRIPT", b"LOAD", script.source))
        for _ in scripts:
            self._next_reply()

    def stop_blocking(self) -> None:
        """From here on the socket returns at once."""
        self._sock.settimeout(0)

    def fileno(self) -> int:
        """The socket's number, for a poll."""
        return self._sock.fileno()

    @property
    def congested(self) -> bool:
        """Whether the socket took less than was posted."""
        return bool(self._unsent)

    @property
    def oldest(self) -> float | None:
        """When the oldest request without an answer was sent."""
        return self._pending[0][3] if self._pending else None

    def post(self, calls: Sequence[tuple[Call, _Asked]], now: float) -> None:
        """Send in one write; raises ``OSError`` if the connection is broken or the node takes nothing any more."""
        first = self._rid + 1
        self._rid += len(calls)
        data = b"".join([call.pack(first + i) for i, (call, _) in enumerate(calls)])
        self._pending.extend((first + i, call, asked, now) for i, (call, asked) in enumerate(calls))
        self.push(data)

    def post_same(self, call: Call, asked: _Asked, rid: int, data: bytes, now: float) -> None:
        """Send what was packed once for all nodes, under a number that is above all before; otherwise as ``post``."""
        self._rid = rid
        self._pending.append((rid, call, asked, now))
        if self._unsent:
            self.push(data)
        elif (sent := self._write(data)) < len(data):
            self.push(data[sent:])

    def _write(self, data: bytes) -> int:
        try:
            return self._sock.send(data)
        except _WOULD_BLOCK:
            return 0

    @property
    def rid(self) -> int:
        """The number of the last request."""
        return self._rid

    def push(self, data: bytes = b"") -> None:
        """Write what the socket takes now."""
        data = self._unsent + data if self._unsent else data
        sent = self._write(data)
        self._unsent = data[sent:] if sent < len(data) else b""
        if len(self._unsent) > _MOST_UNSENT:
            raise OSError("it takes no more requests")

    def pull(self, index: int, now: float) -> None:
        """Read what came and count it; raises ``OSError`` if the connection is broken."""
        while True:
            try:
                chunk = self._sock.recv(_CHUNK)
            except _WOULD_BLOCK:
                return
            if not chunk:
                raise ConnectionResetError("the node closed the connection")
            self.heard_at = now
            self._reader.feed(chunk)
            while (reply := self._reader.gets()) is not NOTHING:
                if type(reply) is not PushNotification:
                    self._deal(index, reply, now)
            if len(chunk) < _CHUNK and not isinstance(self._sock, ssl.SSLSocket):
                return

    def _deal(self, index: int, reply: Any, now: float) -> None:
        pending = self._pending
        if isinstance(reply, ReplyError):
            # An error names no request: it belongs to the oldest.
            if not pending:
                return
            _, call, asked, _ = pending.popleft()
            text = str(reply)
            if text.startswith("NOSCRIPT") and not pending:
                # Only while nothing was sent behind it: that may be its undo, which must not go ahead.
                self._rid += 1
                pending.append((self._rid, call, asked, now))
                self.push(call.pack_eval(self._rid))
            else:
                asked.take(index, classify(text))
            return
        rid = rid_of(reply)
        while rid is not None and pending and pending[0][0] <= rid:
            number, _, asked, _ = pending.popleft()
            lost = Fault(FaultKind.UNANSWERED, "the reply was lost", maybe_applied=True)
            asked.take(index, reply if number == rid else lost)

    def unanswered(self, among: Mapping[int, _Asked]) -> list[_Asked]:
        """Which of these questions this node has still to answer."""
        return [asked for _, _, asked, _ in self._pending if id(asked) in among]

    def fail(self, index: int, fault: Fault) -> None:
        """Close, and count what is under way as not answered."""
        self.close()
        pending, self._pending = self._pending, deque()
        for _, _, asked, _ in pending:
            asked.take(index, fault)


class Fan:
    """One thread's links to all nodes.

    Args:
        nodes: How many nodes.
        link_of: Makes or refuses the link of a node: called before each question to a node without one.
        lost: Told when a node's link broke.
        clock: The present.
    """

    def __init__(
        self,
        nodes: int,
        link_of: Callable[[int], NodeLink | Fault],
        lost: Callable[[int, Fault], object],
        clock: Callable[[], float],
    ) -> None:
        self.lock: threading.Lock = threading.Lock()
        self._links: list[NodeLink | None] = [None] * nodes
        self._link_of = link_of
        self._lost = lost
        self._now = clock
        self._poll = select.poll()
        self._by_fileno: dict[int, int] = {}

    def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``QuorumRuntime.ask``."""
        now = self._now()
        if len(questions) == 1:
            self._ask_one(*questions[0], now, timeout)
            return
        asked = [_Asked(ballot) for _, ballot in questions]
        for index in range(len(self._links)):
            wanted = [(calls[index], question) for (calls, _), question in zip(questions, asked, strict=True)]
            self._post(index, wanted, now, timeout)
        end = now + timeout
        while any(not question.done and question.missing for question in asked):
            left = end - self._now()
            if left <= 0:
                break
            self._look(left)
        self._give_up(asked, timeout)

    def _ask_one(self, calls: Sequence[Call | None], ballot: Ballot, now: float, timeout: float) -> None:
        """One question, whose calls are mostly one and the same: it is packed once."""
        question = _Asked(ballot)
        question.missing = len(calls)
        links = [self._usable(index, now, timeout) for index in range(len(calls))]
        rid = 1 + max((link.rid for link in links if not isinstance(link, Fault)), default=0)
        packed: Call | None = None
        data = b""
        for index, (call, link) in enumerate(zip(calls, links, strict=True)):
            if call is None:
                question.take(index, NOT_ASKED)
            elif isinstance(link, Fault):
                question.take(index, link)
            else:
                if call is not packed:
                    packed, data = call, call.pack(rid)
                try:
                    link.post_same(call, question, rid, data, now)
                except OSError as error:
                    self._drop(index, f"the connection broke: {error}")
                    continue
                if link.congested:
                    self._poll.modify(link.fileno(), select.POLLIN | select.POLLOUT)
        end = now + timeout
        while not question.done and question.missing and (left := end - self._now()) > 0:
            self._look(left)
        if not question.done and question.missing:
            self._give_up([question], timeout)

    def send(self, calls: Sequence[Call | None]) -> None:
        """See ``QuorumRuntime.send``: only where a link lives."""
        now = self._now()
        for index, call in enumerate(calls):
            link = self._links[index]
            if call is not None and link is not None and not link.dead:
                question = _Asked(None)
                question.missing = 1
                try:
                    link.post([(call, question)], now)
                except OSError as error:
                    self._drop(index, f"the connection broke: {error}")

    def close(self) -> None:
        """Close every link."""
        for link in self._links:
            if link is not None:
                link.close()

    def _post(self, index: int, calls: list[tuple[Call | None, _Asked]], now: float, timeout: float) -> None:
        link = self._usable(index, now, timeout)
        wanted: list[tuple[Call, _Asked]] = []
        for call, question in calls:
            question.missing += 1
            if call is None:
                question.take(index, NOT_ASKED)
            elif isinstance(link, Fault):
                question.take(index, link)
            else:
                wanted.append((call, question))
        if wanted and not isinstance(link, Fault):
            try:
                link.post(wanted, now)
            except OSError as error:
                self._drop(index, f"the connection broke: {error}")
            else:
                if link.congested:
                    self._poll.modify(link.fileno(), select.POLLIN | select.POLLOUT)

    def _usable(self, index: int, now: float, timeout: float) -> NodeLink | Fault:
        link = self._links[index]
        if link is not None and not link.dead:
            oldest = link.oldest
            if oldest is None or now - oldest <= timeout or link.heard_at >= oldest:
                return link
            # Its answer may lie in the socket, unread because nobody waited for it.
            self._read(index, link)
            oldest = link.oldest
            if self._links[index] is link and (
                oldest is None or now - oldest <= timeout or link.heard_at >= oldest
            ):
                return link
            self._drop(index, f"no answer within {timeout:.3g} s")
        made = self._link_of(index)
        if isinstance(made, Fault):
            return made
        self._links[index] = made
        self._by_fileno[made.fileno()] = index
        self._poll.register(made.fileno(), select.POLLIN)
        return made

    def _look(self, seconds: float) -> None:
        for fileno, events in self._poll.poll(int(seconds * 1000) + 1):
            index = self._by_fileno.get(fileno)
            link = self._links[index] if index is not None else None
            if index is None or link is None or link.dead:
                self._unregister(fileno)
                continue
            if events & select.POLLOUT:
                self._flush(index, link)
            if events & ~select.POLLOUT and not link.dead:
                self._read(index, link)

    def _flush(self, index: int, link: NodeLink) -> None:
        try:
            link.push()
        except OSError as error:
            self._drop(index, f"the connection broke: {error}")
            return
        if not link.congested:
            self._poll.modify(link.fileno(), select.POLLIN)

    def _read(self, index: int, link: NodeLink) -> None:
        try:
            link.pull(index, self._now())
        except OSError as error:
            self._drop(index, f"the connection broke: {error}")
        except Exception as error:  # noqa: BLE001 - whatever broke, every question must learn of it
            self._drop(index, f"the stream of replies broke: {error}")

    def _drop(self, index: int, text: str) -> None:
        link = self._links[index]
        self._links[index] = None
        if link is not None:
            self._unregister(link.fileno())
            fault = Fault(FaultKind.UNANSWERED, text, maybe_applied=True)
            link.fail(index, fault)
            self._lost(index, fault)

    def _unregister(self, fileno: int) -> None:
        if self._by_fileno.pop(fileno, None) is not None:
            self._poll.unregister(fileno)

    def _give_up(self, asked: Sequence[_Asked], timeout: float) -> None:
        """What nobody answered in time counts as a fault; the answers, if they come, as late."""
        late = Fault(FaultKind.UNANSWERED, f"no answer within {timeout:.3g} s", maybe_applied=True)
        waiting = {id(question): question for question in asked if not question.done and question.missing}
        if not waiting:
            return
        for index, link in enumerate(self._links):
            if link is None:
                continue
            for question in link.unanswered(waiting):
                if question.ballot is not None and not question.done:
                    question.done = question.ballot.add(index, late)
        for question in waiting.values():
            question.done = True
