"""What must be true of the keys of a name after every script: the invariants, checked on two snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.scripts.rig import DAY, Rig

CLOSED = "closed@min_hold"


@dataclass(frozen=True)
class Ticket:
    number: int
    expiry: int
    block: int
    owner: str


@dataclass(frozen=True)
class Snapshot:
    """The keys of one name at one moment of the server's clock."""

    now: int
    value: str | None = None
    expiry: int = 0
    cur: int = 0
    last: int = 0
    fence_expiry: int = 0
    queue: dict[str, Ticket] = field(default_factory=dict)
    holds: dict[str, int] = field(default_factory=dict)
    key_expiry: dict[str, int] = field(default_factory=dict)

    @classmethod
    def take(cls, rig: Rig, name: str = "n") -> Snapshot:
        parts = ("name", "fence", "queue", "tickets", "holds")
        keys = {part: rig.key(part, name) for part in parts}
        raw = rig.raw(list(keys.values()))
        now = rig.now
        gone: tuple[str, int, list[str]] = ("none", -2, [])
        seen = {
            part: raw[key] if raw[key][1] < 0 or raw[key][1] >= now else gone for part, key in keys.items()
        }
        fence, tickets, holds = (pairs(seen[part][2]) for part in ("fence", "tickets", "holds"))
        queue = {}
        for tok, number in pairs(seen["queue"][2]).items():
            words = tickets.get(tok, "0 0 0 - -").split(" ", 4)
            queue[tok] = Ticket(int(float(number)), int(words[0]), int(words[2]), words[4])
        return cls(
            now=now,
            value=seen["name"][2][0] if seen["name"][0] == "string" else None,
            expiry=seen["name"][1],
            cur=int(fence.get("cur", 0)),
            last=int(fence.get("last", 0)),
            fence_expiry=seen["fence"][1],
            queue=queue,
            holds={tok: int(expiry) for tok, expiry in holds.items()},
            key_expiry={part: one[1] for part, one in seen.items() if one[0] != "none"},
        )

    def at(self, now: int) -> Snapshot:
        """The same keys later, when no script ran in between."""
        alive = self.expiry >= now
        return Snapshot(
            now, self.value if alive else None, self.expiry if alive else -2, self.cur, self.last,
            self.fence_expiry, self.queue, self.holds, self.key_expiry,
        )  # fmt: skip

    def leases(self) -> dict[str, int]:
        """Expiry of every token that waits or holds."""
        found = {tok: ticket.expiry for tok, ticket in self.queue.items()}
        if self.value and self.value.startswith("owner="):
            found |= {tok: expiry for tok, expiry in self.holds.items() if expiry >= self.now}
        elif self.value and self.value != CLOSED:
            found[self.value] = self.expiry
        return found

    def holders(self) -> set[str]:
        if self.value and self.value.startswith("owner="):
            return {tok for tok, expiry in self.holds.items() if expiry >= self.now}
        return {self.value} - {None, CLOSED}  # type: ignore[return-value]

    def live(self, *, but: str = "") -> list[str]:
        """Live tickets in the order of their numbers."""
        found = [tok for tok, ticket in self.queue.items() if ticket.expiry > self.now and tok != but]
        return sorted(found, key=lambda tok: self.queue[tok].number)


@dataclass(frozen=True)
class Step:
    """One script run: what was asked and answered."""

    script: str
    token: str
    old: str = ""
    owner: str = ""
    mode: int = 1
    reply: tuple[Any, ...] = ()

    @property
    def leaving(self) -> str:
        return self.old or (self.token if self.script.endswith("leave") else "")


def pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def broken(before: Snapshot, after: Snapshot, step: Step) -> list[str]:
    """Name every invariant that a step broke; empty when all is well. `before` is taken at `after`'s time."""
    before = before.at(after.now)
    found = [
        *_keys(after),
        *_leases(before, after, step),
        *_fences(before, after),
        *_grants(before, after, step),
    ]
    return [f"{what} after {step}" for what in found]


def _keys(after: Snapshot) -> list[str]:
    found = []
    if after.holders() & after.queue.keys():
        found.append("I1: a token holds and waits")
    found += [f"I6: the {part} key has no expiry" for part, expiry in after.key_expiry.items() if expiry < 0]
    longest = max((ticket.expiry for ticket in after.queue.values()), default=0)
    found += [
        f"I6: the {part} key does not outlive its tickets"
        for part in ("queue", "tickets")
        if after.queue and after.key_expiry.get(part, 0) < longest
    ]
    if after.last and after.fence_expiry < max(after.now, after.last / 1000) + DAY:
        found.append("I6: the fence key lives less than a day past its value")
    if after.value and after.value.startswith("owner="):
        longest = max(after.holds.values(), default=0)
        if after.expiry != longest or after.key_expiry.get("holds") != longest:
            found.append(f"I6: the name does not live as long as its longest hold {after}")
    return found


def _leases(before: Snapshot, after: Snapshot, step: Step) -> list[str]:
    found = []
    had, has = before.leases(), after.leases()
    for tok, expiry in had.items():
        if tok == step.leaving:
            continue
        if tok in has and has[tok] < expiry:
            found.append(f"I2: the expiry of {tok} fell by {expiry - has[tok]} ms")
        if tok not in has and expiry > after.now:
            found.append(f"I2: a live lease of {tok} vanished")
    created = has.keys() - had.keys()
    allowed = {step.token} if step.script in {"acquire", "swap", "own_acquire"} else set()
    if created - allowed:
        found.append(f"O2: a lease of {created - allowed} came from nothing")
    if step.leaving and step.leaving in has:
        found.append(f"I7: {step.leaving} left and is there")
    return found


def _fences(before: Snapshot, after: Snapshot) -> list[str]:
    found = []
    if after.cur > after.last:
        found.append("I4: the present fence is past the end of its block")
    if after.last < before.last or after.cur < before.cur:
        found.append("I4: a fence fell")
    if before.cur != after.cur and after.cur <= before.last:
        found.append("I4: blocks overlap")
    if before.value != after.value and after.value not in {None, CLOSED} and before.cur == after.cur:
        found.append("I4: a grant without a fence of its own")
    return found


def _grants(before: Snapshot, after: Snapshot, step: Step) -> list[str]:
    found = []
    queued = before.live(but=step.leaving)
    reads_only = (
        step.script == "inspect" or step.reply[0] == "X" or (step.script == "acquire" and step.mode == 2)
    )
    if after.value is None and after.live() and not reads_only:
        found.append("I5: the name is free and a live ticket waits")
    if after.cur == before.cur:
        return found
    if before.value not in {None, step.leaving, step.owner}:
        found.append("I3: granted over a live holder")
    # A renewing waiter counts as live: its ticket was raised before the pump looked.
    if step.script in {"renew", "own_renew"} and step.token in before.queue and step.token not in queued:
        queued = sorted([*queued, step.token], key=lambda tok: before.queue[tok].number)
    if not queued or step.mode == 2:
        return found
    head = before.queue[queued[0]]
    if after.value != (queued[0] if head.owner == "-" else head.owner):
        found.append(f"I8: the head is {queued[0]}, the name went to {after.value}")
    elif queued[0] != step.token and after.leases().get(queued[0]) != head.expiry:
        found.append("O3: a hand-off changed the expiry")
    if after.last != after.cur + head.block - 1 and after.value == queued[0]:
        found.append("I4: the block reserved is not the ticket's")
    return found
