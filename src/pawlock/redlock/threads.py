"""The runtime of threads for several independent masters.

A caller takes a fan, which is a connection to each node, for one request and gives it back: nobody waits for anything
on a connection but its answers, so they belong to no thread. An answer that nobody waited for is read by who has the
fan next. Nodes are met in threads of their own, so that one that hangs costs nobody anything.
"""

from __future__ import annotations

import contextlib
import errno
import select
import ssl
import threading
import time
from collections.abc import Callable, Sequence

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import Call, Fault, FaultKind
from pawlock.redlock.link import (
    GRACE,
    HANDSHAKE_TIMEOUT,
    NOT_CONNECTED,
    MastersRuntime,
    Question,
)
from pawlock.redlock.nodes import Incarnation, KnownNodes
from pawlock.redlock.options import RedlockOptions
from pawlock.redlock.votes import majority
from pawlock.runtimes.shared import start_thread
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.conn import Conn, Request
from pawlock.transport.connect import is_own
from pawlock.transport.link import WOULD_BLOCK, Link

__all__ = ["RedlockThreads"]

_CHUNK = 65536
_PATIENCE = 0.25
"""Seconds after which a connection is given up whose oldest request is overdue. Not sooner: what was sent on it may
still be carried out."""

_STEP = 0.002
_DRAIN_WITHIN = 1.0
"""Seconds for which the end of a client waits for answers that are under way."""


class _Asked(Request):
    question: Question


class _NodeLink(Link):
    """A connection to one node: requests are posted, and their answers read as they come."""

    def __init__(self, endpoint: Endpoint, timeout: float, *, first: bool) -> None:
        super().__init__(endpoint, "", timeout, first=first)
        self.conn: Conn[_Asked] = Conn(_Asked)
        self.incarnation: Incarnation | None = None
        self.heard_at: float = 0.0
        self._secure = isinstance(self._sock, ssl.SSLSocket)

    def fileno(self) -> int:
        """The socket's number, for a poll."""
        return self._sock.fileno()

    def post(self, questions: Sequence[Question]) -> list[_Asked]:
        """Send in one write; raises ``OSError``. Nothing is answered by that."""
        data: list[bytes] = []
        for question in questions:
            request, packed = self.conn.send(question.call)
            request.question = question
            data.append(packed)
        self._write(b"".join(data))
        return []

    def _write(self, data: bytes) -> None:
        if self._secure:
            self.put(data, time.monotonic() + HANDSHAKE_TIMEOUT)
        else:
            self._send(data)

    def pull(self, now: float) -> list[_Asked]:
        """Read what came; raises ``OSError`` if the connection is broken."""
        answered: list[_Asked] = []
        while True:
            try:
                chunk = self._sock.recv(_CHUNK)
            except WOULD_BLOCK:
                return answered
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "the node closed the connection")
            self.heard_at = now
            answered += self.conn.feed(chunk)
            if self.conn.resend:
                self._write(b"".join(self.conn.resend))
                self.conn.resend.clear()
            if not self._secure:
                return answered

    def overdue(self, now: float) -> bool:
        """Whether the oldest request should have been answered long ago."""
        pending = self.conn.pending
        return bool(pending) and now > pending[0].question.sent_at + max(
            _PATIENCE, pending[0].question.patience
        )


class _Fan:
    """A connection to each node, for one caller at a time.

    Args:
        nodes: How many.
        lost: Called with the node's number and why, when a connection broke.
        take: Called with each answer.
    """

    def __init__(
        self,
        nodes: int,
        lost: Callable[[int, Fault, _NodeLink], object],
        take: Callable[[int, Question, Outcome | Fault], object],
    ) -> None:
        self.links: list[_NodeLink | None] = [None] * nodes
        self._lost = lost
        self._take = take
        self._poll = select.poll()
        self._by_fileno: dict[int, int] = {}

    def put(self, index: int, link: _NodeLink) -> None:
        """Take a connection over."""
        self.links[index] = link
        self._by_fileno[link.fileno()] = index
        self._poll.register(link.fileno(), select.POLLIN)

    def ask(
        self, questions: Sequence[Question], refused: Sequence[Fault | None], now: Callable[[], float]
    ) -> None:
        """Send all of them to each node that is not refused, and wait until they are decided."""
        began = now()
        for question in questions:
            question.begin(began)
        for index, fault in enumerate(refused):
            link = self.links[index]
            if fault is None and link is not None:
                self._step(index, lambda link: link.post(questions))
            else:
                for question in questions:
                    self._take(index, question, fault or NOT_CONNECTED)
        left: list[Question] = [question for question in questions if not question.decided]
        while left:
            self.read(min(question.until for question in left) - now(), now)
            at = now()
            left = [question for question in left if not question.overdue(at)]

    def read(self, seconds: float, now: Callable[[], float]) -> None:
        """Sleep until anything comes, and count all that did."""
        for fileno, _ in self._poll.poll(int(seconds * 1000) + 1 if seconds > 0 else 0):
            if fileno in self._by_fileno:
                self._step(self._by_fileno[fileno], lambda link: link.pull(now()))

    def read_late(self, now: Callable[[], float]) -> None:
        """Count what nobody waited for, and give up what should have come by now."""
        if any(link is not None and link.conn.pending for link in self.links):
            self.read(0.0, now)
        for index, link in enumerate(self.links):
            if link is not None and (link.dead or link.overdue(now())):
                self.drop(index, Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True))

    @property
    def pending(self) -> bool:
        """Whether anything is under way."""
        return any(link is not None and link.conn.pending for link in self.links)

    def drop(self, index: int, fault: Fault) -> None:
        """Close a connection; what is under way on it is not answered."""
        link, self.links[index] = self.links[index], None
        if link is None:
            return
        with contextlib.suppress(OSError, KeyError, ValueError):
            fileno = link.fileno()
            self._by_fileno.pop(fileno, None)
            self._poll.unregister(fileno)
        link.close()
        self._lost(index, fault, link)
        self._count(index, link.conn.fail(fault))

    def close(self) -> None:
        """Close all of them."""
        for index in range(len(self.links)):
            self.drop(index, Fault(FaultKind.UNANSWERED, "interrupted", maybe_applied=True))

    def _step(self, index: int, step: Callable[[_NodeLink], Sequence[_Asked]]) -> None:
        """Do a step on a connection, which ends with it if that fails; count what is answered by it."""
        link = self.links[index]
        if link is None:
            return
        try:
            answered = step(link)
        except Exception as error:
            if not is_own(error):
                raise
            text = f"the connection broke: {error}"
            self.drop(index, Fault(FaultKind.UNANSWERED, text, maybe_applied=True))
        else:
            self._count(index, answered)
            if link.conn.over is not None:
                self.drop(index, link.conn.over)

    def _count(self, index: int, answered: Sequence[_Asked]) -> None:
        for request in answered:
            self._take(index, request.question, request.outcome)


class RedlockThreads(MastersRuntime, ThreadRuntime):
    """See ``pawlock.core.protocol.runtime.Runtime``.

    Args:
        endpoints: Where the nodes are.
        wake_prefix: What the channels of this client would begin with.
        options: How the nodes are treated.
        known: What is known of them.
        probe: What asks a node for its incarnation.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        wake_prefix: str,
        options: RedlockOptions,
        known: KnownNodes,
        probe: Call,
    ) -> None:
        ThreadRuntime.__init__(self, lambda: endpoints[0], wake_prefix)
        self._treat(options, known, probe)
        self._endpoints = endpoints
        self._free: list[_Fan] = []
        # Connections that were made and are in no fan.
        self._spare: list[list[_NodeLink]] = [[] for _ in endpoints]

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``MastersRuntime``."""
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        try:
            fan = self._free.pop()
        except IndexError:
            fan = _Fan(len(self.nodes), self._link_lost, self._take)
        try:
            fan.read_late(self.now)
            fan.ask(questions, self._connected(fan, timeout), self.now)
        except BaseException:
            # Interrupted in the middle of a read or write: the connections are not to be trusted.
            fan.close()
            raise
        self._free.append(fan)

    # Nodes ------------------------------------------------------------------------------------------------------

    def _connected(self, fan: _Fan, timeout: float) -> list[Fault | None]:
        """Have a fan lead to a majority at least, if it can be; for each node, why it is not asked."""
        count = len(self.nodes)
        end, mine, waits = self.now() + timeout, set[int](), False
        while True:
            self._take_spares(fan)
            missing = [index for index, link in enumerate(fan.links) if link is None]
            enough = count - len(missing) >= majority(count)
            if enough:
                # Those beyond the majority are met meanwhile, and waited for only where somebody waits anyway.
                end = min(end, self.now() + GRACE) if waits else 0.0
            mine.update(index for index in missing if index not in mine and self._begin_meeting(index))
            meeting = [index for index in missing if index in mine or self._known.nodes[index].meetings]
            if not meeting or self.now() >= end:
                break
            waits = True
            time.sleep(_STEP)
            mine = {index for index in mine if self._known.nodes[index].meetings}
        now = self.now()
        return [self._objection(fan, index, now) for index in range(count)]

    def _begin_meeting(self, index: int) -> bool:
        """Have somebody make a connection to a node that is there, or look whether it is back."""
        node = self._known.nodes[index]
        if node.fault is not None and not self._look_for(index):
            return False
        if node.fault is None and self._known.objection(index, self.now()) is not None:
            return False
        thread = threading.Thread(target=self._meet, args=(index,), name="pawlock-meet", daemon=True)
        node.meetings.add(thread)
        started = False
        try:
            # While the interpreter ends it allows no new thread.
            started = not start_thread(thread)
        finally:
            # Also where a signal handler raised, and it may run or not.
            if not started:
                node.meetings.discard(thread)
        return started

    def _take_spares(self, fan: _Fan) -> None:
        for index, spares in enumerate(self._spare):
            while fan.links[index] is None and spares:
                with contextlib.suppress(IndexError):
                    link = spares.pop()
                    if not link.dead:
                        fan.put(index, link)

    def _objection(self, fan: _Fan, index: int, now: float) -> Fault | None:
        link = fan.links[index]
        objection = self._known.objection(index, now)
        if link is None:
            return objection or NOT_CONNECTED
        # Only its own handshake showed which incarnation of the node it leads to.
        return None if link.incarnation is None else link.incarnation.objection(now)

    def _meet(self, index: int) -> None:
        node, incarnations = self._known.nodes[index], self._incarnations
        timeout = max(incarnations.timeout, HANDSHAKE_TIMEOUT)
        link: _NodeLink | None = None
        try:
            first = incarnations.present[index] is None
            link = _NodeLink(self._endpoints[index], timeout, first=first)
            link.incarnation, owed = self._met(index, link.ask(self._probe, timeout))
            link.call_many(owed, timeout)
            link.heard_at = self.now()
            self._links[id(link)] = link
            self._spare[index].append(link)
            if self._ending:
                link.close()
        except Fault as fault:
            if link is not None:
                link.close()
            self._lost(index, fault)
        finally:
            node.meetings.discard(threading.current_thread())

    def _link_lost(self, index: int, fault: Fault, link: _NodeLink) -> None:
        if link.incarnation is not None:
            self._incarnations.heard(index, link.incarnation, link.heard_at)
        self._lost(index, fault)

    # The end ----------------------------------------------------------------------------------------------------

    def _drain_replies(self) -> None:
        """See ``ThreadRuntime``: of a release that a majority answered, the others have their part on the way."""
        end = self.now() + _DRAIN_WITHIN
        for fan in list(self._free):
            while fan.pending and self.now() < end:
                fan.read(end - self.now(), self.now)
                fan.read_late(self.now)

    def after_fork(self) -> None:
        """See ``ThreadRuntime``."""
        super().after_fork()
        self._free = []
        self._spare = [[] for _ in self._endpoints]
        self._incarnations.guard = threading.RLock()
        self._known.forget()
