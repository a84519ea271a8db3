"""What one client (for asyncio: one client in one event loop) knows and keeps: its leases, its queues, its duties."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet, ref

from pawlock.core.local_queue import Waiter
from pawlock.core.primitive import TOMB_MS
from pawlock.core.records import Hold, LeaseRecord, OutboxEntry, Schedule, valid_until
from pawlock.core.reports import Health, Reports
from pawlock.core.runtime import Background, Request, Runtime
from pawlock.errors import BackendUnavailable, ClientClosed
from pawlock.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawlock.core.local_queue import LocalQueue
    from pawlock.core.primitive import Primitive
    from pawlock.core.records import Attempt

__all__ = ["Engine", "Renewed", "served"]

Renewed: TypeAlias = "tuple[Hold, int, int]"
"""A lease that the server renewed, what is left of its life there, and what was asked for, in ms."""

log: logging.Logger = logging.getLogger("pawlock.lease")

_CONFIRM_AFTER, _LOOK_AFTER = 0.02, 1.0
_OUTBOX_FOR = 60.0
"""Seconds for which a token is tried to be left."""


class Engine:
    """The state behind a client. Decides nothing about one operation; keeps what outlives it.

    Attributes:
        runtime: The runtime of the API.
        background: The thread that serves the client in the background; in threads, the same runtime.
        maintenance: What that thread does.
        guard: Held for each step of a lease, a queue or the schedule from one state to another; never during I/O, nor
            while a user's function runs.
        schedule: When each lease is due.
        held: Which hold a thread or task holds under a key, for re-entry and self-deadlock.
        local_queues: The local queues, by the key that the locks of one share.
        waits: What each acquisition waits for; the thread or task, and since when.
        outbox: Tokens to be left, in the order in which they came; each stays until it is left or given up, so that
            the end of the client sees it at every moment.
        abandoned: Server leases whose lease object was garbage-collected; appended by finalisers, which may do no more.
        dropped_levels: Leases of which a block that is gone had a level, which is to end; appended by finalisers as well.
        calls: The acquisitions, releases and waits that go on, and whose thread or task each is: the end waits for them.
        closed: Whether the client was closed.
        maintenance_runs: Whether the maintenance was started.
        awake: Whether it looks in by itself; a wait that begins while it is False wakes it.
        health, reports: See ``reports``.
        epoch: Raised by a fork, for leases of an older one are the parent's.
        validity: The end of validity of what was granted: of when it was asked for, what is left of its life, and what
            was asked for, both in ms; see ``records.valid_until``.
        request_timeout: The client's option, or None.
        client: Whose engine it is. Each lease keeps it alive, so that what the client does at its end, and at the
            interpreter's, is done for every lease that anybody still has.
    """

    def __init__(
        self,
        runtime: Runtime,
        background: Background,
        client: object,
        maintenance: Callable[[Engine], Coroutine[Any, Any, None]],
    ) -> None:
        self.runtime = runtime
        self.background = background
        self.maintenance: Callable[[Engine], Coroutine[Any, Any, None]] = maintenance
        self.client: ref[object] = ref(client)
        self.guard: AbstractContextManager[object] = runtime.mutex()
        self.abandoned: deque[Hold] = deque()
        self.dropped_levels: deque[LeaseRecord] = deque()
        self.closed: bool = False
        self.forget()
        self.health: Health = Health()
        self.reports: Reports = Reports()
        self.epoch: int = 0
        self.validity: Callable[[float, int, int], float] = valid_until
        self.request_timeout: float | None = None

    def forget(self) -> None:
        """Hold nothing, wait for nothing, and owe nothing."""
        self.schedule: Schedule = Schedule(self.guard)
        self.held: dict[tuple[object, str], Hold] = {}
        self.local_queues: dict[Hashable, LocalQueue] = {}
        self.waits: dict[Attempt, tuple[Primitive, object, float]] = {}
        self.outbox: dict[OutboxEntry, None] = {}
        self.calls: dict[object, object] = {}
        self.maintenance_runs: bool = False
        self.awake: bool = False

    def within(self, usual: float) -> float:
        """Seconds to wait for what a server answers within ``usual``; as the user of one that is far away says."""
        return self.request_timeout or usual

    def check_open(self, name: str | None = None) -> None:
        """Raise ``ClientClosed`` if the client was closed."""
        if self.closed:
            raise ClientClosed("the client is closed: create a new one", name=name)

    def report_outage(self, why: str) -> None:
        """Somebody gave up on a server that gives no answer: said once, until it answers again."""
        health = self.health
        if health.down_since is not None and not health.reported:
            health.reported = True
            self.count("outages")
            # The text, not the error: a handler that keeps log records would keep the frames of its traceback.
            log.warning("lock server not responding: %s", why)

    def note_answer(self) -> None:
        """The server answered: if it was down, it is back."""
        health = self.health
        since, reported = health.down_since, health.reported
        if since is not None:
            health.down_since, health.reported = None, False
            if reported:
                log.warning("lock server responding again after %.1f s", self.runtime.now() - since)

    def count(self, what: str) -> None:
        """Count one occurrence of ``what``."""
        self.reports.counters[what] += 1
        if self.reports.observer is not None:
            self.reports.observer.counted(what)

    def count_loss(self, hold: Hold) -> None:
        """Count a loss, by its reason."""
        self.count(f"lost_{hold.reason}")
        if self.reports.observer is not None:
            self.reports.observer.lost(hold, hold.reason or LossReason.EXPIRED)

    # Waits -----------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Have the maintenance see a wait that begins now."""
        if not self.awake:
            # Marked last: if a signal handler raises in between, the next wait wakes it again.
            self.wake_maintenance()
            self.awake = True
        watcher = self.reports.watcher
        # Who holds nothing is in no cycle.
        if watcher is not None and not watcher.armed and self.schedule.busy():
            self.wake_maintenance()
            watcher.armed = True

    # Leases -----------------------------------------------------------------------------------------------------

    def wake_maintenance(self) -> None:
        """Start the maintenance, or wake it because something is due earlier than it knows."""
        if self.maintenance_runs:
            self.background.nudge()
        elif (refused := self.start_maintenance()) and not (self.closed or self.runtime.gone()):
            # The next acquisition tries again.
            log.warning("no thread can start for what is to be done in the background: %s", refused)

    def need_maintenance(self, name: str, doing: str = "acquire") -> None:
        """Start the maintenance before anything is asked for that it must keep.

        Raises:
            ClientClosed: The client was closed.
            BackendUnavailable: No thread can be started now.
        """
        self.check_open(name)
        if refused := self.start_maintenance():
            text = f"{doing} {name!r}: no thread can renew the lease ({refused})"
            raise BackendUnavailable(text, name=name)

    def plan_service(self, hold: Hold, now: float, *, confirmed: bool) -> bool:
        """Plan the next renewal of a hold, or the look at its end; True if that is sooner than all others.

        Called under the guard.
        """
        if not hold.options.renew:
            return self.schedule.add(hold, hold.rhythm.ttl, hold.valid_until, deadline=True)
        every, limit = hold.rhythm.every, hold.rhythm.hold_limit
        if limit is not None and hold.valid_until >= limit:
            return self.schedule.add_once(hold, limit)
        if confirmed:
            return self.schedule.add(hold, every, now + every)
        # A hand-off lives on its ticket's expiry. Short sections end before this; longer ones get their ttl soon.
        after = _CONFIRM_AFTER if hold.valid_until - now > 4 * _CONFIRM_AFTER else 0.0
        return self.schedule.add(hold, after, now + after)

    def replan(self, hold: Hold) -> None:
        """Plan the next service of a hold that the maintenance took, or whose ttl changed."""
        schedule, end = self.schedule, hold.valid_until
        with self.guard:
            schedule.discard(hold, once=False)
            if hold.options.renew or schedule.ends_last(hold.rhythm.ttl, end):
                sooner = self.plan_service(hold, self.runtime.now(), confirmed=True)
            else:
                # Those of its ttl that were granted after it end later: in their rhythm it would come behind them.
                sooner = schedule.add_once(hold, end)
        if sooner:
            self.background.nudge()

    def drop(self, hold: Hold, who: object) -> bool:
        """Nobody of this client has a hold any more: it is renewed no more, and who sleeps for it asks.

        Args:
            hold: The hold.
            who: The thread or task that had it.

        Returns:
            Whether it was held until now.
        """
        self.forget_holder(hold, who)
        with self.guard:
            live = hold.live
            if live:
                hold.state = LeaseState.RELEASED
            self.schedule.discard(hold)
        self.detach_local_queue(hold)
        return live

    def end_turn(self, queue: LocalQueue | None, owner: Attempt | Hold) -> None:
        """Have who sleeps first in a local queue ask, now that the owner of a turn is done with it; safe to repeat."""
        if queue is not None:
            with self.guard:
                woken = queue.end(owner)
            for place in woken:
                # The maintenance calls this, too, from a thread of its own.
                self.runtime.run_in_owner(place.unpark)

    def heal(self) -> None:
        """Have who sleeps go on where an interrupted caller gave its turn to nobody, or woke nobody."""
        for queue in tuple(self.local_queues.values()):
            with self.guard:
                # One that ended meanwhile would take the next of its name out.
                if self.local_queues.get(queue.key) is queue:
                    queue.heal()
        for attempt in tuple(self.waits):
            if attempt.given is not None:
                attempt.unpark()

    def give_back(self, hold: Hold, number: int, who: object) -> None:
        """Pass on what a caller got and does not take, or leave it in the background; safe to repeat.

        Args:
            hold: What it got.
            number: Which of its owners it is.
            who: Its thread or task.
        """
        self.forget_holder(hold, who)
        with self.guard:
            if hold.used != number:
                return
            woken = [] if hold.queue is None else hold.queue.pass_on(hold, self.runtime.now())
        for place in woken:
            place.unpark()
        if not woken and self.drop(hold, who):
            self.leave_in_background(hold)

    def finish_release(self, lease: LeaseRecord) -> None:
        """Go on in the background with a release that was cancelled or interrupted; safe to repeat."""
        hold = lease.hold
        self.forget_holder(hold, lease.who)
        if hold.epoch == self.epoch and hold.used == lease.number:
            self.drop(hold, lease.who)
            self.leave_in_background(hold, hold.close_ms(self.runtime.now()), with_tombstone=True)

    def expired(self, hold: Hold, now: float) -> bool:
        """Whether the clock has passed the hold's validity; if so it is lost from here on."""
        if hold.state is LeaseState.LOST:
            return True
        if now < hold.valid_until or not hold.live:
            return False
        self.lose(hold, hold.loss_reason())
        return True

    def lose(self, hold: Hold, reason: LossReason) -> None:
        """Mark a hold lost, and leave its token: it is never granted again. Those that must know are notified.

        Callable from any thread. A blocked event loop is notified when it runs again; everything else is done by then.
        """
        with self.guard:
            if not hold.live:
                return
            hold.state, hold.reason = LeaseState.LOST, reason
            self.schedule.discard(hold)
        if reason is not LossReason.MAX_HOLD:
            # After max_hold the owner is notified first, and the rest of the ttl is its time to stop.
            closed = reason is LossReason.CLOSED
            close_ms = hold.close_ms(self.runtime.now()) if closed else 0
            self.leave_in_background(hold, close_ms)
        self.runtime.run_in_owner(partial(self._report_loss, hold, reason))

    def _report_loss(self, hold: Hold, reason: LossReason) -> None:
        self.count_loss(hold)
        name = hold.primitive.name
        log.warning(
            "lease of %r lost: %s", name, reason, extra={"pawlock_name": name, "pawlock_reason": str(reason)}
        )
        self.detach_local_queue(hold)
        self._notify_loss(hold)

    def count_end(self, hold: Hold, outcome: str) -> None:
        """Notify observers that an owner is done with a hold."""
        if self.reports.observer is not None:
            self.reports.observer.released(hold.primitive, hold.granted_at, outcome)

    def refused(
        self, primitive: Primitive, began: float, error: BaseException | None, *, nested: bool = False
    ) -> None:
        """Notify observers that an acquisition came to nothing, unless it was part of another; see ``Observers.refused``."""
        if self.reports.observer is not None and not nested:
            self.reports.observer.refused(primitive.kind, primitive.name, began, error)

    def limit_hold(self, hold: Hold, limit: float) -> None:
        """Have ``max_hold`` end a hold at ``limit`` from here on."""
        cut_short = hold.at_limit
        hold.rhythm = hold.rhythm._replace(hold_limit=limit)
        if cut_short:
            # Its validity ends at the old limit, and nothing else would renew it.
            with self.guard:
                self.schedule.discard(hold)
                self.schedule.add_once(hold, self.runtime.now())
            self.background.nudge()

    def detach_local_queue(self, hold: Hold) -> None:
        """Let the local queue go on without this hold: who sleeps first asks the server."""
        # Cleared last: if a signal handler raises in between, the next caller ends the turn again.
        self.end_turn(hold.queue, hold)
        hold.queue = None

    def _notify_loss(self, hold: Hold) -> None:
        watchers, hold.watchers = hold.watchers, None
        for watcher in watchers or ():
            watcher()
        lease = hold.lease() if hold.lease is not None else None
        if lease is not None:
            lease.wake()
        callback = hold.options.on_lost
        if callback is not None and lease is not None and not lease.released:
            self.report_loss(callback, lease)

    def report_loss(self, callback: Callable[[Any], object], record: object) -> None:
        """Call a user's function with the lease that was lost, in the form in which users see it."""
        self.runtime.report(partial(callback, self.reports.show(record)))

    # Background -------------------------------------------------------------------------------------------------

    def post(self, call: Request, seconds: float = _OUTBOX_FOR) -> None:
        """Send a call that may run twice in the background, until it is answered.

        Args:
            call: What to send.
            seconds: For how long to try.
        """
        self.outbox[OutboxEntry(call, self.runtime.now() + seconds)] = None
        self.wake_maintenance()

    def leave_in_background(self, hold: Hold, close_ms: int = 0, *, with_tombstone: bool = False) -> None:
        """Leave the token of a hold in the background.

        Args:
            hold: The hold.
            close_ms: For how long the name stays closed.
            with_tombstone: True if a copy of one of its requests may still be on its way.
        """
        tomb_ms = TOMB_MS if with_tombstone or hold.unanswered else 0
        self.post(hold.primitive.leave(hold.token, tomb_ms, close_ms))

    def start_maintenance(self) -> str:
        """Start the client's background thread, if it does not run; ``""``, or why that cannot be now."""
        if self.health.probe is not None and not self.health.looked and self.health.look_at == inf:
            # Not at once: a client that ends soon is not worth a question.
            self.health.look_at = self.runtime.now() + _LOOK_AFTER
        refused = self.background.spawn_maintenance(lambda: self.maintenance(self))
        self.maintenance_runs = not refused
        if not refused:
            served.add(self)
        return refused

    def forget_holder(self, hold: Hold, who: object) -> None:
        """The thread or task ``who`` is done with a hold."""
        key, held = (who, hold.primitive.key), self.held
        with self.guard:
            if held.get(key) is hold:
                del held[key]

    def after_fork(self) -> None:
        """In the child: forget what belongs to the parent, without touching the network."""
        self.epoch += 1
        self.guard = self.runtime.mutex()
        if self.reports.watcher is not None:
            self.reports.watcher.forget()
        # A signal handler, or a greenlet, may fork during an acquisition, which then continues in the child as well:
        # there it must neither own nor release the token of the parent.
        for call in self.calls:
            for asking in (call, getattr(call, "waiter", None), getattr(call, "given", None)):
                if isinstance(asking, Waiter | Hold):
                    # An event loop's runtime has tokens for its tasks alone, and here none runs.
                    asking.token = self.background.new_token()
        self.abandoned.clear()
        self.dropped_levels.clear()
        self.forget()
        self.health.down_since, self.health.reported = None, False

    def apply_renewals(self, renewed: Sequence[Renewed], sent_at: float) -> list[Hold]:
        """Take renewals that the server confirmed into account: all in one step, since there may be a hundred thousand.

        Args:
            renewed: For each lease, what is left of its life on the server, and what was asked for, in ms.
            sent_at: When the question was sent.

        Returns:
            The leases whose confirmation came after they had ended, which it cannot undo.
        """
        late: list[Hold] = []
        validity = self.validity
        ends = [(one, validity(sent_at, left_ms, asked_ms)) for one, left_ms, asked_ms in renewed]
        now = self.runtime.now()
        with self.guard:
            for hold, until in ends:
                state = hold.state
                if now >= hold.valid_until or not (state is LeaseState.HELD or state is LeaseState.SUSPECT):
                    late += (hold,)
                    continue
                limit = hold.rhythm.hold_limit
                end = until if limit is None or until <= limit else limit
                if hold.valid_until < end:  # noqa: PLR1730 - max() is a call
                    hold.valid_until = end
                hold.state, hold.failures = LeaseState.HELD, 0
        for hold in late:
            self.expired(hold, now)
        return late

    def suspect(self, hold: Hold) -> bool:
        """Take a renewal without an answer into account; False if the hold ended meanwhile."""
        with self.guard:
            if not hold.live:
                return False
            hold.state = LeaseState.SUSPECT
            hold.failures += 1
        self.count("renewal_failed")
        return True

    def suspect_all(self) -> None:
        """Ask at once for every lease: another server stands in for the one that granted them."""
        now = self.runtime.now()
        for hold in self.schedule.all():
            with self.guard:
                if not hold.live:
                    continue
                hold.state = LeaseState.SUSPECT
                self.schedule.discard(hold)
                self.schedule.add_once(hold, now)
            self.count("doubted")
        self.wake_maintenance()


served: WeakSet[Engine] = WeakSet()
"""The engines that have a background thread, also of clients that are gone: the end of the process waits for them."""
