"""A server that is down for long is not asked by everybody: one probe in the background finds out when it is back.

The first acquisition that waited for an unreachable server opens the breaker, however short its time was, but
for one of less than 0.1 s that got no answer: the server may only take longer. From then on the client's maintenance
asks the server from time to time (half-open), and one answer closes it. Who comes while it is open, and would wait no
longer than the server has been away, or than somebody has waited already, is refused at once: a dead server costs
microseconds. How long one would wait is ``unavailable_after``, or what is left of its ``timeout``. Who would wait
longer does, since a failover may end the outage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.faults import to_error
from pawlock.core.protocol.quorum import majority
from pawlock.core.protocol.runtime import Fault
from pawlock.errors import BackendUnavailable, PawlockError, QuorumNotReached

if TYPE_CHECKING:
    from pawlock.core.protocol.carrier import Request
    from pawlock.core.protocol.quorum import QuorumRuntime
    from pawlock.core.state.client import ClientState

__all__ = ["CircuitBreaker", "is_outage"]

_LEAST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_PATIENCE = 0.5
_ABOUT = 1.05
_MOMENT = 0.005


class CircuitBreaker:
    """An open breaker; the engine has none while the server answers.

    Args:
        probe: A call that reads, and changes nothing.
        since: Since when the server gives no answer.
        first: The error of the first who gave up.
        now: The present.
    """

    __slots__ = ("attempt", "due", "outcomes", "probe", "since", "waited", "why")

    def __init__(self, probe: Request, since: float, first: Exception, now: float) -> None:
        self.probe: Request = probe
        self.since: float = since
        # The text alone: an error keeps the frames that it passed through.
        self.why: str = first.text if isinstance(first, PawlockError) else str(first)
        self.outcomes: dict[str, str] | None = first.outcomes if isinstance(first, QuorumNotReached) else None
        self.due: float = now + _LEAST_PAUSE
        self.attempt: int = 0
        # For how long somebody has retried already: the next one to retry as long would find out the same.
        self.waited: float = 0.0

    def check(self, name: str, patience: float, now: float) -> None:
        """Pass a caller that would wait longer than this outage has lasted, and than anybody has waited.

        Args:
            name: The lock's name.
            patience: Seconds for which the caller would wait for the server.
            now: The present.

        Raises:
            BackendUnavailable: It has lasted for ``patience`` seconds already, or somebody has retried as long.
            QuorumNotReached: The same of several masters.
        """
        # The same time-out is never the same to the last digit.
        if patience <= self.waited * _ABOUT + _MOMENT or now - self.since >= patience:
            text = (
                f"acquire {name!r}: circuit breaker open (server unreachable for {now - self.since:.1f} s), "
                f"request not sent; first error: {self.why}"
            )
            if self.outcomes is not None:
                raise QuorumNotReached(text, name=name, outcomes=self.outcomes)
            raise BackendUnavailable(text, name=name)

    async def server_is_back(self, engine: ClientState, most: float) -> bool:
        """Ask the server whether it is back, if it is time to, in at most ``most`` seconds."""
        runtime = engine.runtime
        if runtime.now() < self.due:
            return False
        # Another way than `call`: an answer that is an error of the server is an answer too.
        # Far masters get their time to answer, or the breaker would never close.
        patience = _PATIENCE if engine.quorum is None else cast("QuorumRuntime", runtime).patience
        outcome = (await runtime.call_many([self.probe], min(patience, most)))[0]
        if not isinstance(outcome, Fault) or not isinstance(to_error(outcome, None, ""), BackendUnavailable):
            return True
        self.attempt += 1
        pause = full_jitter(self.attempt, runtime.random(), base=_LEAST_PAUSE, cap=_LONGEST_PAUSE)
        self.due = runtime.now() + _LEAST_PAUSE + pause
        return False


def is_outage(error: QuorumNotReached, *, late: bool) -> bool:
    """Whether several masters could not have granted anything, with or without other candidates.

    Args:
        error: The caller's error.
        late: Whether the masters had their time to answer; False where the caller's own ended before.
    """
    # A connection that is being made shows nothing yet: the next attempt finds what came of it.
    unknown = ("no answer yet", "unreachable: not connected yet", *(() if late else ("unanswered",)))
    there = ("granted", "held by", "given up", *unknown)
    gone = [word for word in error.outcomes.values() if not word.startswith(there)]
    return len(gone) > len(error.outcomes) - majority(len(error.outcomes))
