"""What several independent masters must do in time: a free name is granted, a lease is kept, nobody is told "held".

A majority that could answer all along leaves no excuse. What was broken, for how long and where, is noted here as
trouble; while more than a minority is in trouble, and for a moment after it, nothing is asked of anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pawlock.errors import AcquireTimeout, BackendError, ClockDrift, PawlockError

if TYPE_CHECKING:
    from pawlock.core.lease import HeldLease
    from tests.simulator.fleet import Fleet
    from tests.simulator.node import Node
    from tests.simulator.plan import Plan
    from tests.simulator.world import World

__all__ = ["Attempt", "Liveness"]

GRACE = 3.0
"""Seconds after the end of a trouble in which what it left undone is to be done: a few timeouts of a node."""

_DISTANT = 0.1
"""Seconds one way, beyond which a master answers later than the others are waited for."""

_FAR = 0.21
"""Seconds one way, beyond which a master cannot be connected to in time."""

_BOUND = 3.0
"""Seconds within which a name that nobody holds or waits for is granted: far below a ttl of 30 s."""


class Attempt(NamedTuple):
    """One acquisition of a name, from its call to the end of what came of it."""

    keys: tuple[str, ...]
    who: object
    began: float
    exclusive: bool


class _Trouble(NamedTuple):
    since: float
    until: float
    node: Node | None


class Liveness:
    """See the module.

    Args:
        world: The run.
        fleet: The masters.
        longest: The longest life in seconds that any lease of the run asks for.
    """

    def __init__(self, world: World, fleet: Fleet, longest: float) -> None:
        self._world = world
        self._fleet = fleet
        self._longest = longest
        self._troubles: list[_Trouble] = []
        self._ended: dict[str, dict[object, float]] = {}
        self._closed_until: dict[str, float] = {}
        self._held_since: dict[str, float] = {}
        self._forgot: list[tuple[float, Node]] = []
        self.least: float = 1.0
        """The shortest ttl in seconds of leases that must be kept."""
        self.patient: bool = True
        """False where a client retries unreachable masters for less time than a distant one takes."""

    def suit(self, plan: Plan) -> None:
        """Expect what a plan allows."""
        self.least = 3.0 if plan.tail else 1.0
        impatient = any(options.get("unavailable_after") for _, _, options in plan.locks)
        slow = max((fault.amount for fault in plan.faults if fault.kind == "all_slow"), default=0.0)
        # A connection takes several messages each way, within a second in all.
        distant = sum(far + slow > _FAR for far in plan.far) * 2 > len(plan.far)
        # A request has a third of a ticket's life.
        tickets = [options["ticket_ttl"] for _, _, options in plan.locks if options.get("ticket_ttl")]
        hurried = min(tickets, default=3.0) / 3 < 4 * (slow + max(plan.far, default=0.0))
        self.patient = not (impatient or plan.node_timeout or distant or hurried)

    # What was broken ----------------------------------------------------------------------------------------------

    def trouble(self, seconds: float, node: Node | None = None) -> None:
        """Note that something is broken from now on: one master, or anything."""
        now = self._world.now
        self._troubles.append(_Trouble(now, now + seconds, node))

    def with_tombstone(self, node: Node, down: float = 0.0) -> None:
        """Note that a master forgets what it knew: its votes count again once what it may have lost is over."""
        self._forgot.append((self._world.now, node))
        self.trouble(down + 1.1 * self._longest + 1.0, node)

    def calm(self, since: float) -> bool:
        """Whether a majority could answer at all times from ``since``."""
        bad = self._bad(since)
        if bad:
            # Nobody waits for one that is far beyond the others, and it takes seconds to be connected to again.
            bad = bad | {node for node in self._fleet.nodes if node.far > _DISTANT}
        return None not in bad and len(bad) * 2 < len(self._fleet.nodes)

    def _bad(self, since: float) -> set[Node | None]:
        """The masters that were in trouble at some time from ``since``; None: all of them."""
        return {trouble.node for trouble in self._troubles if trouble.until + GRACE > since}

    # Who had it ---------------------------------------------------------------------------------------------------

    def asks(self, attempt: Attempt) -> None:
        """Somebody asks for names, and from then on may stand in another's way."""
        for key in attempt.keys:
            self._ended.setdefault(key, {})[attempt.who] = float("inf")

    def ends(self, attempt: Attempt, *, lives: float = 0.0) -> None:
        """All is over, if not what it left on the masters: that lives for so long yet."""
        now = self._world.now
        for key in attempt.keys:
            if key in self._ended and attempt.who in self._ended[key]:
                self._ended[key][attempt.who] = now
            if lives:
                self.stays(key, lives)

    def stays(self, key: str, seconds: float) -> None:
        """What is over for its owner is on the masters for so long yet."""
        self._closed_until[key] = max(self._closed_until.get(key, 0.0), self._world.now + seconds)

    def _free_since(self, attempt: Attempt) -> float:
        """Since when nobody else holds the names, or asks for them; infinity if somebody does."""
        ends = [
            end for key in attempt.keys for who, end in self._ended.get(key, {}).items() if who != attempt.who
        ]
        closed = [self._closed_until.get(key, 0.0) for key in attempt.keys]
        return max([0.0, *ends, *closed])

    # Judging ------------------------------------------------------------------------------------------------------

    def granted(self, attempt: Attempt, where: str, tokens: Iterable[str]) -> None:
        """Judge a grant: it came in time."""
        for token in tokens:
            self._held_since.setdefault(token, attempt.began)
        free = self._free_since(attempt)
        since = max(free, attempt.began)
        waited = self._world.now - since
        if waited > _BOUND and self.patient and self.calm(since - GRACE):
            self._world.fail(f"slow: {where} waited {waited:.3f} s for {attempt.keys}, which nobody had")

    def refused(
        self, attempt: Attempt, where: str, error: PawlockError | None, timeout: float | None, ready: float
    ) -> None:
        """Judge a refusal: only of a name that somebody had, and not before the time was up; None: a try said no.

        Args:
            attempt: What was asked.
            where: Who asked.
            error: What it was told.
            timeout: For how long it was to wait; 0 for a try.
            ready: Since when the client could have known all masters.
        """
        now, began = self._world.now, attempt.began
        if not self.calm(began - GRACE):
            return
        held = error is None or isinstance(error, AcquireTimeout)
        if held and self._free_since(attempt) < began - GRACE:
            self._world.fail(f"busy: {where} got {error}, and nobody held {attempt.keys}")
        if isinstance(error, AcquireTimeout) and timeout and now - began < timeout * 0.98 - 0.02:
            self._world.fail(f"early: {where} gave up after {now - began:.3f} s of {timeout} s: {error}")
        failed = isinstance(error, (BackendError, ClockDrift))
        patient = timeout is None or timeout == 0 or timeout >= _BOUND
        # What is left of an own lease on one master grants no more than a master that is away.
        stands = bool(self._bad(began - GRACE)) and self._free_since(attempt) >= began - GRACE
        if failed and patient and self.patient and ready < began - GRACE and not stands:
            self._world.fail(f"unavailable: {where} was told {error} while a majority could answer")

    def lost(self, lease: HeldLease, where: str) -> None:
        """Judge a loss: a lease that is renewed is kept.

        Where single messages take a second now and then, a short lease is as good as without that master meanwhile.
        It stands on the votes that granted it: each of these masters that lost its data since then, or was in trouble
        within its life, is one less. A bare majority lives only as long as each of them.
        """
        hold = lease.hold
        key = hold.primitive.key
        since = self._world.now - 1.5 * hold.rhythm.ttl - 1.0
        less: set[Node | None] = {
            node for when, node in self._forgot if when > self._held_since.get(lease.token, 0.0)
        }
        less |= self._bad(since)
        quorum = None if hold.quorum is None else hold.quorum()
        given = 0 if quorum is None else sum(vote.granted for vote in quorum.nodes)
        # Its votes outlive it by the drift, and until they are taken back.
        self.stays(key, GRACE)
        if (
            hold.rhythm.hold_limit is None
            and self.patient
            and hold.rhythm.ttl >= self.least
            and hold.options.renew
            and quorum is not None
            and given - len(less) >= quorum.needed
            and self.calm(since)
        ):
            self._world.fail(
                f"kept: {where} lost {lease.token} ({hold.reason}) while a majority could answer"
            )
