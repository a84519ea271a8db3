"""The keys of one name in a store, as the invariants want to see them."""

from __future__ import annotations

from functools import lru_cache

from pawl.core.runtime import Reply
from pawl.testing.sim.invariants import Snapshot, Ticket
from pawl.testing.sim.permit_rules import PermitRun, PermitState, Wish
from pawl.testing.sim.store import Store, Value, ZSet

__all__ = ["permit_run", "share_run", "take_mutex", "take_permits"]

_MUTEX = ("name", "fence", "queue", "tickets", "holds")
_PERMITS = ("permits", "fence", "queue", "tickets", "holds")


def _seen(
    store: Store, parts: tuple[str, ...], keys: tuple[bytes, ...]
) -> tuple[list[Value | None], dict[str, int]]:
    now, data, expires = store.now_ms, store.data, store.expires
    key_expiry: dict[str, int] = {}
    seen: list[Value | None] = []
    for part, key in zip(parts, keys, strict=True):
        value = data.get(key)
        if value is not None:
            expiry = expires.get(key, -1)
            if 0 <= expiry < now:
                value = None
            else:
                key_expiry[part] = expiry
        seen.append(value)
    return seen, key_expiry


def _pairs(value: Value | None) -> dict[bytes, bytes]:
    return value if isinstance(value, dict) else {}


def take_mutex(store: Store, keys: tuple[bytes, ...]) -> Snapshot:
    """The keys of a mutex: name, fence, queue, tickets, holds."""
    (value, record, queue, tickets, held), key_expiry = _seen(store, _MUTEX, keys)
    fence, holds = _pairs(record), () if held is None else _pairs(held).items()
    return Snapshot(
        store.now_ms,
        value.decode() if isinstance(value, bytes) else None,
        key_expiry.get("name", -2),
        int(fence.get(b"cur", 0)),
        int(fence.get(b"last", 0)),
        _tickets(queue, _pairs(tickets)) if isinstance(queue, ZSet) else None,
        {token.decode(): int(expiry) for token, expiry in holds} if holds else None,
        key_expiry,
    )


def _tickets(queue: ZSet, tickets: dict[bytes, bytes]) -> dict[str, Ticket]:
    return {
        token.decode(): _ticket(number, tickets.get(token, b"0 0 0 - -"))
        for token, number in queue.scores.items()
    }


@lru_cache(maxsize=1024)
def _ticket(number: float, text: bytes) -> Ticket:
    words = text.split(b" ", 4)
    return Ticket(int(number), int(words[0]), int(words[2]), words[4].decode())


def take_permits(store: Store, keys: tuple[bytes, ...]) -> PermitState:
    """The keys of permits: permits, fence, queue, tickets, holds."""
    (permits, record, queue, waiting, held), key_expiry = _seen(store, _PERMITS, keys)
    fence = _pairs(record)
    holders: dict[str, tuple[str, int]] = {}
    for member, expiry in permits.scores.items() if isinstance(permits, ZSet) else ():
        mode, _, token = member.decode().partition(":")
        if expiry >= store.now_ms:
            # In two modes at once: no invariant knows such a mode.
            both = f"{holders[token][0]} and {mode}" if token in holders else mode
            holders[token] = both, int(expiry)
    tickets = _pairs(waiting)
    return PermitState(
        store.now_ms,
        holders,
        {token.decode(): int(number) for token, number in _pairs(held).items()},
        int(fence.get(b"last", 0)),
        int(fence.get(b"limit", 0)),
        int(fence.get(b"declared", 0)),
        key_expiry.get("fence", -2),
        {
            token.decode(): _wish(number, tickets.get(token, b"0 0 0 - 1"))
            for token, number in (queue.scores.items() if isinstance(queue, ZSet) else ())
        },
        key_expiry,
    )


@lru_cache(maxsize=1024)
def _wish(number: float, text: bytes) -> Wish:
    words = text.decode().split(" ", 4)
    mode, _, beside = words[4].partition("^")
    return Wish(int(number), int(words[0]), mode, beside, words[3])


def permit_run(script: str, args: list[bytes], reply: Reply) -> PermitRun:
    """One run of a script of permits."""
    status = reply[0].decode(), *reply[2:]
    if script == "limit":
        return PermitRun(script, "", limit=1, reply=status)
    if script == "inspect":
        return PermitRun(script, "", limit=int(args[0]), reply=status)
    token, mode = args[0].decode(), args[1].decode()
    if script == "acquire":
        return PermitRun(script, token, mode, args[2].decode(), int(args[6]), int(args[3]), status)
    return PermitRun(script, token, mode, limit=int(args[2]), reply=status)


def share_run(script: str, args: list[bytes], reply: Reply) -> PermitRun:
    """One run of a script of readers and writers on one of several masters."""
    if script not in ("share", "note"):
        return permit_run(script, args, reply)
    status = reply[0].decode(), *reply[2:]
    return PermitRun(
        "acquire" if script == "share" else script, args[0].decode(), args[1].decode(), reply=status
    )
