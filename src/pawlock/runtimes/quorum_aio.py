"""The runtime of asyncio for several independent masters: one connection of the loop to each."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence

from pawlock.core.protocol.quorum import NOT_ASKED, Ballot, Question, majority
from pawlock.core.protocol.runtime import Call, Fault, FaultKind
from pawlock.core.protocol.scripts import Script
from pawlock.core.quorum.nodes import KnownNodes
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.runtimes.masters import MastersRuntime
from pawlock.runtimes.shared import start_thread
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.link_group import GONE
from pawlock.transport.loop_link_group import LoopLinkGroup
from pawlock.transport.node import NodeLink, meet

__all__ = ["QuorumAsyncioRuntime"]

_HANDSHAKE_TIMEOUT = 1.0
_FIRST_WAIT = 0.5
_LEAST_HANDSHAKE_TIMEOUT = 0.25
_GRACE = 0.05
_DRAIN_WITHIN = 1.0


class QuorumAsyncioRuntime(MastersRuntime, AsyncioRuntime):
    """See ``pawlock.core.protocol.runtime.Runtime`` and ``pawlock.core.protocol.quorum.QuorumRuntime``.

    Args:
        loop: The event loop.
        endpoints: Where the nodes are.
        prefix: What the channels of this client begin with.
        known_nodes: What is known of the nodes.
        probe: What to ask a node before its votes count.
        scripts: What a node is to know before it is asked.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoints: Sequence[Endpoint],
        prefix: str,
        known_nodes: KnownNodes,
        probe: Call,
        scripts: Sequence[Script],
    ) -> None:
        super().__init__(loop, lambda: endpoints[0], prefix)
        self.nodes: tuple[str, ...] = tuple(node.shown for node in known_nodes.nodes)
        self._endpoints = endpoints
        self._known_nodes = known_nodes
        self._incarnations = known_nodes.incarnations
        self._probe = probe
        self._scripts = scripts
        self._group = LoopLinkGroup(loop, len(endpoints), self._link_of, self._lost, self.now)
        self._ready_links: list[NodeLink | None] = [None] * len(endpoints)
        self._attempts: dict[int, asyncio.Future[None]] = {}
        self._first_meeting: asyncio.Task[None] | None = None

    def connection(self) -> LoopLinkGroup | None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """See ``Runtime``."""
        meeting = self._first_meeting
        return None if meeting is None or self._ending or not meeting.done() else self._group

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``."""
        await self.meet(max(timeout, _FIRST_WAIT))

    async def meet(self, timeout: float) -> None:
        """See ``QuorumRuntime``: the first call of a loop meets the nodes, and its other callers wait with it."""
        if self._ending:
            return
        if self._first_meeting is None:
            self._first_meeting = self.loop.create_task(
                self._meet_all(_HANDSHAKE_TIMEOUT * 2), name="pawlock-meet-all"
            )
        if not self._first_meeting.done():
            await asyncio.wait((self._first_meeting,), timeout=timeout)
        else:
            await self._ensure_connected(timeout)

    # Questions --------------------------------------------------------------------------------------------------

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``QuorumRuntime``."""
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        if self._first_meeting is None or not self._first_meeting.done():
            await self.ready(timeout)
        else:
            await self._ensure_connected(max(timeout, _LEAST_HANDSHAKE_TIMEOUT))
        await self._group.ask_all(questions, timeout)
        for index, seconds in self._group.trips():
            self._incarnations.took(index, seconds)

    def send(self, calls: Sequence[Call | None], ballot: Ballot) -> None:
        """See ``QuorumRuntime``."""
        if threading.get_ident() == self._thread and not self.loop.is_closed():
            self._group.cast(calls, ballot, self.node_timeout)
            return
        for index, call in enumerate(calls):
            ballot.add(index, NOT_ASKED if call is None else GONE)

    def sender(self, *, background: bool = False) -> tuple[object, int]:  # noqa: ARG002 - all go one way
        """See ``QuorumRuntime``."""
        return self._group, self._group.drops

    # Nodes ------------------------------------------------------------------------------------------------------

    def _link_of(self, index: int) -> NodeLink | Fault:
        if self._ending:
            return Fault(FaultKind.CLOSED, "the client is closed", final=True)
        node = self._known_nodes.nodes[index]
        now = self.now()
        made = self._ready_links[index]
        if (made is None or made.dead) and now >= node.retry_at:
            self._meet_soon(index)
        objection = self._known_nodes.objection(index, now)
        if objection is not None:
            return objection
        if made is None or made.dead:
            return Fault(FaultKind.UNREACHABLE, "not connected yet")
        # Only its own handshake showed which incarnation of the node it leads to.
        objection = made.incarnation.objection(now)
        if objection is not None:
            return objection
        self._ready_links[index] = None
        return made

    async def _ensure_connected(self, timeout: float) -> None:
        """Where a majority of the connections ended, wait until there are enough again."""
        if len(self._missing()) < majority(len(self.nodes)):
            return
        now, nodes = self.now(), self._known_nodes.nodes
        attempts = {self._meet_soon(index) for index in self._missing() if now >= nodes[index].retry_at}
        attempts |= {attempt for index, attempt in self._attempts.items() if nodes[index].fault is None}
        await self._await_majority(attempts, timeout)

    def _missing(self) -> list[int]:
        """The nodes that have no connection, and for which none is ready."""
        return [
            index for index in self._group.missing() if (met := self._ready_links[index]) is None or met.dead
        ]

    async def _await_majority(self, attempts: set[asyncio.Future[None]], timeout: float) -> None:
        """Wait for what makes connections until there are enough, and a moment longer for the others."""
        end = self.loop.time() + timeout
        enough = False
        while attempts and (left := end - self.loop.time()) > 0:
            _, attempts = await asyncio.wait(attempts, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not enough and len(self._missing()) < majority(len(self.nodes)):
                enough = True
                end = min(end, self.loop.time() + _GRACE)

    def _meet_soon(self, index: int) -> asyncio.Future[None]:
        """Meet a node in a thread: the loop does not wait for a handshake."""
        attempt = self._attempts.get(index)
        if attempt is None or attempt.done():
            attempt = self._attempts[index] = self.loop.create_future()
            thread = threading.Thread(
                target=self._run_meet, args=(index, attempt), name="pawlock-meet", daemon=True
            )
            try:
                refused = start_thread(thread)
            except BaseException:
                # From a signal handler. It may run or not: the next caller makes a new attempt.
                del self._attempts[index]
                raise
            if refused:
                # The system has none left now: the node is asked again later, as one that cannot be reached.
                self._finish_meet(
                    index, attempt, Fault(FaultKind.UNREACHABLE, f"{self.nodes[index]}: {refused}")
                )
        return attempt

    def _run_meet(self, index: int, attempt: asyncio.Future[None]) -> None:
        timeout = max(self.node_timeout, _HANDSHAKE_TIMEOUT)
        first = self._incarnations.present[index] is None
        found: tuple[NodeLink, str] | Fault
        try:
            found = meet(self._endpoints[index], index, self._probe, self._scripts, timeout, first=first)
        except Fault as fault:
            found = fault
        except Exception as error:  # noqa: BLE001 - nobody else would notify the waiter
            found = Fault(FaultKind.UNREACHABLE, f"{self.nodes[index]}: {error}")
        try:
            self.loop.call_soon_threadsafe(self._finish_meet, index, attempt, found)
        except RuntimeError:
            # The loop has ended meanwhile.
            if not isinstance(found, Fault):
                found[0].close()

    def _finish_meet(
        self, index: int, attempt: asyncio.Future[None], found: tuple[NodeLink, str] | Fault
    ) -> None:
        if not isinstance(found, Fault):
            link, info = found
            incarnation = self._known_nodes.met(index, info, self.now())
            if isinstance(incarnation, Fault) or self._ending:
                link.close()
                found = (
                    incarnation
                    if isinstance(incarnation, Fault)
                    else Fault(FaultKind.CLOSED, "the client is closed", final=True)
                )
            else:
                link.incarnation = incarnation
                link.heard_at = self.now()
                self._incarnations.took(index, link.slowest)
                link.slowest = 0.0
                self._ready_links[index] = link
        if isinstance(found, Fault):
            self._lost(index, found)
        if not attempt.done():
            attempt.set_result(None)

    def _lost(self, index: int, fault: Fault, link: NodeLink | None = None) -> None:
        if link is not None:
            self._incarnations.heard(index, link.incarnation, link.heard_at)
        self._known_nodes.nodes[index].failed(fault, self.now(), self.random())

    async def _meet_all(self, timeout: float) -> None:
        await self._await_majority({self._meet_soon(index) for index in range(len(self.nodes))}, timeout)

    # The end ----------------------------------------------------------------------------------------------------

    async def shut_down(self) -> None:
        """See ``AsyncioRuntime``."""
        self._ending = True
        try:
            if self._first_meeting is not None and not self._first_meeting.done():
                self._first_meeting.cancel()
            await super().shut_down()
            # A socket closed on top of its answer may take the request back as well: a name just given back is to be
            # free.
            end = self.loop.time() + _DRAIN_WITHIN
            while self._group.has_pending and self.loop.time() < end:  # noqa: ASYNC110 - nothing wakes when it is empty
                await asyncio.sleep(0.001)
        finally:
            with contextlib.suppress(OSError):
                self._group.flush()
            self._group.close()
            for link in self._ready_links:
                if link is not None:
                    link.close()

    def after_fork(self) -> None:
        """See ``AsyncioRuntime``."""
        super().after_fork()
        self._incarnations.guard = threading.RLock()
        self._group.abandon()
        self._ready_links = [None] * len(self._endpoints)
