"""What must be true of a name on one of several independent masters after every script that ran there."""

from __future__ import annotations

from typing import NamedTuple

from pawlock.core.runtime import Reply
from pawlock.testing.memory.store import Store
from tests.simulator.invariants import CLOSED, FENCE_MS, Step

__all__ = ["Vote", "broken_vote", "take_vote", "vote_step"]


class Vote(NamedTuple):
    """One master's part of a name at one moment of its clock. Times in ms of that clock.

    Attributes:
        now: The moment.
        value: What the name holds.
        expiry: When it ends.
        cur: The fence of the present grant, as far as this master knows.
        last: The highest fence that it knows.
        fence_expiry: When it forgets the fence.
    """

    now: int
    value: str = ""
    expiry: int = -2
    cur: int = 0
    last: int = 0
    fence_expiry: int = 0

    @property
    def leases(self) -> dict[str, int]:
        """Expiry of the token that has this vote."""
        return {self.value: self.expiry} if self.value and self.value != CLOSED else {}

    def at(self, now: int) -> Vote:
        """The same keys later, when no script ran in between."""
        if self.value and 0 <= self.expiry < now:
            return Vote(now, "", -2, self.cur, self.last, self.fence_expiry)
        return self._replace(now=now)


def take_vote(store: Store, keys: tuple[bytes, ...]) -> Vote:
    """The keys of a name on a master: name, fence."""
    name, fence = keys
    now = store.now_ms
    value, expiry = store.data.get(name), store.expires.get(name, -1)
    if not isinstance(value, bytes) or 0 <= expiry < now:
        value, expiry = b"", -2
    found = store.data.get(fence)
    fields = found if isinstance(found, dict) else {}
    last, cur = int(fields.get(b"last", 0)), int(fields.get(b"cur", 0))
    return Vote(now, value.decode(), expiry, cur, last, store.expires.get(fence, -1))


def vote_step(script: str, args: list[bytes], reply: Reply) -> Step:
    """What was asked and answered."""
    return Step(script, args[0].decode(), reply=(reply[0].decode(), *reply[2:]))


def broken_vote(before: Vote, after: Vote, step: Step) -> list[str]:
    """Name every invariant that a script broke; empty when all is well."""
    found: list[str] = []
    if after.value and after.expiry < 0:
        found.append("I6: the name has no expiry")
    # A grant that did not read the node's clock, which may have jumped, counts from the clocks that proposed it.
    read = step.reply[0] != "H" or step.reply[-1] != 0
    kept = after.fence_expiry >= max(after.now if read else 0, after.last / 1000) + FENCE_MS * 23 / 24
    # What grants or renews prolongs it; what finds another holder changes nothing, however long ago that was.
    if after.last and step.reply[0] == "H" and not kept:
        found.append("I6: the fence key is not kept for its time past its value")
    if after.value == before.value and before.value and after.expiry < before.expiry:
        found.append(f"I2: the expiry of {after.value} fell by {before.expiry - after.expiry} ms")
    if after.last < before.last:
        found.append("I4: the last fence fell")
    found += _changed(before, after, step)
    if step.leaving and after.value == step.leaving:
        found.append(f"I7: {step.leaving} left and is there")
    if step.script == "renew" and step.reply[0] == "H" and after.value != step.token:
        found.append("S4: a write-back or renewal counted where the token does not hold")
    return [f"{what} after {step}" for what in found]


def _changed(before: Vote, after: Vote, step: Step) -> list[str]:
    """What is wrong about who has the vote now."""
    found: list[str] = []
    left = step.script == "leave" and before.value == step.token
    if before.value and after.value != before.value and not left:
        found.append(f"I3: {before.value} had the vote and {after.value or 'nobody'} has it")
    if after.value and after.value not in (before.value, CLOSED):
        if step.script != "grant" or after.value != step.token:
            found.append(f"O2: a vote of {after.value} came from nothing")
        elif after.cur <= before.last:
            found.append(f"I4: the fence {after.cur} was given after {before.last}")
    return found
