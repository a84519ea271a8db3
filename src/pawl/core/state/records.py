"""One lease on the server, as its client sees it.

Rules:

1. ``valid_until`` is counted from the send of the last answered request, minus drift. It only rises, except by a
   local shortening, and never after the loss.
2. The local clock decides: past ``valid_until`` the lease is lost, whatever a renewal in flight may bring.
3. LOST and RELEASED are final.
4. A token for which a leave was ever sent is dead: never renewed, handed over or acquired again.

Several leases of one client may follow each other on one tenure (local hand-over); each has its own fence, from the
block that the grant reserved, and its own lease token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pawl.errors import BackendError, BackendUnavailable, NotSupported, PawlError
from pawl.model import LeaseState, LossReason

if TYPE_CHECKING:
    from collections import OrderedDict, deque
    from weakref import ref

    from pawl.core.lease.base import BaseLease
    from pawl.core.protocol.options import LockOptions
    from pawl.core.protocol.primitive import OrderedPrimitive, Primitive
    from pawl.core.protocol.runtime import Call, Reply
    from pawl.core.quorum.ballot import Granted
    from pawl.core.state.local_queue import Place

__all__ = ["Tenure", "loss_from"]


class Tenure:
    """A token that holds a name on the server.

    Attributes:
        primitive: What to send for it.
        options: How it behaves.
        token: The server token.
        fence: The first fence of its block.
        used: How many fences of the block are in use.
        lone: True if nobody was queued on the server when it was granted.
        ttl: Seconds asked for at each renewal.
        every: Seconds between renewals.
        valid_until: End of validity on the runtime's clock.
        hold_limit: When ``max_hold`` ends it, or None.
        granted_at: When the present owner got it.
        state: Where it stands.
        reason: Why it was lost.
        watchers: Called once when it is lost.
        user: The thread or task inside a ``with`` block that ends it; None if it is not known to be in one.
        outer: What its owner holds around it and goes on with after it: the reader of an upgrade; or None.
        place: The local queue it belongs to, or None.
        turn: The turn of that queue in which it was granted.
        row: Where the renewal schedule keeps it.
        unanswered: True if a request of the token got no reply: a late copy may come, so its leave needs a tombstone.
        quorum: How several independent masters voted for it; None with one.
        seen: What the observers want back when it is lost.
        spot: Which claims may follow it in strict order (see ``strict_handover``); ``""``: none.
        behind: Whose tickets stand directly behind it in strict order.
        spent: Whose tickets were served from it, and are still queued on the server.
        unsure: Why nobody knows whether its release came to the server: an error's class and words, if it had any.
        left: True once the end of the client gave it back, on top of a release of its own.
        degraded: What it is instead of a lease of the server: ``"local"``, ``"open"``; ``""``: it is one.
    """

    # As attributes of the class, so that a short hold sets only what differs.
    used: int = 0
    lone: bool = True
    hold_limit: float | None = None
    state: LeaseState = LeaseState.HELD
    reason: LossReason | None = None
    watchers: list[Callable[[], object]] | None = None
    outer: Tenure | None = None
    place: Place | None = None
    turn: int = 0
    row: OrderedDict[Tenure, float] | None = None
    lease: ref[BaseLease] | None = None
    who: object = None
    user: object = None
    unanswered: bool = False
    quorum: Granted | None = None
    seen: tuple[object, ...] = ()
    unsure: tuple[type[PawlError], str] = (BackendUnavailable, "")
    degraded: str = ""
    spot: str = ""
    behind: deque[str] | None = None
    spent: list[str] | None = None
    failures: int = 0
    epoch: int = 0
    left: bool = False

    def __init__(
        self,
        primitive: Primitive,
        options: LockOptions,
        token: str,
        fence: int,
        valid_until: float,
        now: float,
    ) -> None:
        self.primitive: Primitive = primitive
        self.options: LockOptions = options
        self.token: str = token
        self.fence: int = fence
        self.ttl: float = options.ttl
        self.every: float = options.renew_every or options.ttl / 3
        if options.max_hold is not None:
            self.hold_limit = now + options.max_hold
            valid_until = min(valid_until, self.hold_limit)
        self.valid_until: float = valid_until
        self.granted_at: float = now
        # What each release reads: an attribute of the object is found at once, one of the class by a search.
        self.state = LeaseState.HELD
        self.place = None
        self.quorum = None
        self.unanswered = False
        self.turn = 0
        self.used = 0
        self.spot = ""

    @property
    def live(self) -> bool:
        """True while it is neither lost nor released; says nothing of the clock."""
        return self.state is LeaseState.HELD or self.state is LeaseState.SUSPECT

    def doubt(self, error: Exception) -> None:
        """Keep what its release ended with, without the frames that an error keeps."""
        kind = type(error) if isinstance(error, (BackendError, NotSupported)) else BackendUnavailable
        self.unsure = kind, error.text if isinstance(error, PawlError) else str(error)

    def leave(self, tomb_ms: int, close_ms: int, look: int = 0) -> Call:
        """The call that gives it back, with all that was served from it.

        Args:
            tomb_ms: For how long a late copy of its acquire is barred.
            close_ms: For how long the name stays closed.
            look: How many tickets behind the next one to name in its message.
        """
        if self.spent or look:
            queued = cast("OrderedPrimitive", self.primitive)
            return queued.leave_run(self.token, tomb_ms, close_ms, look, self.spent or ())
        return self.primitive.leave(self.token, tomb_ms, close_ms)

    @property
    def heard_at(self) -> float:
        """A time before the last request that the server answered with a yes, and not long before."""
        return self.valid_until - max(self.ttl, self.options.ttl)

    def why_over(self) -> LossReason:
        """The reason, once the clock has passed ``valid_until``."""
        if self.hold_limit is not None and self.valid_until >= self.hold_limit:
            return LossReason.MAX_HOLD
        if self.state is not LeaseState.SUSPECT:
            return LossReason.EXPIRED
        return LossReason.UNREACHABLE if self.quorum is None else LossReason.QUORUM

    def close_ms(self, now: float) -> int:
        """How long the name must stay closed after a release now, in ms: what is left of ``min_hold``."""
        if self.options.min_hold <= 0:
            return 0
        return max(0, int((self.granted_at + self.options.min_hold - now) * 1000) + 1)


def loss_from(reply: Reply) -> LossReason:
    """The reason that a renewal's no stands for."""
    present = reply[2] if reply[0] == b"U" else b""
    return LossReason.TAKEN if present in (b"other", b"foreign") else LossReason.EXPIRED
