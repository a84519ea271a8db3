"""The keys of a name on a real server, as the simulator's invariants want to see them."""

from __future__ import annotations

from tests.simulator.invariants import CLOSED, Snapshot, Step, Ticket, broken
from tests.unit.scripts.rig import Rig

__all__ = ["CLOSED", "Snapshot", "Step", "Ticket", "broken", "pairs", "take"]


def take(rig: Rig, name: str = "n") -> Snapshot:
    """The keys of one name at this moment of the server's clock."""
    parts = ("name", "fence", "queue", "tickets")
    keys = {part: rig.key(part, name) for part in parts}
    raw = rig.raw(list(keys.values()))
    now = rig.now
    gone: tuple[str, int, list[str]] = ("none", -2, [])
    seen = {part: raw[key] if raw[key][1] < 0 or raw[key][1] >= now else gone for part, key in keys.items()}
    fence, tickets = (pairs(seen[part][2]) for part in ("fence", "tickets"))
    queue = {}
    for tok, number in pairs(seen["queue"][2]).items():
        words = tickets.get(tok, "0 0 0 - -").split(" ", 4)
        queue[tok] = Ticket(int(float(number)), int(words[0]), int(words[2]))
    return Snapshot(
        now,
        seen["name"][2][0] if seen["name"][0] == "string" else None,
        seen["name"][1],
        int(fence.get("cur", 0)),
        int(fence.get("last", 0)),
        queue,
        {part: one[1] for part, one in seen.items() if one[0] != "none"},
    )


def pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
