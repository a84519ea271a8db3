"""What must be true of the keys of a mutex after every script: the invariants of the protocol, on two snapshots."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

__all__ = ["CLOSED", "FENCE_MS", "STRANGER", "Snapshot", "Step", "Ticket", "broken", "reads_only"]

CLOSED = "closed@min_hold"
FENCE_MS = 3_600_000
STRANGER = "stranger:"
"""How the values of programs begin that are not pawlock."""


class Ticket(NamedTuple):
    """A waiting token as the server keeps it."""

    number: int
    expiry: int
    block: int
    channel: str = ""


class Snapshot:
    """The keys of one name at one moment of the server's clock. Times in ms of that clock.

    Args:
        now: The moment.
        value: What the name holds.
        expiry: When it ends.
        cur: First fence of the present grant.
        last: End of the last block of fences.
        queue: Waiting tokens.
        key_expiry: When each key that is there ends, by part; below 0: never.
    """

    __slots__ = (
        "cur", "expiry", "fence_expiry", "key_expiry", "last", "leases", "now", "queue", "value",
    )  # fmt: skip

    def __init__(
        self,
        now: int,
        value: str | None = None,
        expiry: int = 0,
        cur: int = 0,
        last: int = 0,
        queue: dict[str, Ticket] | None = None,
        key_expiry: dict[str, int] | None = None,
    ) -> None:
        self.now: int = now
        self.value: str | None = value
        self.expiry: int = expiry
        self.cur: int = cur
        self.last: int = last
        self.queue: dict[str, Ticket] = queue or {}
        self.key_expiry: dict[str, int] = key_expiry or {}
        self.fence_expiry: int = self.key_expiry.get("fence", 0)
        self._settle()

    def _settle(self) -> None:
        value = self.value
        leases: dict[str, int] = {}
        if self.queue:
            # A member of the queue whose ticket the server lost is dead: it goes with the next pump.
            leases = {token: ticket.expiry for token, ticket in self.queue.items() if ticket.expiry}
        if value is not None and value != CLOSED:
            leases[value] = self.expiry
        self.leases: dict[str, int] = leases
        """Expiry of every token that waits or holds."""

    def at(self, now: int) -> Snapshot:
        """The same keys later, when no script ran in between."""
        self.now = now
        if self.value is not None and 0 <= self.expiry < now:
            self.value, self.expiry = None, -2
            self._settle()
        return self

    def has_holder(self, token: str) -> bool:
        """Whether a token holds."""
        return token == self.value and token != CLOSED

    def holders(self) -> set[str]:
        """The tokens that hold."""
        return {self.value} if self.value is not None and self.value != CLOSED else set()

    def live(self, *, but: frozenset[str] = frozenset()) -> list[str]:
        """Live tickets in the order of their numbers."""
        queue = self.queue
        found = [token for token, ticket in queue.items() if ticket.expiry > self.now and token not in but]
        return sorted(found, key=lambda token: queue[token].number) if len(found) > 1 else found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in self.__slots__)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"<{self.now}: {self.value} until {self.expiry}, fence {self.cur}-{self.last}, "
            f"queue {self.queue}>"
        )


_NONE: frozenset[str] = frozenset()


class Step(NamedTuple):
    """One script run: what was asked and answered, without the request id."""

    script: str
    token: str
    old: str = ""
    mode: int = 1
    reply: tuple[Any, ...] = ()
    spent: tuple[str, ...] = ()

    @property
    def gone(self) -> frozenset[str]:
        """All tokens that leave for good."""
        leaving = self.leaving
        if not self.spent:
            return frozenset((leaving,)) if leaving else _NONE
        return frozenset([token for token in (leaving, *self.spent) if token])

    @property
    def leaving(self) -> str:
        """The token that leaves for good."""
        if self.script == "adopt":
            return self.old if self.reply[0] == "H" else ""
        return self.old or (self.token if self.script.endswith("leave") else "")


def broken(
    before: Snapshot,
    after: Snapshot,
    step: Step,
    *,
    fence_ms: int = FENCE_MS,
) -> list[str]:
    """Name every invariant that a step broke; empty when all is well.

    Args:
        before: The keys before it; what ran out until ``after`` is taken out of it.
        after: The keys after it.
        step: What ran.
        fence_ms: The shortest time for which anybody wants the fence kept.
    """
    before.at(after.now)
    found: list[str] = []
    gone = step.gone
    # Who left or renewed what it did not have, or found it held, has not used the name.
    _keys(after, found, fence_ms=0 if step.reply[0] in "ABU" else fence_ms)
    _leases(before, after, step, gone, found)
    _fences(before, after, found)
    _grants(before, after, step, gone, found)
    return [f"{what} after {step}" for what in found] if found else found


def _keys(after: Snapshot, found: list[str], *, fence_ms: int) -> None:
    queue, key_expiry = after.queue, after.key_expiry
    if key_expiry and min(key_expiry.values()) < 0:
        found += [f"I6: the {part} key has no expiry" for part, expiry in key_expiry.items() if expiry < 0]
    if queue:
        if after.holders() & queue.keys():
            found.append("I1: a token holds and waits")
        longest = max([ticket.expiry for ticket in queue.values()])
        found.extend(
            f"I6: the {part} key does not outlive its tickets"
            for part in ("queue", "tickets")
            if key_expiry.get(part, 0) < longest
        )
    if after.last:
        least = max(after.now, after.last / 1000) + fence_ms * 23 / 24
        if fence_ms and after.fence_expiry < least:
            found.append("I6: the fence key is not kept for its time past its value")
        if after.fence_expiry < after.expiry and after.leases and after.holders():
            found.append("I6: the fence key does not outlive the lease")


def _leases(before: Snapshot, after: Snapshot, step: Step, gone: frozenset[str], found: list[str]) -> None:
    had, has = before.leases, after.leases
    if had != has:
        for token, expiry in had.items():
            left = has.get(token)
            if left is None:
                if expiry > after.now and token not in gone:
                    found.append(f"I2: a live lease of {token} vanished")
            elif left < expiry and token not in gone:
                found.append(f"I2: the expiry of {token} fell by {expiry - left} ms")
        found += [
            f"O2: a lease of {token} came from nothing"
            for token in has
            if token not in had
            and (token != step.token or step.script not in _CREATE)
            # Who is not pawlock may have been there before the first script of the name.
            and not token.startswith(STRANGER)
        ]
    if before.queue and before.queue is not after.queue:
        found += [
            f"I8: {token} lost its place in the queue"
            for token, ticket in after.queue.items()
            if token in before.queue
            # One that ran out may be dropped, and stand at the end when it is asked for anew.
            and before.queue[token].expiry > after.now
            and before.queue[token].number != ticket.number
        ]
    if has and gone:
        found += [f"I7: {token} left and is there" for token in gone if token in has]


def reads_only(step: Step) -> bool:
    """Whether a script had no business with the queue."""
    if step.script == "finish_leave" and step.reply[0] == "L":
        # Its lease ran out: who waits asks at that moment by itself.
        return True
    return step.script == "inspect" or step.reply[0] == "X" or (step.script == "acquire" and step.mode == 2)


_RENEW = ("renew",)
_CREATE = ("acquire", "adopt")


def _fences(before: Snapshot, after: Snapshot, found: list[str]) -> None:
    if after.cur > after.last:
        found.append("I4: the present fence is past the end of its block")
    if after.last < before.last or after.cur < before.cur:
        found.append("I4: a fence fell")
    if before.cur != after.cur and after.cur <= before.last:
        found.append("I4: blocks overlap")


def _grants(before: Snapshot, after: Snapshot, step: Step, gone: frozenset[str], found: list[str]) -> None:
    value = after.value
    if value is None and after.queue and not reads_only(step) and after.live():
        found.append("I5: the name is free and a live ticket waits")
    if after.cur != before.cur:
        _fresh(before, after, step, gone, found)
    elif before.value != value and not _needs_none(value) and step.script != "adopt":
        found.append("I4: a grant without a fence of its own")


def _needs_none(value: str | None) -> bool:
    """Whether what holds a name has no fence: nothing, the time after ``min_hold``, or a program that is not pawlock."""
    return value is None or value == CLOSED or value.startswith(STRANGER)


def _fresh(before: Snapshot, after: Snapshot, step: Step, gone: frozenset[str], found: list[str]) -> None:
    """A grant was made: to the right one, and not over anybody's head."""
    value = after.value
    if before.value is not None and before.value not in gone:
        found.append("I3: granted over a live holder")
    queued = before.live(but=gone) if before.queue else []
    # A renewing waiter counts as live: its ticket was raised before the pump looked.
    mine = before.queue.get(step.token) if step.script in _RENEW else None
    if mine is not None and mine.expiry > 0 and step.token not in queued:
        queued = sorted([*queued, step.token], key=lambda token: before.queue[token].number)
    if not queued or step.mode == 2:
        return
    head = before.queue[queued[0]]
    if value != queued[0]:
        found.append(f"I8: the head is {queued[0]}, the name went to {value}")
    elif queued[0] != step.token and after.leases.get(queued[0]) != head.expiry:
        found.append("O3: a hand-off changed the expiry")
    if after.last != after.cur + head.block - 1 and value == queued[0]:
        found.append("I4: the block reserved is not the ticket's")
