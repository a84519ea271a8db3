"""An election: a name that one token holds, and those who want to hear of each change of the holder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.protocol.outcomes import ABSENT, NOBODY_MS, Absent, Full, Leading
from pawlock.testing.lock_table.exclusive import Exclusive
from pawlock.testing.lock_table.mail import ASK_AGAIN, NOWHERE, Mail, Message, shown

if TYPE_CHECKING:
    from pawlock.testing.lock_table.clock import Moment
    from pawlock.testing.lock_table.requests import Observe, Unobserve

__all__ = ["Ballots"]


class Ballots(Exclusive):
    """The state of one election. See ``Exclusive``; the leader is its holder."""

    __slots__ = ("_known", "_observers")

    def __init__(self) -> None:
        super().__init__()
        # By token and channel: until when it is to be woken.
        self._observers: dict[tuple[str, str], int] = {}
        self._known = ""

    def settle(self, now: Moment) -> None:
        """See ``Exclusive``. That a lease ran out is no change yet: who observes looks when it is to end."""
        super().settle(now)
        for observer in [one for one, until_ms in self._observers.items() if until_ms <= now.ms]:
            del self._observers[observer]

    def is_idle(self, now: Moment) -> bool:
        """See ``Exclusive``."""
        return not self._observers and super().is_idle(now)

    def expiries(self) -> dict[str, int]:
        """See ``Exclusive``."""
        observers = {f"observer {token}": until_ms for (token, _), until_ms in self._observers.items()}
        return {**super().expiries(), **observers}

    def announce(self, mail: Mail) -> None:
        """Wake the observers if a step has changed the leader."""
        leader = "" if self.holder is None else self.holder.token
        if leader == self._known:
            return
        self._known = leader
        for token, channel in self._observers:
            if channel != NOWHERE:
                mail.append(Message(channel, token, *ASK_AGAIN))

    def observe(self, ask: Observe, now: Moment, mail: Mail) -> Leading | Full:  # noqa: ARG002
        """See ``Observe``: looking and registering are one step, so no change is missed between the two."""
        if ask.ticket_ms > 0:
            before = self._observers.pop((ask.token, ask.former), 0)
            mine = ask.token, ask.channel
            if not before and mine not in self._observers and len(self._observers) >= ask.most:
                return Full(len(self._observers))
            self._observers[mine] = max(now.ms + ask.ticket_ms, self._observers.get(mine, 0))
        if self.holder is None:
            return Leading("", NOBODY_MS, self.fences.current)
        return Leading(shown(self.holder.token), self.holder.expiry_ms - now.ms, self.fences.current)

    def unobserve(self, ask: Unobserve, now: Moment, mail: Mail) -> Absent:  # noqa: ARG002
        """See ``Unobserve``."""
        if self._observers.pop((ask.token, ask.channel), 0) and ask.channel != NOWHERE:
            mail.append(Message(ask.channel, ask.token, *ASK_AGAIN))
        return ABSENT
