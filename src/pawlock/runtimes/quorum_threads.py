"""The runtime of threads for several independent masters."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from itertools import count
from weakref import WeakValueDictionary

from pawlock.core.protocol.quorum import NOT_ASKED, Ballot, Question, majority
from pawlock.core.protocol.runtime import FIRST_RID, Call, Fault, FaultKind
from pawlock.core.protocol.scripts import Script
from pawlock.core.quorum.nodes import KnownNodes
from pawlock.runtimes.masters import MastersRuntime
from pawlock.runtimes.shared import living, start_thread
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.link_group import GONE, ThreadLinkGroup
from pawlock.transport.node import NodeLink, meet

__all__ = ["QuorumThreadRuntime"]

_HANDSHAKE_TIMEOUT = 1.0
"""Seconds for a handshake, at least: a script answers sooner, but a busy machine needs this to log somebody in."""

_LEAST_HANDSHAKE_TIMEOUT = 0.25
"""The same where a caller waits for one node, which the client has met before."""

_FIRST_WAIT = 0.5
"""Seconds that the first call of a client waits for the nodes at least, where nobody waited for them before."""

_GRACE = 0.05
"""Seconds by which the first call waits for nodes beyond the majority."""


_DRAIN_WITHIN = 1.0
"""Seconds for which the end of a client waits for answers of nodes that are not silent."""

_MOST_IDLE = 16

_READ_ON = 0.25
"""Seconds between two reads of answers that nobody waits for any more."""


class _Held:
    """The group of a thread. When the thread has ended, its links serve others: they may have replies outstanding."""

    __slots__ = ("__weakref__", "_keep", "group")

    def __init__(self, group: ThreadLinkGroup, keep: Callable[[ThreadLinkGroup], None]) -> None:
        self.group: ThreadLinkGroup = group
        self._keep = keep

    def __del__(self) -> None:
        self._keep(self.group)


class _LocalGroup(threading.local):
    """What belongs to one thread."""

    held: _Held | None = None

    @property
    def group(self) -> ThreadLinkGroup | None:
        """Its group."""
        held = self.held
        return None if held is None else held.group


class QuorumThreadRuntime(MastersRuntime, ThreadRuntime):
    """See ``pawlock.core.protocol.runtime.Runtime`` and ``pawlock.core.protocol.quorum.QuorumRuntime``.

    Args:
        endpoints: Where the nodes are.
        wake_prefix: What the channels of this client begin with.
        known_nodes: What is known of the nodes.
        probe: What to ask a node before its votes count.
        scripts: What a node is to know before it is asked.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        wake_prefix: str,
        known_nodes: KnownNodes,
        probe: Call,
        scripts: Sequence[Script],
    ) -> None:
        super().__init__(lambda: endpoints[0], wake_prefix)
        self.nodes: tuple[str, ...] = tuple(node.shown for node in known_nodes.nodes)
        self._endpoints = endpoints
        self._known_nodes = known_nodes
        self._incarnations = known_nodes.incarnations
        self._probe = probe
        self._scripts = scripts
        self._local_group = _LocalGroup()
        self._idle_links: list[list[NodeLink]] = [[] for _ in endpoints]
        self._met_all = False
        self._meeting_guard = threading.RLock()
        self._numbers = count(FIRST_RID + 1)
        self._all: WeakValueDictionary[int, ThreadLinkGroup] = WeakValueDictionary()

    # Small things -----------------------------------------------------------------------------------------------

    def connection(self) -> ThreadLinkGroup | None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """See ``Runtime``."""
        group = self._local_group.group
        return None if group is None or group.dead else group

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``: there is nothing to subscribe to."""

    async def meet(self, timeout: float) -> None:
        """See ``QuorumRuntime``."""
        if not self._met_all and not self._ending:
            self._meet_all(timeout)
        self._ensure_connected(self._held_group(timeout), timeout)

    # Questions --------------------------------------------------------------------------------------------------

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``QuorumRuntime``."""
        group = self._held_group(timeout)
        self._ensure_connected(group, max(timeout, _LEAST_HANDSHAKE_TIMEOUT))
        with group.lock:
            try:
                group.ask_all(questions, timeout)
            except BaseException:
                # Interrupted in the middle of a read or write: the links are not to be trusted.
                group.close()
                raise
        for index, seconds in group.trips():
            self._incarnations.took(index, seconds)

    def send(self, calls: Sequence[Call | None], ballot: Ballot) -> None:
        """See ``QuorumRuntime``."""
        group = self._local_group.group
        if group is not None and not group.dead and group.lock.acquire(False):
            try:
                group.cast(calls, ballot, self.node_timeout)
            finally:
                group.lock.release()
            return
        for index, call in enumerate(calls):
            ballot.add(index, NOT_ASKED if call is None else GONE)

    def sender(self, *, background: bool = False) -> tuple[object, int]:
        """See ``QuorumRuntime``."""
        group = None if background else self._local_group.group
        return group, 0 if group is None else group.drops

    # Nodes ------------------------------------------------------------------------------------------------------

    def _held_group(self, timeout: float) -> ThreadLinkGroup:
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        if not self._met_all:
            self._meet_all(max(timeout, _FIRST_WAIT))
        group = self._local_group.group
        if group is None or group.dead:
            group = self._new_group()
            self._local_group.held = _Held(group, self._keep)
        return group

    def _keep(self, group: ThreadLinkGroup) -> None:
        """Its thread has ended; from a finaliser, so no locks and no I/O but for what is too many."""
        if group.dead or self._ending:
            return
        for link in group.retire():
            if len(self._idle_links[link.index]) < _MOST_IDLE:
                self._idle_links[link.index].append(link)

    def _new_group(self) -> ThreadLinkGroup:
        group = ThreadLinkGroup(len(self.nodes), self._link_of, self._lost, self.now, self._numbers)
        self._all[id(group)] = group
        return group

    def _link_of(self, index: int) -> NodeLink | Fault:
        if self._ending:
            return Fault(FaultKind.CLOSED, "the client is closed", final=True)
        node = self._known_nodes.nodes[index]
        now = self.now()
        if node.fault is not None and now >= node.retry_at:
            self._meet_soon(index)
        objection = self._known_nodes.objection(index, now)
        if objection is not None:
            return objection
        link = self._take_idle(index)
        if link is None:
            return Fault(FaultKind.UNREACHABLE, "not connected yet")
        # Only its own handshake showed which incarnation of the node it leads to.
        objection = link.incarnation.objection(now)
        if objection is not None:
            self._idle_links[index].append(link)
            return objection
        return link

    def _ensure_connected(self, group: ThreadLinkGroup, timeout: float) -> None:
        """Connect a thread that has no connections: to all nodes at once; a majority of them is waited for."""
        missing = group.missing()
        if not missing:
            return
        now = self.now()
        for index in missing:
            node = self._known_nodes.nodes[index]
            if node.fault is not None and now >= node.retry_at:
                self._meet_soon(index)
        wanted = [index for index in missing if not self._idle_links[index]]
        free = [index for index in wanted if self._known_nodes.objection(index, now) is None]
        threads = [self._spawn(index) for index in free]
        if not self._has_majority(group):
            self._await_majority(threads, timeout, lambda: self._has_majority(group))

    def _has_majority(self, group: ThreadLinkGroup) -> bool:
        """Whether a thread has, or can have, connections to a majority."""
        missing = [index for index in group.missing() if not self._idle_links[index]]
        return len(missing) < majority(len(self.nodes))

    def _await_majority(
        self, threads: Sequence[threading.Thread | None], timeout: float, there: Callable[[], bool]
    ) -> None:
        """Wait for what makes connections until there are enough, and a moment longer for the others."""
        end = self.now() + timeout
        enough = False
        for thread in threads:
            while thread is not None and thread.is_alive() and self.now() < end:
                thread.join(0.005)
                if not enough and there():
                    enough = True
                    end = min(end, self.now() + _GRACE)

    def _take_idle(self, index: int) -> NodeLink | None:
        with contextlib.suppress(IndexError):
            while True:
                spare = self._idle_links[index].pop()
                if not spare.dead:
                    return spare
        return None

    def _meet(self, index: int, timeout: float) -> NodeLink:
        """Connect to a node and learn what it is. Raises ``Fault``."""
        self._make_room()
        first = self._incarnations.present[index] is None
        link, info = meet(self._endpoints[index], index, self._probe, self._scripts, timeout, first=first)
        incarnation = self._known_nodes.met(index, info, self.now())
        if isinstance(incarnation, Fault):
            link.close()
            raise incarnation
        link.incarnation = incarnation
        link.heard_at = self.now()
        self._incarnations.took(index, link.slowest)
        link.slowest = 0.0
        self._links[id(link)] = link
        return link

    def _lost(self, index: int, fault: Fault, link: NodeLink | None = None) -> None:
        if link is not None:
            self._incarnations.heard(index, link.incarnation, link.heard_at)
        self._known_nodes.nodes[index].failed(fault, self.now(), self.random())

    def _meet_all(self, timeout: float) -> None:
        """Meet all nodes at once, for the first call; a node that hangs is waited for a little, if it is not needed."""
        threads = [self._meet_soon(index) for index in range(len(self.nodes))]
        needed = majority(len(self.nodes))
        nodes = self._known_nodes.nodes
        self._await_majority(threads, timeout, lambda: sum(node.fault is None for node in nodes) >= needed)
        self._met_all = True

    def _meet_soon(self, index: int) -> threading.Thread | None:
        """Meet a node in the background: nobody waits for one that hangs."""
        node = self._known_nodes.nodes[index]
        with self._meeting_guard:
            if node.meeting or self._ending:
                return None
            node.meeting = True
        thread: threading.Thread | None = None
        try:
            thread = self._spawn(index)
        finally:
            # Also where a signal handler raised, and it may run or not.
            if thread is None:
                node.meeting = False
        return thread

    def _spawn(self, index: int) -> threading.Thread | None:
        """Start a thread that meets a node."""
        thread = threading.Thread(target=self._run_meet, args=(index,), name="pawlock-meet", daemon=True)
        # While the interpreter ends it allows no new thread.
        return None if start_thread(thread) else thread

    def _run_meet(self, index: int) -> None:
        node = self._known_nodes.nodes[index]
        try:
            self._idle_links[index].append(self._meet(index, max(self.node_timeout, _HANDSHAKE_TIMEOUT)))
        except Fault as fault:
            self._lost(index, fault)
        finally:
            node.meeting = False

    # Answers that nobody waits for ------------------------------------------------------------------------------

    async def idle(self, until: float | None) -> bool:
        """See ``Runtime``; also reads what a thread that asks no more would leave unread.

        A node that answers late may have forgotten the script of a vote or of a release, and has to be taught it.
        """
        if self._read_late_replies():
            soon = self.now() + _READ_ON
            until = soon if until is None else min(until, soon)
        return await super().idle(until)

    def _read_late_replies(self) -> bool:
        groups = living(self._all)
        more = False
        for group in groups:
            more = group.read_late_replies() or more
        for links in self._idle_links:
            for _ in range(len(links)):
                # The one that takes a link out of the list has it alone.
                with contextlib.suppress(IndexError):
                    link = links.pop(0)
                    more = link.read_late_replies(self.now()) or more
                    if not link.dead:
                        links.append(link)
        return more

    # The end ----------------------------------------------------------------------------------------------------

    def _drain_replies(self) -> None:
        """See ``ThreadRuntime``: of a release that a majority answered, the others have their part on the way."""
        end = self.now() + _DRAIN_WITHIN
        groups = living(self._all)
        for group in groups:
            group.drain_replies(max(0.0, end - self.now()))
        # And of threads that have ended.
        for link in [link for links in self._idle_links for link in links]:
            with contextlib.suppress(OSError, ValueError):
                link.drain_replies(end, self.now)

    def after_fork(self) -> None:
        """See ``ThreadRuntime``."""
        super().after_fork()
        self._local_group = _LocalGroup()
        self._idle_links = [[] for _ in self._endpoints]
        self._met_all = False
        self._meeting_guard = threading.RLock()
        self._all = WeakValueDictionary()
        self._incarnations.guard = threading.RLock()
        self._known_nodes.forget()
