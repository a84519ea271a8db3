"""The lease that a user holds, for both APIs: what can be said of it without the network."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from weakref import ref

from pawl.core.state.records import LeaseRecord, ServerLease
from pawl.errors import LeaseLost, NotHeld, NotSupported
from pawl.model import LeaseState, LossReason, QuorumInfo

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.runtime import Parker

__all__ = ["UNSHOWN", "BaseLease", "Losable", "LossSignal", "NewLease", "take_entered"]

L = TypeVar("L")

UNSHOWN = "!"
"""In what ``token`` says of a lease that was handed on before it was read: its server token is the next owner's."""


class _NotPicklable(NotSupported, TypeError):
    """A lease belongs to the process that holds it."""


class _NotAWriter(NotHeld, AttributeError):
    """Only a writer can become a reader; an AttributeError too, so that ``hasattr`` says no."""


class Losable(Protocol):
    """A lease of one name or of several."""

    _parked: list[Parker] | None

    @property
    def _engine(self) -> Engine: ...

    @property
    def state(self) -> LeaseState:
        """Where it stands, by the local clock."""
        ...

    @property
    def valid_until(self) -> float:
        """The end of its validity."""
        ...


class LossSignal:
    """Whether a lease is lost: true in a condition once it is.

    ``if lease.lost: ...`` asks the local clock; nothing is sent. ``wait`` (in the class of each API) sleeps until
    the loss.
    """

    __slots__ = ("_lease",)

    def __init__(self, lease: Losable) -> None:
        self._lease = lease

    def __bool__(self) -> bool:
        return self._lease.state is LeaseState.LOST

    def is_set(self) -> bool:
        """True once the lease is lost."""
        return bool(self)

    def __repr__(self) -> str:
        return f"<lost: {bool(self)}>"

    async def _wait(self, timeout: float | None) -> bool:
        lease = self._lease
        runtime = lease._engine.runtime
        parker = runtime.parker()
        end = None if timeout is None else runtime.now() + timeout
        local_waiters = [parker]
        with lease._engine.guard:
            if lease._parked is None:
                lease._parked = local_waiters
            else:
                lease._parked += local_waiters
                local_waiters = lease._parked
        try:
            while lease.state not in (LeaseState.LOST, LeaseState.RELEASED):
                pause = max(0.0, lease.valid_until - runtime.now())
                if end is not None:
                    if runtime.now() >= end:
                        return False
                    pause = min(pause, end - runtime.now())
                await parker.park(pause)
        finally:
            local_waiters.remove(parker)
        return bool(self)


class BaseLease(LeaseRecord):
    """A grant that its owner may rely on until ``valid_until``; made by ``acquire``, never by hand."""

    __slots__ = (
        "_client",
        "_engine",
    )

    def __init__(
        self, engine: Engine, server_lease: ServerLease | None, fence: int, who: object, count: int
    ) -> None:
        mine: ref[LeaseRecord] = ref(self)
        # It keeps its client, so that what the client does at its end is done for it too.
        self._client = engine.client()
        # No call from here on: Ctrl-C finds it made, or not begun.
        self._engine = engine
        self._fence = fence
        self._who = who
        self._levels = 1
        self._shared = count
        self._released = server_lease is None
        self._given = False
        self._lost = False
        self._parked: list[Parker] | None = None
        if server_lease is not None:
            self._server_lease = server_lease
            self._number = server_lease.used
            server_lease.lease = mine

    def __bool__(self) -> bool:
        """True while it is held or suspect, by the local clock; False once it is lost or released. Sends nothing."""
        return self._mine()

    if not TYPE_CHECKING:

        @property
        def downgrade(self) -> NoReturn:
            """Only a writer's lease has it; a program without a type checker learns it here.

            Raises:
                NotHeld: Always (an AttributeError too, so that ``hasattr`` says no).
            """
            raise _NotAWriter(
                f"downgrade {self.name!r}: this is not a write lease; only the lease of "
                "rwlock(name).write can be downgraded",
                operation="downgrade",
            )

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._server_lease.primitive.name

    @property
    def token(self) -> str:
        """The lease's secret: who knows it can end the lease, with ``client.release(name, token)``.

        Never log it; ``repr`` shows the part after ``@``. Once it was read, the lease is not handed on in its client,
        without the server, which is faster; so the token stands for this lease alone. A token that is first read once
        the lease was handed on is good for nothing.
        """
        server_lease, number = self._server_lease, self._number
        with self._engine.guard:
            held = server_lease.state is LeaseState.HELD or server_lease.state is LeaseState.SUSPECT
            # Released, and its token held still: it is about to be handed on.
            alone = server_lease.used == number and (server_lease.shown or not (self._released and held))
            if alone:
                server_lease.shown = True
        return server_lease.token if alone else f"{server_lease.token}{UNSHOWN}{number}"

    @property
    def fence(self) -> int:
        """The fencing token: an integer that increases with every grant of this lock. Pass it to the resource."""
        return self._fence

    @property
    def fence_strength(self) -> str:
        """How far the fence can be trusted.

        ``"server"``: issued by the single server that stores it. ``"quorum"``: known to a majority of independent
        masters; it increases as long as they keep their data, which pawl checks by their run ids. ``"best_effort"``:
        the same, on masters that hide their run id, so that a restart goes unnoticed. ``"none"``: the lease is
        ``degraded``, and its fence is 0.
        """
        return "none" if self._server_lease.degraded else self._engine.fence_strength()

    @property
    def degraded(self) -> str | None:
        """``"local"`` or ``"open"`` if it was granted without the server, as ``on_unavailable`` allows; else None."""
        return self._server_lease.degraded or None

    @property
    def quorum(self) -> QuorumInfo | None:
        """How several independent masters voted for it, with validity and drift; None with one server."""
        kept = self._server_lease.quorum
        return None if kept is None else kept.info()

    @property
    def ttl(self) -> float:
        """The TTL in seconds, as last requested."""
        return self._server_lease.ttl

    @property
    def count(self) -> int:
        """How many times it is held: 1, or more under re-entry; with ``owner=``, by all processes at the grant."""
        if self._released:
            return 0
        return max(self._levels, self._shared)

    @property
    def valid_until(self) -> float:
        """The end of its validity, in seconds of the client's clock (boot time where the system has it)."""
        return self._server_lease.valid_until

    def remaining(self) -> float:
        """Seconds of validity left by the local clock; 0 when lost or released. Sends nothing."""
        if not self._mine():
            return 0.0
        return max(0.0, self._server_lease.valid_until - self._engine.runtime.now())

    @property
    def state(self) -> LeaseState:
        """``held``, ``suspect`` (renewals fail, still valid), ``lost`` or ``released``, by the local clock."""
        if self._released:
            return LeaseState.LOST if self._lost else LeaseState.RELEASED
        if self._inert():
            return LeaseState.LOST
        server_lease = self._server_lease
        if server_lease.live and self._engine.expired(server_lease, self._engine.runtime.now()):
            return LeaseState.LOST
        return server_lease.state

    def check(self) -> None:
        """Return if the lease is still good, by the local clock; call it before a step that must not run unprotected.

        Raises:
            LeaseLost: It is lost (``reason`` says why) or was released.
        """
        server_lease = self._server_lease
        if (
            server_lease.state is LeaseState.HELD
            and not self._released
            and server_lease.epoch == self._engine.epoch
            and self._engine.runtime.now() < server_lease.valid_until
        ):
            return
        if self.state in (LeaseState.LOST, LeaseState.RELEASED):
            self._raise_lost()

    def beat(self) -> None:
        """Say that the work goes on: ``max_hold`` counts anew from here. Without ``max_hold``, the same as ``check``.

        Raises:
            LeaseLost: It is too late.
        """
        self.check()
        server_lease = self._server_lease
        if server_lease.options.max_hold is not None:
            limit = self._engine.runtime.now() + server_lease.options.max_hold
            self._engine.runtime.at_home(lambda: self._engine.limit_hold(server_lease, limit))

    @property
    def _label(self) -> str:
        """Which lease it is, for logs and tests; unlike ``token``, it may be read without a consequence."""
        return f"{self._server_lease.token}.{self._number}"

    # For the shells and operations ------------------------------------------------------------------------------

    def _inert(self) -> bool:
        return self._server_lease.epoch != self._engine.epoch

    def _mine(self) -> bool:
        return self.state in (LeaseState.HELD, LeaseState.SUSPECT)

    def _take_end(self) -> bool:
        """Mark the lease as ended by its owner; False if somebody else was first: a thread, a signal handler."""
        with self._engine.guard:
            if self._released:
                return False
            self._released = True
            return True

    def _take_level(self) -> bool:
        """End one level of a re-entered lease; False if it is held once, and all of it is to end."""
        with self._engine.guard:
            if self._levels == 1 or self._released:
                return False
            self._levels -= 1
            return True

    def _watch(self, watcher: Callable[[], object]) -> None:
        server_lease = self._server_lease
        if server_lease.watchers is None:
            server_lease.watchers = []
        server_lease.watchers.append(watcher)

    def _unwatch(self, watcher: Callable[[], object]) -> None:
        watchers = self._server_lease.watchers
        if watchers is not None and watcher in watchers:
            watchers.remove(watcher)

    def _lost_error(self) -> LeaseLost:
        if self._released and not self._lost:
            return LeaseLost(
                f"the lease of {self.name!r} was released", name=self.name, reason=LossReason.CLOSED
            )
        if self._inert():
            text = f"the lease of {self.name!r} belongs to the parent process; a fork does not inherit it"
            return LeaseLost(text, name=self.name, reason=LossReason.CLOSED)
        return self._loss()

    def _loss(self) -> LeaseLost:
        reason = self._server_lease.reason or LossReason.EXPIRED
        text = f"the lease of {self.name!r} is lost ({reason}); fencing token {self._fence}"
        return LeaseLost(text, name=self.name, reason=reason)

    def _raise_lost(self) -> NoReturn:
        raise self._lost_error()

    def __repr__(self) -> str:
        who = self._server_lease.token.partition("@")[2]
        return f"<{type(self).__name__} {self.name!r} {self.state} fence={self._fence} @{who}>"

    def _bind(self) -> None:
        """Note that the present thread or task is in a block which ends the lease: no other one will."""
        self._server_lease.user = self._engine.runtime.who()

    def __reduce__(self) -> NoReturn:
        raise _NotPicklable(
            "a lease cannot be pickled: use detach() and adopt() to pass it to another process"
        )

    def __copy__(self) -> NoReturn:
        raise _NotPicklable("a lease cannot be copied: it has one owner")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise _NotPicklable("a lease cannot be copied: it has one owner")

    def __del__(self) -> None:
        # A finaliser may run anywhere, inside any lock: it appends and rings, no more.
        try:
            if self._released:
                return
            server_lease, engine = self._server_lease, self._engine
        except AttributeError:
            return
        if server_lease.epoch != engine.epoch or engine.closed:
            return
        if self._given:
            engine.abandoned.append(server_lease)
        else:
            engine.undelivered.append((server_lease, self._number))
        engine.runtime.nudge()
        if not server_lease.live or not self._given:
            return
        text = f"lease of {self.name!r} was never released; renewal stops, and it expires by its TTL"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


def take_entered(entered: list[tuple[object, L]], who: object) -> L:
    """The lease that the ``with`` block of a lock object entered last in this thread or task.

    A block may be left in another thread than it was entered in; then it is the oldest one: if there are several,
    all but the newest lost their lease, and ending one of those ends nothing that anybody relies on.
    """
    for index in range(len(entered) - 1, -1, -1):
        if entered[index][0] is who:
            return entered.pop(index)[1]
    return entered.pop(0)[1]


NewLease = Callable[["Engine", "ServerLease | None", int, object, int], BaseLease]
