"""The runtime of threads for several independent masters.

A caller takes a connection to each node, for one request, and gives them back: nobody waits for anything on them but
answers, so they belong to no thread. An answer that nobody waited for is read by who has the connection next. Nodes are
met in threads of their own, so that one that hangs costs nobody anything.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from pawlock.core.protocol.runtime import Call, Fault, FaultKind
from pawlock.redlock.link import HANDSHAKE_TIMEOUT, NOT_CONNECTED, MastersRuntime, Question
from pawlock.redlock.nodes import Incarnation, KnownNodes
from pawlock.redlock.options import RedlockOptions
from pawlock.runtimes.shared import leave_signals_to_main, start_thread
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

_DRAIN_WITHIN = 1.0
"""Seconds for which the end of a client waits for answers that are under way."""


class _Asked(Request):
    question: Question


class _NodeLink(Link):
    """A connection to one node: requests are posted, and their answers read as they come."""

    def __init__(self, endpoint: Endpoint, index: int, timeout: float, *, first: bool) -> None:
        super().__init__(endpoint, "", timeout, first=first)
        self.index: int = index
        self.conn: Conn[_Asked] = Conn(_Asked)
        self.incarnation: Incarnation | None = None
        self.heard_at: float = 0.0
        self._secure = isinstance(self._sock, ssl.SSLSocket)
        # A socket of TLS does not block anyhow.
        self._read = partial(self._sock.recv, _CHUNK, 0 if self._secure else socket.MSG_DONTWAIT)

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
        """Read what came, if anything did; raises ``OSError`` if the connection is broken."""
        answered: list[_Asked] = []
        while True:
            try:
                chunk = self._read()
            except WOULD_BLOCK:
                return answered
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "the node closed the connection")
            self.heard_at = now
            answered += self.conn.feed(chunk)
            if self.conn.resend:
                self._write(b"".join(self.conn.resend))
                self.conn.resend.clear()
            if len(chunk) < _CHUNK and not self._secure:
                return answered

    def await_reply(self, seconds: float) -> list[_Asked]:
        """The same, once anything comes within some seconds."""
        self._readable(seconds)
        return self.pull(self.heard_at)

    def overdue(self, now: float) -> bool:
        """Whether the oldest request should have been answered long ago."""
        pending = self.conn.pending
        return bool(pending) and now > pending[0].question.sent_at + max(
            _PATIENCE, pending[0].question.patience
        )


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
        # The connections to each node that nobody uses now.
        self._idle: list[list[_NodeLink]] = [[] for _ in endpoints]

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``MastersRuntime``."""
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        links: dict[int, _NodeLink] = {}
        try:
            await self._connect_all(lambda: self._missing(links), timeout)
            self._ask(links, questions)
        except BaseException:
            # Interrupted in the middle of a read or write: they are not to be trusted.
            for link in tuple(links.values()):
                self._drop(links, link, Fault(FaultKind.UNANSWERED, "interrupted", maybe_applied=True))
            raise
        for index, link in links.items():
            self._idle[index].append(link)

    def _ask(self, links: dict[int, _NodeLink], questions: Sequence[Question]) -> None:
        began = self.now()
        for question in questions:
            question.begin(began)
        for index in range(len(self.nodes)):
            objection = self._objection(links, index)
            if objection is None:
                self._step(links, links[index], lambda link: link.post(questions))
            for question in () if objection is None else questions:
                self._take(index, question, objection)
        poll = select.poll()
        for link in links.values():
            poll.register(link.fileno(), select.POLLIN)
        by_fileno = {link.fileno(): link for link in links.values()}
        left: list[Question] = [question for question in questions if not question.decided]
        while left:
            seconds = min(question.until for question in left) - self.now()
            for fileno, _ in poll.poll(int(seconds * 1000) + 1 if seconds > 0 else 0):
                if not self._step(links, by_fileno[fileno], lambda link: link.pull(self.now())):
                    poll.unregister(fileno)
            now = self.now()
            left = [question for question in left if not question.overdue(now)]

    def _step(
        self,
        links: dict[int, _NodeLink],
        link: _NodeLink,
        step: Callable[[_NodeLink], Sequence[_Asked]],
    ) -> bool:
        """Do a step on a connection, and count what is answered by it; False if it ends with that."""
        try:
            answered = step(link)
        except Exception as error:
            if not is_own(error):
                raise
            text = f"the connection broke: {error}"
            self._drop(links, link, Fault(FaultKind.UNANSWERED, text, maybe_applied=True))
            return False
        for request in answered:
            self._take(link.index, request.question, request.outcome)
        if link.conn.over is not None:
            self._drop(links, link, link.conn.over)
        return not link.dead

    def _drop(self, links: dict[int, _NodeLink], link: _NodeLink, fault: Fault) -> None:
        """Close a connection; what is under way on it is not answered."""
        links.pop(link.index, None)
        link.close()
        if link.incarnation is not None:
            self._incarnations.heard(link.index, link.incarnation, link.heard_at)
        self._lost(link.index, fault)
        for request in link.conn.fail(fault):
            self._take(link.index, request.question, request.outcome)

    # Nodes ------------------------------------------------------------------------------------------------------

    def _missing(self, links: dict[int, _NodeLink]) -> list[int]:
        """Take what there is; to which nodes it is not."""
        missing = [index for index in range(len(self.nodes)) if index not in links]
        return [index for index in missing if not self._take_idle(links, index)]

    def _take_idle(self, links: dict[int, _NodeLink], index: int) -> bool:
        """Take a connection that lives, with what nobody waited for read."""
        while True:
            try:
                link = self._idle[index].pop()
            except IndexError:
                return False
            if link.dead:
                continue
            links[index] = link
            if not link.conn.pending or (
                self._step(links, link, lambda link: link.pull(self.now())) and not self._silent(links, link)
            ):
                return True

    def _silent(self, links: dict[int, _NodeLink], link: _NodeLink) -> bool:
        """Whether its answers should have come long ago; then it is given up."""
        silent = link.overdue(self.now())
        if silent:
            self._drop(links, link, Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True))
        return silent

    def _objection(self, links: dict[int, _NodeLink], index: int) -> Fault | None:
        """Why a node is not asked now; None: ask."""
        if index not in links:
            return self._known.objection(index, self.now()) or NOT_CONNECTED
        incarnation = links[index].incarnation
        # Only its own handshake showed which incarnation of the node it leads to.
        return None if incarnation is None else incarnation.objection(self.now())

    def _begin_meeting(self, index: int) -> None:
        """See ``MastersRuntime``."""
        node = self._known.nodes[index]
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

    def _meet(self, index: int) -> None:
        leave_signals_to_main()
        timeout = max(self._incarnations.timeout, HANDSHAKE_TIMEOUT)
        link: _NodeLink | None = None
        try:
            first = self._incarnations.present[index] is None
            link = _NodeLink(self._endpoints[index], index, timeout, first=first)
            link.incarnation, owed = self._met(index, link.ask(self._probe, timeout))
            link.call_many(owed, timeout)
            link.heard_at = self.now()
            self._links[id(link)] = link
            self._idle[index].append(link)
            if self._ending:
                link.close()
        except Fault as fault:
            if link is not None:
                link.close()
            self._lost(index, fault)
        finally:
            self._known.nodes[index].meetings.discard(threading.current_thread())

    # The end ----------------------------------------------------------------------------------------------------

    def _drain_replies(self) -> None:
        """See ``ThreadRuntime``: of a release that a majority answered, the others have their part on the way."""
        end = self.now() + _DRAIN_WITHIN
        for link in [link for idle in self._idle for link in idle if not link.dead]:
            with contextlib.suppress(OSError):
                while link.conn.pending and not link.overdue(self.now()) and self.now() < end:
                    link.await_reply(end - self.now())

    def after_fork(self) -> None:
        """See ``ThreadRuntime``."""
        super().after_fork()
        self._idle = [[] for _ in self._endpoints]
        self._incarnations.guard = threading.RLock()
        self._known.forget()
