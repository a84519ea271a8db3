"""The records of a client: leases on the server, leases of its users, and waiters.

Rules for a lease on the server:

1. ``valid_until`` is counted from the send of the last answered request, minus drift. It only rises, except by a
   local shortening, and never after the loss.
2. The local clock decides: past ``valid_until`` the lease is lost, whatever a renewal in flight may bring.
3. LOST and RELEASED are final.
4. A token for which a leave was ever sent is dead: never renewed, handed over or acquired again.

Several leases of one client may follow each other on one server lease (local hand-over); each has its own fence, from
the block that the grant reserved, and its own lease token.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING
from weakref import ref

from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.state.local_queue import Place
from pawlock.errors import BackendError, BackendUnavailable, NotSupported, PawlockError
from pawlock.model import LeaseState, LossReason, QuorumInfo

if TYPE_CHECKING:
    from collections import OrderedDict

    from pawlock.core.protocol.options import LockOptions, Rhythm
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.runtime import Parker, StopSignal
    from pawlock.core.state.local_queue import LocalQueue

__all__ = [
    "Attempt",
    "LeaseRecord",
    "OutboxEntry",
    "Retry",
    "ServerLease",
    "Waiter",
    "WaiterState",
    "loss_from",
]


class LeaseRecord:
    """What a client knows of a lease that a user holds; ``lease.record.HeldLease`` has the steps that change it.

    Attributes:
        server_lease: What it holds on the server; others may have held that before.
        number: Which of the server lease's owners it is.
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
    server_lease: ServerLease
    fence: int
    who: object

    def wake(self) -> None:
        """Wake those that sleep until the lease ends."""
        for parker in tuple(self.parked or ()):
            parker.unpark()


class ServerLease:
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
    bucket: OrderedDict[ServerLease, float] | None = None
    unsure: tuple[type[PawlockError], str] = (BackendUnavailable, "")
    failures: int = 0
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

    def why_over(self) -> LossReason:
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


class WaiterState(Enum):
    """What the server knows of a waiter's token."""

    NEW = "nothing: it was not asked for, or a refusal left nothing of it"
    ASKED = "a request went out; whether it queues or holds is in its answer, or not known"
    QUEUED = "it has a ticket in the queue"
    BUSY = "nothing: somebody else holds the name, and it did not queue"


class Retry:
    """Since when and how often something has failed; ``retry.pause_after`` says for how long that goes on.

    Args:
        holds: Whether the caller holds the lock, so that it alone asks, and soon again.

    Attributes:
        since: Since when the server gives no answer, or None.
        attempt: How many tries have failed in a row.
    """

    __slots__ = ("attempt", "holds", "since")

    def __init__(self, *, holds: bool = False) -> None:
        self.holds: bool = holds
        self.since: float | None = None
        self.attempt: int = 0

    def over(self) -> None:
        """The server has answered."""
        self.since = None
        self.attempt = 0


class Waiter:
    """A token that wants a name.

    Attributes:
        token: The server token; a new one after each restart.
        state: What the server knows of the token.
        unanswered: True once a request of the token got no reply: its leave then needs a tombstone.
        late_grants: How often in a row its grant had to be asked for again: it came late, or had a ticket's life.
        rank: How many wait before it in the server's queue; None: it never had a ticket.
        expires_ms: When its ticket ends, on the server's clock.
        valid_until: The same on the runtime's clock, at the latest.
        holder: Who is in its way, for others to see; or None.
        holder_ms: How long the lease of that one lives at most; -1: it never ends.
        foreign: Whether that one is no pawlock.
        endless: Whether it was logged that it never ends.
        outcomes: What each of several servers answered; None with one.
        retry: Since when the server gives no answer; None: it never failed to.
    """

    # As attributes of the class, so that an uncontended acquisition sets only what differs.
    state: WaiterState = WaiterState.NEW
    unanswered: bool = False
    late_grants: int = 0
    rank: int | None = None
    expires_ms: int = 0
    valid_until: float = 0.0
    holder: str | None = None
    holder_ms: int = -2
    foreign: bool = False
    endless: bool = False
    outcomes: dict[str, str] | None = None
    retry: Retry | None = None

    def __init__(self, token: str) -> None:
        self.token: str = token

    @property
    def sent(self) -> bool:
        """Whether anything of the token may be on the server, or on its way there."""
        return self.state is not WaiterState.NEW

    def failing(self) -> Retry:
        """Since when and how often its questions have failed."""
        if self.retry is None:
            self.retry = Retry()
        return self.retry

    def note_unconfirmed(self, error: BaseException) -> None:
        """What was sent last may still be on its way if ``error`` is no word of the server, but a cancel or Ctrl-C."""
        if not isinstance(error, PawlockError) and self.sent:
            self.unanswered = True

    def restart(self, token: str) -> None:
        """Begin anew with a new token, shown as the old one was; who is in the way is known still."""
        secret, _, _ = token.partition("@")
        _, at, shown = self.token.partition("@")
        self.token = f"{secret}@{shown}" if at else token
        self.state, self.unanswered, self.late_grants, self.rank = WaiterState.NEW, False, 0, None


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
    hold: ServerLease | None = None
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
