"""What an operator asks for: all held names, a forced release, and who did it."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from pawlock.core.observe.inspect import inspect as info_of
from pawlock.core.observe.inspect import read_info, text_of
from pawlock.core.protocol import outcomes
from pawlock.core.protocol.options import check_count
from pawlock.core.protocol.primitive import TOMB_MS, listed_as
from pawlock.core.protocol.runtime import Fault
from pawlock.core.retry import query
from pawlock.core.state.session import grant_tag, read_record
from pawlock.errors import BackendDenied, ConfigurationError, NotSupported, WrongKey
from pawlock.model import AuditEntry, Forced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.carrier import Request
    from pawlock.core.protocol.engine import Forceable
    from pawlock.core.protocol.outcomes import Outcome
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.terms import Terms
    from pawlock.core.state.session import HoldRow, Record, Setup
    from pawlock.model import LockInfo

__all__ = ["announce", "audit", "force_release", "inspect", "locks", "setup_of", "states"]

log: logging.Logger = logging.getLogger("pawlock.admin")

_PAGE = 200
_RECORDS = 20
"""Records in one answer: each may be long."""

_AUDIT_LINES = 1000
_AUDIT_LIFE_MS = 90 * 86_400_000
_LONGEST_REASON = 500
_TAKEN_LIFE_MS = 60_000
_OWNER = "owner="
_TRIES = 5
_NOT_PAWLOCK = "a program that is not pawlock"
_MOST_WAITERS = 100_000
_OTHER_KINDS = ("semaphore", "rwlock", "election", "once")


def setup_of(engine: Engine, what: str) -> Setup:
    """What sessions and the audit log are asked with.

    Raises:
        NotSupported: Independent masters, which keep no common record.
    """
    engine.check_open()
    if engine.reports.publisher is None:
        raise NotSupported(
            f"{what}: independent masters (Redlock) have no common record: use inspect() for a single lock"
        )
    return engine.reports.publisher.setup


# All held names -----------------------------------------------------------------------------------------------------


async def locks(engine: Engine, options: Terms) -> list[LockInfo]:
    """Every name that a client of the namespace has held for a second or more, in order."""
    setup = setup_of(engine, "locks")
    rows: dict[tuple[str, str], tuple[Primitive, list[HoldRow]]] = {}
    for record in await _records(engine, setup, options, ""):
        for row in record.holds:
            primitive = setup.look(row.kind, row.name)
            if primitive is not None:
                rows.setdefault((primitive.key, row.name), (primitive, []))[1].append(row)
    found = list(rows.values())
    calls = [primitive.inspect(0) for primitive, _ in found]
    replies = await _ask(engine, calls, options, "locks", skip_wrong_keys=True)
    infos: list[LockInfo] = []
    for (primitive, held), reply in zip(found, replies, strict=True):
        if reply is None:
            continue
        info = read_info(primitive, reply)
        row = next((row for row in held if row.fence == info.fence), held[0])
        if info.held:
            infos.append(
                replace(info, kind=row.kind.partition("=")[0], owner=row.label, since=row.since_ms / 1000)
            )
    return sorted(infos, key=lambda info: (info.name, info.kind))


async def _records(engine: Engine, setup: Setup, options: Terms, prefix: str) -> list[Record]:
    after = ""
    records: list[Record] = []
    while True:
        listed, _ = await query(engine, setup.calls.find(prefix, after, _PAGE), options, "sessions", "read")
        ids = listed.ids
        some = [ids[start : start + _RECORDS] for start in range(0, len(ids), _RECORDS)]
        found = await _ask(engine, [setup.calls.read(one) for one in some], options, "sessions")
        texts = [text for page in found for text in page.texts]
        read = (read_record(one, text) for one, text in zip(ids, texts, strict=True))
        records += [record for record in read if record is not None]
        after = listed.last
        if not after:
            return records


async def _ask(
    engine: Engine, calls: Sequence[Request], options: Terms, doing: str, *, skip_wrong_keys: bool = False
) -> list[Outcome]:
    """Ask all of it; with ``skip_wrong_keys``, None for a key that another program has put a value into."""
    answers: list[Outcome] = []
    for start in range(0, len(calls), _PAGE):
        page = calls[start : start + _PAGE]
        for call, outcome in zip(
            page, await engine.runtime.call_many(page, options.request_timeout), strict=True
        ):
            if isinstance(outcome, Fault):
                # Once more, by itself, as patiently as any other question.
                try:
                    answer, _ = await query(engine, call, options, doing, "read")
                except WrongKey:
                    if not skip_wrong_keys:
                        raise
                    answer = None
                answers.append(answer)
            else:
                answers.append(outcome)
    return answers


async def states(engine: Engine, primitive: Primitive, options: Terms, waiters: int) -> list[LockInfo]:
    """What is in use under one name: its mutex, and every other kind that is held or waited for.

    Returns:
        At least one record: that of the mutex where nothing is in use.
    """
    check_count(waiters, "waiters", 0, _MOST_WAITERS)
    engine.check_open(primitive.name)
    looks = [primitive]
    if engine.reports.publisher is not None and listed_as(primitive) == primitive.kind:
        look = engine.reports.publisher.setup.look
        looks += [found for kind in _OTHER_KINDS if (found := look(kind, primitive.name)) is not None]
    calls = [one.inspect(waiters) for one in looks]
    replies = await _ask(engine, calls, options, primitive.name)
    infos = [read_info(one, reply) for one, reply in zip(looks, replies, strict=True)]
    return [info for info in infos if info.held or info.queue_length] or infos[:1]


async def inspect(engine: Engine, primitive: Primitive, options: Terms, waiters: int) -> LockInfo:
    """What the server knows of a lock's name; if it is free as a lock, also what else it is held as."""
    info = await info_of(engine, primitive, options, waiters)
    return info if info.held else replace(info, held_as=await _held_as(engine, primitive, options))


async def _held_as(engine: Engine, primitive: Primitive, options: Terms) -> str:
    """The kind of a semaphore, rwlock, election or once that holds the name; ``""`` if there is none."""
    if engine.reports.publisher is None or listed_as(primitive) != primitive.kind:
        return ""
    look = engine.reports.publisher.setup.look
    looks = [(kind, found) for kind in _OTHER_KINDS if (found := look(kind, primitive.name)) is not None]
    outcomes = await engine.runtime.call_many([one.inspect(0) for _, one in looks], options.request_timeout)
    for (kind, one), outcome in zip(looks, outcomes, strict=True):
        try:
            reply = outcome
            if isinstance(outcome, Fault):
                # Once more, by itself, as patiently as any other question.
                reply, _ = await query(engine, one.inspect(0), options, primitive.name, "read")
        except BackendDenied:
            # This user may not read that kind of lock: skip it.
            continue
        if read_info(one, cast("Outcome", reply)).held:
            return kind
    return ""


async def announce(
    engine: Engine, primitive: Primitive, options: Terms, token: str, fence: int, label: str
) -> bool:
    """Have ``locks`` list a lease that no client renews, until it expires.

    Args:
        engine: The client's engine.
        primitive: What is held.
        options: How the lease behaves; the record lives as long as its ttl.
        token: The token of the lease.
        fence: Its fencing token.
        label: Who has it, in place of a thread or task; at most 40 characters are shown. One that was announced
            before keeps its label, and the time since when it is held.

    Returns:
        False with independent masters, which keep no common record.
    """
    if engine.reports.publisher is None:
        return False
    calls, name = engine.reports.publisher.setup.calls, primitive.name
    # The same for whoever has the ticket, and it gives nothing of the token away.
    digest = hashlib.sha256(f"pawlock announce\0{token}".encode()).hexdigest()
    session = f"{token.partition('@')[2].rpartition('/')[0]}/{digest[:12]}"
    found, _ = await query(engine, calls.read([session]), options, name, "announce")
    before, now_ms = read_record(session, found.texts[0]), found.now_ms
    since_ms = now_ms
    if before is not None and before.holds:
        since_ms, label = before.holds[0].since_ms, before.holds[0].label
    row = [listed_as(primitive), name, fence, 0, "-", label[:40], since_ms]
    data = json.dumps({"b": since_ms, "c": "", "h": [row], "w": [], "o": 0}, separators=(",", ":"))
    # The server's time numbers the records: a late copy replaces no newer one.
    call = calls.publish(session, now_ms, options.life_ms, data)
    await query(engine, call, options, name, "announce")
    return True


# Taking a name away -------------------------------------------------------------------------------------------------


def _check_reason(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise ConfigurationError(
            f"reason must be text of 1 to {_LONGEST_REASON} characters, got {reason!r:.40}"
        )
    if len(reason) > _LONGEST_REASON:
        raise ConfigurationError(f"reason must be at most {_LONGEST_REASON} characters, got {len(reason)}")
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise ConfigurationError("reason is not valid text: it has a lone surrogate") from None
    return reason


async def force_release(engine: Engine, primitive: Primitive, options: Terms, reason: object) -> Forced:
    """Take a name from its holder; see ``Client.force_release``."""
    text = _check_reason(reason)
    setup = setup_of(engine, f"force_release {primitive.name!r}")
    lock = cast("Forceable", primitive)
    # A token that is never used: its random part only distinguishes lines.
    secret, _, who = engine.runtime.new_token().partition("@")
    entry: dict[str, object] = {"who": who, "action": "force_release", "name": primitive.name, "text": text}
    # Before: nothing is taken away that nobody will know of.
    await _note(engine, setup, options, f"{secret}:asked", {**entry, "outcome": "asked"})
    forced = Forced(primitive.name, released=False, holder="", fence=None)
    for _ in range(_TRIES):
        seen, _ = await query(engine, lock.peek(), options, primitive.name, "force_release")
        if not seen.held:
            forced = replace(forced, held_as=await _held_as(engine, primitive, options))
            break
        # Another program's may be any bytes, which go back as they came.
        value, cur = text_of(seen.value), seen.fence
        processes = await _processes_of(engine, options, primitive, value)
        heard = await _channels_of(engine, setup, options, primitive, processes, cur)
        # A single holder is notified by the script that takes the name.
        alone = heard[0] if len(heard) == 1 and not value.startswith(_OWNER) else ""
        call = lock.force(seen.value, TOMB_MS, alone)
        outcome, _ = await query(engine, call, options, primitive.name, "force_release")
        if isinstance(outcome, outcomes.Forced):
            forced = Forced(primitive.name, released=True, holder=outcome.holder, fence=outcome.fence)
            await _notify_holders(engine, setup, options, primitive, processes, cur)
            break
    else:
        # It changed hands each time between the look and the script.
        info = await info_of(engine, primitive, options, 0)
        forced = replace(forced, holder=info.holder or _NOT_PAWLOCK if info.held else "")
    ended = "released" if forced.released else "changed" if forced.holder else "free"
    if forced.released:
        engine.count("forced")
        log.warning(
            "%r was force-released from %s: %s", primitive.name, forced.holder or _NOT_PAWLOCK, text,
            extra={"pawlock_name": primitive.name},
        )  # fmt: skip
    entry |= {"outcome": ended, "holder": forced.holder, "fence": forced.fence}
    await _note(engine, setup, options, f"{secret}:done", entry)
    return forced


async def _processes_of(engine: Engine, options: Terms, primitive: Primitive, value: str) -> set[str]:
    """Where the holds are; those of an explicit owner may be of several processes, another program's are of none."""
    shown = [value.partition("@")[2]]
    if value.startswith(_OWNER):
        look, _ = await query(engine, primitive.inspect(0), options, primitive.name, "force_release")
        shown = [holder.who for holder in look.holders or ()]
    return {process for one in shown if (process := one.rpartition("/")[0])}


async def _channels_of(
    engine: Engine, setup: Setup, options: Terms, primitive: Primitive, processes: set[str], cur: int
) -> list[str]:
    """The channels of the holders' clients, as far as their sessions list the hold."""
    found: list[str] = []
    for process in sorted(processes):
        for record in await _records(engine, setup, options, f"{process}/"):
            rows = ((setup.make(row.kind, row.name), row.fence) for row in record.holds)
            if any(fence == cur and held is not None and held.key == primitive.key for held, fence in rows):
                found.append(record.channel)
    return [channel for channel in found if channel]


async def _notify_holders(
    engine: Engine, setup: Setup, options: Terms, primitive: Primitive, processes: set[str], cur: int
) -> None:
    """Notify holders whose sessions do not list the hold yet: they find it as soon as they do.

    And those to whom the script sent a message: the connection that a record names may be gone.
    """
    if not processes:
        return
    tag = grant_tag(primitive, cur)
    await query(engine, setup.calls.take(tag, _TAKEN_LIFE_MS), options, primitive.name, "force_release")
    # After: a session that listed the hold before that hears it now.
    for channel in await _channels_of(engine, setup, options, primitive, processes, cur):
        await query(engine, setup.calls.tell(channel, tag), options, primitive.name, "force_release")


async def _note(engine: Engine, setup: Setup, options: Terms, line: str, data: Mapping[str, object]) -> None:
    call = setup.calls.note(line, json.dumps(data), _AUDIT_LINES, _AUDIT_LIFE_MS)
    await query(engine, call, options, str(data["name"]), "write the audit log for")


async def audit(engine: Engine, options: Terms, limit: int) -> list[AuditEntry]:
    """The newest entries of the audit log, the newest first."""
    check_count(limit, "limit", 1, _AUDIT_LINES)
    setup = setup_of(engine, "audit")
    lines, _ = await query(engine, setup.calls.audit_log(_AUDIT_LINES), options, "audit", "read")
    entries: dict[str, AuditEntry] = {}
    for line in lines.texts:
        at_ms, key, data = line.split(" ", 2)
        number = key.partition(":")[0]
        entry = json.loads(data)
        if number not in entries:
            entries[number] = AuditEntry(
                at=int(at_ms) / 1000, who=entry["who"], action=entry["action"], name=entry["name"], text=entry["text"],
                outcome="unknown" if entry["outcome"] == "asked" else entry["outcome"],
                holder=entry.get("holder", ""), fence=entry.get("fence"),
            )  # fmt: skip
    return list(entries.values())[:limit]
