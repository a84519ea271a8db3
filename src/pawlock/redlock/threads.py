"""The runtime of threads for several independent masters.

A caller takes a connection to each node, for one request, and gives them back: nobody waits for anything on them but
answers, so they belong to no thread. An answer that nobody waited for is read by who has the connection next. Nodes are
met in threads of their own, so that one that hangs costs nobody anything.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from pawlock._system import POLLIN, monotonic, poll
from pawlock.core.runtime import Fault, FaultKind
from pawlock.core.runtime import run as finish
from pawlock.redlock.link import MastersRuntime
from pawlock.redlock.nodes import Incarnation, KnownMasters, Node
from pawlock.redlock.requests import SCRIPTS
from pawlock.redlock.votes import Question
from pawlock.runtimes.shared import leave_signals_to_main, start_thread
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.transport.conn import Request
from pawlock.transport.connect import is_own
from pawlock.transport.link import Link
from pawlock.transport.route import Route

__all__ = ["RedlockThreads"]

_SILENT = 0.25
"""Seconds after which a connection is given up whose oldest request is overdue. Not sooner: what was sent on it may
still be carried out."""

_WITHIN = 1.0
"""Seconds for a node to take what is sent, and for all of them to answer at the end of a client."""


class _Asked(Request):
    """One of a question: the node takes its answer."""

    def __init__(self, node: Node, question: Question, at: int) -> None:
        self._node = node
        self.question: Question = question
        self._at = at

    def answer(self, outcome: Any) -> None:
        """See ``Request``."""
        self._node.take(self.question, self._at, outcome)


class _NodeLink(Link):
    """A connection to one node: requests are posted, and their answers read as they come."""

    incarnation: Incarnation

    def __init__(self, node: Node, timeout: float) -> None:
        super().__init__(node.endpoint, "", timeout, first=True)
        # The socket's, for a poll.
        self.number: int = self._sock.fileno()
        self._node = node

    def post(self, question: Question) -> None:
        """See ``NodeLink``: all in one write. Nothing is answered by that."""
        requests = [_Asked(self._node, question, at) for at in range(len(question.calls))]
        self.do(partial(self._write, self.conn.put(question.calls, requests)))

    def pull(self) -> None:
        """Read what came; the socket is readable, but of a record of TLS a part may be all there is."""
        self._timeout = 0.0
        with contextlib.suppress(TimeoutError):
            self._take()
            while isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
                self._take()

    def look(self, now: float) -> None:
        """Give it up if answers should have come long ago, and are not there to be read."""
        if self._overdue(now):
            while not self.dead and self._poll.poll(0):
                self.do(self.pull)
            if self._overdue(now):
                self.end(Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True))

    def _overdue(self, now: float) -> bool:
        pending = self.conn.pending
        return bool(pending) and now > pending[0].question.until + _SILENT

    def do(self, step: Callable[[], object]) -> None:
        """Do a step on the socket, which may be the last."""
        try:
            self._limit(monotonic() + _WITHIN)
            step()
        except Exception as error:
            if not is_own(error):
                raise
            text = f"the connection broke: {error}"
            self.conn.over = Fault(FaultKind.UNANSWERED, text, maybe_applied=True)
        if self.conn.over is not None:
            self.end(self.conn.over)

    def end(self, fault: Fault) -> None:
        """Close it; what is under way on it is not answered."""
        self.close()
        self._node.failed(fault)
        self.conn.fail(fault)


class RedlockThreads(MastersRuntime[_NodeLink], ThreadRuntime):
    """See ``pawlock.core.runtime.Runtime``.

    Args:
        known: What the client knows of its masters.
    """

    def __init__(self, known: KnownMasters) -> None:
        ThreadRuntime.__init__(self, Route(lambda: known.endpoints[0]), "")
        self._treat(known)
        # The connections to each node that nobody uses now.
        self._idle: list[list[_NodeLink]] = [[] for _ in self._nodes]

    async def _ask(self, question: Question, timeout: float) -> None:
        """See ``MastersRuntime``."""
        links: dict[int, _NodeLink] = {}
        try:
            await self._put(question, links, timeout)
        except BaseException:
            # Interrupted in the middle of a read or write: they are not to be trusted.
            for link in links.values():
                link.close()
            raise
        for index, link in links.items():
            self._idle[index].append(link)

    async def _hear(self, question: Question, links: dict[int, _NodeLink]) -> None:
        """See ``MastersRuntime``."""
        poller, by_number = poll(), {link.number: link for link in links.values() if not link.dead}
        for number in by_number:
            poller.register(number, POLLIN)
        while not question.over(self.now()):
            seconds = max(0.0, question.until - self.now())
            for number, _ in poller.poll(int(seconds * 1000) + 1):
                link = by_number[number]
                link.do(link.pull)
                if link.dead:
                    poller.unregister(number)

    # Nodes ------------------------------------------------------------------------------------------------------

    def _take_idle(self, links: dict[int, _NodeLink]) -> None:
        """See ``MastersRuntime``."""
        for index, idle in enumerate(self._idle):
            try:
                while index not in links:
                    link = idle.pop()
                    link.look(self.now())
                    if not link.dead:
                        links[index] = link
            except IndexError:
                # There is none; another thread may have been sooner.
                continue

    def _begin_meeting(self, node: Node) -> None:
        """See ``MastersRuntime``."""
        thread = threading.Thread(target=self._meet_here, args=(node,), name="pawlock-meet", daemon=True)
        node.meetings.add(thread)
        with contextlib.ExitStack() as stack:
            # While the interpreter ends no thread can start; where a signal handler raised, it may run or not.
            stack.callback(node.meetings.discard, thread)
            if not start_thread(thread):
                stack.pop_all()

    def _meet_here(self, node: Node) -> None:
        leave_signals_to_main()
        try:
            finish(self._meet(node))
        finally:
            node.meetings.discard(threading.current_thread())

    async def _join(self, node: Node, timeout: float) -> None:
        """See ``MastersRuntime``."""
        link = _NodeLink(node, timeout)
        try:
            link.incarnation = node.met(link.ask(self._known.probe, timeout))
        except Fault:
            link.close()
            raise
        # Who is decided by others does not read, for as long as nobody asks again, that a node forgot a script.
        texts = [(b"SCRIPT", b"LOAD", script.source) for script in SCRIPTS]
        link.exchange(texts, timeout)
        link.exchange(node.take_owed(), timeout)
        self._links[id(link)] = link
        self._idle[node.index].append(link)
        if self._ending:
            link.close()

    # The end ----------------------------------------------------------------------------------------------------

    def _drain_replies(self) -> None:
        """See ``ThreadRuntime``: of a release that a majority answered, the others have their part on the way."""
        end = monotonic() + _WITHIN
        for link in [link for idle in self._idle for link in idle if link.conn.pending]:
            # Answered behind all the others.
            link.exchange([(b"ECHO", b"")], end - monotonic())

    def after_fork(self) -> None:
        """See ``ThreadRuntime``."""
        super().after_fork()
        self._forget()
        self._idle = [[] for _ in self._nodes]
