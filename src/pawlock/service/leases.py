"""Renewing and releasing leases by their tokens. No instance keeps state of a lease: any of them serves each step."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pawlock._key_text import read_key
from pawlock.core.outcomes import Absent, Gone, Granted, Outcome, Queued, Released, Withdrawn
from pawlock.core.primitive import Forceable, Primitive
from pawlock.core.retry import query
from pawlock.core.runtime import Fault, Request
from pawlock.errors import NotHeld, ScriptError, WrongKey
from pawlock.service.access import Principal
from pawlock.service.problems import Problem
from pawlock.service.spaces import KEY, Space
from pawlock.service.store.replies import NoSession
from pawlock.service.terms import options_of_question

__all__ = [
    "LeaseSpec", "again", "call", "close_session", "is_token", "keep_session", "not_held", "note", "open_session",
    "release", "renew", "session_over",
]  # fmt: skip

_TOKEN = re.compile(r"[A-Za-z0-9]{22,64}@[\x21-\x7e]{1,350}")


def is_token(text: str) -> bool:
    """Whether an acquisition may have this as its token: at least 128 random bits before what others see of it.

    What a name holds in place of a token, the mark of a closed name, can be guessed.
    """
    return _TOKEN.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class LeaseSpec:
    """The lease that a request is about.

    Attributes:
        kind: The primitive.
        name: The lock name; for a key, the key as text.
        permits: For a semaphore, how many there are.
        n: For a semaphore, how many this lease has.
    """

    kind: str
    name: str
    permits: int | None = None
    n: int = 1

    def to_json(self) -> str:
        """As it is recorded in a session: equal for equal leases."""
        return json.dumps((self.kind, self.name, self.permits, self.n))

    @classmethod
    def from_json(cls, text: bytes | str) -> LeaseSpec:
        """The inverse of ``to_json``."""
        return cls(*json.loads(text))

    def primitive(self, space: Space) -> Primitive:
        """Its calls to the server."""
        return space.primitive(self.kind, self.name, self.permits, self.n)


async def call(space: Space, question: Request, doing: str, name: str = "") -> Outcome:
    """Send one idempotent request, again after passing faults; errors name the namespace, or what is named here."""
    options = options_of_question(space.engine)
    outcome, _ = await query(space.engine, question, options, name or space.namespace, doing)
    return outcome


def session_over() -> Problem:
    """The problem of a session that is not there."""
    return Problem(404, "SESSION_ENDED", "no such session (any more) of this client: open a new one")


async def renew(
    space: Space, spec: LeaseSpec, token: str, ttl_ms: int, who: Principal, session: str
) -> tuple[int, float]:
    """Extend a lease.

    Returns:
        Its fencing token, and the seconds that are left of it.

    Raises:
        NotHeld: The token holds nothing.
        Problem: There is no such session; its lease was renewed all the same.
    """
    if not is_token(token):
        raise not_held(spec, "renew")
    primitive = spec.primitive(space)
    question = primitive.renew(token, ttl_ms, min(ttl_ms, 3000), "")
    update = space.store.update(who.id, session, "[]")
    calls = (question, update) if session else (question,)
    outcome, *noted = await space.engine.runtime.call_many(
        calls, options_of_question(space.engine).answer_within
    )
    if isinstance(outcome, Fault):
        outcome = await call(space, question, "renew", primitive.name)
    if not isinstance(outcome, Granted):
        space.remove_record(who.id, session, token)
        raise _not_held(spec, outcome, primitive, "renew")
    for there in noted:
        found = await call(space, update, "look at a session") if isinstance(there, Fault) else there
        if not found.in_session:
            raise session_over()
    return outcome.fence, outcome.left_ms / 1000


async def again(
    space: Space, spec: LeaseSpec, mark: str, ttl_ms: int, who: Principal, session: str
) -> tuple[str, int, float] | None:
    """The lease that an identifier holds already: its token, its fencing token, and the seconds that are left of it.

    Args:
        space: The namespace.
        spec: The lease that is asked for.
        mark: How the tokens of the identifier end.
        ttl_ms: The life that it is raised to.
        who: Who asks.
        session: Its session, or ``""``.

    Returns:
        None if it holds none.
    """
    primitive = cast("Forceable", spec.primitive(space))
    seen = await call(space, primitive.peek(), "acquire", spec.name)
    token = next((value.decode(errors="replace") for value, _ in seen.holders), "")
    if not token.endswith(mark):
        return None
    try:
        found = token, *await renew(space, spec, token, ttl_ms, who, session)
    except NotHeld:
        return None
    if session:
        # It may have been acquired in another session, or in none.
        await note(space, spec, token, who, session)
    return found


async def note(space: Space, spec: LeaseSpec, token: str, who: Principal, session: str) -> None:
    """Note a lease in its session.

    Raises:
        Problem: The session is over.
    """
    hold = space.store.hold(who.id, token, spec.to_json(), session)
    if isinstance(await call(space, hold, "note a lease"), NoSession):
        raise session_over()


async def release(space: Space, spec: LeaseSpec, token: str, who: Principal, session: str) -> bool:
    """Release a lease.

    Returns:
        False if the token held nothing.

    Raises:
        NotHeld: It is no token, or held something else.
    """
    if not is_token(token):
        raise not_held(spec)
    primitive = spec.primitive(space)
    left = primitive.leave(token, 0, 0)
    removal = space.removal(who.id, session, token)
    calls = (left, removal) if session else (left,)
    outcome, *noted = await space.engine.runtime.call_many(
        calls, options_of_question(space.engine).answer_within
    )
    if isinstance(outcome, Fault):
        # It may have been applied: asked again, the answer is "not held", which then says nothing new.
        again = await call(space, left, "release", primitive.name)
        if isinstance(again, Absent) and again.forced:
            raise not_held(spec)
        return isinstance(again, Released) or outcome.maybe_applied
    if any(isinstance(one, Fault) for one in noted):
        # What is noted ends by itself.
        space.engine.post(removal)
    if isinstance(outcome, (Released, Withdrawn, Absent)):
        return isinstance(outcome, Released)
    raise _not_held(spec, outcome, primitive, "release")


def not_held(spec: LeaseSpec, doing: str = "release") -> NotHeld:
    """The error of a token that holds nothing."""
    text = f"{doing} {spec.name!r}: this token does not hold it (any more)"
    return NotHeld(text, name=spec.name, operation="extend" if doing == "renew" else doing)


def _not_held(spec: LeaseSpec, outcome: Outcome, primitive: Primitive, doing: str) -> Exception:
    refusal = primitive.refusal(outcome)
    if refusal is not None:
        return refusal
    if isinstance(outcome, (Gone, Queued, Absent)):
        return not_held(spec, doing)
    return ScriptError(f"{doing} {spec.name!r}: a reply that is not from a pawlock script")


# Sessions -----------------------------------------------------------------------------------------------------------


async def open_session(space: Space, session: str, ttl_ms: int, who: Principal) -> None:
    """Open a session."""
    await call(space, space.store.open(who.id, session, ttl_ms), "open a session")


async def keep_session(space: Space, session: str, who: Principal) -> Mapping[str, Any]:
    """Renew a session and all that it holds, on whichever instance.

    Returns:
        Its ttl, what it holds with the seconds each has, and what was lost since the last time.

    Raises:
        Problem: The session is over.
    """
    kept = await call(space, space.store.keep(who.id, session), "keep a session alive")
    if isinstance(kept, NoSession):
        raise session_over()
    ttl_ms = kept.ttl_ms
    noted = [(token, LeaseSpec.from_json(text)) for token, text in kept.leases]
    pairs = [(token, spec) for token, spec in noted if _may_hold(who, spec)]
    calls = [spec.primitive(space).renew(token, ttl_ms, min(ttl_ms, 3000), "") for token, spec in pairs]
    outcomes = (
        await space.engine.runtime.call_many(calls, options_of_question(space.engine).answer_within)
        if calls
        else []
    )
    held: list[dict[str, Any]] = []
    # A key that its token may no longer lock is not renewed.
    lost = [_line(spec, token) for token, spec in noted if not _may_hold(who, spec)]
    for (token, spec), outcome, question in zip(pairs, outcomes, calls, strict=True):
        line, answer = _line(spec, token), outcome
        if isinstance(outcome, Fault):
            # Another program may have put there what is no lock of this kind: the other leases go on.
            with contextlib.suppress(WrongKey):
                answer = await call(space, question, "renew", spec.name)
        if isinstance(answer, Granted):
            held.append({**line, "fence": answer.fence, "expires_in": answer.left_ms / 1000})
        else:
            lost.append(line)
    if lost:
        over = json.dumps([line["token"] for line in lost])
        await call(space, space.store.update(who.id, session, over), "note what was lost")
    return {"ttl": ttl_ms / 1000, "held": held, "lost": lost}


def _line(spec: LeaseSpec, token: str) -> dict[str, Any]:
    return {"kind": spec.kind, "name": spec.name, "token": token}


def _may_hold(who: Principal, spec: LeaseSpec) -> bool:
    """Whether a client may hold this in a namespace that it may use: of keys, only those that its token lists."""
    return spec.kind != KEY or who.may_lock(read_key(spec.name).key)


async def close_session(space: Space, session: str, who: Principal) -> int:
    """End a session and release all that it holds.

    Returns:
        How many leases were released.

    Raises:
        Problem: The session is over.
    """
    kept = await call(space, space.store.close(who.id, session), "end a session")
    if isinstance(kept, NoSession):
        raise session_over()
    released = 0
    for token, text in kept.leases:
        with contextlib.suppress(NotHeld, WrongKey):
            released += await release(space, LeaseSpec.from_json(text), token, who, session)
    return released
