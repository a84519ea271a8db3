"""The records of a client: leases on the server, when each is due, and who acquires one.

Rules for a lease on the server:

1. ``valid_until`` is counted from the send of the last answered request, minus drift. It only rises, except by a
   local shortening, and never after the loss.
2. The local clock decides: past ``valid_until`` the lease is lost, whatever a renewal in flight may bring.
3. LOST and RELEASED are final.
4. A token for which a leave was ever sent is dead: never renewed, handed over or acquired again.

Several leases of one client may follow each other on one hold (local hand-over); each has its own fence, from
the block that the grant reserved, and its own lease token.

``Schedule`` says when each lease of a client is due: for renewal, for a check of a deadline, or for another try. Leases
with the same rhythm become due in the order in which they were added, so each rhythm has one bucket (an ordered
dict) instead of a place in a heap: adding and removing cost the same for one lease and for a hundred thousand, and a
lease that is released before it is due leaves nothing behind. The few that fall out of rhythm (tries after a
failure, ends of ``max_hold``) are kept apart, each with the one time at which it is served next.

A bucket that is empty counts as due one rhythm from now: nothing that is added to it can be due earlier, so short holds
need not wake the maintenance each time. It is forgotten once a whole rhythm passed without use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import chain
from math import inf
from typing import TYPE_CHECKING
from weakref import ref

from pawlock.core.local_queue import Place, Waiter
from pawlock.core.options import DRIFT_FACTOR, DRIFT_FLOOR
from pawlock.core.outcomes import Outcome
from pawlock.core.primitive import TOMB_MS
from pawlock.core.runtime import Request
from pawlock.errors import BackendError, BackendUnavailable, NotSupported, PawlockError
from pawlock.model import LeaseState, LossReason, QuorumInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawlock.core.local_queue import LocalQueue
    from pawlock.core.options import LockOptions, Rhythm
    from pawlock.core.primitive import Carrier, Primitive
    from pawlock.core.runtime import Parker, StopSignal

__all__ = [
    "Attempt", "Hold", "LeaseRecord", "OutboxEntry", "Schedule", "loss_from", "loss_reasons", "valid_until",
]  # fmt: skip


class LeaseRecord:
    """What a client knows of a lease that a user holds; ``lease.HeldLease`` has the steps that change it.

    Attributes:
        hold: What it holds on the server; others may have held that before.
        number: Which of the hold's owners it is.
        fence: Its fencing token.
        who: The thread or task that it was granted to.
        released: True once its owner, or the end of the client, is done with it.
        lost: True if it was found lost when it was released.
        parked: Who sleeps until it ends; None while nobody ever did.
    """

    # As attributes of the class, so that a short hold sets only what differs.
    number: int = 0
    released: bool = False
    lost: bool = False
    parked: list[Parker] | None = None
    hold: Hold
    fence: int
    who: object

    def wake(self) -> None:
        """Wake those that sleep until the lease ends."""
        for parker in tuple(self.parked or ()):
            parker.unpark()


class Hold:
    """A token that holds a name on the server.

    Attributes:
        primitive: What to send for it.
        options: How it behaves.
        token: The server token.
        fence: The first fence of its block.
        used: How many fences of the block are in use.
        uncontended: True if nobody was queued on the server when it was granted.
        confirmed: False of a hand-off, which lives on its ticket's expiry until it is renewed.
        valid_until: End of validity on the runtime's clock.
        state: Where it stands.
        reason: Why it was lost.
        who: The thread or task that has it; None: nobody, until one that was woken takes it.
        granted_at: When that got it.
        lease: What that holds.
        user: The thread or task inside a ``with`` block that ends it; None if it is not known to be in one.
        watchers: Called once when it is lost.
        shown: True once its token was read; it then passes to nobody else of this client.
        seen: What the observers want back when it is lost.
        epoch: The client's epoch in which it was granted: one of an older epoch is the parent's of a fork.
        rhythm: When it is renewed, and for how long.
        failures: How many renewals in a row got no answer.
        trouble: Why the last of these failed.
        queue: The local queue in which it has a turn; None: in none.
        bucket: Where the renewal schedule keeps it.
        unanswered: True if a request of the token got no reply: a late copy may come, so its leave needs a tombstone.
        quorum: Says how several servers granted it (``lease.quorum``); None with one.
        degraded: What it is instead of a lease of the server (``pawlock._fallback``); ``""``: it is one.
        unsure: Why nobody knows whether its release came to the server: an error's class and words, if it had any.
    """

    # As attributes of the class, so that a short hold sets only what differs.
    state: LeaseState = LeaseState.HELD
    used: int = 0
    uncontended: bool = True
    confirmed: bool = True
    unanswered: bool = False
    queue: LocalQueue | None = None
    quorum: Callable[[], QuorumInfo] | None = None
    reason: LossReason | None = None
    degraded: str = ""
    bucket: OrderedDict[Hold, float] | None = None
    unsure: tuple[type[PawlockError], str] = (BackendUnavailable, "")
    failures: int = 0
    trouble: str = ""
    who: object = None
    lease: ref[LeaseRecord] | None = None
    user: object = None
    watchers: list[Callable[[], object]] | None = None
    shown: bool = False
    seen: tuple[object, ...] = ()
    epoch: int = 0

    def __init__(
        self,
        primitive: Primitive,
        options: LockOptions,
        waiter: Waiter,
        fence: int,
        valid_until: float,
        now: float,
    ) -> None:
        self.primitive: Primitive = primitive
        self.options: LockOptions = options
        self.token: str = waiter.token
        self.fence: int = fence
        self.granted_at: float = now
        self.rhythm: Rhythm = options.rhythm
        self.valid_until: float = valid_until
        if options.max_hold is not None:
            self.limit_hold(now + options.max_hold)
        if waiter.unanswered:
            self.unanswered = True
        if waiter.rank is not None or waiter.holder is not None:
            self.uncontended = False

    @property
    def live(self) -> bool:
        """True while it is neither lost nor released; says nothing of the clock."""
        return self.state is LeaseState.HELD or self.state is LeaseState.SUSPECT

    @property
    def lost(self) -> bool:
        """Whether it is lost."""
        return self.state is LeaseState.LOST

    @property
    def done(self) -> bool:
        """Whether it is lost or released."""
        return not self.live

    def may_be_given(self) -> bool:
        """Whether another caller of this client may go on with it."""
        return self.state is LeaseState.HELD and not self.failures and not self.unanswered and not self.shown

    def give_to(self, place: Place, now: float) -> None:
        """Make a caller of this client its next owner, with the next fence of its block."""
        number, lease = self.used + 1, ref(place.lease)
        # No call from here on, after which a signal handler may run: it is the one's or the other's.
        # Nobody's, until the one that was woken takes it: the last holder may wait for something else by then.
        self.granted_at, self.who, self.lease = now, None, lease
        self.used, place.number, place.given = number, number, self

    @property
    def is_dropped(self) -> bool:
        """Whether the lease that it belongs to is gone without a release: nothing of it is renewed any more."""
        lease = self.lease
        return lease is not None and lease() is None

    @property
    def at_limit(self) -> bool:
        """Whether ``max_hold`` is what ends its validity."""
        limit = self.rhythm.hold_limit
        return limit is not None and self.valid_until >= limit

    def limit_hold(self, limit: float) -> None:
        """Let ``max_hold`` end a lease that was just granted at ``limit``."""
        self.rhythm = self.options.rhythm._replace(hold_limit=limit)
        self.valid_until = min(self.valid_until, limit)

    def note_release_error(self, error: Exception) -> None:
        """Keep what its release ended with, without the frames that an error keeps."""
        kind = type(error) if isinstance(error, (BackendError, NotSupported)) else BackendUnavailable
        self.unsure = kind, error.text if isinstance(error, PawlockError) else str(error)

    @property
    def heard_at(self) -> float:
        """A time before the last request that the server confirmed, and not long before."""
        return self.valid_until - max(self.rhythm.ttl, self.options.rhythm.ttl)

    def loss_reason(self) -> LossReason:
        """The reason, once the clock has passed ``valid_until``."""
        if self.at_limit:
            return LossReason.MAX_HOLD
        if self.state is not LeaseState.SUSPECT:
            return LossReason.EXPIRED
        return self.primitive.unheard

    def close_ms(self, now: float) -> int:
        """How long the name must stay closed after a release now, in ms: what is left of ``min_hold``."""
        if self.options.min_hold <= 0:
            return 0
        return max(0, int((self.granted_at + self.options.min_hold - now) * 1000) + 1)


def loss_from(outcome: Outcome) -> LossReason:
    """The reason that a renewal's no stands for, or what a release found instead."""
    present = getattr(outcome, "present", "")
    return LossReason.TAKEN if present in ("other", "foreign") else LossReason.EXPIRED


async def loss_reasons(
    carrier: Carrier, refused: Sequence[tuple[Hold, Outcome]], patience: float
) -> list[LossReason]:
    """Why the leases were lost that the server does not know any more.

    An operator leaves a mark that leaving finds. The record of the fences outlives a lease, and forgets none: where it has
    fewer than the lease was given, the server came back without its data.
    """
    reasons = [loss_from(outcome) for _, outcome in refused]
    # First, since leaving may grant the name to the next waiter, with a fence of its own.
    calls = [one.primitive.inspect(0) for one, _ in refused]
    calls += [one.primitive.leave(one.token, TOMB_MS, 0) for one, _ in refused]
    answers = await carrier.call_many(calls, patience)
    for index, (hold, _) in enumerate(refused):
        if getattr(answers[len(refused) + index], "forced", False):
            reasons[index] = LossReason.TAKEN
        elif 0 <= getattr(answers[index], "last", -1) < hold.fence:
            reasons[index] = LossReason.DATA_LOST
    return reasons


class OutboxEntry:
    """A token to be left, or another call to be made, in the background until the server answers or it is too late."""

    __slots__ = ("attempt", "call", "due", "until")

    def __init__(self, call: Request, until: float) -> None:
        self.call: Request = call
        self.until: float = until
        self.due: float = 0.0
        self.attempt: int = 0


class Attempt(Place):
    """One acquisition, from its first step to its lease: all that is to be given back if it comes to nothing.

    Args:
        who: The thread or task that wants it.
        began: When it began, on the runtime's clock.
        until: When it gives up; None: never.
        stop: Ends the wait once it is set.
        wait: False to try once, and not queue.

    Attributes:
        queue: The local queue that it came to.
        waiter: What it asks the server for.
        last: The same, once it is passed on or given up, for the error of a wait that is over.
        hold: What the server granted.
        again: Whether its lease is one that its thread or task has, held once more.
        channel: On which it hears the server.
        wait_error: Ends its wait with this error, or None.
    """

    queue: LocalQueue | None = None
    waiter: Waiter | None = None
    last: Waiter | None = None
    hold: Hold | None = None
    again: bool = False
    channel: str = ""
    wait_error: PawlockError | None = None

    def __init__(
        self, who: object, began: float, until: float | None, stop: StopSignal | None, *, wait: bool
    ) -> None:
        self.who: object = who
        self.began: float = began
        self.until: float | None = until
        self.stop: StopSignal | None = stop
        self.wait: bool = wait


_EARLY = 0.02
"""Share of a rhythm by which a lease may be served early, together with another one."""

_MOST_DELAY = 0.1
"""Seconds by which a wait for the server may delay the report of another lease's end, or its renewal. Less would end
the waits of all renewals before a server a little away can answer, once leases that nobody renews end all the time."""


def _need(hold: Hold, due: float) -> float:
    return min(hold.valid_until, (due + hold.valid_until) / 2)


class _Bucket(OrderedDict["Hold", float]):
    """The leases of one rhythm, in the order in which they are due."""

    last_due = 0.0


class Schedule:
    """The due times of one client's leases. ``add``, ``add_once`` and ``discard`` are called under ``Engine.guard``."""

    __slots__ = ("_buckets", "_guard", "_in_hand", "_once", "_wake_at")

    def __init__(self, guard: AbstractContextManager[object]) -> None:
        self._guard = guard
        self._buckets: dict[tuple[float, bool], _Bucket] = {}
        self._once: dict[Hold, float] = {}
        self._in_hand: list[Hold] = []
        self._wake_at = -inf

    def add(self, hold: Hold, every: float, due: float, *, deadline: bool = False) -> bool:
        """Put a lease into the bucket of its rhythm.

        Args:
            hold: The lease.
            every: Its rhythm in seconds.
            due: When it is due; not before any other of the same rhythm, or it is served with that one.
            deadline: True if its life ends then unless something happens: a wait for the server must not pass it.

        Returns:
            True if the maintenance sleeps past ``due`` and must be nudged.
        """
        bucket = self._buckets.get((every, deadline))
        if bucket is None:
            bucket = self._buckets[every, deadline] = _Bucket()
        bucket[hold] = bucket.last_due = due
        hold.bucket = bucket
        if self._once and hold in self._once and self._once[hold] > due:
            # Its bucket comes first, and a release takes it out of that alone.
            del self._once[hold]
        return due < self._wake_at

    def add_again(self, holds: Sequence[Hold], now: float) -> None:
        """Put leases that the maintenance has in hand into the buckets of their own rhythms, from now on.

        For the maintenance alone, which looks at the buckets before it sleeps: nobody need nudge it.
        """
        with self._guard:
            for hold in holds:
                # One that was released since then is nobody's any more.
                if hold.live:
                    every = hold.rhythm.every
                    bucket = self._buckets.get((every, False))
                    if bucket is None:
                        bucket = self._buckets[every, False] = _Bucket()
                    bucket[hold] = bucket.last_due = now + every
                    hold.bucket = bucket

    def ends_last(self, ttl: float, end: float) -> bool:
        """Whether ``end`` is no earlier than that of any lease of this ttl that nobody renews."""
        bucket = self._buckets.get((ttl, True))
        return bucket is None or bucket.last_due <= end

    def add_once(self, hold: Hold, due: float) -> bool:
        """Have a lease served once, out of rhythm, and no later than it is to be already; otherwise as ``add``."""
        hold.bucket = None
        if hold not in self._once or due < self._once[hold]:
            self._once[hold] = due
        return due < self._wake_at

    def discard(self, hold: Hold, *, once: bool = True) -> None:
        """Take a lease out of its bucket; without ``once``, what is asked for out of rhythm still is."""
        bucket = hold.bucket
        if bucket is not None and hold in bucket:
            del bucket[hold]
        if once and hold in self._once:
            del self._once[hold]

    def take_due(self, now: float, most: int) -> list[Hold]:
        """The leases that are due, at most ``most``; the caller, the maintenance, puts back those that go on.

        Where one of a rhythm is due, those that follow within a fiftieth of the rhythm come along: of many leases that
        are due at all times, each turn of the maintenance serves many.
        """
        taken: list[Hold] = []
        with self._guard:
            self._wake_at = -inf
            self._forget_unused(now)
            for (every, deadline), bucket in self._buckets.items():
                if not bucket or bucket[next(iter(bucket))] > now:
                    continue
                # A deadline is no earlier than it is.
                until = now if deadline else now + every * _EARLY
                while bucket and len(taken) < most:
                    hold, due = next(iter(bucket.items()))
                    if due > until:
                        break
                    del bucket[hold]
                    hold.bucket = None
                    taken.append(hold)
            for hold in [one for one, due in self._once.items() if due <= now][: most - len(taken)]:
                del self._once[hold]
                if hold.live:
                    taken.append(hold)
            self._in_hand = taken
        return taken

    def _forget_unused(self, now: float) -> None:
        for key in [key for key, bucket in self._buckets.items() if not bucket and bucket.last_due < now]:
            del self._buckets[key]

    def sleep_until(self, now: float) -> float:
        """When to look again (infinity: never). Nothing is in hand, and ``add`` says from now on when that is late."""
        with self._guard:
            self._in_hand = []
            due = min(self._once.values(), default=inf)
            for (every, _), bucket in self._buckets.items():
                due = min(due, next(iter(bucket.values())) if bucket else now + every)
            self._wake_at = due
            return due

    def spare(self, now: float) -> float:
        """Seconds for which a wait for the server may keep the leases that are not in hand waiting."""
        return max(_MOST_DELAY, self.first_need() - now)

    def first_need(self) -> float:
        """When a wait for the server must be over, for the sake of the leases that are not in hand.

        That is the end of a life that nobody renews. A renewal must go out once half of the time from when it is due
        to the end of validity has passed: the rest is for a new connection and its answer. Of each rhythm, only the
        next lease is asked.
        """
        with self._guard:
            need = min((_need(one, due) for one, due in self._once.items() if one.live), default=inf)
            for (_, deadline), bucket in self._buckets.items():
                if bucket:
                    hold, due = next(iter(bucket.items()))
                    need = min(need, due if deadline else _need(hold, due))
            return need

    def all(self) -> list[Hold]:
        """Every lease that is scheduled or in the maintenance's hands."""
        with self._guard:
            found = dict.fromkeys(chain(*self._buckets.values(), self._once, self._in_hand))
        return [hold for hold in found if hold.live]

    def busy(self) -> bool:
        """Whether there is any lease, or was one a rhythm ago."""
        return bool(self._buckets or self._once)


def valid_until(sent_at: float, left_ms: int, asked_ms: int) -> float:
    """The end of validity of a lease, on the clock of ``sent_at``.

    Args:
        sent_at: When the very request was sent that was answered, in seconds.
        left_ms: What the server said is left, in ms.
        asked_ms: What was asked for, in ms: a key of longer life (another request raised it) gives no more than that.
    """
    ttl = (left_ms if left_ms < asked_ms else asked_ms) / 1000.0  # noqa: FURB136 - min() is a call
    return sent_at + ttl - (ttl * DRIFT_FACTOR + DRIFT_FLOOR)
