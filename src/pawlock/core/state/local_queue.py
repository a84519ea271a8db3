"""The local queue of one name in one client: waiters of a client stand behind one ticket on the server.

At any time a local queue has one *speaker* (who talks to the server for all) or one *owner* (who holds), and the others
sleep in a queue. A turn passes in one of three ways:

- the owner's server lease passes to the first local waiter, without the network: the next fence of the block, at most
  ``handover`` times in a row, for at most 20 ms, only while at least half of a ticket's life is left, and not once
  somebody read its token; where others were in the way of its grant, each of those who wait here then is served once,
  and nobody twice before the others have their turn;
- the first local waiter becomes the speaker, with the ticket of the one before (its place in the server's queue is
  kept), or with the token that holds, to give the name back and queue again in one script;
- with the last owner of a run, while others wait elsewhere, the local queue and the server lease part: the first local
  waiter speaks with a token of its own and queues on the server, while that owner still holds and then gives the name
  back by itself.

A local queue that is empty is closed and forgotten; who comes later opens a new one.

Every change of a turn is made under ``Engine.guard``. Turns are numbered: its turn_holder may pass it on again and again,
and only the first time counts. Whoever was interrupted and has passed nothing on is gone, or its lease is lost: a waiter
that wakes, as each does once a second, takes the turn then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from weakref import ref

from pawlock.core.state.records import Handed, Turn, Waiter
from pawlock.model import LeaseState

if TYPE_CHECKING:
    from pawlock.core.protocol.runtime import Parker, Runtime
    from pawlock.core.state.records import ServerLease
    from pawlock.errors import PawlockError

__all__ = ["LocalQueue", "LocalQueues", "LocalWaiter"]


class LocalWaiter(Handed):
    """One caller at a name, from when it joins to its lease; ``wait_error`` ends its wait with that error.

    Attributes:
        parker: Where it sleeps.
        local_queue: The one it came to.
        waits: True once it was put into the queue; False for who found nobody and has the turn.
        turn: The number of its turn as the speaker.
        waiter: What it is to speak for, or None.
        closed: True if the client was closed while it waited.
    """

    # As attributes of the class, so that each sets only what differs.
    local_queue: LocalQueue | None = None
    waits: bool = False
    turn: int = 0
    waiter: Waiter | None = None
    closed: bool = False
    wait_error: PawlockError | None = None
    state: LeaseState = LeaseState.HELD
    parker: Parker

    @property
    def served(self) -> bool:
        """True once a turn was passed to it; it must be used or passed on."""
        return self.server_lease is not None or self.waiter is not None


# Shared by all local queues where nobody ever waited; never added to.
_NOBODY: deque[LocalWaiter] = deque()


class LocalQueue:
    """The queue of one name; see the module.

    Attributes:
        streak: How many grants of the present run were handed over.
        most: How many there may be.
        turn: Counts the speakers; an owner has the turn of the speaker that it was.
        turn_holder: Who has the turn: a caller, or the owner's server lease.
    """

    # As attributes of the class, so that a local queue where nobody waits sets only what differs.
    local_waiters: deque[LocalWaiter] = _NOBODY
    closed: bool = False
    streak: int = 0
    most: int = 0
    since: float = 0.0
    turn: int = 0

    def __init__(
        self,
        key: Hashable,
        guard: AbstractContextManager[object],
        by_key: dict[Hashable, LocalQueue],
        turn_holder: LocalWaiter | ServerLease,
    ) -> None:
        self.turn_holder: ref[LocalWaiter | ServerLease] = ref(turn_holder)
        self.key: Hashable = key
        self.guard: AbstractContextManager[object] = guard
        self.by_key: dict[Hashable, LocalQueue] = by_key

    def is_orphaned(self, turn_holder: ref[LocalWaiter | ServerLease]) -> bool:
        """Whether who has the turn will not pass it on."""
        holder = turn_holder()
        return holder is None or holder.state is LeaseState.LOST

    def promote(self, waiter: Waiter, turn: int, parting: ServerLease | None = None) -> bool:
        """Make the first local waiter the speaker; False if nobody sleeps, and then the local queue is closed.

        Args:
            waiter: What to speak for; the local waiter's from here on.
            turn: Which turn it is that is passed on. One that was passed on before is not passed on again.
            parting: The server lease of the last owner of a run, which the queue goes on without: the next local waiter
                queues on the server while that owner still works. Its release then grants the name to another client
                at once, and waits for no thread or task of this client to wake up.
        """
        local_waiter: LocalWaiter | None = None
        try:
            while local_waiter is None:
                found = self._first()
                with self.guard:
                    if self.turn != turn:
                        return True
                    if not self.local_waiters:
                        self.closed = True
                        if self.key in self.by_key and self.by_key[self.key] is self:
                            del self.by_key[self.key]
                        if parting is not None:
                            parting.local_queue = None
                        return False
                    if found is not None and self.local_waiters[0] is found[0]:
                        if parting is not None:
                            parting.local_queue, self.streak = None, 0
                        local_waiter, self.turn_holder = found
                        self.turn += 1
                        local_waiter.turn = waiter.turn = self.turn
                        local_waiter.waiter = waiter
                        del self.local_waiters[0]
            local_waiter.parker.unpark()
        except BaseException:
            if local_waiter is not None:
                local_waiter.parker.unpark()
            raise
        return True

    def _first(self) -> tuple[LocalWaiter, ref[LocalWaiter | ServerLease]] | None:
        """Who sleeps first, and what refers to it; a step must see that it still is the first."""
        try:
            first = self.local_waiters[0]
        except IndexError:
            return None
        return first, ref(first)

    def hand_over(self, server_lease: ServerLease, now: float, number: int | None = None) -> Turn:
        """Pass an owner's server lease to the first local waiter if it may; the owner must not touch it again.

        Args:
            server_lease: What is passed on.
            now: The present.
            number: Which of its owners passes it on; None if that is sure.
        """
        used, streak = server_lease.used, self.streak
        most = self.most if streak else self._run_limit(server_lease)
        may = streak < most and self._may_hand_over(server_lease, now)
        local_waiter: LocalWaiter | None = None
        try:
            with self.guard:
                if self.turn != server_lease.turn:
                    return Turn.GONE
                if server_lease.used != (used if number is None else number):
                    return Turn.HANDED
                if not self.local_waiters:
                    if self.key in self.by_key and self.by_key[self.key] is self:
                        del self.by_key[self.key]
                    self.closed = True
                    return Turn.ALONE
                if (
                    not may
                    or server_lease.owner.shown
                    or server_lease.state is not LeaseState.HELD
                    or server_lease.used != used
                ):
                    self.streak = 0
                    return Turn.REFUSED
                if streak == 0:
                    self.since, self.most = now, most
                local_waiter = self.local_waiters[0]
                self.streak = streak + 1
                server_lease.used = local_waiter.number = used + 1
                local_waiter.fence, local_waiter.server_lease = (
                    server_lease.fence + server_lease.used,
                    server_lease,
                )
                # Nobody's, until the one that was woken takes it: the last holder may wait for something else by then.
                server_lease.owner.granted_at, server_lease.owner.who = now, None
                server_lease.owner.lease = local_waiter.lease
                del self.local_waiters[0]
            local_waiter.parker.unpark()
        except BaseException:
            if local_waiter is not None:
                local_waiter.parker.unpark()
            raise
        return Turn.HANDED

    def _run_limit(self, server_lease: ServerLease) -> int:
        """How many grants a run may have that begins now."""
        # Who comes back meanwhile waits for the next run, as those do who wait elsewhere.
        most = server_lease.options.handover
        return most if server_lease.uncontended else min(most, len(self.local_waiters))

    def _may_hand_over(self, server_lease: ServerLease, now: float) -> bool:
        """Whether the rules allow a hand-over by the present owner; only its state can change while it is the owner."""
        options = server_lease.options
        return (
            server_lease.used < options.handover
            and not server_lease.failures
            and not server_lease.unanswered
            and server_lease.valid_until - now >= options.ticket_ttl / 2
            and (self.streak == 0 or now - self.since < options.hand_over_for)
        )

    def take_orphan(self, local_waiter: LocalWaiter, token: str) -> bool:
        """Become the speaker, with a new token, if the turn_holder is gone and ``local_waiter`` is first."""
        gone = self.turn_holder
        if not self.is_orphaned(gone):
            return False
        waiter = Waiter(token)
        turn_holder: ref[LocalWaiter | ServerLease] = ref(local_waiter)
        with self.guard:
            if (
                self.turn_holder is not gone
                or not self.local_waiters
                or self.local_waiters[0] is not local_waiter
            ):
                return False
            self.turn_holder = turn_holder
            self.turn += 1
            local_waiter.turn = waiter.turn = self.turn
            local_waiter.waiter = waiter
            del self.local_waiters[0]
        return True

    def withdraw(self, local_waiter: LocalWaiter) -> bool:
        """Take a local waiter out of the queue; False if its turn came first, and then it must use it or pass it on."""
        while True:
            local_waiters = self.local_waiters
            try:
                at = local_waiters.index(local_waiter)
            except ValueError:
                at = -1
            with self.guard:
                if local_waiter.server_lease is not None or local_waiter.waiter is not None:
                    return False
                if at < 0:
                    return True
                try:
                    if local_waiters[at] is local_waiter:
                        del local_waiters[at]
                        return True
                except IndexError:
                    # Others left meanwhile.
                    continue

    def dismiss(self) -> None:
        """Wake every local waiter because the client closes."""
        with self.guard:
            local_waiters = self.local_waiters
            self.local_waiters = _NOBODY
            self.closed = True
            if self.key in self.by_key and self.by_key[self.key] is self:
                del self.by_key[self.key]
        for local_waiter in tuple(local_waiters):
            local_waiter.closed = True
            local_waiter.parker.unpark()


class LocalQueues:
    """All local queues of one client.

    Args:
        runtime: The runtime of the API.
        guard: Held for each step in any of the local queues.
    """

    __slots__ = ("_guard", "_runtime", "by_key")

    def __init__(self, runtime: Runtime, guard: AbstractContextManager[object]) -> None:
        self._runtime = runtime
        self._guard = guard
        self.by_key: dict[Hashable, LocalQueue] = {}

    def join(self, key: Hashable, local_waiter: LocalWaiter) -> LocalQueue:
        """Come to a name: with the turn, or into its queue (``local_waiter.waits``)."""
        local_waiter.parker = self._runtime.parker()
        added = (local_waiter,)
        while True:
            local_queues = self.by_key
            local_queue = local_queues.get(key)
            if local_queue is None:
                # Noted before others can find it: interrupted from here on, the caller passes its turn on.
                mine = local_waiter.local_queue = LocalQueue(key, self._guard, local_queues, local_waiter)
                # One step under the interpreter's lock: two callers cannot both open the local queue.
                local_queue = local_queues.setdefault(key, mine)
                if local_queue is mine:
                    return mine
            turn_holder = local_queue.turn_holder
            kept = not local_queue.is_orphaned(turn_holder)
            waiters: deque[LocalWaiter] = deque() if local_queue.local_waiters is _NOBODY else _NOBODY
            with local_queue.guard:
                # Somebody has its turn, who will pass it on.
                if not local_queue.closed and (
                    local_queue.local_waiters or (kept and local_queue.turn_holder is turn_holder)
                ):
                    if local_queue.local_waiters is _NOBODY:
                        local_queue.local_waiters = waiters
                    local_waiter.local_queue = local_queue
                    local_waiter.waits = True
                    local_queue.local_waiters += added
                    return local_queue
            if self._inherit(local_queue, local_waiter):
                return local_queue

    @staticmethod
    def _inherit(local_queue: LocalQueue, local_waiter: LocalWaiter) -> bool:
        """Take the turn of a caller that was interrupted where nothing could be cleaned up."""
        gone = local_queue.turn_holder
        if not local_queue.is_orphaned(gone):
            return False
        turn_holder: ref[LocalWaiter | ServerLease] = ref(local_waiter)
        with local_queue.guard:
            if local_queue.closed or local_queue.local_waiters or local_queue.turn_holder is not gone:
                return False
            local_queue.turn_holder = turn_holder
            local_queue.turn += 1
            local_waiter.turn = local_queue.turn
            local_waiter.local_queue = local_queue
        return True

    def dismiss(self) -> None:
        """Wake all local waiters of all local queues because the client closes."""
        for local_queue in list(self.by_key.values()):
            local_queue.dismiss()

    def clear(self, guard: AbstractContextManager[object]) -> None:
        """Forget everything, as after a fork: the local waiters are threads of the parent."""
        self.by_key = {}
        self._guard = guard

    def __len__(self) -> int:
        return len(self.by_key)
