"""The connections of one event loop to several masters: read where the loop says so, written at once or joined."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Sequence
from typing import Any

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.quorum import Ballot
from pawlock.core.protocol.quorum import Question as Asked
from pawlock.core.protocol.runtime import Call, Fault
from pawlock.core.quorum.votes import MergedVotes
from pawlock.transport.answer import Answer
from pawlock.transport.link_group import LinkGroup
from pawlock.transport.node import NodeLink, Question

__all__ = ["LoopLinkGroup"]

_READABLE: int = getattr(select, "EPOLLIN", 1)
_WRITABLE: int = getattr(select, "EPOLLOUT", 4)


class _Question(Question, Answer[Outcome]):
    """A question that a task awaits."""

    def __init__(
        self, group: LoopLinkGroup, ballot: Ballot, missing: int, sent_at: float, timeout: float
    ) -> None:
        Question.__init__(self, ballot, missing, sent_at, timeout)
        self._loop = group.loop
        self._group = group

    def on_decided(self) -> None:
        """Let the task go on."""
        self._group.settle(self)


class LoopLinkGroup(LinkGroup):
    """The links of one loop, shared by its tasks.

    Args:
        loop: The loop.
        nodes: How many nodes.
        link_of: Refuses, or hands out, the link of a node.
        lost: Called when a node's link broke.
        clock: The present.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        nodes: int,
        link_of: Callable[[int], NodeLink | Fault],
        lost: Callable[[int, Fault, NodeLink], object],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(nodes, link_of, lost, clock)
        self.loop: asyncio.AbstractEventLoop = loop
        self._open: set[_Question] = set()
        self._out: dict[NodeLink, list[bytes]] = {}
        self._ready: list[_Question] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at: float = 0.0
        # One poller of our own under the loop's: of several answers that are there, the loop learns at once.
        self._epoll: Any = select.epoll() if hasattr(select, "epoll") else None
        self._by_fileno: dict[int, NodeLink] = {}
        self._watched = False

    def ask(self, call: Call, timeout: float) -> Answer[Outcome]:
        """See ``Connection``."""
        return self.vote(call, MergedVotes(self._count), timeout)

    def vote(self, call: Call, ballot: Ballot, timeout: float) -> Answer[Outcome]:
        """See ``QuorumConnections``."""
        question = _Question(self, ballot, self._count, self._now(), timeout)
        self.send_to_all(call, question)
        if not question.decided:
            self._await(question)
        return question

    async def ask_all(self, asked: Sequence[Asked], timeout: float) -> None:
        """See ``QuorumRuntime.ask``."""
        now = self._now()
        questions: list[_Question] = []
        for calls, ballot in asked:
            question = _Question(self, ballot, self._count, now, timeout)
            questions.append(question)
            self.send_each(calls, question)
            if not question.decided:
                self._await(question)
        for question in questions:
            try:
                await question
            except Fault:
                # What that means, the caller reads from the ballot.
                continue

    def _unawaited(self, ballot: Ballot, timeout: float) -> Question:
        question = _Question(self, ballot, self._count, self._now(), timeout)
        # A node that does not answer in time is asked again: so the time is watched, although no task waits.
        self._await(question)
        return question

    def _await(self, question: _Question) -> None:
        self._open.add(question)
        if self._timer is None or question.deadline < self._looks_at:
            self._set_timer(question.deadline)

    def settle(self, question: _Question) -> None:
        """A question was decided."""
        self._open.discard(question)
        ballot = question.ballot
        try:
            given = question.give(None if ballot is None else ballot.outcome())
        except Fault as fault:
            question.fail(fault)
            return
        if given:
            if self._ready is None:
                question.wake_soon()
            else:
                self._ready.append(question)

    # Reading ----------------------------------------------------------------------------------------------------

    def _arrived(self) -> None:
        """Called by the loop, where no task runs: a caller that waited may go on at once."""
        ready: list[_Question] = []
        self._ready = ready
        now = self._now()
        try:
            for fileno, events in self._epoll.poll(0):
                link = self._by_fileno.get(fileno)
                if link is None or link.dead:
                    continue
                if events & _WRITABLE:
                    self._writable(link)
                    if events == _WRITABLE or link.dead:
                        continue
                try:
                    link.pull(now)
                except Exception as error:  # noqa: BLE001 - whatever broke, every question must learn of it
                    self._broke(link, error)
        finally:
            self._ready = None
        if ready:
            self._wake(ready)

    def _readable(self, link: NodeLink) -> None:
        """The same for one link, where there is no poller of our own."""
        ready: list[_Question] = []
        self._ready = ready
        try:
            self._pull(link)
        finally:
            self._ready = None
        if ready:
            self._wake(ready)

    def _wake(self, ready: list[_Question]) -> None:
        """Let tasks go on, in the order of their answers."""
        woken = 0
        try:
            for question in ready:
                woken += 1
                question.wake()
        finally:
            # Ctrl-C ends a task and goes on through here; the others must learn of their replies all the same.
            for question in ready[woken:]:
                question.wake_soon()

    # Writing ----------------------------------------------------------------------------------------------------

    def _joins(self) -> bool:
        return bool(self._out or self._open)

    def _write(self, link: NodeLink, data: bytes) -> None:
        if self._out or self._open:
            # Others are under way: what is sent in this turn of the loop goes out in one write a node.
            if not self._out:
                self.loop.call_soon(self.flush)
            self._out.setdefault(link, []).append(data)
            return
        self._send(link, data)

    def flush(self) -> None:
        """Write what was joined."""
        out, self._out = self._out, {}
        for link, parts in out.items():
            if not link.dead:
                try:
                    self._send(link, b"".join(parts))
                except OSError as error:
                    self._drop(link, f"the connection broke: {error}")

    def _send(self, link: NodeLink, data: bytes) -> None:
        congested = bool(link.unsent)
        link.push(data)
        if link.unsent and not congested:
            if self._epoll is None:
                self.loop.add_writer(link.fileno(), self._writable, link)
            else:
                self._epoll.modify(link.fileno(), _READABLE | _WRITABLE)

    def _writable(self, link: NodeLink) -> None:
        try:
            link.push()
        except OSError as error:
            self._drop(link, f"the connection broke: {error}")
            return
        if not link.unsent:
            if self._epoll is None:
                self.loop.remove_writer(link.fileno())
            else:
                self._epoll.modify(link.fileno(), _READABLE)

    # Links and deadlines ----------------------------------------------------------------------------------------

    def _adopt(self, link: NodeLink) -> None:
        if self._epoll is None:
            self.loop.add_reader(link.fileno(), self._readable, link)
            return
        if not self._watched:
            self._watched = True
            self.loop.add_reader(self._epoll.fileno(), self._arrived)
        self._epoll.register(link.fileno(), _READABLE)
        self._by_fileno[link.fileno()] = link

    def _release(self, link: NodeLink) -> None:
        if self._epoll is not None:
            if self._by_fileno.pop(link.fileno(), None) is not None:
                self._epoll.unregister(link.fileno())
        elif not self.loop.is_closed():
            self.loop.remove_reader(link.fileno())
            self.loop.remove_writer(link.fileno())

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = at
        self._timer = self.loop.call_later(max(0.0, at - self._now()), self._look)

    def _look(self) -> None:
        """Give up on what is overdue. One timer serves all questions."""
        self._timer = None
        # While the loop did something else, the answers may have come.
        if self._epoll is not None:
            self._arrived()
        else:
            for link in self._links:
                if link is not None and not link.dead:
                    self._readable(link)
        now = self._now()
        for question in [question for question in self._open if question.deadline <= now]:
            self._give_up(question)
        if self._open:
            self._set_timer(min(question.deadline for question in self._open))

    @property
    def has_pending(self) -> bool:
        """See ``LinkGroup``; what was joined and not sent yet counts too."""
        return bool(self._out) or super().has_pending

    def close(self) -> None:
        """See ``LinkGroup``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._out = {}
        super().close()
        if self._epoll is not None and not self._epoll.closed:
            if self._watched and not self.loop.is_closed():
                self.loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def abandon(self) -> None:
        """In the child of a fork: the loop and its poller are the parent's, and so are the connections."""
        self.dead = True
        self._links = [None] * self._count
