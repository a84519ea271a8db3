"""The door for pawl's own clients: single steps of the protocol, checked as closely as whole requests.

A client says which script it means and with which words. It never gets further than its namespace: the keys must be
exactly those of one name, the channel is this instance's own, and lives and numbers are within its limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, ClassVar, cast

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from pawl.core.names import WIRE_VERSION, check_namespace, helper_key
from pawl.core.options import DAY_MS
from pawl.core.runtime import Call, Fault, Reply
from pawl.core.scripts import Script, header, load, pack_words
from pawl.primitives import mutex, permits
from pawl.service import schemas
from pawl.service.leases import Told
from pawl.service.problems import Problem
from pawl.service.requests import Asked, answer

__all__ = ["Calls", "Wait", "calls", "router", "wait"]

router: APIRouter = APIRouter(prefix="/v1/ns/{namespace}")
_MUTEX = ("acquire", "renew", "leave", "swap", "adopt", "inspect", "own_acquire", "own_renew", "own_leave")
_PERMITS = ("acquire", "renew", "leave", "inspect")
_NUMBERS = {
    "ttl_ms": 0,
    "ticket_ttl_ms": 0,
    "tomb_ms": 600_000,
    "close_ms": 0,
    "block": 1001,
    "max_waiters": 10_000_000,
    "fence_ttl_ms": DAY_MS,
}
_WORD = re.compile(r"[\x21-\x7e]{0,600}")
_PLAIN = re.compile(r"(?:[^%{}\x00-\x1f\x7f-\x9f]|%[0-9A-F]{2})+")
_ESCAPED = re.compile("(?:%[0-9A-F]{2})+")


@dataclass(frozen=True, slots=True)
class _Known:
    """A script that may be run: what its keys and arguments are called, and of what it is a part."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[str, ...]
    stemmed: bool


def _listed(field: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in re.sub(r"\([^)]*\)", "", field).split(","))


def _known() -> dict[str, _Known]:
    found: dict[str, _Known] = {}
    for package, names, stemmed in ((mutex.__name__, _MUTEX, False), (permits.__name__, _PERMITS, True)):
        for name in names:
            fields = header(files(package).joinpath(f"{name}.lua").read_text(encoding="ascii"), name)
            script = load(package, name)
            found[script.sha] = _Known(script, _listed(fields["keys"]), _listed(fields["args"])[:-1], stemmed)
    return found


_SCRIPTS = _known()


class _One(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)
    script: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    words: Annotated[list[Annotated[str, Field(max_length=1200)]], Field(max_length=20)]


class Calls(BaseModel):
    """Steps of the protocol, of one version of pawl."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)
    calls: Annotated[list[_One], Field(min_length=1, max_length=100)]


class Wait(BaseModel):
    """Wait until a token is told something."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)
    token: Annotated[str, Field(min_length=16, max_length=400, pattern=r"^[\x21-\x7e]+$")]
    timeout: Annotated[float, Field(ge=0, le=30)]


@dataclass(frozen=True, slots=True)
class _Checked:
    call: Call
    told: Told
    token: str
    ttl_ms: int
    leaves: bool


def _refuse(text: str) -> Problem:
    return Problem(422, "BAD_CALL", text)


def _check(asked: Asked, one: _One) -> _Checked:
    known = _SCRIPTS.get(one.script)
    if known is None:
        raise Problem(
            501, "NOT_SUPPORTED", "not served over HTTP, or by another version of pawl than this one"
        )
    keys, words = one.words[: len(known.keys)], one.words[len(known.keys) :]
    if len(words) != len(known.args):
        raise _refuse(f"{known.script.name} takes {len(known.args)} arguments")
    args = dict(zip(known.args, words, strict=True))
    base, stem = _base_of(asked, known, keys[0])
    _check_keys(known, keys, args, base, stem)
    _check_args(asked, args)
    if args.get("run"):
        raise _refuse("a run is for clients of the server itself")
    if "channel" in args and args["channel"] not in ("", "-"):
        args["channel"] = asked.space.engine.runtime.channel() or "-"
    body = pack_words(*[word.encode() for word in (*keys, *args.values())])
    name = _ESCAPED.sub(lambda m: bytes.fromhex(m[0].replace("%", "")).decode(errors="replace"), base)
    name = name.removeprefix(f"{asked.space.namespace}:")
    kind = "lock" if not stem else "semaphore" if stem == "permits" else _side(args.get("mode", ""))
    permits_ = int(args["permits"]) if kind == "semaphore" and args.get("permits", "").isdecimal() else None
    told = Told(kind, name, None, permits_)
    token = args.get("token", "")
    return _Checked(
        Call(known.script, body), told, token, int(args.get("ttl_ms", 0)), "leave" in known.script.name
    )


def _side(mode: str) -> str:
    return "rwlock_write" if mode == "x" else "rwlock_read"


def _base_of(asked: Asked, known: _Known, key: str) -> tuple[str, str]:
    base, stem = key, ""
    if known.stemmed:
        found = re.fullmatch(r"\{(.+)\}:" + WIRE_VERSION + ":(permits|rwlock)", key, re.DOTALL)
        if found is None:
            raise _refuse("the keys are not those of a name")
        base, stem = found[1], found[2]
    prefix = check_namespace(asked.space.namespace) + ":"
    rest = base.removeprefix(prefix)
    if rest == base or not _PLAIN.fullmatch(rest) or len(rest) > 600:
        raise Problem(403, "FORBIDDEN", "the keys are not those of a name in this namespace")
    return base, stem


def _check_keys(known: _Known, keys: list[str], args: dict[str, str], base: str, stem: str) -> None:
    home = helper_key(base, f"{WIRE_VERSION}:{stem}") if stem else base
    for name, key in zip(known.keys, keys, strict=True):
        if name in ("name", "permits"):
            expected = home
        else:
            what = name
            if name.startswith("dead"):
                what = "dead:" + args["old_token" if name == "dead_old" else "token"]
            if stem:
                expected = f"{home}:{what}"
            else:
                expected = helper_key(base, what if what == "fence" else f"{WIRE_VERSION}:{what}")
        if key != expected:
            raise _refuse(f"{name} is not that key of the name")


def _check_args(asked: Asked, args: dict[str, str]) -> None:
    longest = int(asked.who.limits.max_ttl * 1000)
    for name, value in args.items():
        if not _WORD.fullmatch(value):
            raise _refuse(f"{name} has characters that no argument has")
        if name in _NUMBERS or (name == "permits"):
            if not (value.isascii() and value.isdecimal() and len(value) < 13):
                raise _refuse(f"{name} must be a number")
            most = _NUMBERS.get(name, 1_000_000_000) or longest
            if int(value) > most:
                raise Problem(422, "TTL_LIMIT", f"{name} is {value}; this client may give {most} at most")
    mode = args.get("mode", "0")
    if args.get("ttl_ms") == "0" or not (
        mode in ("u", "x") or (mode.isascii() and mode.isdecimal() and len(mode) < 11)
    ):
        raise _refuse("ttl_ms and mode must be those of a lease")
    if "token" in args and len(args["token"].partition("@")[0]) < 16:
        raise _refuse("the token has too little chance in it")


@router.post(
    "/calls", tags=["pawl's clients"], summary="Steps of the protocol", openapi_extra=schemas.operation(Calls)
)
async def calls(request: Request) -> Response:
    """For clients of ``http+pawl://``: run single steps, and answer what the server answered."""
    asked = Asked(request, "acquire")
    body = await asked.read(Calls, 64)
    engine = asked.space.engine
    if not engine.runtime.channel():
        await engine.runtime.ready(1.0)
    checked = [_check(asked, one) for one in body.calls]
    outcomes = await engine.runtime.call_many([one.call for one in checked], 1.0)
    notes: list[tuple[int, Call]] = []
    for number, (one, outcome) in enumerate(zip(checked, outcomes, strict=True)):
        note = _note(asked, one, outcome)
        if note is not None:
            notes.append((number, note))
    replies: list[Any] = [_told(outcome) for outcome in outcomes]
    noted = await engine.runtime.call_many([note for _, note in notes], 1.0) if notes else []
    for (number, _), outcome in zip(notes, noted, strict=True):
        if not isinstance(outcome, Fault) and outcome[0] == b"L":
            one = checked[number]
            engine.depart(one.told.primitive(asked.space), one.token, 60_000)
            text = f"this client holds {outcome[2]} leases; its limit is {asked.who.limits.locks}"
            replies[number] = {"fault": "denied", "text": text, "maybe": False, "final": True}
    return answer({"replies": replies})


def _note(asked: Asked, one: _Checked, outcome: Reply | Fault) -> Call | None:
    if isinstance(outcome, Fault):
        return None
    who, store = asked.who, asked.space.store
    if one.leaves:
        return store.tally(who.id, "", 1, "[]", f'["{one.token}"]') if '"' not in one.token else None
    if outcome[0] != b"H" or not one.ttl_ms:
        return None
    return store.hold(who.id, one.token, one.told.words(), "", life_ms=one.ttl_ms, most=who.limits.locks)


def _told(outcome: Any) -> Any:
    if isinstance(outcome, Fault):
        return {
            "fault": outcome.kind.value, "text": outcome.text, "maybe": outcome.maybe_applied, "final": outcome.final
        }  # fmt: skip
    if isinstance(outcome, bytes):
        return outcome.decode(errors="replace")
    return [_told(one) for one in cast("Iterable[Any]", outcome)] if isinstance(outcome, list) else outcome


@router.post(
    "/calls/wait",
    tags=["pawl's clients"],
    summary="Wait for a hand-off",
    openapi_extra=schemas.operation(Wait),
)
async def wait(request: Request) -> Response:
    """For clients of ``http+pawl://``: answers when the token was granted something, or after ``timeout`` seconds."""
    asked = Asked(request, "acquire")
    body = await asked.read(Wait)

    async def listen(_: Any) -> dict[str, Any]:
        async with asked.waiting():
            found = await asked.space.engine.runtime.wait_wakeup(body.token, body.timeout)
        return {"wakeup": None if found is None else [found.fence, found.expires_ms]}

    return await asked.once("-", listen)
