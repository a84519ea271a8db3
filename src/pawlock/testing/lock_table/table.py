"""The lock table: every name's state, and one way in, without a thread or a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pawlock.core.protocol.outcomes import Outcome
from pawlock.errors import NotSupported
from pawlock.testing.lock_table.ballots import Ballots
from pawlock.testing.lock_table.clock import Moment
from pawlock.testing.lock_table.exclusive import Exclusive
from pawlock.testing.lock_table.history import History
from pawlock.testing.lock_table.mail import Mail
from pawlock.testing.lock_table.permits import Permits
from pawlock.testing.lock_table.requests import (
    Adopt,
    Drop,
    Find,
    Force,
    Leave,
    Look,
    NoteLine,
    NoteTaken,
    Observe,
    Peek,
    Publish,
    Read,
    ReadLines,
    ReadTaken,
    Recall,
    Remember,
    Renew,
    Request,
    SetLimit,
    Swap,
    Take,
    Tell,
    Unobserve,
)
from pawlock.testing.lock_table.sessions import Sessions

__all__ = ["State", "Table"]

State = Exclusive | Permits | Ballots | Sessions | History

_STATES: dict[str, Callable[[], State]] = {
    "exclusive": Exclusive,
    "permits": Permits,
    "election": Ballots,
    "sessions": Sessions,
    "history": History,
}

_STEPS: dict[type[Request], str] = {
    Take: "take",
    Swap: "swap",
    Renew: "renew",
    Leave: "leave",
    Adopt: "adopt",
    Look: "look",
    Peek: "peek",
    Force: "force",
    Observe: "observe",
    Unobserve: "unobserve",
    SetLimit: "set_limit",
    Publish: "publish",
    Drop: "drop",
    Find: "find",
    Read: "read",
    Tell: "tell",
    NoteTaken: "note_taken",
    ReadTaken: "read_taken",
    NoteLine: "note_line",
    ReadLines: "read_lines",
    Remember: "remember",
    Recall: "recall",
}

_SWEEP_EVERY = 1024


class Table:
    """The names that somebody holds, waits for, or may still ask about."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], State] = {}
        self._served = 0

    def serve(self, request: object, now: Moment) -> tuple[Outcome, Mail]:
        """Carry out one request.

        Args:
            request: What is asked.
            now: When.

        Returns:
            The answer, and whom to wake of what.

        Raises:
            NotSupported: It is nothing that a lock table knows.
        """
        step = _STEPS.get(type(request)) if isinstance(request, Request) else None
        if step is None or not isinstance(request, Request):
            raise NotSupported(f"a lock table knows no {type(request).__name__}")
        state = self._state(request, now)
        found: Any = getattr(state, step, None)
        if found is None:
            raise NotSupported(f"a lock table knows no {type(request).__name__} of {request.family}")
        mail: Mail = []
        state.settle(now)
        answer: Outcome = found(request, now, mail)
        if isinstance(state, Ballots):
            state.announce(mail)
        return answer, mail

    def _state(self, request: Request, now: Moment) -> State:
        self._served += 1
        if self._served % _SWEEP_EVERY == 0:
            self._sweep(now)
        place = request.family, request.key
        state = self._names.get(place)
        if state is None:
            make = _STATES.get(request.family)
            if make is None:
                raise NotSupported(f"a lock table knows no names of {request.family}")
            state = self._names[place] = make()
        return state

    def _sweep(self, now: Moment) -> None:
        """Forget the names that are of no use to anybody any more."""
        for place, state in list(self._names.items()):
            state.settle(now)
            if state.is_idle(now):
                del self._names[place]

    def forget(self, part: str = "") -> None:
        """Lose all names whose key has a part in it; ``""``: all."""
        self._names = {place: state for place, state in self._names.items() if part not in place[1]}

    def seen(self, part: str, now: Moment) -> dict[str, int]:
        """What there is of the names whose key has a part in it, and when each is over, in ms of the table's clock."""
        found: dict[str, int] = {}
        for (family, key), state in self._names.items():
            if part in key:
                state.settle(now)
                found.update({f"{family} {key} {what}": at for what, at in state.expiries().items()})
        return found
