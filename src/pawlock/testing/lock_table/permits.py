"""A name with a number of permits: what a ``semaphore`` is. Each holder has a lease, and a fencing token, of its own.

Rules:

1. Permits are granted in the order of the queue: while the first who waits does not fit, nobody behind it gets any.
2. A request that comes again finds its token holding, waiting or barred.
3. No holder loses a permit because the number changed; who waits then waits longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pawlock.core.protocol.outcomes import (
    NOBODY_MS,
    RELEASED,
    WITHDRAWN,
    Absent,
    Busy,
    Dead,
    Full,
    Gone,
    Granted,
    Holder,
    LimitChanged,
    LimitRefused,
    Queued,
    Released,
    Withdrawn,
)
from pawlock.core.protocol.outcomes import (
    Look as NameLook,
)
from pawlock.testing.lock_table.fences import Fences
from pawlock.testing.lock_table.mail import ASK_AGAIN, NOWHERE, Mail, Message, shown
from pawlock.testing.lock_table.tickets import Queue, Ticket
from pawlock.testing.lock_table.tombs import Tombs

if TYPE_CHECKING:
    from pawlock.testing.lock_table.clock import Moment
    from pawlock.testing.lock_table.requests import Leave, Look, Renew, SetLimit, Take

__all__ = ["Permit", "Permits"]

_CLOSED = "closed."


@dataclass(slots=True)
class Permit:
    """What one holder has.

    Attributes:
        weight: How many permits.
        expiry_ms: Until when.
        fence: Its fencing token.
    """

    weight: int
    expiry_ms: int
    fence: int


class Permits:
    """The state of one name, and the steps that change it. A step begins with ``settle``."""

    __slots__ = ("_declared", "_limit", "fences", "holders", "queue", "tombs")

    def __init__(self) -> None:
        self.holders: dict[str, Permit] = {}
        self.queue: Queue = Queue()
        self.tombs: Tombs = Tombs()
        self.fences: Fences = Fences()
        self._limit: int = 0
        self._declared: int = 0

    # What every step does ---------------------------------------------------------------------------------------

    def settle(self, now: Moment) -> None:
        """Forget what is over."""
        for token in [token for token, permit in self.holders.items() if permit.expiry_ms < now.ms]:
            del self.holders[token]
        self.tombs.forget(now)

    def is_idle(self, now: Moment) -> bool:
        """Whether nothing is left that anybody could ask for."""
        lives = self.holders or len(self.tombs) or self.queue.count_live(now)
        return not lives and self.fences.until_ms < now.ms

    def expiries(self) -> dict[str, int]:
        """When each part of it is over, in ms of the table's clock: for tests that look from outside."""
        parts = {"fence": self.fences.until_ms}
        parts.update({f"holder {token}": permit.expiry_ms for token, permit in self.holders.items()})
        parts.update({f"ticket of {ticket.token}": ticket.expiry_ms for ticket in self.queue})
        return parts

    @property
    def _used(self) -> int:
        return sum(permit.weight for permit in self.holders.values())

    def _agreed(self, permits: int) -> int:
        """How many there are: what was agreed on, or what the caller knows."""
        return self._limit or permits

    def _first_end(self) -> tuple[int, str]:
        """The first holder that will be gone: when, and who; -2 and ``""``: nobody holds."""
        if not self.holders:
            return NOBODY_MS, ""
        token = min(self.holders, key=lambda one: self.holders[one].expiry_ms)
        return self.holders[token].expiry_ms, token

    def _held(self, token: str, now: Moment) -> Granted:
        permit = self.holders[token]
        return Granted(permit.fence, permit.expiry_ms - now.ms, now.ms)

    def _standing(self, ticket: Ticket, now: Moment, others: tuple[int, ...] = ()) -> Queued:
        expiry_ms, _ = self._first_end()
        left_ms = expiry_ms if expiry_ms < 0 else max(0, expiry_ms - now.ms)
        return Queued(self.queue.rank(ticket.token), left_ms, ticket.expiry_ms, now.ms, False, others)

    def _grant(self, token: str, weight: int, expiry_ms: int, keep_ms: int, now: Moment) -> None:
        self.holders[token] = Permit(weight, expiry_ms, self.fences.mint(1, now))
        self.fences.keep(keep_ms, now)

    def _serve(self, limit: int, keep_ms: int, now: Moment, mail: Mail, own: str = "") -> None:
        """Grant permits to those who wait, in their order, for as long as they fit."""
        while (ticket := self.queue.first_live(now)) is not None:
            if 0 < limit < ticket.weight:
                # It can never be served: its owner asks, and is told why.
                self._send(ticket, *ASK_AGAIN, mail, own)
            elif limit and self._used + ticket.weight > limit:
                return
            else:
                self._grant(ticket.token, ticket.weight, ticket.expiry_ms, keep_ms, now)
                self._send(ticket, self.holders[ticket.token].fence, ticket.expiry_ms, mail, own)
            self.queue.remove([ticket.token])

    @staticmethod
    def _send(ticket: Ticket, fence: int, expiry_ms: int, mail: Mail, own: str) -> None:
        if ticket.token != own and ticket.channel != NOWHERE:
            mail.append(Message(ticket.channel, ticket.token, fence, expiry_ms))

    # Steps ------------------------------------------------------------------------------------------------------

    def take(
        self, ask: Take, now: Moment, mail: Mail
    ) -> Granted | Queued | Busy | Dead | Full | LimitRefused:
        """See ``Take``."""
        if ask.token in self.holders:
            return self._held(ask.token, now)
        if self.tombs.bars(ask.token):
            return Dead()
        limit = self._agreed(ask.permits)
        refusal = self._refusal(ask, limit)
        if refusal is not None:
            return refusal
        if not self._limit:
            self._limit = self._declared = ask.permits
        self._serve(limit, ask.keep_ms, now, mail, ask.token)
        if ask.token not in self.holders and not len(self.queue) and self._used + ask.weight <= limit:
            self._grant(ask.token, ask.weight, now.ms + ask.life_ms, ask.keep_ms, now)
        if ask.token in self.holders:
            return self._held(ask.token, now)
        return self._enqueue(ask, now) if ask.wait else self._busy(now)

    def _refusal(self, ask: Take, limit: int) -> LimitRefused | None:
        declared = self._declared or ask.permits
        if ask.permits not in (limit, declared):
            return LimitRefused("limit", limit, declared)
        return LimitRefused("weight", limit, declared) if ask.weight > limit else None

    def _busy(self, now: Moment) -> Busy:
        expiry_ms, holder = self._first_end()
        return Busy(max(0, expiry_ms - now.ms) if holder else NOBODY_MS, False, shown(holder))

    def _enqueue(self, ask: Take, now: Moment) -> Queued | Full:
        ticket = self.queue.find(ask.token)
        if ticket is None:
            if self.queue.count_live(now) >= ask.max_waiters:
                return Full(self.queue.count_live(now))
            ticket = Ticket(ask.token, now.us, 0, ask.channel or NOWHERE, 1, ask.weight)
            self.queue.add(ticket)
        ticket.expiry_ms = max(ticket.expiry_ms, now.ms + ask.ticket_ms)
        self.fences.keep(ask.keep_ms, now)
        return self._standing(ticket, now)

    def renew(self, ask: Renew, now: Moment, mail: Mail) -> Granted | Queued | Gone:
        """See ``Renew``."""
        ticket = self.queue.find(ask.token)
        if ticket is not None:
            ticket.expiry_ms = max(ticket.expiry_ms, now.ms + ask.ticket_ms)
            ticket.channel = ask.channel or ticket.channel
        self._serve(self._agreed(ask.permits), ask.keep_ms, now, mail, ask.token)
        permit = self.holders.get(ask.token)
        if permit is not None:
            permit.expiry_ms = max(permit.expiry_ms, now.ms + ask.life_ms)
            self.fences.keep(ask.keep_ms, now)
            return self._held(ask.token, now)
        if ticket is None or self.queue.find(ask.token) is None:
            return Gone("none")
        self.fences.keep(ask.keep_ms, now)
        return self._standing(ticket, now, tuple(self._raised(token, ask, now) for token in ask.others))

    def _raised(self, token: str, ask: Renew, now: Moment) -> int:
        ticket, expiry_ms = self.queue.find(token), now.ms + ask.ticket_ms
        if ticket is None or ticket.expiry_ms > expiry_ms:
            return -1
        ticket.expiry_ms = expiry_ms
        return self.queue.rank(token)

    def leave(self, ask: Leave, now: Moment, mail: Mail) -> Released | Withdrawn | Absent:
        """See ``Leave``."""
        permit = self.holders.pop(ask.token, None)
        waited = self.queue.find(ask.token) is not None
        self.queue.remove([ask.token])
        if permit is not None and ask.close_ms > 0:
            self.holders[_CLOSED + ask.token] = Permit(permit.weight, now.ms + ask.close_ms, 0)
        self.tombs.bury(ask.token, ask.tomb_ms, now)
        self._serve(self._agreed(ask.permits), ask.keep_ms, now, mail)
        if permit is not None:
            return RELEASED
        return WITHDRAWN if waited else Absent("held" if self.holders else "none", forced=False)

    def set_limit(self, ask: SetLimit, now: Moment, mail: Mail) -> LimitChanged:
        """See ``SetLimit``."""
        before, self._limit, self._declared = self._limit, ask.limit, ask.declared
        self.fences.keep(ask.keep_ms, now)
        self._serve(ask.limit, ask.keep_ms, now, mail)
        return LimitChanged(before)

    def look(self, ask: Look, now: Moment, mail: Mail) -> NameLook:  # noqa: ARG002
        """See ``Look``."""
        listed = sorted(self.holders.items(), key=lambda one: one[1].expiry_ms)
        holders = tuple(
            Holder(str(permit.weight), shown(token), permit.expiry_ms, permit.fence)
            for token, permit in listed[: max(1, ask.most)]
        )
        return NameLook(
            holders[0].who if holders else "",
            listed[-1][1].expiry_ms - now.ms if listed else NOBODY_MS,
            self.fences.current,
            self.fences.last,
            now.ms,
            holds=len(listed),
            queue_length=len(self.queue),
            waiters=self.queue.listed(ask.most, shows_modes=True),
            holders=holders,
            limit=self._agreed(ask.permits),
            used=self._used,
            shows_modes=True,
        )
