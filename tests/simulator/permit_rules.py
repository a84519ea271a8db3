"""What must be true of the keys of permits after every script: the invariants of the protocol, on two snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.simulator.invariants import FENCE_MS

__all__ = ["PermitRun", "PermitState", "QueuedWaiter", "broken_permits"]

_RENEW = ("renew",)
Mail = list[tuple[str, list[str]]]


@dataclass(slots=True)
class QueuedWaiter:
    """A ticket as the server keeps it."""

    number: int
    expiry: int
    mode: str
    channel: str


@dataclass(slots=True)
class PermitState:
    """The keys of one name at one moment of the server's clock. Times in ms of that clock.

    Attributes:
        now: The moment.
        holders: Mode and end of each token that holds.
        fences: The fence of each.
        last: The last fence that was given.
        limit: How many permits there are.
        declared: The number that came with it.
        fence_expiry: When the key of the fence ends.
        queue: Waiting tokens.
        key_expiry: When each key that is there ends, by part; below 0: never.
    """

    now: int
    holders: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    fences: dict[str, int] = field(default_factory=dict[str, int])
    last: int = 0
    limit: int = 0
    declared: int = 0
    fence_expiry: int = 0
    queue: dict[str, QueuedWaiter] = field(default_factory=dict[str, QueuedWaiter])
    key_expiry: dict[str, int] = field(default_factory=dict[str, int])

    def at(self, now: int) -> PermitState:
        """The same keys later, when no script ran in between."""
        for _, expiry in self.holders.values():
            if expiry < now:
                break
        else:
            self.now = now
            return self
        alive = {token: one for token, one in self.holders.items() if one[1] >= now}
        return PermitState(
            now, alive, self.fences, self.last, self.limit, self.declared, self.fence_expiry, self.queue,
            self.key_expiry,
        )  # fmt: skip

    def leases(self) -> dict[str, int]:
        """Expiry of every token that waits or holds."""
        # A member of the queue whose ticket the server lost is dead: it goes with the next look at the queue.
        found: dict[str, int] = {}
        if self.queue:
            found = {token: waiter.expiry for token, waiter in self.queue.items() if waiter.expiry}
        for token, (_, expiry) in self.holders.items():
            if not token.startswith("closed."):
                found[token] = expiry
        return found

    def weight(self) -> int:
        """How many permits are out."""
        return sum([int(mode) for mode, _ in self.holders.values() if mode.isdigit()])

    def fits(self, mode: str, limit: int) -> bool:
        """Whether nothing but the order keeps it out."""
        if mode == "x":
            return not self.holders
        if "x" in (held for held, _ in self.holders.values()):
            return False
        return not limit or self.weight() + int(mode) <= limit

    def hopeless(self, mode: str, limit: int) -> bool:
        """Whether it can never get in."""
        return bool(limit) and mode.isdigit() and int(mode) > limit

    def live(self, *, but: str = "") -> list[str]:
        """Live tickets in the order of their numbers."""
        queue = self.queue
        if not queue:
            return []
        found = [token for token, waiter in queue.items() if waiter.expiry > self.now and token != but]
        return sorted(found, key=lambda token: queue[token].number) if len(found) > 1 else found


@dataclass(slots=True)
class PermitRun:
    """One script run: what was asked and answered."""

    script: str
    token: str
    mode: str = "1"
    wait: int = 1
    limit: int = 0
    reply: tuple[Any, ...] = ()

    @property
    def leaving(self) -> str:
        """The token that leaves for good."""
        return self.token if self.script == "leave" else ""


def broken_permits(
    before: PermitState,
    after: PermitState,
    run: PermitRun,
    mail: Mail,
    *,
    whole: bool = True,
    fence_ms: int = FENCE_MS,
) -> list[str]:
    """Name every invariant that a run broke; empty when all is well.

    Args:
        before: The keys before it.
        after: The keys after it.
        run: What ran.
        mail: What it told to whom: channel, and token, fence, expiry and present.
        whole: Whether the server kept all keys until now: if not, one may know less than another.
        fence_ms: The shortest time for which anybody wants the fence kept.
    """
    before = before.at(after.now)
    new = _new(before, after)
    # Who left or renewed what it did not have, or found it held, has not used the name.
    found = _keys(after, whole=whole, fence_ms=0 if run.reply[0] in "ABU" else fence_ms)
    found += _sharing(before, after, run, new)
    found += _leases(before, after, run)
    found += _fences(before, after, new)
    found += _grants(before, after, run, new)
    if after.queue:
        found += _stuck(before, after, run)
    if mail or before.queue:
        found += _messages(before, after, run, mail)
    return [f"{what} after {run}" for what in found] if found else found


def _keys(after: PermitState, *, whole: bool, fence_ms: int) -> list[str]:
    found: list[str] = []
    holders, queue, key_expiry = after.holders, after.queue, after.key_expiry
    if queue and holders.keys() & queue.keys():
        found.append("I1: a token holds and waits")
    found += [f"I6: the {part} key has no expiry" for part, expiry in key_expiry.items() if expiry < 0]
    tickets = max([waiter.expiry for waiter in queue.values()], default=0)
    leases = max([expiry for _, expiry in holders.values()], default=0)
    held = not all(token.startswith("closed.") for token in holders)
    if whole:
        kept = ("queue", tickets), ("tickets", tickets), ("permits", leases), ("holds", leases if held else 0)
        for part, longest in kept:
            if longest and key_expiry.get(part, 0) < longest:
                found.append(f"I6: the {part} key does not outlive what it holds")
    if after.last:
        least = max(after.now, after.last / 1000) + fence_ms * 23 / 24
        if fence_ms and after.fence_expiry < least:
            found.append("I6: the fence key is not kept for its time past its value")
        if held and after.fence_expiry < leases:
            found.append("I6: the fence key does not outlive the leases")
    return found


def _sharing(before: PermitState, after: PermitState, run: PermitRun, new: set[str]) -> list[str]:
    modes = [mode for mode, _ in after.holders.values()]
    found: list[str] = []
    if "x" in modes and len(modes) > 1:
        found.append(f"S6: {modes} hold together")
    limit = run.limit and (after.limit or run.limit)
    if limit and (weight := after.weight()) > limit:
        if weight > before.weight():
            found.append(f"S6: {weight} of {limit} permits are out")
        if new:
            found.append(f"S6: granted while {weight} of {limit} permits are out")
    for token, (mode, _) in after.holders.items():
        had = before.holders.get(token, (mode, 0))[0]
        if had != mode and not (
            had == "x" and mode == "1" and run.script == "renew" and run.token == token and run.mode == "1"
        ):
            found.append(f"S6: {token} was {had} and is {mode}")
    return found


def _leases(before: PermitState, after: PermitState, run: PermitRun) -> list[str]:
    found: list[str] = []
    had, has = before.leases(), after.leases()
    leaving = run.leaving
    for token, expiry in had.items():
        if token == leaving:
            continue
        if token not in has:
            if expiry > after.now and not _turned_away(before, after, run, token):
                found.append(f"I2: a live lease of {token} vanished")
        elif has[token] < expiry:
            found.append(f"I2: the expiry of {token} fell by {expiry - has[token]} ms")
        if token in before.holders and token in after.holders:
            fence = before.fences.get(token)
            if fence is not None and fence != after.fences.get(token):
                found.append(f"I4: the fence of {token} changed")
    created = has.keys() - had.keys() - ({run.token} if run.script == "acquire" else set())
    if created:
        found.append(f"O2: a lease of {created} came from nothing")
    if leaving and leaving in has:
        found.append(f"I7: {leaving} left and is there")
    return found


def _turned_away(before: PermitState, after: PermitState, run: PermitRun, token: str) -> bool:
    """Whether a ticket was taken out of the queue because it can never get in."""
    waiter, limit = before.queue.get(token), run.limit and (after.limit or run.limit)
    return waiter is not None and after.hopeless(waiter.mode, limit)


def _fences(before: PermitState, after: PermitState, new: set[str]) -> list[str]:
    found: list[str] = []
    if after.last < before.last:
        found.append("I4: the last fence fell")
    if not new:
        return found
    numbers = [after.fences.get(token, 0) for token in new]
    if len(set(numbers)) != len(numbers) or any(not before.last < number <= after.last for number in numbers):
        found.append(f"I4: {sorted(new)} got the fences {numbers} after {before.last}")
    if after.fences.keys() - after.holders.keys():
        found.append(f"I6: fences of nobody are left: {sorted(after.fences.keys() - after.holders.keys())}")
    return found


def _served(before: PermitState, after: PermitState, run: PermitRun) -> list[str]:
    """The live tickets that could have been let in, in their order."""
    queued = before.live(but=run.leaving)
    mine = before.queue.get(run.token) if run.script in _RENEW else None
    if mine is not None and mine.expiry and run.token not in queued:
        # A renewing waiter counts as live: its ticket was raised before the pump looked.
        queued = sorted([*queued, run.token], key=lambda token: before.queue[token].number)
    wishes = before.queue
    limit = run.limit and (after.limit or run.limit)
    return [token for token in queued if not after.hopeless(wishes[token].mode, limit)]


def _grants(before: PermitState, after: PermitState, run: PermitRun, new: set[str]) -> list[str]:
    if run.script == "inspect" or run.reply[0] in "XN":
        return ["it let somebody in"] if new else []
    if not new:
        return []
    queued = _served(before, after, run)
    granted = [token for token in queued if token in new]
    found: list[str] = []
    if granted != queued[: len(granted)]:
        found.append(f"I8: {granted} were let in, the queue was {queued}")
    if sorted(granted, key=lambda token: after.fences[token]) != granted:
        found.append("I8: fences do not follow the order")
    if new - set(queued) - {run.token}:
        found.append(f"I8: {sorted(new)} came from nowhere")
    alone = run.token in new and run.token not in queued
    if alone and len(granted) < len(queued):
        found.append(f"I8: {run.token} passed {queued}")
    others = [token for token in granted if token != run.token]
    if any(after.holders[token][1] != before.queue[token].expiry for token in others):
        found.append("O3: a hand-off changed the expiry")
    return found


def _stuck(before: PermitState, after: PermitState, run: PermitRun) -> list[str]:
    answered = run.script == "inspect" or (run.script == "acquire" and run.token in before.holders)
    head = next(iter(after.live()), None)
    if head is None or answered or run.reply[0] in "XN":
        return []
    waiter, limit = after.queue[head], run.limit and (after.limit or run.limit)
    if after.hopeless(waiter.mode, limit):
        return [f"L4: {head} can never be served and stands in the way"]
    if after.fits(waiter.mode, limit):
        return [f"I5: {head} fits and waits"]
    return []


def _new(before: PermitState, after: PermitState) -> set[str]:
    new = after.holders.keys() - before.holders.keys()
    return {token for token in new if not token.startswith("closed.")} if new else new


def _messages(before: PermitState, after: PermitState, run: PermitRun, mail: Mail) -> list[str]:
    told = {words[0]: (channel, *map(int, words[1:])) for channel, words in mail}
    new = {
        token
        for token in after.holders.keys() - before.holders.keys() - {run.token}
        if token in before.queue and before.queue[token].channel != "-"
    }
    wanted = {
        token: (before.queue[token].channel, after.fences.get(token, 0), after.holders[token][1], after.now)
        for token in new
    }
    refused = {token for token, (_, *words) in told.items() if words[:2] == [0, 1]}
    limit = run.limit and (after.limit or run.limit)
    live = before.live(but=run.leaving)
    gone = {token for token in live if token not in after.queue and token not in after.holders}
    mine = before.queue.get(run.token)
    if run.script in _RENEW and mine is not None and mine.expiry and run.token not in after.leases():
        gone.add(run.token)
    if refused != {token for token in gone if before.queue[token].channel != "-"}:
        return [f"L4: notified as refused: {sorted(refused)}; were refused: {sorted(gone)}"]
    for token in refused:
        waiter = before.queue[token]
        if not after.hopeless(waiter.mode, limit):
            return [f"L4: {token} was refused"]
    if len(told) != len(mail) or {token: told[token] for token in told.keys() - refused} != wanted:
        return [f"messages {mail} and not {wanted}"]
    return []
