"""The scripts of permits on a real server, on a clock that the test moves, and what must be true of their keys."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.scripts.model import pairs
from tests.scripts.rig import DAY, Reply, Rig

_WAITING = ("permits", "fence", "queue", "tickets")


class PermitRig(Rig):
    """The scripts on one server."""

    package = "pawl.primitives.permits"
    keys = {  # noqa: RUF012 - a constant
        "acquire": (*_WAITING, "dead", "holds"),
        "renew": (*_WAITING, "holds"),
        "leave": (*_WAITING, "dead", "holds"),
        "limit": (*_WAITING, "holds"),
        "inspect": (*_WAITING, "holds"),
    }

    def key(self, part: str, name: str = "n", **tokens: str) -> str:
        stem = f"{{{name}}}:1:permits"
        if part.startswith("dead"):
            return f"{stem}:dead:{tokens['dead']}"
        return stem if part == "permits" else f"{stem}:{part}"

    def take(
        self, tok: str, mode: str = "1", *, permits: int = 0, beside: str = "", ttl: int = 1000,
        ticket_ttl: int = 300, wait: int = 1, channel: str = "ch", room: int = 100,
    ) -> Reply:  # fmt: skip
        args = (tok, mode, beside, permits, ttl, ticket_ttl, wait, channel, room, self.fence_ttl)
        return self.run("acquire", args, dead=tok)

    def again(
        self, tok: str, mode: str = "1", *, permits: int = 0, ttl: int = 1000, ticket_ttl: int = 300
    ) -> Reply:
        return self.run("renew", (tok, mode, permits, ttl, ticket_ttl, "", self.fence_ttl))

    def give(self, tok: str, mode: str = "1", *, permits: int = 0, tomb: int = 0, close: int = 0) -> Reply:
        return self.run("leave", (tok, mode, permits, tomb, close, self.fence_ttl), dead=tok)

    def limit(self, permits: int, declared: int) -> Reply:
        return self.run("limit", (permits, declared, self.fence_ttl))

    def show(self, permits: int = 0, most: int = 100) -> Reply:
        return self.run("inspect", (permits, most))

    def state(self) -> Permits:
        return Permits.take(self, "n")


@dataclass(frozen=True)
class Wish:
    """A ticket."""

    number: int
    expiry: int
    mode: str
    beside: str
    channel: str


@dataclass(frozen=True)
class Permits:
    """The keys of one name at one moment of the server's clock."""

    now: int
    holders: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    fences: dict[str, int] = field(default_factory=dict[str, int])
    last: int = 0
    limit: int = 0
    declared: int = 0
    fence_expiry: int = 0
    queue: dict[str, Wish] = field(default_factory=dict[str, Wish])
    key_expiry: dict[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def take(cls, rig: PermitRig, name: str) -> Permits:
        parts = (*_WAITING, "holds")
        keys = {part: rig.key(part, name) for part in parts}
        raw = rig.raw(list(keys.values()))
        now = rig.now
        gone: tuple[str, int, list[str]] = ("none", -2, [])
        seen = {
            part: raw[key] if raw[key][1] < 0 or raw[key][1] >= now else gone for part, key in keys.items()
        }
        fence, tickets, fences = (pairs(seen[part][2]) for part in ("fence", "tickets", "holds"))
        holders: dict[str, tuple[str, int]] = {}
        for member, expiry in pairs(seen["permits"][2]).items():
            mode, _, tok = member.partition(":")
            if int(float(expiry)) >= now:
                # In two modes at once: no invariant knows such a mode.
                both = f"{holders[tok][0]} and {mode}" if tok in holders else mode
                holders[tok] = both, int(float(expiry))
        queue: dict[str, Wish] = {}
        for tok, number in pairs(seen["queue"][2]).items():
            words = tickets.get(tok, "0 0 0 - 1").split(" ", 4)
            mode, _, beside = words[4].partition("^")
            queue[tok] = Wish(int(float(number)), int(words[0]), mode, beside, words[3])
        return cls(
            now=now,
            holders=holders,
            fences={tok: int(number) for tok, number in fences.items()},
            last=int(fence.get("last", 0)),
            limit=int(fence.get("limit", 0)),
            declared=int(fence.get("declared", 0)),
            fence_expiry=seen["fence"][1],
            queue=queue,
            key_expiry={part: one[1] for part, one in seen.items() if one[0] != "none"},
        )

    def at(self, now: int) -> Permits:
        """The same keys later, when no script ran in between."""
        alive = {tok: one for tok, one in self.holders.items() if one[1] >= now}
        return replace(self, now=now, holders=alive)

    def leases(self) -> dict[str, int]:
        """Expiry of every token that waits or holds."""
        found = {tok: wish.expiry for tok, wish in self.queue.items()}
        return found | {
            tok: expiry for tok, (_, expiry) in self.holders.items() if not tok.startswith("closed.")
        }

    def weight(self) -> int:
        return sum(int(mode) for mode, _ in self.holders.values() if mode.isdigit())

    def fits(self, mode: str, beside: str, limit: int) -> bool:
        """Whether nothing but the order keeps it out."""
        if mode == "x":
            return not self.holders.keys() - {beside}
        modes = [mode for mode, _ in self.holders.values()]
        if "x" in modes or (mode == "u" and "u" in modes):
            return False
        return not limit or not mode.isdigit() or self.weight() + int(mode) <= limit

    def hopeless(self, mode: str, beside: str, limit: int) -> bool:
        """Whether it can never get in."""
        if beside:
            return self.holders.get(beside, ("", 0))[0] != "u"
        return bool(limit) and mode.isdigit() and int(mode) > limit

    def live(self, *, but: str = "") -> list[str]:
        """Live tickets in the order of their numbers."""
        found = [tok for tok, wish in self.queue.items() if wish.expiry > self.now and tok != but]
        return sorted(found, key=lambda tok: self.queue[tok].number)


@dataclass(frozen=True)
class Run:
    """One script run: what was asked and answered, and what it said to whom."""

    script: str
    token: str
    mode: str = "1"
    beside: str = ""
    wait: int = 1
    limit: int = 0
    reply: tuple[Any, ...] = ()

    @property
    def leaving(self) -> str:
        return self.token if self.script == "leave" else ""


def broken(
    before: Permits, after: Permits, run: Run, mail: list[tuple[str, list[str]]], *, fence_ms: int = DAY
) -> list[str]:
    """Name every invariant that a run broke; empty when all is well."""
    before = before.at(after.now)
    found = [
        *_keys(after, fence_ms),
        *_sharing(before, after, run),
        *_leases(before, after, run),
        *_fences(before, after),
        *_grants(before, after, run),
        *_stuck(before, after, run),
        *_messages(before, after, run, mail),
    ]
    return [f"{what} after {run}" for what in found]


def _keys(after: Permits, fence_ms: int) -> list[str]:
    found: list[str] = []
    if after.holders.keys() & after.queue.keys():
        found.append("I1: a token holds and waits")
    found += [f"I6: the {part} key has no expiry" for part, expiry in after.key_expiry.items() if expiry < 0]
    tickets = max((wish.expiry for wish in after.queue.values()), default=0)
    leases = max((expiry for _, expiry in after.holders.values()), default=0)
    for part, longest in (("queue", tickets), ("tickets", tickets), ("permits", leases), ("holds", leases)):
        closed_only = part == "holds" and all(tok.startswith("closed.") for tok in after.holders)
        if longest and after.key_expiry.get(part, 0) < longest and not closed_only:
            found.append(f"I6: the {part} key does not outlive what it holds")
    if (
        after.last
        and after.fence_expiry < max(after.now, after.last / 1000) + fence_ms * 23 / 24
        and fence_ms
    ):
        found.append("I6: the fence key is not kept for its time past its value")
    if (
        after.last
        and any(not tok.startswith("closed.") for tok in after.holders)
        and after.fence_expiry < leases
    ):
        found.append("I6: the fence key does not outlive the leases")
    return found


def _sharing(before: Permits, after: Permits, run: Run) -> list[str]:
    modes = [mode for mode, _ in after.holders.values()]
    found: list[str] = []
    if "x" in modes and (modes.count("x") > 1 or len(modes) > 2 or (len(modes) == 2 and "u" not in modes)):
        found.append(f"S6: {modes} hold together")
    if modes.count("u") > 1:
        found.append("S6: two may upgrade")
    limit = after.limit if run.limit else 0
    if limit and after.weight() > max(limit, before.weight()):
        found.append(f"S6: {after.weight()} of {limit} permits are out")
    if limit and _new(before, after) and after.weight() > limit:
        found.append(f"S6: granted while {after.weight()} of {limit} permits are out")
    for tok, (mode, _) in after.holders.items():
        had = before.holders.get(tok, (mode, 0))[0]
        if had != mode and not (
            had == "x" and mode == "1" and run.script == "renew" and run.token == tok and run.mode == "1"
        ):
            found.append(f"S6: {tok} was {had} and is {mode}")
    return found


def _leases(before: Permits, after: Permits, run: Run) -> list[str]:
    found: list[str] = []
    had, has = before.leases(), after.leases()
    hopeless = {
        tok for tok, wish in before.queue.items()
        if after.hopeless(wish.mode, wish.beside, after.limit if run.limit else 0)
    }  # fmt: skip
    for tok, expiry in had.items():
        if tok == run.leaving or (tok in hopeless and tok not in has):
            continue
        if tok in has and has[tok] < expiry:
            found.append(f"I2: the expiry of {tok} fell by {expiry - has[tok]} ms")
        if tok not in has and expiry > after.now:
            found.append(f"I2: a live lease of {tok} vanished")
        if tok in before.holders and tok in after.holders and before.fences.get(tok) != after.fences.get(tok):
            found.append(f"I4: the fence of {tok} changed")
    created = has.keys() - had.keys() - ({run.token} if run.script == "acquire" else set())
    if created:
        found.append(f"O2: a lease of {created} came from nothing")
    if run.leaving and run.leaving in has:
        found.append(f"I7: {run.leaving} left and is there")
    return found


def _fences(before: Permits, after: Permits) -> list[str]:
    found: list[str] = []
    new = _new(before, after)
    if after.last < before.last:
        found.append("I4: the last fence fell")
    numbers = [after.fences.get(tok, 0) for tok in new]
    if len(set(numbers)) != len(numbers) or any(not before.last < number <= after.last for number in numbers):
        found.append(f"I4: {new} got the fences {numbers} after {before.last}")
    if new and after.fences.keys() - after.holders.keys():
        found.append(f"I6: fences of nobody are left: {after.fences.keys() - after.holders.keys()}")
    return found


def _served(before: Permits, after: Permits, run: Run) -> list[str]:
    """The live tickets that could have been let in, in their order."""
    queued = before.live(but=run.leaving)
    if run.script == "renew" and run.token in before.queue and run.token not in queued:
        # A renewing waiter counts as live: its ticket was raised before the pump looked.
        queued = sorted([*queued, run.token], key=lambda tok: before.queue[tok].number)
    wishes = before.queue
    limit = after.limit if run.limit else 0
    return [tok for tok in queued if not after.hopeless(wishes[tok].mode, wishes[tok].beside, limit)]


def _grants(before: Permits, after: Permits, run: Run) -> list[str]:
    new = _new(before, after)
    if run.script == "inspect" or run.reply[0] in "XN":
        return ["it let somebody in"] if new else []
    queued = _served(before, after, run)
    granted = [tok for tok in queued if tok in new]
    found: list[str] = []
    if granted != queued[: len(granted)]:
        found.append(f"I8: {granted} were let in, the queue was {queued}")
    if sorted(granted, key=lambda tok: after.fences[tok]) != granted:
        found.append("I8: fences do not follow the order")
    if new - set(queued) - {run.token}:
        found.append(f"I8: {new} came from nowhere")
    alone = run.token in new and run.token not in queued
    if alone and len(granted) < len(queued) and not run.beside:
        found.append(f"I8: {run.token} passed {queued}")
    others = [tok for tok in granted if tok != run.token]
    if any(after.holders[tok][1] != before.queue[tok].expiry for tok in others):
        found.append("O3: a hand-off changed the expiry")
    return found


def _stuck(before: Permits, after: Permits, run: Run) -> list[str]:
    answered = run.script == "inspect" or (run.script == "acquire" and run.token in before.holders)
    head = next(iter(after.live()), None)
    if head is None or answered or run.reply[0] in "XN":
        return []
    wish, limit = after.queue[head], after.limit if run.limit else 0
    if after.hopeless(wish.mode, wish.beside, limit):
        return [f"L4: {head} can never be served and stands in the way"]
    if after.fits(wish.mode, wish.beside, limit):
        return [f"I5: {head} fits and waits"]
    return []


def _new(before: Permits, after: Permits) -> set[str]:
    return {tok for tok in after.holders.keys() - before.holders.keys() if not tok.startswith("closed.")}


def _messages(before: Permits, after: Permits, run: Run, mail: list[tuple[str, list[str]]]) -> list[str]:
    told = {words[0]: (channel, *map(int, words[1:])) for channel, words in mail}
    new = {tok for tok in after.holders.keys() - before.holders.keys() - {run.token} if tok in before.queue}
    wanted = {
        tok: (before.queue[tok].channel, after.fences.get(tok, 0), after.holders[tok][1], after.now)
        for tok in new
    }
    refused = {tok for tok, (_, *words) in told.items() if words[:2] == [0, 0]}
    limit = after.limit if run.limit else 0
    gone = set(before.live(but=run.leaving)) - after.queue.keys() - after.holders.keys()
    if run.script == "renew" and run.token in before.queue and run.token not in after.leases():
        gone.add(run.token)
    if refused != gone:
        return [f"L4: told that they are refused: {refused}; were refused: {gone}"]
    for tok in refused:
        wish = before.queue[tok]
        if not after.hopeless(wish.mode, wish.beside, limit):
            return [f"L4: {tok} was refused"]
    if len(told) != len(mail) or {tok: told[tok] for tok in told.keys() - refused} != wanted:
        return [f"messages {mail} and not {wanted}"]
    return []
