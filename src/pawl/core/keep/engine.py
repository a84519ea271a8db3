"""What one client (for asyncio: one client in one event loop) knows and keeps: its leases, its queues, its duties."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from pawl.core.keep.outbox import DEPARTURE_FOR, barred, leave_call, post_to_all, validity_of
from pawl.core.protocol.primitive import TOMB_MS
from pawl.core.protocol.runtime import Call, Relief, Runtime
from pawl.core.quorum.votes import Duty
from pawl.core.state.circuit_breaker import Breaker
from pawl.core.state.client import Departure
from pawl.core.state.local_queue import Places
from pawl.core.state.records import Claim, LeaseRecord, Tenure, Told, Turn
from pawl.core.state.schedule import Schedule
from pawl.core.state.session import Book, grant_tag
from pawl.core.state.strict_handover import disperse, pass_on
from pawl.errors import ClientClosed
from pawl.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawl.core.protocol.primitive import Primitive
    from pawl.core.protocol.quorum import QuorumRuntime
    from pawl.core.protocol.redlock_options import RedlockOptions
    from pawl.core.state.history import History
    from pawl.core.state.local_queue import Sleeper
    from pawl.core.state.observers import Observers
    from pawl.core.state.records import LocalPlace
    from pawl.core.state.session import Setup

__all__ = ["Engine"]

log: logging.Logger = logging.getLogger("pawl.lease")

_CONFIRM_AFTER, _LOOK_AFTER = 0.02, 1.0


class Engine:
    """The state behind a client. Decides nothing about one operation; keeps what outlives it.

    Attributes:
        runtime: The runtime of the API.
        upkeep: What serves the client in the background.
        places: The local queues.
        schedule: When each lease is due.
        guard: Held for each step of a lease, a queue or the schedule from one state to another; the steps are ruled by
            "guarded steps" in docs/concepts/architecture.md: **no call and no loop stands in one**.
        held: Which tenure a thread or task holds under a key, for re-entry and self-deadlock.
        lined: The claims that a run may serve now (see ``strict_handover``), by their tokens.
        rows: The tenures behind which a waiter may leave its answer unread (see ``strict_handover``), by their keys.
        waits: What each sleeper, or each claim on the server, waits for; the thread or task, and since when.
        book: The client's session, as far as others see it.
        history: What is to be written of the grants that ended; None unless the client keeps histories.
        departures: Tokens to be left in the background, in the order in which they came; each stays until it is left
            or given up, so that the end of the client sees it at every moment.
        underway: The threads or tasks of acquisitions and releases by what they are at, which is in no schedule.
        asking, losing: Claims that the server may know, and who asks; tenures that are lost, and not left yet.
        abandoned: Tenures whose lease object was garbage-collected; appended by finalisers, which may do no more.
        undelivered: The same of leases that nobody got: a signal interrupted acquire after the grant. With each, which
            of the tenure's owners it was to be.
        counters, epoch: What happened how often; raised by a fork, for leases of an older one are the parent's.
        probe, look_at, looked: What asks the server what it is, or None; when the upkeep is to ask; whether it did.
        server: Its address, without credentials.
        relief: What renews while the event loop is blocked; None in threads.
        strict: True until the server was found to keep every promise, for a client that insists on it.
        breaker: Open while the server is down for long; None while it is not.
        quorum: How several independent masters are treated; None with one server.
        observer: Who is notified of what happens; None, and then no cost, until somebody asks for it.
        client: Whose engine it is. Each lease keeps it alive, so that what the client does at its end, and at the
            interpreter's, is done for every lease that anybody still has.
    """

    history: History | None = None

    def __init__(
        self,
        runtime: Runtime,
        client: object,
        upkeep: Callable[[Engine], Coroutine[Any, Any, None]],
        setup: Setup | None = None,
    ) -> None:
        self.runtime = runtime
        self.upkeep: Callable[[Engine], Coroutine[Any, Any, None]] = upkeep
        self.client: ref[object] = ref(client)
        self.guard: AbstractContextManager[object] = runtime.mutex()
        self.places: Places = Places(runtime, self.guard)
        self.schedule: Schedule = Schedule(self.guard)
        self.held: dict[tuple[object, str], Tenure] = {}
        self.lined: dict[str, Claim] = {}
        self.rows: dict[str, Tenure] = {}
        self.waits: dict[Claim | Sleeper, tuple[Primitive, object, float]] = {}
        self.book: Book | None = None if setup is None else Book(self, setup)
        self.departures: dict[Departure | Duty, None] = {}
        self.abandoned: deque[Tenure] = deque()
        self.undelivered: deque[tuple[Tenure, int]] = deque()
        self.counters: Counter[str] = Counter()
        self.underway: dict[object, object] = {}
        self.losing: dict[Tenure, LossReason] = {}
        self.asking: dict[Claim, tuple[Primitive, object]] = {}
        self.epoch: int = 0
        self.closed = False
        self.upkeep_runs: bool = False
        self.quorum: RedlockOptions | None = None
        self.breaker: Breaker | None = None
        self.observer: Observers | None = None
        self.probe: Call | None = None
        self.server: str = ""
        self.look_at: float = inf
        self.looked: bool = False
        self.strict: bool = False
        self.relief: Relief | None = None

    def check_open(self, name: str | None = None) -> None:
        """Raise ``ClientClosed`` if the client was closed."""
        if self.closed:
            raise ClientClosed("the client is closed: create a new one", name=name)

    def gave_up(self, primitive: Primitive, since: float, error: Exception, borne: float) -> None:
        """Somebody retried an unreachable server for the whole time: later calls need not find that out again."""
        breaker = self.breaker
        if breaker is None:
            breaker = self.breaker = Breaker(primitive.inspect(0), since, error, self.runtime.now())
            self.count("breaker_opened")
            log.warning("lock server not responding, retrying in the background: %s", error)
            self.wake_upkeep()
        breaker.borne = max(breaker.borne, borne)

    def mended(self, breaker: Breaker) -> None:
        """The server answers again."""
        if self.breaker is breaker:
            self.breaker = None
            self.count("breaker_closed")
            log.warning("lock server responding again after %.1f s", self.runtime.now() - breaker.since)

    def fence_strength(self) -> str:
        """What vouches for the fences of this engine's leases; see ``BaseLease.fence_strength``."""
        if self.quorum is None:
            return "server"
        return "quorum" if cast("QuorumRuntime", self.runtime).remembers() else "best_effort"

    def count(self, what: str) -> None:
        """Count one occurrence of ``what``."""
        self.counters[what] += 1
        if self.observer is not None:
            self.observer.counted(what)

    def count_loss(self, tenure: Tenure) -> None:
        """Count a loss, by its reason."""
        self.count(f"lost_{tenure.reason}")
        if self.observer is not None:
            self.observer.lost(tenure, tenure.reason or LossReason.EXPIRED)

    # Waits -----------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Have the upkeep see a wait that begins now."""
        if self.book is not None and not self.book.armed:
            self.book.watch()

    def callers(self) -> list[object]:
        """The threads and tasks whose acquisitions and releases go on."""
        # In this order: who goes on after a wait is noted as under way before it waits no more.
        waiting = [wait[1] for wait in tuple(self.waits.values())]
        return waiting + list(self.underway.values())

    # Leases -----------------------------------------------------------------------------------------------------

    def keep(self, tenure: Tenure, *, confirmed: bool) -> None:
        """Take a fresh tenure into care: renew it, or watch its end."""
        tenure.epoch = self.epoch
        if confirmed and tenure.hold_limit is None and tenure.options.renew:
            late = self.schedule.add(tenure, tenure.every, tenure.granted_at + tenure.every)
        else:
            late = self._plan(tenure, tenure.granted_at, confirmed=confirmed)
        if late or not self.upkeep_runs:
            self.wake_for(tenure)

    def wake_for(self, tenure: Tenure) -> None:
        """Start what serves the client in the background, or wake it for a tenure that it does not know of in time."""
        self.wake_upkeep()
        # Now, and not once a renewal is late: a body may block the loop from its first line on.
        if self.relief is not None and tenure.options.renew is True:
            self.relief.rouse()

    def wake_upkeep(self) -> None:
        """Start the upkeep, or wake it because something is due earlier than it knows."""
        if self.upkeep_runs:
            self.runtime.nudge()
        else:
            self.start_upkeep()

    def _plan(self, tenure: Tenure, now: float, *, confirmed: bool) -> bool:
        if not tenure.options.renew:
            return self.schedule.add(tenure, tenure.ttl, tenure.valid_until, deadline=True)
        if tenure.hold_limit is not None and tenure.valid_until >= tenure.hold_limit:
            return self.schedule.add_once(tenure, tenure.hold_limit)
        if confirmed:
            return self.schedule.add(tenure, tenure.every, now + tenure.every)
        # A hand-off lives on its ticket's expiry. Short sections end before this; longer ones get their ttl soon.
        after = _CONFIRM_AFTER if tenure.valid_until - now > 4 * _CONFIRM_AFTER else 0.0
        return self.schedule.add(tenure, after, now + after)

    def replan(self, tenure: Tenure) -> None:
        """Plan the next service of a tenure that the upkeep took, or whose ttl changed."""
        self.schedule.discard(tenure)
        if self._plan(tenure, self.runtime.now(), confirmed=True):
            self.runtime.nudge()

    def end(self, tenure: Tenure) -> None:
        """Stop caring for a tenure that is being released: renewal never outlives it."""
        with self.guard:
            if tenure.state is LeaseState.HELD or tenure.state is LeaseState.SUSPECT:
                tenure.state = LeaseState.RELEASED
        self.schedule.discard(tenure)
        if self.rows:
            disperse(self, tenure)

    def end_turn(self, tenure: Tenure, now: float, number: int | None = None) -> bool:
        """Pass a tenure on inside the client, or the duty to leave it on the server; safe to repeat.

        Args:
            tenure: What is passed on.
            now: The present.
            number: Which of its owners passes it on; None if that is sure.

        Returns:
            False if nobody of this client waits, or the tenure was lost meanwhile: the caller must leave it.
        """
        place = tenure.place
        if tenure.behind and pass_on(self, tenure, now, number):
            return True
        turn = Turn.ALONE if place is None else place.hand_over(tenure, now, number)
        if turn is Turn.HANDED or (turn is Turn.GONE and number not in (None, tenure.used)):
            return True
        self.end(tenure)
        # Gone: those who sleep go on without this tenure, and nobody but its owner leaves it.
        if place is None or turn is not Turn.REFUSED or tenure.state is LeaseState.LOST:
            return False
        # The sleeper leaves the old token in the script that queues the new one.
        claim = Claim(self.runtime.new_token(), old=tenure.token, old_unanswered=tenure.unanswered)
        claim.old_votes = tenure.quorum
        return place.pass_claim(claim, tenure.turn)

    def finish_release(self, lease: LeaseRecord) -> None:
        """Go on in the background with a release that was begun and cancelled or interrupted; safe to repeat."""
        tenure = lease._tenure
        self.forget_holder(tenure, lease._who)
        if tenure.epoch == self.epoch and tenure.used == lease._number:
            self.end(tenure)
            self.detach_place(tenure)
            if not tenure.degraded:
                self.depart_from(tenure, tenure.close_ms(self.runtime.now()))

    def expired(self, tenure: Tenure, now: float) -> bool:
        """Whether the clock has passed the tenure's validity; if so it is lost from here on."""
        if tenure.state is LeaseState.LOST:
            return True
        if now < tenure.valid_until or not tenure.live:
            return False
        self.runtime.at_home(lambda: self.lose(tenure, tenure.why_over()))
        return True

    def lose(self, tenure: Tenure, reason: LossReason) -> None:
        """Mark a tenure lost, notify those that must know, and leave its token so that it is never granted again."""
        with self.guard:
            if tenure.state is not LeaseState.HELD and tenure.state is not LeaseState.SUSPECT:
                return
            tenure.state, tenure.reason = LeaseState.LOST, reason
            self.losing[tenure] = reason
        self._follow_loss(tenure, reason)

    def lose_from_afar(self, tenure: Tenure, reason: LossReason) -> None:
        """Mark a tenure lost from another thread than its event loop's; what follows is done there, once it serves."""
        with self.guard:
            if tenure.state is not LeaseState.HELD and tenure.state is not LeaseState.SUSPECT:
                return
            tenure.state, tenure.reason = LeaseState.LOST, reason
            self.losing[tenure] = reason
        self.runtime.at_home(lambda: self._follow_loss(tenure, reason))

    def _follow_loss(self, tenure: Tenure, reason: LossReason) -> None:
        self.schedule.discard(tenure)
        if self.rows:
            disperse(self, tenure)
        self.count_loss(tenure)
        name = tenure.primitive.name
        log.warning(
            "lease of %r lost: %s", name, reason, extra={"pawl_name": name, "pawl_reason": str(reason)}
        )
        if reason is not LossReason.MAX_HOLD:
            # After max_hold the owner is notified first, and the rest of the ttl is its time to stop.
            closed = reason is LossReason.CLOSED
            close_ms = tenure.close_ms(self.runtime.now()) if closed else tenure.options.delay_ms
            self.depart_from(tenure, close_ms)
        self.losing.pop(tenure, None)
        self.detach_place(tenure)
        self._tell(tenure)

    def count_end(self, tenure: Tenure, outcome: str) -> None:
        """Notify observers that an owner has done with a tenure."""
        if self.observer is not None:
            self.observer.released(tenure.primitive, tenure.granted_at, outcome)

    def refused(self, primitive: Primitive, began: float, error: BaseException | None) -> None:
        """Notify observers that an acquisition came to nothing; see ``Observers.refused``."""
        if self.observer is not None:
            self.observer.refused(primitive.kind, primitive.name, began, error)

    def take_away(self, taken: list[str]) -> None:
        """Lose the tenures that the server says were taken from this client: by their tokens, or by their grants."""
        if taken:
            for tenure in self.schedule.all():
                if tenure.token in taken or grant_tag(tenure.primitive, tenure.fence) in taken:
                    self.lose(tenure, LossReason.TAKEN)

    def limit_hold(self, tenure: Tenure, limit: float) -> None:
        """Have ``max_hold`` end a tenure at ``limit`` from here on."""
        cut_short = tenure.hold_limit is not None and tenure.valid_until >= tenure.hold_limit
        tenure.hold_limit = limit
        if cut_short:
            # Its validity ends at the old limit, and nothing else would renew it.
            self.schedule.discard(tenure)
            self.schedule.add_once(tenure, self.runtime.now())
            self.runtime.nudge()

    def detach_place(self, tenure: Tenure) -> None:
        """Let local waiters go on without this tenure: the first of them queues on the server by itself."""
        tenure.behind = None
        place = tenure.place
        if place is not None:
            try:
                place.pass_claim(Claim(self.runtime.new_token()), tenure.turn)
            finally:
                tenure.place = None

    def _tell(self, tenure: Tenure) -> None:
        watchers, tenure.watchers = tenure.watchers, None
        for watcher in watchers or ():
            watcher()
        lease: LeaseRecord | None = tenure.lease() if tenure.lease is not None else None
        if lease is not None:
            lease._wake()
        callback = tenure.options.on_lost
        if callback is not None and lease is not None and not lease._released:
            self.runtime.report(Told(callback, lease))

    def drop_claim(self, primitive: Primitive, place: LocalPlace | None, claim: Claim) -> None:
        """Pass a claim to the next local waiter, or leave its token behind on the server."""
        if claim.tenure is not None:
            # Served by a run, and not taken: an owner has its own way to end it.
            if claim.tenure.who is None and not self.end_turn(claim.tenure, self.runtime.now()):
                self.depart_from(claim.tenure)
            return
        if claim.drifted:
            self.depart(primitive, claim.token, TOMB_MS)
            turn, claim = claim.turn, Claim(self.runtime.new_token())
            claim.turn = turn
        if place is not None and place.pass_claim(claim.heir(), claim.turn):
            return
        if claim.old is not None:
            call = primitive.leave(claim.old, TOMB_MS if claim.old_unanswered else 0, 0)
            if claim.old_votes is not None:
                call = barred(self, claim.old_votes, call, primitive, claim.old, background=True)
            self.post(call)
        if claim.sent:
            self.depart(primitive, claim.token, TOMB_MS)

    # Background -------------------------------------------------------------------------------------------------

    def depart(self, primitive: Primitive, token: str, tomb_ms: int, close_ms: int = 0) -> None:
        """Leave a token in the background; sent at once where a connection lives, and again until it is answered."""
        self.post(primitive.leave(token, tomb_ms, close_ms))

    def post(self, call: Call, seconds: float = DEPARTURE_FOR) -> None:
        """Send a call that may run twice in the background: at once where a connection lives, until it is answered.

        Args:
            call: What to send.
            seconds: For how long to try.
        """
        if self.quorum is not None:
            post_to_all(self, call)
            return
        self.departures[Departure(call, self.runtime.now() + seconds)] = None
        self.runtime.cast(call)
        if not self.upkeep_runs:
            self.start_upkeep()
        self.runtime.nudge()

    def depart_from(self, tenure: Tenure, close_ms: int = 0, *, barred: bool = False) -> None:
        """Leave the token of a tenure in the background.

        Args:
            tenure: The tenure.
            close_ms: For how long the name stays closed.
            barred: True if a copy of one of its requests may still be on its way.
        """
        tomb_ms = TOMB_MS if barred or tenure.unanswered else 0
        self.post(leave_call(self, tenure, tomb_ms, close_ms, background=True))

    def start_upkeep(self) -> None:
        """Start the client's background service, if it does not run."""
        if self.probe is not None and not self.looked and self.look_at == inf:
            # Not at once: a client that ends soon is not worth a question.
            self.look_at = self.runtime.now() + _LOOK_AFTER
        self.upkeep_runs = self.runtime.spawn_upkeep(lambda: self.upkeep(self))

    def forget_holder(self, tenure: Tenure, who: object) -> None:
        """The thread or task ``who`` has done with a tenure."""
        spot, held, outer = (who, tenure.primitive.key), self.held, tenure.outer
        around = outer if outer is not None and outer.live else None
        with self.guard:
            if spot not in held or held[spot] is not tenure:
                return
            if around is None:
                del held[spot]
            else:
                held[spot] = around

    def after_fork(self) -> None:
        """In the child: forget what belongs to the parent, without touching the network."""
        self.epoch += 1
        self.guard = self.runtime.mutex()
        self.places.clear(self.guard)
        self.schedule = Schedule(self.guard)
        self.held, self.waits, self.lined, self.rows = {}, {}, {}, {}
        if self.book is not None:
            self.book.forget()
        self.departures = {}
        self.underway, self.asking, self.losing = {}, {}, {}
        self.abandoned, self.undelivered = deque(), deque()
        self.upkeep_runs = False
        self.breaker = None
        if self.relief is not None:
            self.relief.after_fork()

    def applies(self, tenure: Tenure, left_ms: int, asked_ms: int, sent_at: float) -> bool:
        """Take a renewal's yes into account; False if it came after the end, which it cannot undo."""
        until = validity_of(self)(sent_at, left_ms - tenure.options.delay_ms, asked_ms)
        now = self.runtime.now()
        with self.guard:
            state = tenure.state
            if now < tenure.valid_until and (state is LeaseState.HELD or state is LeaseState.SUSPECT):
                if tenure.hold_limit is not None and until > tenure.hold_limit:
                    until = tenure.hold_limit
                if tenure.valid_until < until:  # noqa: PLR1730 - max() is a call
                    tenure.valid_until = until
                tenure.state, tenure.failures = LeaseState.HELD, 0
                return True
        self.expired(tenure, now)
        return False

    def suspect(self, tenure: Tenure) -> bool:
        """Take a renewal without an answer into account; False if the tenure ended meanwhile."""
        with self.guard:
            if tenure.state is not LeaseState.HELD and tenure.state is not LeaseState.SUSPECT:
                return False
            tenure.state, tenure.failures = LeaseState.SUSPECT, tenure.failures + 1
        self.count("renewal_failed")
        return True

    def doubt(self) -> None:
        """Ask at once for every lease: another server stands in for the one that granted them."""
        now = self.runtime.now()
        for tenure in self.schedule.all():
            with self.guard:
                if tenure.state is not LeaseState.HELD and tenure.state is not LeaseState.SUSPECT:
                    continue
                tenure.state = LeaseState.SUSPECT
            self.schedule.discard(tenure)
            self.schedule.add_once(tenure, now)
            self.count("doubted")
        self.wake_upkeep()
