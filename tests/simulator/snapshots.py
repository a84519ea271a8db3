"""The keys of one name in a store, as the invariants want to see them."""

from __future__ import annotations

from functools import lru_cache

from pawlock.core.runtime import Reply
from pawlock.testing.memory.store import Store, Value, ZSet
from tests.simulator.invariants import Snapshot, Ticket
from tests.simulator.permit_rules import PermitRun, PermitState, QueuedWaiter

__all__ = ["next_mutex", "next_permits", "permit_run", "take_mutex", "take_permits"]

_MUTEX = ("name", "fence", "queue", "tickets")
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
    store.touched.difference_update(keys)
    return seen, key_expiry


def _changed(
    store: Store, parts: tuple[str, ...], keys: tuple[bytes, ...], known: dict[str, int]
) -> tuple[dict[str, Value | None], dict[str, int]] | None:
    """The parts that changed since they were looked at, and when each key ends; None if one is past its expiry."""
    now, data, expires, touched = store.now_ms, store.data, store.expires, store.touched
    key_expiry = known.copy()
    seen: dict[str, Value | None] = {}
    for part, key in zip(parts, keys, strict=True):
        if key in touched:
            touched.remove(key)
            value = data.get(key)
            if value is None:
                key_expiry.pop(part, None)
            else:
                key_expiry[part] = expires.get(key, -1)
            seen[part] = value
    if key_expiry and min(key_expiry.values()) < now:
        return None
    return seen, key_expiry


def _pairs(value: Value | None) -> dict[bytes, bytes]:
    return value if isinstance(value, dict) else {}


def take_mutex(store: Store, keys: tuple[bytes, ...]) -> Snapshot:
    """The keys of a mutex: name, fence, queue, tickets."""
    (value, record, queue, tickets), key_expiry = _seen(store, _MUTEX, keys)
    cur, last = _fence(record)
    return Snapshot(
        store.now_ms,
        _holder(value),
        key_expiry.get("name", -2),
        cur,
        last,
        _tickets(queue, tickets),
        key_expiry,
    )


def next_mutex(store: Store, keys: tuple[bytes, ...], known: Snapshot) -> Snapshot:
    """The same, looked at once more: what did not change since ``known`` is not read again."""
    found = _changed(store, _MUTEX, keys, known.key_expiry)
    if found is None:
        return take_mutex(store, keys)
    seen, key_expiry = found
    value, cur, last, queue = known.value, known.cur, known.last, known.queue
    if "name" in seen:
        value = _holder(seen["name"])
    if "fence" in seen:
        cur, last = _fence(seen["fence"])
    if "queue" in seen or "tickets" in seen:
        data = store.data
        queue = _tickets(data.get(keys[2]), data.get(keys[3]))
    return Snapshot(store.now_ms, value, key_expiry.get("name", -2), cur, last, queue, key_expiry)


def _holder(value: Value | None) -> str | None:
    """Who holds a name: its text, or the one field of a hash of Redisson's wire."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value))
    return value.decode() if isinstance(value, bytes) else None


def _fence(record: Value | None) -> tuple[int, int]:
    fence = _pairs(record)
    return int(fence.get(b"cur", 0)), int(fence.get(b"last", 0))


def _holds(held: Value | None) -> dict[str, int]:
    return {token.decode(): int(expiry) for token, expiry in _pairs(held).items()}


def _tickets(queue: Value | None, waiting: Value | None) -> dict[str, Ticket]:
    if not isinstance(queue, ZSet):
        return {}
    tickets = _pairs(waiting)
    return {
        token.decode(): _ticket(number, tickets.get(token, b"0 0 0 - -"))
        for token, number in queue.scores.items()
    }


@lru_cache(maxsize=1024)
def _ticket(number: float, text: bytes) -> Ticket:
    words = text.split(b" ", 4)
    return Ticket(int(number), int(words[0]), int(words[2]), words[3].decode())


def take_permits(store: Store, keys: tuple[bytes, ...]) -> PermitState:
    """The keys of permits: permits, fence, queue, tickets, holds."""
    (permits, record, queue, tickets, held), key_expiry = _seen(store, _PERMITS, keys)
    fence = _pairs(record)
    return PermitState(
        store.now_ms,
        _holders(store, permits),
        _holds(held),
        int(fence.get(b"last", 0)),
        int(fence.get(b"limit", 0)),
        int(fence.get(b"declared", 0)),
        key_expiry.get("fence", -2),
        _waiters(queue, tickets),
        key_expiry,
    )


def next_permits(store: Store, keys: tuple[bytes, ...], known: PermitState) -> PermitState:
    """The same, looked at once more: what did not change since ``known`` is not read again."""
    found = _changed(store, _PERMITS, keys, known.key_expiry)
    if found is None:
        return take_permits(store, keys)
    seen, key_expiry = found
    known = known.at(store.now_ms)
    fence = _pairs(seen["fence"]) if "fence" in seen else None
    data = store.data
    return PermitState(
        store.now_ms,
        _holders(store, seen["permits"]) if "permits" in seen else known.holders,
        _holds(seen["holds"]) if "holds" in seen else known.fences,
        known.last if fence is None else int(fence.get(b"last", 0)),
        known.limit if fence is None else int(fence.get(b"limit", 0)),
        known.declared if fence is None else int(fence.get(b"declared", 0)),
        key_expiry.get("fence", -2),
        _waiters(data.get(keys[2]), data.get(keys[3]))
        if "queue" in seen or "tickets" in seen
        else known.queue,
        key_expiry,
    )


def _holders(store: Store, permits: Value | None) -> dict[str, tuple[str, int]]:
    holders: dict[str, tuple[str, int]] = {}
    for member, expiry in permits.scores.items() if isinstance(permits, ZSet) else ():
        mode, _, token = member.decode().partition(":")
        if expiry >= store.now_ms:
            # In two modes at once: no invariant knows such a mode.
            both = f"{holders[token][0]} and {mode}" if token in holders else mode
            holders[token] = both, int(expiry)
    return holders


def _waiters(queue: Value | None, waiting: Value | None) -> dict[str, QueuedWaiter]:
    if not isinstance(queue, ZSet):
        return {}
    tickets = _pairs(waiting)
    return {
        token.decode(): _waiter(number, tickets.get(token, b"0 0 0 - 1"))
        for token, number in queue.scores.items()
    }


@lru_cache(maxsize=1024)
def _waiter(number: float, text: bytes) -> QueuedWaiter:
    words = text.decode().split(" ", 4)
    return QueuedWaiter(int(number), int(words[0]), words[4], words[3])


def permit_run(script: str, args: list[bytes], reply: Reply) -> PermitRun:
    """One run of a script of permits."""
    status = reply[0].decode(), *reply[2:]
    if script == "limit":
        return PermitRun(script, "", limit=1, reply=status)
    if script == "inspect":
        return PermitRun(script, "", limit=int(args[0]), reply=status)
    token, mode = args[0].decode(), args[1].decode()
    if script == "acquire":
        return PermitRun(script, token, mode, int(args[5]), int(args[2]), status)
    return PermitRun(script, token, mode, limit=int(args[2]), reply=status)
