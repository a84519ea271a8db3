"""The record of a lease that a user holds, with the steps that change it. The user's own object only shows it.

The record is what holds: only as long as it lives is anything renewed. When it is dropped without release, whatever
interrupted its user, what it held runs out.

A lease ends inside the client, where another caller goes on with what it held, or on the server: written once for both
APIs.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import ref

from pawlock.core.local_queue import Place, Retry
from pawlock.core.outcomes import NotRecorded, Outcome, Released
from pawlock.core.primitive import TOMB_MS
from pawlock.core.records import Hold, LeaseRecord, loss_from
from pawlock.core.retry import pause_after, rest
from pawlock.core.runtime import Fault, FaultKind
from pawlock.core.server_check import must_remember
from pawlock.errors import BackendError, BackendUnavailable, ClientClosed, LeaseLost, NotHeld, NotSupported
from pawlock.model import LeaseState, LossReason, Release

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.records import Hold
    from pawlock.core.runtime import Parker

__all__ = [
    "UNSHOWN",
    "HeldLease",
    "Losable",
    "abandon",
    "end_block",
    "lease_of",
    "leave",
    "not_ours",
    "raise_outcome",
    "release",
    "release_or_raise",
    "report_loss_at_exit",
    "report_losses_at_exit",
]


L = TypeVar("L")

UNSHOWN = "!"
"""In what ``token`` says of a lease that was handed on before it was read: its server token is the next owner's."""


class Losable(Protocol):
    """The record of a lease of one name or of several."""

    parked: list[Parker] | None
    scopes: list[Any] | None
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
        hold: What it holds; None to make it beforehand, of nothing.
        who: The thread or task that it is granted to.

    Attributes:
        levels: How many times it is held by re-entry.
        block: The ``with`` block that ends it; None without one.
        scopes: Which tasks are in a block of it, for a loss to cancel them; None while none ever was.
        client: Its client, so that what that does at its end is done for the lease too.
    """

    levels: int = 1
    block: ref[Any] | None = None
    scopes: list[Any] | None = None
    shown_as: ref[Any] | None = None

    def __init__(self, engine: Engine, hold: Hold | None, who: object) -> None:
        self.client: object = engine.client()
        self.engine: Engine = engine
        self.who: object = who
        self.released: bool = hold is None
        if hold is not None:
            self.hold: Hold = hold
            self.fence: int = hold.fence
            hold.lease = ref(self)

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self.hold.primitive.name

    @property
    def ttl(self) -> float:
        """The ttl in seconds, as last requested."""
        return self.hold.rhythm.ttl

    @property
    def valid_until(self) -> float:
        """The end of its validity, in seconds of the runtime's clock."""
        return self.hold.valid_until

    @property
    def state(self) -> LeaseState:
        """Where it stands, by the local clock."""
        if self.released:
            return LeaseState.LOST if self.lost else LeaseState.RELEASED
        hold, engine = self.hold, self.engine
        if hold.epoch != engine.epoch:
            return LeaseState.LOST
        now = engine.runtime.now()
        if now >= hold.valid_until and hold.live and engine.expired(hold, now):
            return LeaseState.LOST
        return hold.state

    @property
    def fence_strength(self) -> str:
        """How far the fence can be trusted; see ``BaseLease``."""
        return "none" if self.hold.degraded else self.engine.runtime.fence_strength

    @property
    def label(self) -> str:
        """Which lease it is, for logs and tests; unlike ``token``, it may be read without a consequence."""
        return f"{self.hold.token}.{self.number}"

    @property
    def token(self) -> str:
        """The token that stands for this lease alone; once it was read, the lease is not handed on in its client."""
        hold, number = self.hold, self.number
        with self.engine.guard:
            held = hold.state is LeaseState.HELD or hold.state is LeaseState.SUSPECT
            # Released, and its token held still: it is about to be handed on.
            alone = hold.used == number and (hold.shown or not (self.released and held))
            if alone:
                hold.shown = True
        return hold.token if alone else f"{hold.token}{UNSHOWN}{number}"

    def inert(self) -> bool:
        """Whether it belongs to the parent of this process."""
        return self.hold.epoch != self.engine.epoch

    def is_held(self) -> bool:
        """Whether its owner still holds it, by the local clock."""
        return self.state in (LeaseState.HELD, LeaseState.SUSPECT)

    def remaining(self) -> float:
        """Seconds of validity left; 0 when lost or released."""
        if not self.is_held():
            return 0.0
        return max(0.0, self.hold.valid_until - self.engine.runtime.now())

    def check(self) -> None:
        """Raise ``LeaseLost`` unless the lease is still good, by the local clock."""
        hold = self.hold
        if (
            hold.state is LeaseState.HELD
            and not self.released
            and hold.epoch == self.engine.epoch
            and self.engine.runtime.now() < hold.valid_until
        ):
            return
        if self.state in (LeaseState.LOST, LeaseState.RELEASED):
            raise self.lost_error()

    def beat(self) -> None:
        """Count ``max_hold`` anew from here; raise ``LeaseLost`` if it is too late."""
        self.check()
        hold = self.hold
        if hold.options.max_hold is not None:
            limit = self.engine.runtime.now() + hold.options.max_hold
            self.engine.runtime.run_in_owner(lambda: self.engine.limit_hold(hold, limit))

    def bind(self, block: object | None) -> None:
        """Note that the present thread or task is in a block which ends the lease: no other one will.

        Args:
            block: What ends with the block; None if the interpreter knows of none, as in an ``ExitStack``.
        """
        if not self.hold.primitive.transferable:
            self.hold.user = self.engine.runtime.who()
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
        hold = self.hold
        if hold.watchers is None:
            hold.watchers = []
        hold.watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """Have it called no more."""
        watchers = self.hold.watchers
        if watchers is not None and watcher in watchers:
            watchers.remove(watcher)

    def lost_error(self) -> LeaseLost:
        """The error of a lease that is not held any more."""
        if self.released and not self.lost:
            ended = "was released"
        elif self.inert():
            ended = "belongs to the parent process; a fork does not inherit it"
        else:
            return self.loss()
        return LeaseLost(f"the lease of {self.name!r} {ended}", name=self.name, reason=LossReason.CLOSED)

    def not_held(self, doing: str) -> NotHeld:
        """The error of who wants something done with a lease that is not held any more."""
        return NotHeld(f"{doing} {self.name!r}: {self.lost_error().text}", name=self.name, operation=doing)

    def loss(self, of: str = "") -> LeaseLost:
        """The error of a lease that is lost; ``of`` says of what it is a part."""
        # None: another thread noticed it by the clock before the event loop of the lease recorded why.
        reason = self.hold.reason or self.hold.loss_reason()
        text = f"{of}the lease of {self.name!r} is lost ({reason}); fencing token {self.fence}"
        error = LeaseLost(text, name=self.name, reason=reason)
        if self.hold.trouble and reason is self.hold.primitive.unheard:
            # Not in the text, which `pawlock serve` answers with: the server's words may have its address.
            error.add_note(f"the last renewal that failed: {self.hold.trouble}")
        return error

    def __repr__(self) -> str:
        return f"<lease of {self.name!r} {self.state} fence={self.fence}>"

    def __del__(self) -> None:
        # A finaliser may run anywhere, inside any lock: it appends and nudges, no more.
        try:
            if self.released:
                return
            hold, engine = self.hold, self.engine
        except AttributeError:
            return
        if hold.epoch != engine.epoch or engine.closed:
            return
        engine.abandoned.append(hold)
        engine.background.nudge()
        if not hold.live:
            return
        text = f"lease of {self.name!r} was never released; renewal stops, and it expires by its TTL"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


log: logging.Logger = logging.getLogger("pawlock.lease")

_NOBODY: Sequence[Place] = ()


def lease_of(kind: Callable[[HeldLease], L], record: HeldLease) -> L:
    """What the user sees of a lease: the same object each time; of this class where it is seen first."""
    known: L | None = None if record.shown_as is None else record.shown_as()
    return kind(record) if known is None else known


async def release(engine: Engine, lease: HeldLease) -> Release:
    """End a lease, or one level of a re-entered one.

    Returns:
        RELEASED, LOST (it was lost before) or UNKNOWN (the server did not answer while the lease lived).

    Raises:
        NotHeld: It was released before, or belongs to the parent of this process.
    """
    if lease.levels > 1 and lease.take_level():
        return Release.RELEASED if lease.is_held() else Release.LOST
    hold, calls, call, observer = lease.hold, engine.calls, object(), engine.reports.observer
    granted_at = hold.granted_at
    # The outcome for observers; None: nothing has ended.
    ended: Release | str | None = None
    try:
        calls[call] = lease.who
        ended = _end_here(engine, lease)
        if ended is None:
            try:
                ended = await leave(engine, hold)
            finally:
                # Not before: who asked sooner would queue behind its own client.
                if hold.queue is not None:
                    engine.detach_local_queue(hold)
        if ended is Release.LOST:
            lease.lost = True
        return ended
    except NotHeld:
        raise
    except BaseException:
        if lease.released:
            engine.finish_release(lease)
            ended = "background"
        else:
            abandon(lease)
        raise
    finally:
        if call in calls:
            del calls[call]
        if observer is not None and ended is not None:
            observer.released(hold.primitive, granted_at, str(ended))


def _end_here(engine: Engine, lease: HeldLease) -> Release | None:
    """End a lease inside the client: it was lost, or another caller goes on with what it held; None: neither.

    Raises:
        NotHeld: It was released before, or belongs to the parent of this process.
    """
    hold, now, held = lease.hold, engine.runtime.now(), engine.held
    key, queue, woken = (lease.who, hold.primitive.key), hold.queue, _NOBODY
    with engine.guard:
        if lease.released or hold.epoch != engine.epoch:
            why = "was already released" if lease.released else "belongs to the parent process"
            lease.released = True
            raise NotHeld(f"release {lease.name!r}: the lease {why}", name=lease.name)
        lease.released = True
        # The hold may go on under another owner, so this one must no longer be notified of its loss.
        hold.watchers = None
        if held.get(key) is hold:
            del held[key]
        lost = hold.state is LeaseState.LOST or now >= hold.valid_until
        if not lost:
            if queue is not None and queue.sleepers:
                woken = queue.pass_on(hold, now)
            if not woken:
                # Renewed no more, and to be left on the server.
                hold.state = LeaseState.RELEASED
                engine.schedule.discard(hold)
                if queue is not None and not queue.sleepers:
                    # Whoever sleeps there asks once it is left.
                    queue.end(hold)
                    hold.queue = None
    if lease.parked:
        lease.wake()
    for place in woken:
        place.unpark()
    if lost:
        return _end_lost(engine, hold, now)
    return Release.RELEASED if woken else None


def _end_lost(engine: Engine, hold: Hold, now: float) -> Release:
    engine.expired(hold, now)
    if hold.reason is LossReason.MAX_HOLD:
        engine.leave_in_background(hold, hold.close_ms(now))
    return Release.LOST


def abandon(lease: HeldLease) -> None:
    """End in the background what was to be released, where that was interrupted before it began.

    Of a re-entered lease only one level ends: ending more could leave the outer section unprotected.
    """
    if not lease.take_level() and not lease.inert() and lease.take_end():
        lease.engine.finish_release(lease)
        lease.engine.count_end(lease.hold, "background")


async def release_or_raise(engine: Engine, lease: HeldLease) -> None:
    """Release on user request; raises as ``raise_outcome`` does."""
    outcome = await release(engine, lease)
    if outcome is not Release.RELEASED:
        raise_outcome(lease, outcome)


def raise_outcome(lease: HeldLease, outcome: Release, names: str = "") -> None:
    """Raise what the outcome of a release means to a user who asked for it.

    Args:
        lease: What was released.
        outcome: What came of it.
        names: The names that were released together; ``""``: this one alone.

    Raises:
        NotHeld: It was lost or released before.
        BackendError: The server did not answer, or refused; the ttl frees the name at the latest.
    """
    doing = f"release {(names or lease.name)!r}"
    if outcome is Release.LOST:
        raise NotHeld(f"{doing}: {lease.loss().text}", name=lease.name)
    if outcome is Release.UNKNOWN:
        cls, why = lease.hold.unsure
        which = repr(lease.name) if names else "the lock"
        text = f"{why or f'{doing}: the server did not answer'}; {which} expires within {lease.ttl:g} s"
        raise cls(text, name=lease.name)


async def end_block(lease: HeldLease, error: BaseException | None) -> None:
    """Release at the end of a ``with`` block. Never hides the body's own exception.

    Raises:
        LeaseLost: The lease was lost while the body ran, and the body did not raise.
    """
    if lease.released or lease.hold.epoch != lease.engine.epoch:
        return
    if await release(lease.engine, lease) is Release.LOST:
        report_loss_at_exit(lease, error)


def report_loss_at_exit(lease: HeldLease, error: BaseException | None) -> None:
    """Report to a ``with`` block at its end that its lease was lost; see ``end_block``."""
    report_losses_at_exit([lease.loss()], lease.hold.options.on_exit, error)


def report_losses_at_exit(losses: list[LeaseLost], on_exit: str, error: BaseException | None) -> None:
    """Report to a ``with`` block at its end that these were lost; the first is named."""
    if isinstance(error, LeaseLost) and error.name in {loss.name for loss in losses}:
        # An inner block of a re-entered lease has reported it already.
        return
    if error is not None:
        error.add_note(str(losses[0]))
    elif on_exit == "raise":
        # Out of the list: its frames have that.
        raise losses.pop(0)
    else:
        log.warning("%s", losses[0], extra={"pawlock_name": losses[0].name})


async def leave(engine: Engine, hold: Hold) -> Release:
    """Give the name back on the server, trying again with the same token until the lease would have expired."""
    began, options, runtime = engine.runtime.now(), hold.options, engine.runtime
    close_ms = hold.close_ms(began) if options.min_hold else 0
    tomb_ms = TOMB_MS if hold.unanswered else 0
    asked_at, unanswered, retry = began, False, None
    try:
        while True:
            call = hold.primitive.leave(hold.token, tomb_ms, close_ms)
            try:
                answer = await runtime.call(call, options.answer_within)
                if type(answer) is Released:
                    return Release.RELEASED
                again = retry is not None and retry.since is not None
                return await not_ours(engine, hold, answer, unanswered=unanswered, again=again)
            except Fault as fault:
                retry = retry or Retry(holds=True)
                if fault.maybe_applied:
                    unanswered, tomb_ms = True, TOMB_MS
                until = _until(hold, began, fault)
                name = hold.primitive.name
                pause = pause_after(engine, fault, retry, options, until, "release", name, asked_at)
            await rest(engine, pause, hold.primitive.name, "release")
            asked_at = runtime.now()
    except (BackendError, NotSupported, ClientClosed) as error:
        return _unknown(engine, hold, error)


def _until(hold: Hold, began: float, fault: Fault) -> float:
    """Until when to try a release again: the lease's expiry, and in any case for as long as one request."""
    # During a slot migration the node rejects requests that it accepts moments later, and a handed-off lease may be
    # shorter than that: so retry for ``unavailable_after``.
    patient = fault.kind is FaultKind.NOT_READY
    least = hold.options.unavailable_after if patient else hold.options.answer_within
    return max(hold.valid_until, began + least)


def _unknown(engine: Engine, hold: Hold, error: Exception) -> Release:
    name = hold.primitive.name
    engine.count("release_unknown")
    text = "release of %r: outcome unknown (%s); it expires by its TTL"
    log.warning(text, name, str(error), extra={"pawlock_name": name})
    hold.note_release_error(error)
    engine.leave_in_background(hold, with_tombstone=True)
    return Release.UNKNOWN


async def not_ours(engine: Engine, hold: Hold, outcome: Outcome, *, unanswered: bool, again: bool) -> Release:
    """The outcome of a release of which the server says that it holds nothing.

    Args:
        engine: The client's engine.
        hold: What was given back.
        outcome: What the server said.
        unanswered: Whether an earlier copy of the request got no answer.
        again: Whether an earlier copy was refused or got no answer.

    Raises:
        BackendUnavailable: It is not known.
    """
    # A finish leaves a tombstone, which a later copy would have found: so it was never carried out.
    certain = isinstance(outcome, NotRecorded)
    present: str = getattr(outcome, "present", "none")
    forced: bool | None = getattr(outcome, "forced", None)
    late = engine.runtime.now() >= hold.valid_until
    if certain or forced or not (unanswered or (again and late)):
        hold.reason = LossReason.TAKEN if forced else loss_from(outcome)
        engine.count_loss(hold)
        return Release.LOST
    if unanswered and late:
        return Release.UNKNOWN
    # An earlier copy may have freed it; or it ran out while the server refused to release it, and its owner was done in
    # time. Nobody else can take it before that, but an operator, or from a server that forgot.
    long_ago = late and engine.runtime.now() - hold.heard_at > TOMB_MS / 1000
    if present != "none" and (forced is None or long_ago):
        name = hold.primitive.name
        text = f"release {name!r}: it is no longer held, and may have been taken before the release"
        raise BackendUnavailable(text, name=name)
    if present != "none" or unanswered:
        await must_remember(engine, hold.primitive, hold.heard_at)
    return Release.RELEASED
