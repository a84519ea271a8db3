"""All connections of one thread, or of one event loop, to several masters."""

from __future__ import annotations

import select
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.quorum import NOT_ASKED, Ballot
from pawlock.core.protocol.quorum import Question as Asked
from pawlock.core.protocol.runtime import DEAF, FIRST_RID, Call, Fault, FaultKind
from pawlock.core.quorum.votes import MergedVotes
from pawlock.transport.connect import is_own
from pawlock.transport.link import WOULD_BLOCK
from pawlock.transport.node import NodeLink, Question

__all__ = ["GONE", "LinkGroup", "ThreadLinkGroup"]

GONE = Fault(FaultKind.UNREACHABLE, "there is no connection")
"""What counts as the answer of a node that cannot be sent anything at this moment."""

_WRITABLE = select.POLLOUT


class LinkGroup(ABC):
    """The links to all nodes.

    Args:
        nodes: How many nodes.
        link_of: Makes or refuses the link of a node: called before each question to a node without one.
        lost: Called when a node's link broke.
        clock: The present.
        numbers: Where numbers of requests come from; the groups of a client share it, since links pass among them.

    Attributes:
        dead: True once it was closed.
        drops: How many links it has lost; what was asked before the last loss may be under way on a socket that is
            nobody's.
    """

    channel: str = DEAF
    """Nobody is woken through it, since nobody queues on such nodes."""

    def __init__(
        self,
        nodes: int,
        link_of: Callable[[int], NodeLink | Fault],
        lost: Callable[[int, Fault, NodeLink], object],
        clock: Callable[[], float],
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.dead: bool = False
        self.drops: int = 0
        self._count = nodes
        self._links: list[NodeLink | None] = [None] * nodes
        self._link_of = link_of
        self._lost = lost
        self._now = clock
        self._numbers = count(FIRST_RID + 1) if numbers is None else numbers

    @abstractmethod
    def _adopt(self, link: NodeLink) -> None:
        """Watch a new link."""

    @abstractmethod
    def _release(self, link: NodeLink) -> None:
        """Watch a link no more; it is still open."""

    def _joins(self) -> bool:
        """Whether what is sent now goes out later, joined with more."""
        return False

    @abstractmethod
    def _write(self, link: NodeLink, data: bytes) -> None:
        """Send, now or with others; raises ``OSError``."""

    def send_to_all(self, call: Call, question: Question) -> None:
        """Send one call to all nodes, each in one write."""
        now = question.sent_at
        rid = next(self._numbers)
        data = call.pack(rid)
        size, entry = len(data), (rid, call, question, False)
        joins = self._joins()
        for index, link in enumerate(self._links):
            # Nearly always a link is there, and has no reply outstanding but that to the last question.
            if link is None or link.dead or (link.pending and now > link.pending[0][2].deadline):
                usable = self._usable(index, now)
                if isinstance(usable, Fault):
                    question.take(index, usable)
                    continue
                link = usable  # noqa: PLW2901 - the same node's
            link.pending.append(entry)
            try:
                if joins or link.unsent:
                    self._write(link, data)
                elif (sent := link.write(data)) < size:
                    self._write(link, data[sent:])
            except WOULD_BLOCK:
                self._write(link, data)
            except OSError as error:
                self._broke(link, error)

    def send_each(self, calls: Sequence[Call | None], question: Question) -> None:
        """Send each node its call; None: that node is not asked."""
        now = question.sent_at
        rid = next(self._numbers)
        for index, call in enumerate(calls):
            if call is None:
                question.take(index, NOT_ASKED)
                continue
            usable = self._usable(index, now)
            if isinstance(usable, Fault):
                question.take(index, usable)
                continue
            self._post(usable, call, question, rid)

    def cast(self, calls: Sequence[Call | None], ballot: Ballot, timeout: float) -> None:
        """Send without waiting, only where a link lives."""
        question = self._unawaited(ballot, timeout)
        rid = next(self._numbers)
        for index, (link, call) in enumerate(zip(self._links, calls, strict=True)):
            if call is None:
                question.take(index, NOT_ASKED)
            elif link is None or link.dead:
                question.take(index, GONE)
            else:
                self._post(link, call, question, rid)

    def _unawaited(self, ballot: Ballot, timeout: float) -> Question:
        """A question that nobody waits for."""
        return Question(ballot, self._count, self._now(), timeout)

    def _post(self, link: NodeLink, call: Call, question: Question, rid: int) -> None:
        link.pending.append((rid, call, question, False))
        try:
            self._write(link, call.pack(rid))
        except OSError as error:
            self._broke(link, error)

    @property
    def has_pending(self) -> bool:
        """Whether a node that is not silent has still to answer."""
        now = self._now()
        links = [link for link in self._links if link is not None and not link.dead]
        return any(link.pending and not link.silent_since(now) for link in links)

    def missing(self) -> list[int]:
        """The nodes without a connection."""
        return [index for index, link in enumerate(self._links) if link is None or link.dead]

    def trips(self) -> Iterator[tuple[int, float]]:
        """The longest that each node took for an answer since this was last asked for, where that is known."""
        for link in self._links:
            if link is not None and link.slowest:
                yield link.index, link.slowest
                link.slowest = 0.0

    def close(self) -> None:
        """Close every link; what is under way is not answered any more."""
        self.dead = True
        fault = Fault(FaultKind.CLOSED, "the client is closed", maybe_applied=True, final=True)
        for index, link in enumerate(self._links):
            if link is not None:
                self._links[index] = None
                if not link.dead:
                    self._release(link)
                link.fail(fault)

    def _usable(self, index: int, now: float) -> NodeLink | Fault:
        link = self._links[index]
        if link is not None and not link.dead:
            if not link.pending or not link.silent_since(now):
                return link
            # Its answer may lie in the socket, unread because nobody waited for it.
            self._pull(link)
            if self._links[index] is link and not (link.pending and link.silent_since(now)):
                return link
            self._drop(link, "no answer in time")
        made = self._link_of(index)
        if isinstance(made, Fault):
            return made
        self._links[index] = made
        made.numbers = self._numbers
        self._adopt(made)
        return made

    def _pull(self, link: NodeLink) -> None:
        try:
            link.pull(self._now())
        except Exception as error:
            if not is_own(error):
                raise
            self._broke(link, error)

    def _broke(self, link: NodeLink, error: Exception) -> None:
        what = "connection" if isinstance(error, OSError) else "stream of replies"
        self._drop(link, f"the {what} broke: {error}")

    def _drop(self, link: NodeLink, text: str) -> None:
        if self._links[link.index] is not link:
            return
        self._links[link.index] = None
        self.drops += 1
        if not link.dead:
            self._release(link)
        fault = Fault(FaultKind.UNANSWERED, text, maybe_applied=True)
        link.fail(fault)
        self._lost(link.index, fault, link)

    def _give_up(self, question: Question) -> None:
        """A node that has not answered in time counts as a fault; the answers, if they come, as late."""
        if question.listen_on():
            return
        span = question.deadline - question.sent_at
        late = Fault(FaultKind.UNANSWERED, f"no answer within {span:.3g} s", maybe_applied=True)
        ballot = question.ballot
        for index, link in enumerate(self._links):
            if question.decided or ballot is None:
                return
            if link is not None and link.unanswered(question):
                # It may be slow, and not gone: the next time it has twice as long.
                link.slowest = max(link.slowest, span / 2)
                if ballot.add(index, late):
                    break
        if not question.decided:
            question.decided = True
            question.on_decided()


class ThreadLinkGroup(LinkGroup):
    """The links of one thread: it sleeps until as many as it needs have answered."""

    def __init__(
        self,
        nodes: int,
        link_of: Callable[[int], NodeLink | Fault],
        lost: Callable[[int, Fault, NodeLink], object],
        clock: Callable[[], float],
        numbers: Iterator[int] | None = None,
    ) -> None:
        super().__init__(nodes, link_of, lost, clock, numbers)
        self.lock: threading.Lock = threading.Lock()
        self._poll = select.poll()
        self._by_fileno: dict[int, NodeLink] = {}
        self._backwards = False

    def ask(self, call: Call, timeout: float) -> Outcome:
        """See ``Connection``."""
        return self.vote(call, MergedVotes(self._count), timeout)

    def vote(self, call: Call, ballot: Ballot, timeout: float) -> Outcome:
        """See ``QuorumConnections``."""
        with self.lock:
            try:
                question = Question(ballot, self._count, self._now(), timeout)
                self.send_to_all(call, question)
                if not question.decided:
                    # Sent just now: nothing is overdue, and no clock need be read.
                    arrived = self._poll.poll(int(timeout * 1000) + 1)
                    self._backwards = not self._backwards
                    if self._backwards:
                        # A majority of those that came is read, from either end in turn: so everybody, every other time.
                        arrived.reverse()
                    self._read_ready(arrived, question.sent_at, question)
                while not question.decided:
                    self._look([question])
            except BaseException:
                # Interrupted in the middle of a read or write: the links are not to be trusted.
                self.close()
                raise
        return ballot.outcome()

    def ask_all(self, asked: Sequence[Asked], timeout: float) -> None:
        """See ``QuorumRuntime.ask``; under ``lock``."""
        now = self._now()
        questions: list[Question] = []
        for calls, ballot in asked:
            question = Question(ballot, self._count, now, timeout)
            questions.append(question)
            self.send_each(calls, question)
        while questions := [question for question in questions if not question.decided]:
            self._look(questions)

    def drain_replies(self, seconds: float) -> None:
        """Wait for the replies that are still outstanding: a socket closed before one may drop its request."""
        if not self.lock.acquire(timeout=seconds):
            return
        try:
            end = self._now() + seconds
            while self.has_pending and (left := end - self._now()) > 0:
                for fileno, _ in self._poll.poll(int(left * 1000) + 1):
                    link = self._by_fileno.get(fileno)
                    if link is not None and not link.dead:
                        self._pull(link)
        finally:
            self.lock.release()

    def read_late_replies(self) -> bool:
        """Read what came while its thread asks nothing, from another thread; True if more may come."""
        if self.dead or not any(link is not None and link.pending for link in self._links):
            return False
        if not self.lock.acquire(False):
            return True
        try:
            now = self._now()
            for link in self._links:
                if link is not None and not link.dead and link.pending:
                    self._pull(link)
                    if self._links[link.index] is link and link.pending and link.silent_since(now):
                        self._drop(link, "no answer in time")
            return self.has_pending
        finally:
            self.lock.release()

    def retire(self) -> list[NodeLink]:
        """The links that live, for another group; this one is over."""
        self.dead = True
        links = [link for link in self._links if link is not None and not link.dead and not link.unsent]
        self._links = [None] * self._count
        return links

    def _look(self, questions: Sequence[Question]) -> None:
        """Sleep until anything comes, and count it; give up on what is overdue."""
        left = min(question.deadline for question in questions) - self._now()
        arrived = self._poll.poll(int(left * 1000) + 1 if left > 0 else 0)
        now = self._now()
        self._read_ready(arrived, now, questions[0] if len(questions) == 1 else None)
        if left <= 0:
            # Only after a look: while this thread was not let run, the answers may have come.
            for question in questions:
                if not question.decided and question.deadline <= now:
                    self._give_up(question)

    def _read_ready(self, arrived: list[tuple[int, int]], now: float, only: Question | None) -> None:
        """Count what came. Once the only question is decided, the rest is read with the answers to the next."""
        for fileno, events in arrived:
            link = self._by_fileno.get(fileno)
            if link is None or link.dead:
                self._forget(fileno)
                continue
            if events & _WRITABLE:
                self._flush(link)
                if self._by_fileno.get(fileno) is not link or events == _WRITABLE:
                    continue
            try:
                link.pull(now)
            except Exception as error:
                if not is_own(error):
                    raise
                self._broke(link, error)
            if only is not None and only.decided:
                return

    def _write(self, link: NodeLink, data: bytes) -> None:
        link.push(data)
        if link.unsent:
            self._poll.modify(link.fileno(), select.POLLIN | select.POLLOUT)

    def _flush(self, link: NodeLink) -> None:
        try:
            link.push()
        except OSError as error:
            self._broke(link, error)
            return
        if not link.unsent:
            self._poll.modify(link.fileno(), select.POLLIN)

    def _adopt(self, link: NodeLink) -> None:
        self._by_fileno[link.fileno()] = link
        self._poll.register(link.fileno(), select.POLLIN)

    def _release(self, link: NodeLink) -> None:
        self._forget(link.fileno())

    def _forget(self, fileno: int) -> None:
        if self._by_fileno.pop(fileno, None) is not None:
            self._poll.unregister(fileno)
