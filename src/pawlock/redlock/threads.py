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
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pawlock.core.protocol.faults import or_raise
from pawlock.core.protocol.runtime import Call, Fault, FaultKind
from pawlock.redlock.link import HANDSHAKE_TIMEOUT, NOT_CONNECTED, MastersRuntime, Question
from pawlock.redlock.nodes import Incarnation, KnownNodes
from pawlock.redlock.options import RedlockOptions
from pawlock.redlock.requests import SCRIPTS
from pawlock.runtimes.shared import leave_signals_to_main, start_thread
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.conn import Request
from pawlock.transport.connect import is_own
from pawlock.transport.link import WOULD_BLOCK, Link
from pawlock.transport.route import Route

__all__ = ["RedlockThreads"]

T = TypeVar("T")

_CHUNK = 65536
_PATIENCE = 0.25
"""Seconds after which a connection is given up whose oldest request is overdue. Not sooner: what was sent on it may
still be carried out."""

_DRAIN_WITHIN = 1.0
"""Seconds for which the end of a client waits for answers that are under way."""


class _Asked(Request):
    """Of one question; once it has an outcome it is in a list of its connection."""

    def __init__(self, question: Question, answered: list[_Asked]) -> None:
        self.question = question
        self._answered = answered

    def answer(self, outcome: object) -> None:
        """See ``Request``."""
        super().answer(outcome)
        self._answered.append(self)


class _NodeLink(Link):
    """A connection to one node: requests are posted, and their answers read as they come."""

    def __init__(self, endpoint: Endpoint, index: int, timeout: float, *, first: bool) -> None:
        super().__init__(endpoint, "", timeout, first=first)
        self.index: int = index
        # The socket's, for a poll.
        self.number: int = self._sock.fileno()
        self._answered: list[_Asked] = []
        self.incarnation: Incarnation | None = None
        self.heard_at: float = 0.0
        self._secure = isinstance(self._sock, ssl.SSLSocket)
        # A socket of TLS does not block anyhow.
        self._recv = partial(self._sock.recv, _CHUNK, 0 if self._secure else socket.MSG_DONTWAIT)

    def learn(self, timeout: float) -> None:
        """Have the node know the scripts; raises ``OSError``.

        Who is decided by others does not read, for as long as nobody asks again, that it forgot one after a restart.
        """
        for answer in self.exchange([(b"SCRIPT", b"LOAD", script.source) for script in SCRIPTS], timeout):
            or_raise(answer)

    def post(self, questions: Sequence[Question]) -> list[_Asked]:
        """Send in one write; raises ``OSError``. Nothing is answered by that."""
        requests = [_Asked(question, self._answered) for question in questions]
        self._write(self.conn.put([question.call for question in questions], requests))
        return []

    def pull(self, now: float) -> list[_Asked]:
        """Read what came, if anything did; raises ``OSError`` if the connection is broken."""
        while True:
            try:
                chunk = self._recv()
            except WOULD_BLOCK:
                return self.take_answered()
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "the node closed the connection")
            self.heard_at = now
            self.conn.feed(chunk)
            if self.conn.resend:
                self._write(b"".join(self.conn.resend))
                self.conn.resend.clear()
            if len(chunk) < _CHUNK and not self._secure:
                return self.take_answered()

    def take_answered(self) -> list[_Asked]:
        """What has an outcome that was not counted yet."""
        answered = list(self._answered)
        self._answered.clear()
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
        ThreadRuntime.__init__(self, Route(lambda: endpoints[0]), wake_prefix)
        self._treat(options, known, probe)
        self._endpoints = endpoints
        # The connections to each node that nobody uses now.
        self._idle: list[list[_NodeLink]] = [[] for _ in endpoints]
        self._backwards = False

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
        poll, by_fileno = select.poll(), dict[int, _NodeLink]()
        for index in range(len(self.nodes)):
            link = links.get(index)
            objection = self._objection(index, None if link is None else link.incarnation, began)
            if objection is not None or link is None:
                for question in questions:
                    self._take(index, question, objection or NOT_CONNECTED)
            elif self._step(links, link, link.post, questions):
                by_fileno[link.number] = link
                poll.register(link.number, select.POLLIN)
        left: list[Question] = [question for question in questions if not question.decided]
        while left:
            seconds = min([question.until for question in left]) - self.now()
            arrived = poll.poll(int(seconds * 1000) + 1 if seconds > 0 else 0)
            # What nobody waits for any more is read with the answers to the next question: from either end in turn, so
            # that everybody's is.
            self._backwards = not self._backwards
            for fileno, _ in reversed(arrived) if self._backwards else arrived:
                link = by_fileno[fileno]
                if not self._step(links, link, link.pull, self.now()):
                    poll.unregister(fileno)
                if left[0].decided and len(left) == 1:
                    return
            now = self.now()
            left = [question for question in left if not question.overdue(now)]

    def _step(
        self,
        links: dict[int, _NodeLink],
        link: _NodeLink,
        step: Callable[[T], Sequence[_Asked]],
        what: T,
    ) -> bool:
        """Do a step on a connection, and count what is answered by it; False if it ends with that."""
        try:
            answered = step(what)
        except Exception as error:
            if not is_own(error):
                raise
            text = f"the connection broke: {error}"
            self._drop(links, link, Fault(FaultKind.UNANSWERED, text, maybe_applied=True))
            return False
        for request in answered:
            if isinstance(request.outcome, Fault):
                self._take(link.index, request.question, request.outcome)
            else:
                request.question.take(link.index, request.outcome)
        if link.conn.over is not None:
            self._drop(links, link, link.conn.over)
            return False
        return True

    def _drop(self, links: dict[int, _NodeLink], link: _NodeLink, fault: Fault) -> None:
        """Close a connection; what is under way on it is not answered."""
        links.pop(link.index, None)
        link.close()
        if link.incarnation is not None:
            self._incarnations.heard(link.index, link.incarnation, link.heard_at)
        self._lost(link.index, fault)
        link.conn.fail(fault)
        for request in link.take_answered():
            self._take(link.index, request.question, request.outcome)

    # Nodes ------------------------------------------------------------------------------------------------------

    def _missing(self, links: dict[int, _NodeLink]) -> list[int]:
        """Take what there is; to which nodes it is not."""
        now = self.now()
        for index, idle in enumerate(self._idle):
            while index not in links and idle:
                try:
                    link = idle.pop()
                except IndexError:
                    # Another thread was sooner.
                    break
                links[index] = link
                heard = now < link.heard_at + _PATIENCE or not link.conn.pending
                if link.dead or (not heard and self._silent(links, link, now)):
                    links.pop(index, None)
        return [index for index in range(len(self.nodes)) if index not in links]

    def _silent(self, links: dict[int, _NodeLink], link: _NodeLink, now: float) -> bool:
        """Whether its answers should have come long ago, and are not there to be read; then it is given up."""
        if not link.overdue(now):
            return False
        alive = self._step(links, link, link.pull, now)
        if alive and link.overdue(now):
            self._drop(links, link, Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True))
            return True
        return not alive

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
            link.learn(timeout)
            link.exchange(owed, timeout)
            link.heard_at = self.now()
            self._links[id(link)] = link
            self._idle[index].append(link)
            if self._ending:
                link.close()
        except Exception as error:
            if link is not None:
                link.close()
            if not is_own(error):
                raise
            broke = Fault(FaultKind.UNREACHABLE, f"the connection broke: {error}")
            self._lost(index, error if isinstance(error, Fault) else broke)
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
