"""A name that one token holds at a time: what ``lock``, ``rlock`` and ``fair_lock`` are.

Rules, each of which a late or doubled request would break otherwise:

1. The name is granted only while nobody holds it and no live ticket is before the one that gets it.
2. A request that comes again finds its token holding, waiting or barred, and lowers no expiry.
3. A hand-off changes who holds, never an expiry: the new holder lives as its ticket did, until it renews.
4. What is given back is passed on in the same step: a name is never free while somebody waits.
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
    Forced,
    Full,
    Gone,
    Granted,
    Queued,
    Released,
    Seen,
    Withdrawn,
)
from pawlock.core.protocol.outcomes import (
    Look as NameLook,
)
from pawlock.testing.lock_table.fences import Fences
from pawlock.testing.lock_table.mail import NOWHERE, Mail, Message, process_of, shown
from pawlock.testing.lock_table.tickets import Queue, Ticket
from pawlock.testing.lock_table.tombs import Tombs

if TYPE_CHECKING:
    from pawlock.testing.lock_table.clock import Moment
    from pawlock.testing.lock_table.requests import Adopt, Force, Leave, Look, Peek, Renew, Swap, Take

__all__ = ["Exclusive", "Holder"]

_CLOSED = "closed@min_hold"


@dataclass(slots=True)
class Holder:
    """Who holds the name.

    Attributes:
        token: Whose it is.
        expiry_ms: Until when.
    """

    token: str
    expiry_ms: int


class Exclusive:
    """The state of one name, and the steps that change it. A step begins with ``settle``."""

    __slots__ = ("fences", "holder", "queue", "tombs")

    def __init__(self) -> None:
        self.holder: Holder | None = None
        self.queue: Queue = Queue()
        self.tombs: Tombs = Tombs()
        self.fences: Fences = Fences()

    # What every step does ---------------------------------------------------------------------------------------

    def settle(self, now: Moment) -> None:
        """Forget what is over."""
        if self.holder is not None and self.holder.expiry_ms < now.ms:
            self.holder = None
        self.tombs.forget(now)

    def is_idle(self, now: Moment) -> bool:
        """Whether nothing is left that anybody could ask for."""
        lives = self.holder is not None or len(self.tombs) or self.queue.count_live(now)
        return not lives and self.fences.until_ms < now.ms

    def expiries(self) -> dict[str, int]:
        """When each part of it is over, in ms of the table's clock: for tests that look from outside."""
        parts = {"fence": self.fences.until_ms}
        if self.holder is not None:
            parts["holder"] = self.holder.expiry_ms
        for ticket in self.queue:
            parts[f"ticket of {ticket.token}"] = ticket.expiry_ms
        return parts

    def _is_held_by(self, token: str) -> bool:
        return self.holder is not None and self.holder.token == token

    def _held(self, now: Moment) -> Granted:
        assert self.holder is not None
        return Granted(self.fences.current, self.holder.expiry_ms - now.ms, now.ms)

    def _present(self) -> str:
        return "none" if self.holder is None else "other"

    def _left_ms(self, now: Moment) -> int:
        return NOBODY_MS if self.holder is None else self.holder.expiry_ms - now.ms

    def _standing(self, ticket: Ticket, now: Moment, others: tuple[int, ...] = ()) -> Queued:
        return Queued(
            self.queue.rank(ticket.token), self._left_ms(now), ticket.expiry_ms, now.ms, False, others
        )

    def _grant(self, token: str, expiry_ms: int, block: int, keep_ms: int, now: Moment) -> None:
        self.holder = Holder(token, expiry_ms)
        self.fences.mint(block, now)
        self.fences.keep(keep_ms, now)

    def _hand_on(self, now: Moment, keep_ms: int, mail: Mail, own: str = "", look: int = 0) -> None:
        """Grant a free name to the first live ticket, and tell its owner unless that is who asks."""
        if self.holder is not None:
            return
        ticket = self.queue.first_live(now)
        if ticket is None:
            return
        behind = self._same_process(ticket.token, look)
        self.queue.remove([ticket.token])
        self._grant(ticket.token, ticket.expiry_ms, ticket.block, keep_ms, now)
        if ticket.token != own and ticket.channel != NOWHERE:
            mail.append(Message(ticket.channel, ticket.token, self.fences.current, ticket.expiry_ms, behind))

    def _same_process(self, token: str, look: int) -> tuple[str, ...]:
        found: list[str] = []
        for ticket in self.queue.behind(token, look):
            if not process_of(token) or process_of(ticket.token) != process_of(token):
                break
            found.append(ticket.token)
        return tuple(found)

    def _enqueue(self, ask: Take, now: Moment) -> Queued | Full:
        ticket = self.queue.find(ask.token)
        if ticket is not None:
            ticket.expiry_ms = max(ticket.expiry_ms, now.ms + ask.ticket_ms)
            return self._standing(ticket, now)
        if len(self.queue) >= ask.max_waiters:
            waiters = self.queue.count_live(now)
            if waiters >= ask.max_waiters:
                return Full(waiters)
            self.queue.remove([one.token for one in self.queue if not one.is_live(now)])
        ticket = Ticket(ask.token, now.us, now.ms + ask.ticket_ms, ask.channel or NOWHERE, ask.block)
        self.queue.add(ticket)
        self.fences.keep(ask.keep_ms, now)
        return self._standing(ticket, now)

    # Steps ------------------------------------------------------------------------------------------------------

    def take(self, ask: Take, now: Moment, mail: Mail) -> Granted | Queued | Busy | Dead | Full:
        """See ``Take``."""
        if self.tombs.bars(ask.token):
            return Dead()
        self._hand_on(now, ask.keep_ms, mail, ask.token)
        if self.holder is None:
            self._grant(ask.token, now.ms + ask.life_ms, ask.block, ask.keep_ms, now)
        if self._is_held_by(ask.token):
            return self._held(now)
        if ask.wait:
            return self._enqueue(ask, now)
        assert self.holder is not None
        return Busy(self._left_ms(now), False, shown(self.holder.token))

    def swap(self, ask: Swap, now: Moment, mail: Mail) -> Granted | Queued | Dead | Full:
        """See ``Swap``: what ``leave`` of the old and ``take`` of the new token do, with nothing between them."""
        if self._is_held_by(ask.token):
            return self._held(now)
        self.queue.remove([ask.old])
        if self._is_held_by(ask.old):
            self.holder = None
        self.tombs.bury(ask.old, ask.tomb_ms, now)
        self._hand_on(now, ask.keep_ms, mail, ask.token)
        if self._is_held_by(ask.token):
            return self._held(now)
        if self.tombs.bars(ask.token):
            return Dead()
        if self.holder is None:
            self._grant(ask.token, now.ms + ask.life_ms, ask.block, ask.keep_ms, now)
            return self._held(now)
        return self._enqueue(ask, now)

    def renew(self, ask: Renew, now: Moment, mail: Mail) -> Granted | Queued | Gone:
        """See ``Renew``."""
        ticket = self.queue.find(ask.token)
        if ticket is not None and not self._is_held_by(ask.token):
            ticket.expiry_ms = max(ticket.expiry_ms, now.ms + ask.ticket_ms)
            ticket.channel = ask.channel or ticket.channel
        self._hand_on(now, ask.keep_ms, mail, ask.token)
        if self._is_held_by(ask.token):
            assert self.holder is not None
            self.holder.expiry_ms = max(self.holder.expiry_ms, now.ms + ask.life_ms)
            self.fences.keep(ask.keep_ms, now)
            return self._held(now)
        if ticket is None:
            return Gone(self._present())
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
        held = any(self._is_held_by(token) for token in (ask.token, *ask.spent))
        waited = self.queue.find(ask.token) is not None
        forced = self.tombs.is_forced(ask.token)
        self.queue.remove([ask.token, *ask.spent])
        if held:
            self.holder = Holder(_CLOSED, now.ms + ask.close_ms) if ask.close_ms > 0 else None
        self.tombs.bury(ask.token, ask.tomb_ms, now)
        self._hand_on(now, ask.keep_ms, mail, look=ask.look)
        if held:
            return RELEASED
        return WITHDRAWN if waited else Absent(self._present(), forced)

    def adopt(self, ask: Adopt, now: Moment, mail: Mail) -> Granted | Dead | Gone:
        """See ``Adopt``."""
        if self.tombs.bars(ask.token):
            return Dead()
        self._hand_on(now, ask.keep_ms, mail)
        if self._is_held_by(ask.token):
            assert self.holder is not None
            self.holder.expiry_ms = max(self.holder.expiry_ms, now.ms + ask.life_ms)
        elif self._is_held_by(ask.old):
            self.holder = Holder(ask.token, now.ms + ask.life_ms)
        else:
            return Gone(self._present())
        self.fences.keep(ask.keep_ms, now)
        return self._held(now)

    def look(self, ask: Look, now: Moment, mail: Mail) -> NameLook:  # noqa: ARG002
        """See ``Look``."""
        return NameLook(
            "" if self.holder is None else shown(self.holder.token),
            self._left_ms(now),
            self.fences.current,
            self.fences.last,
            now.ms,
            holds=0 if self.holder is None else 1,
            queue_length=len(self.queue),
            waiters=self.queue.listed(ask.most),
        )

    def peek(self, ask: Peek, now: Moment, mail: Mail) -> Seen:  # noqa: ARG002
        """See ``Peek``."""
        return Seen(
            "" if self.holder is None else self.holder.token, self.fences.current, self.holder is not None
        )

    def force(self, ask: Force, now: Moment, mail: Mail) -> Forced | Absent:
        """See ``Force``."""
        if not self._is_held_by(ask.token):
            if self.tombs.is_forced(ask.token):
                return Forced(self.fences.last, shown(ask.token))
            return Absent("" if self.holder is None else shown(self.holder.token))
        self.holder = None
        fence = self.fences.mint(1, now)
        self.fences.keep(max(ask.keep_ms, ask.tomb_ms), now)
        self.tombs.bury(ask.token, ask.tomb_ms, now, forced=True)
        self._hand_on(now, ask.keep_ms, mail)
        if ask.channel:
            mail.append(Message(ask.channel, ask.token, 0, 0))
        return Forced(fence, shown(ask.token))
