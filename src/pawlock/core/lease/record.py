"""The record of a lease that a user holds, with the steps that change it. The user's own object only shows it.

The record is what holds: only as long as it lives is anything renewed. When it is dropped without release, whatever
interrupted its user, what it held runs out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from pawlock.core.state.records import LeaseRecord, ServerLease
from pawlock.errors import LeaseLost, NotHeld
from pawlock.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.runtime import Parker

__all__ = ["UNSHOWN", "HeldLease", "Losable"]

UNSHOWN = "!"
"""In what ``token`` says of a lease that was handed on before it was read: its server token is the next owner's."""


class Losable(Protocol):
    """The record of a lease of one name or of several."""

    parked: list[Parker] | None
    engine: Engine

    @property
    def name(self) -> str:
        """The name of the lock."""
        ...

    @property
    def state(self) -> LeaseState:
        """Where it stands, by the local clock."""
        ...

    @property
    def valid_until(self) -> float:
        """The end of its validity."""
        ...

    def bind(self, block: object | None) -> None:
        """Note that the present thread or task is in a block which ends it."""
        ...

    def watch(self, watcher: Callable[[], object]) -> None:
        """Have a function called when it is lost."""
        ...

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """Have it called no more."""
        ...

    def loss(self) -> LeaseLost:
        """The error of a lease that is lost."""
        ...


class HeldLease(LeaseRecord):
    """A grant that its owner may rely on until ``valid_until``.

    Args:
        engine: The engine of its client.
        server_lease: What it holds; None to make it beforehand, of nothing.
        who: The thread or task that it is granted to.

    Attributes:
        levels: How many times it is held by re-entry.
        block: The ``with`` block that ends it; None without one.
        client: Its client, so that what that does at its end is done for the lease too.
    """

    levels: int = 1
    block: ref[Any] | None = None
    shown_as: ref[Any] | None = None

    def __init__(self, engine: Engine, server_lease: ServerLease | None, who: object) -> None:
        self.client: object = engine.client()
        self.engine: Engine = engine
        self.who: object = who
        self.released: bool = server_lease is None
        if server_lease is not None:
            self.server_lease: ServerLease = server_lease
            self.fence: int = server_lease.fence
            server_lease.lease = ref(self)

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self.server_lease.primitive.name

    @property
    def ttl(self) -> float:
        """The ttl in seconds, as last requested."""
        return self.server_lease.rhythm.ttl

    @property
    def valid_until(self) -> float:
        """The end of its validity, in seconds of the runtime's clock."""
        return self.server_lease.valid_until

    @property
    def state(self) -> LeaseState:
        """Where it stands, by the local clock."""
        if self.released:
            return LeaseState.LOST if self.lost else LeaseState.RELEASED
        if self.inert():
            return LeaseState.LOST
        server_lease = self.server_lease
        if server_lease.live and self.engine.expired(server_lease, self.engine.runtime.now()):
            return LeaseState.LOST
        return server_lease.state

    @property
    def fence_strength(self) -> str:
        """How far the fence can be trusted; see ``BaseLease``."""
        return "none" if self.server_lease.degraded else self.engine.runtime.fence_strength

    @property
    def label(self) -> str:
        """Which lease it is, for logs and tests; unlike ``token``, it may be read without a consequence."""
        return f"{self.server_lease.token}.{self.number}"

    @property
    def token(self) -> str:
        """The token that stands for this lease alone; once it was read, the lease is not handed on in its client."""
        server_lease, number = self.server_lease, self.number
        with self.engine.guard:
            held = server_lease.state is LeaseState.HELD or server_lease.state is LeaseState.SUSPECT
            # Released, and its token held still: it is about to be handed on.
            alone = server_lease.used == number and (server_lease.shown or not (self.released and held))
            if alone:
                server_lease.shown = True
        return server_lease.token if alone else f"{server_lease.token}{UNSHOWN}{number}"

    def inert(self) -> bool:
        """Whether it belongs to the parent of this process."""
        return self.server_lease.epoch != self.engine.epoch

    def is_held(self) -> bool:
        """Whether its owner still holds it, by the local clock."""
        return self.state in (LeaseState.HELD, LeaseState.SUSPECT)

    def remaining(self) -> float:
        """Seconds of validity left; 0 when lost or released."""
        if not self.is_held():
            return 0.0
        return max(0.0, self.server_lease.valid_until - self.engine.runtime.now())

    def check(self) -> None:
        """Raise ``LeaseLost`` unless the lease is still good, by the local clock."""
        server_lease = self.server_lease
        if (
            server_lease.state is LeaseState.HELD
            and not self.released
            and server_lease.epoch == self.engine.epoch
            and self.engine.runtime.now() < server_lease.valid_until
        ):
            return
        if self.state in (LeaseState.LOST, LeaseState.RELEASED):
            raise self.lost_error()

    def beat(self) -> None:
        """Count ``max_hold`` anew from here; raise ``LeaseLost`` if it is too late."""
        self.check()
        server_lease = self.server_lease
        if server_lease.options.max_hold is not None:
            limit = self.engine.runtime.now() + server_lease.options.max_hold
            self.engine.runtime.run_in_owner(lambda: self.engine.limit_hold(server_lease, limit))

    def bind(self, block: object | None) -> None:
        """Note that the present thread or task is in a block which ends the lease: no other one will.

        Args:
            block: What ends with the block; None if the interpreter knows of none, as in an ``ExitStack``.
        """
        if not self.server_lease.primitive.transferable:
            self.server_lease.user = self.engine.runtime.who()
        if block is not None and self.levels == 1:
            self.block = ref(block)

    def take_end(self) -> bool:
        """Mark the lease as ended by its owner; False if somebody else was first."""
        with self.engine.guard:
            if self.released:
                return False
            self.released = True
            return True

    def drop_level(self) -> None:
        """End one level, whose block is gone, soon; for a finaliser. All of a lease ends with its own."""
        if self.levels > 1 and not self.released:
            self.engine.dropped_levels.append(self)
            self.engine.background.nudge()

    def take_level(self) -> bool:
        """End one level of a re-entered lease; False if it is held once, and all of it is to end."""
        with self.engine.guard:
            if self.levels == 1 or self.released:
                return False
            self.levels -= 1
            return True

    def watch(self, watcher: Callable[[], object]) -> None:
        """Have a function called when it is lost."""
        server_lease = self.server_lease
        if server_lease.watchers is None:
            server_lease.watchers = []
        server_lease.watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """Have it called no more."""
        watchers = self.server_lease.watchers
        if watchers is not None and watcher in watchers:
            watchers.remove(watcher)

    def lost_error(self) -> LeaseLost:
        """The error of a lease that is not held any more."""
        if self.released and not self.lost:
            return LeaseLost(
                f"the lease of {self.name!r} was released", name=self.name, reason=LossReason.CLOSED
            )
        if self.inert():
            text = f"the lease of {self.name!r} belongs to the parent process; a fork does not inherit it"
            return LeaseLost(text, name=self.name, reason=LossReason.CLOSED)
        return self.loss()

    def not_held(self, doing: str) -> NotHeld:
        """The error of who wants something done with a lease that is not held any more."""
        return NotHeld(f"{doing} {self.name!r}: {self.lost_error().text}", name=self.name, operation=doing)

    def loss(self) -> LeaseLost:
        """The error of a lease that is lost."""
        # None: another thread noticed it by the clock before the event loop of the lease recorded why.
        reason = self.server_lease.reason or self.server_lease.why_over()
        text = f"the lease of {self.name!r} is lost ({reason}); fencing token {self.fence}"
        return LeaseLost(text, name=self.name, reason=reason)

    def __repr__(self) -> str:
        return f"<lease of {self.name!r} {self.state} fence={self.fence}>"

    def __del__(self) -> None:
        # A finaliser may run anywhere, inside any lock: it appends and nudges, no more.
        try:
            if self.released:
                return
            server_lease, engine = self.server_lease, self.engine
        except AttributeError:
            return
        if server_lease.epoch != engine.epoch or engine.closed:
            return
        engine.abandoned.append(server_lease)
        engine.background.nudge()
        if not server_lease.live:
            return
        text = f"lease of {self.name!r} was never released; renewal stops, and it expires by its TTL"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
