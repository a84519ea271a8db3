"""The scripts of permits on a real server, on a clock that the test moves, and what must be true of their keys."""

from __future__ import annotations

from tests.simulator.permit_rules import PermitState, QueuedWaiter
from tests.unit.scripts.model import pairs
from tests.unit.scripts.rig import Reply, Rig

_WAITING = ("permits", "fence", "queue", "tickets")


class PermitRig(Rig):
    """The scripts on one server."""

    package = "pawlock.primitives.permits"
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
        self, tok: str, mode: str = "1", *, permits: int = 0, ttl: int = 1000,
        ticket_ttl: int = 300, wait: int = 1, channel: str = "ch", room: int = 100,
    ) -> Reply:  # fmt: skip
        args = (tok, mode, permits, ttl, ticket_ttl, wait, channel, room, self.fence_ttl)
        return self.run("acquire", args, dead=tok)

    def again(
        self, tok: str, mode: str = "1", *, permits: int = 0, ttl: int = 1000, ticket_ttl: int = 300,
        channel: str = "",
    ) -> Reply:  # fmt: skip
        return self.run("renew", (tok, mode, permits, ttl, ticket_ttl, channel, self.fence_ttl))

    def give(self, tok: str, mode: str = "1", *, permits: int = 0, tomb: int = 0, close: int = 0) -> Reply:
        return self.run("leave", (tok, mode, permits, tomb, close, self.fence_ttl), dead=tok)

    def limit(self, permits: int, declared: int) -> Reply:
        return self.run("limit", (permits, declared, self.fence_ttl))

    def show(self, permits: int = 0, most: int = 100) -> Reply:
        return self.run("inspect", (permits, most))

    def state(self) -> PermitState:
        return take(self, "n")


def take(rig: PermitRig, name: str) -> PermitState:
    """The keys of one name at this moment of the server's clock."""
    parts = (*_WAITING, "holds")
    keys = {part: rig.key(part, name) for part in parts}
    raw = rig.raw(list(keys.values()))
    now = rig.now
    gone: tuple[str, int, list[str]] = ("none", -2, [])
    seen = {part: raw[key] if raw[key][1] < 0 or raw[key][1] >= now else gone for part, key in keys.items()}
    fence, tickets, fences = (pairs(seen[part][2]) for part in ("fence", "tickets", "holds"))
    holders: dict[str, tuple[str, int]] = {}
    for member, expiry in pairs(seen["permits"][2]).items():
        mode, _, tok = member.partition(":")
        if int(float(expiry)) >= now:
            # In two modes at once: no invariant knows such a mode.
            both = f"{holders[tok][0]} and {mode}" if tok in holders else mode
            holders[tok] = both, int(float(expiry))
    queue: dict[str, QueuedWaiter] = {}
    for tok, number in pairs(seen["queue"][2]).items():
        words = tickets.get(tok, "0 0 0 - 1").split(" ", 4)
        queue[tok] = QueuedWaiter(int(float(number)), int(words[0]), words[4], words[3])
    return PermitState(
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
