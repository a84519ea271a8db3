"""What operators do: list held names, force-release them, and read the audit log.

No list of held names is kept: they are found by scanning the keys of the server, in small steps with a pause after each,
so that other clients are never blocked for long, however many keys there are.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from pawlock.core import outcomes
from pawlock.core.faults import to_error
from pawlock.core.inspect import inspect as info_of
from pawlock.core.inspect import read_info
from pawlock.core.options import check_count
from pawlock.core.outcomes import NOBODY_MS, Look
from pawlock.core.primitive import TOMB_MS, listed_as
from pawlock.core.retry import query
from pawlock.core.runtime import Fault
from pawlock.errors import BackendDenied, BackendError, ConfigurationError, NotHeld, NotSupported, WrongKey
from pawlock.model import AuditEntry, Forced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pawlock.core.engine import Engine
    from pawlock.core.options import LockOptions
    from pawlock.core.plan import Plan
    from pawlock.core.primitive import Forceable, Found, Namespace, NamespaceCalls, Primitive
    from pawlock.model import LockInfo

__all__ = ["Progress", "audit", "force_release", "held", "inspect", "looks_at", "namespace_of", "other_kinds"]

log: logging.Logger = logging.getLogger("pawlock.admin")

Progress: TypeAlias = "Callable[[int, int], object]"
"""Called with the number of keys scanned so far, and the approximate total."""

_STEP = 1000
"""Keys in one step: a few tenths of a millisecond of the server's time."""

_PAUSE = 0.001
_PAGE = 100

_AUDIT_LINES = 1000
_AUDIT_LIFE_MS = 90 * 86_400_000
_LONGEST_TEXT = 500
_TRIES = 5
_MOST_NAMED = 10
_NOT_PAWLOCK = "a program that is not pawlock"


def namespace_of(engine: Engine, what: str) -> Namespace:
    """The calls and lookups of the namespace as a whole.

    Raises:
        NotSupported: Independent masters, which keep no common record.
    """
    engine.check_open()
    if engine.reports.namespace is None:
        text = "independent masters (Redlock) have no common record: use inspect() for a single lock"
        raise NotSupported(f"{what}: {text}")
    return engine.reports.namespace


# All held names -----------------------------------------------------------------------------------------------------


async def held(
    engine: Engine, options: LockOptions, progress: Progress | None = None, *, everywhere: bool = False
) -> list[tuple[str, LockInfo]]:
    """List the held names with their namespaces, in order, by scanning the keys of the server.

    Args:
        engine: The client's engine.
        options: How long to wait for answers.
        progress: Called after each step.
        everywhere: Whether to list all namespaces.
    """
    names = namespace_of(engine, "locks")
    calls, find = names.calls, names.finder(everywhere=everywhere)
    try:
        nodes = await engine.runtime.key_for_each(calls.scan_key, options.answer_within)
    except Fault as fault:
        raise to_error(fault, "locks", "list") from fault
    seen: set[str] = set()
    infos: list[tuple[str, LockInfo]] = []
    before = total = 0
    for node in nodes:
        cursor, scanned = "", before
        while cursor != "0":
            call = calls.scan(node, cursor or "0", _STEP, everywhere=everywhere)
            keys, _ = await query(engine, call, options, "locks", "list")
            new = [find(key) for key in keys.found if key not in seen]
            seen.update(keys.found)
            infos += await _held(engine, [one for one in new if one is not None], options)
            cursor, total = keys.cursor, before + keys.total
            scanned = total if cursor == "0" else min(scanned + _STEP, total)
            if progress is not None:
                progress(scanned, total)
            await engine.runtime.pause(_PAUSE)
        before = total
    return sorted(infos, key=lambda one: (one[0], one[1].name, one[1].kind))


async def _held(engine: Engine, found: Sequence[Found], options: LockOptions) -> list[tuple[str, LockInfo]]:
    looks = [one.primitive for one in found]
    infos: list[tuple[str, LockInfo]] = []
    for one, look in zip(found, await looks_at(engine, looks, options, "locks", 1, WrongKey), strict=True):
        # What pawlock never locked is a value of another program that begins alike.
        if look is not None and look.left_ms != NOBODY_MS and (look.last or not look.foreign):
            infos.append((one.namespace, replace(read_info(one.primitive, look), kind=one.kind)))
    return infos


async def looks_at(
    engine: Engine,
    looks: Sequence[Primitive],
    options: LockOptions,
    name: str,
    waiters: int,
    *skipped: type[BackendError],
) -> list[Look | None]:
    """The state of each; None of one that cannot be read for one of these reasons."""
    found: list[Look | None] = []
    for start in range(0, len(looks), _PAGE):
        calls = [one.inspect(waiters) for one in looks[start : start + _PAGE]]
        answers = await engine.runtime.call_many(calls, options.answer_within)
        for call, answer in zip(calls, answers, strict=True):
            if not isinstance(answer, Fault):
                found.append(answer)
                continue
            # Once more, by itself, as patiently as any other question.
            try:
                found.append((await query(engine, call, options, name, "read"))[0])
            except skipped:
                found.append(None)
    return found


async def inspect(engine: Engine, primitive: Primitive, options: LockOptions, waiters: int) -> LockInfo:
    """The state of a lock; if it is free, also the other kind that holds its name."""
    info = await info_of(engine, primitive, options, waiters)
    return info if info.held else replace(info, held_as=await _held_as(engine, primitive, options))


async def _held_as(engine: Engine, primitive: Primitive, options: LockOptions) -> str:
    """The kind of what holds the name and is no lock; ``""`` if there is none."""
    others = other_kinds(engine, primitive)
    # Also where this user may not read every kind.
    looks = await looks_at(engine, [*others.values()], options, primitive.name, 0, BackendDenied, WrongKey)
    found = zip(others, looks, strict=True)
    return next((kind for kind, look in found if look and look.left_ms != NOBODY_MS), "")


def other_kinds(engine: Engine, mutex: Primitive) -> dict[str, Primitive]:
    """The other primitives that may hold the name of a lock, by kind."""
    names = engine.reports.namespace
    if names is None or listed_as(mutex) != mutex.kind:
        return {}
    return {kind: found for kind in names.beside_locks() if (found := names.look(kind, mutex.name))}


# Taking a name away -------------------------------------------------------------------------------------------------


def _check_text(given: object, what: str) -> str:
    text = given if isinstance(given, str) and given.strip() else ""
    # Without a lone surrogate, which no terminal shows.
    if not 0 < len(text) <= _LONGEST_TEXT or text != text.encode(errors="ignore").decode():
        raise ConfigurationError(f"{what} must be text of 1 to {_LONGEST_TEXT} characters, got {given!r:.40}")
    return text


async def force_release(
    engine: Engine, plan: Plan, kind: object, reason: object, holder: object, by: object
) -> Forced:
    """End the lease of a holder; see ``Client.force_release``."""
    mutex, options = plan.primitive, plan.options
    text, who = _check_text(reason, "reason"), _check_text(by, "by")
    if not isinstance(holder, str):
        raise ConfigurationError(f"holder must be text, as inspect() shows it, got {holder!r:.40}")
    doing = f"force_release {mutex.name!r}"
    calls = namespace_of(engine, doing).calls
    held = _as_kind(engine, mutex, kind)
    # A token that is never used: its random part only distinguishes lines.
    secret = engine.runtime.new_token().partition("@")[0]
    entry = {"who": who, "action": "force_release", "name": mutex.name, "kind": kind, "text": text}
    # Before: nothing is taken away that nobody will know of.
    await _note(engine, calls, options, f"{secret}:asked", {**entry, "outcome": "asked"})
    taken, there = await _take(engine, held, options, mutex.name, holder)
    fence = max((one.fence for one in taken), default=None)
    whose = _listed([one.holder for one in taken] or there)
    outcome = "released" if taken else "changed" if there else "free"
    if taken:
        engine.count("forced")
        said, more = "%r was force-released from %s by %s: %s", {"pawlock_name": mutex.name}
        log.warning(said, mutex.name, whose or _NOT_PAWLOCK, who, text, extra=more)
    done = {**entry, "outcome": outcome, "holder": whose, "fence": fence}
    await _note(engine, calls, options, f"{secret}:done", done)
    if fence is not None:
        return Forced(mutex.name, whose, fence, str(kind), len(taken))
    why = f"it is held by {whose or _NOT_PAWLOCK}, not {holder}" if holder else "it changed hands each time"
    if not there:
        held_as = await _held_as(engine, mutex, options)
        why = f"nobody holds it as {kind}" + (f", but somebody as {held_as}" if held_as else "")
    raise NotHeld(f"{doing}: {why}", name=mutex.name, operation="force_release")


async def _take(
    engine: Engine, held: Forceable, options: LockOptions, name: str, holder: str
) -> tuple[list[outcomes.Forced], list[str]]:
    """What was taken from one holder, or from all; and who held the name."""
    taken: list[outcomes.Forced] = []
    there: list[str] = []
    for _ in range(_TRIES):
        seen, _ = await query(engine, held.peek(), options, name, "force_release")
        there = [public for _, public in seen.holders]
        chosen = [value for value, public in seen.holders if holder in ("", public)]
        for value in chosen:
            outcome, _ = await query(engine, held.force(value, TOMB_MS), options, name, "force_release")
            if isinstance(outcome, outcomes.Forced):
                taken.append(outcome)
        # Else it changed hands between the look and the script.
        if taken or not chosen:
            break
    return taken, there


def _as_kind(engine: Engine, mutex: Primitive, kind: object) -> Forceable:
    kinds = {mutex.kind: mutex, **other_kinds(engine, mutex)}
    kinds = {one: found for one, found in kinds.items() if hasattr(found, "force")}
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigurationError(f"kind must be one of {', '.join(kinds)}, got {kind!r:.40}")
    return cast("Forceable", kinds[kind])


def _listed(holders: Sequence[str]) -> str:
    more = len(holders) - _MOST_NAMED
    return ", ".join(holders[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


async def _note(
    engine: Engine, calls: NamespaceCalls, options: LockOptions, line: str, data: Mapping[str, object]
) -> None:
    call = calls.note(line, json.dumps(data), _AUDIT_LINES, _AUDIT_LIFE_MS)
    await query(engine, call, options, str(data["name"]), "write the audit log for")


async def audit(engine: Engine, options: LockOptions, limit: int) -> list[AuditEntry]:
    """The newest entries of the audit log, the newest first."""
    check_count(limit, "limit", 1, _AUDIT_LINES)
    calls = namespace_of(engine, "audit").calls
    lines, _ = await query(engine, calls.audit_log(_AUDIT_LINES), options, "audit", "read")
    entries: dict[str, AuditEntry] = {}
    for line in lines.texts:
        at_ms, key, data = line.split(" ", 2)
        entry: dict[str, Any] = {"holder": "", "fence": None, **json.loads(data), "at": int(at_ms) / 1000}
        if entry["outcome"] == "asked":
            entry["outcome"] = "unknown"
        entries.setdefault(key.partition(":")[0], AuditEntry(**entry))
    return list(entries.values())[:limit]
