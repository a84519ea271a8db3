"""The queue of one name: tickets in the order in which they came, each with an expiry of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from pawlock.core.protocol.outcomes import Ticket as SeenTicket
from pawlock.testing.lock_table.clock import Moment
from pawlock.testing.lock_table.mail import shown, tag_of

__all__ = ["Queue", "Ticket"]


@dataclass(slots=True)
class Ticket:
    """One waiter.

    Attributes:
        token: Whose it is.
        number: When it was drawn: the clock in µs, or one more than the last.
        expiry_ms: From then on nobody is granted anything for it.
        channel: Where its owner hears of a grant; ``"-"``: nowhere, it asks.
        block: How many fencing tokens its grant reserves.
        weight: How many permits it asks for.
    """

    token: str
    number: int
    expiry_ms: int
    channel: str
    block: int = 1
    weight: int = 1

    def is_live(self, now: Moment) -> bool:
        """Whether its owner renewed it in time."""
        return self.expiry_ms > now.ms


class Queue:
    """Those who wait for one name. A ticket that lapsed keeps its place until somebody is to be served."""

    __slots__ = ("_tickets",)

    def __init__(self) -> None:
        # A dict keeps the order in which they came.
        self._tickets: dict[str, Ticket] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(list(self._tickets.values()))

    def find(self, token: str) -> Ticket | None:
        """The ticket of a token."""
        return self._tickets.get(token)

    def rank(self, token: str) -> int:
        """How many are before it; -1: it has no ticket."""
        for place, other in enumerate(self._tickets):
            if other == token:
                return place
        return -1

    def add(self, ticket: Ticket) -> None:
        """Put a ticket at the end, with a number above all others."""
        last = next(reversed(self._tickets.values()), None)
        if last is not None:
            ticket.number = max(ticket.number, last.number + 1)
        self._tickets[ticket.token] = ticket

    def remove(self, tokens: Iterable[str]) -> None:
        """Take tickets out; those that are not there are no mistake."""
        for token in tokens:
            self._tickets.pop(token, None)

    def count_live(self, now: Moment) -> int:
        """How many are renewed in time."""
        return sum(ticket.is_live(now) for ticket in self._tickets.values())

    def first_live(self, now: Moment) -> Ticket | None:
        """The one who is to be served next; those before it, which lapsed, go."""
        for ticket in self:
            if ticket.is_live(now):
                return ticket
            self.remove([ticket.token])
        return None

    def behind(self, token: str, most: int) -> list[Ticket]:
        """Those who stand directly behind a ticket."""
        listed = list(self._tickets.values())
        at = self.rank(token) + 1
        return listed[at : at + most] if at else []

    def listed(self, most: int, *, shows_modes: bool = False) -> tuple[SeenTicket, ...]:
        """The first of them, as others may see them; with ``shows_modes``, also what they ask for."""
        return tuple(
            SeenTicket(shown(one.token), one.number, one.expiry_ms, tag_of(one.token), str(one.weight))
            if shows_modes
            else SeenTicket(shown(one.token), one.number, one.expiry_ms)
            for one in islice(self._tickets.values(), most)
        )
