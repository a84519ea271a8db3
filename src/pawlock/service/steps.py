"""What a client of the library may run: which scripts, on which keys, with which arguments.

It never gets further than its namespace: the keys must be exactly those of one name, or of several for a script that
takes several; the channel is this instance's own, and lives and numbers are within the client's limits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from pawlock.core.protocol.names import WIRE_VERSION, check_namespace, helper_key
from pawlock.core.protocol.options import DAY_MS
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import Script, for_several, header, load, pack_words
from pawlock.primitives import barrier, election, latch, mutex, permits
from pawlock.service.leases import LeaseSpec, is_token
from pawlock.service.problems import Problem
from pawlock.service.requests import RequestContext
from pawlock.service.store.replies import with_raw_replies

__all__ = ["Step", "check_step"]

_STEM_OF = {barrier: "barrier", election: "%election", latch: "latch", mutex: "", permits: "permits|rwlock"}
_NAMES = {
    mutex: (
        "acquire",
        "renew",
        "leave",
        "swap",
        "adopt",
        "inspect",
        "own_acquire",
        "own_renew",
        "own_leave",
    ),
    permits: ("acquire", "renew", "leave", "inspect"),
    election: ("acquire", "renew", "leave", "observe", "hush"),
    latch: ("count_down", "wait", "leave", "reset", "inspect"),
    barrier: ("arrive", "leave", "inspect"),
}
_BALLOT = "%election:"
_NUMBERS = {
    "block": 1001,
    "close_ms": 0,
    "count": 1_000_000_000,
    "fence_ttl_ms": DAY_MS,
    "keep_ms": 20 * DAY_MS,
    "max_observers": 10_000_000,
    "max_waiters": 10_000_000,
    "n": 1_000_000_000,
    "parties": 1000,
    "permits": 1_000_000_000,
    "remember_ms": DAY_MS,
    "round": 10**17,
    "ticket_ttl_ms": 60_000,
    "tomb_ms": 600_000,
    "ttl_ms": 0,
}
"""The largest number of each; 0: the client's longest ttl.

A ticket is not counted among the leases of its client, and a hand-off grants it for its own life: that is short.
"""

_QUEUES = frozenset({"max_waiters", "max_observers"})
"""How long a queue may be for one more to join; of others, one client leaves room for those who come after it."""

_LATCH_TTL_MS = 31 * DAY_MS
_WORD = re.compile(r"[\x21-\x7e]{0,600}")
_PART = re.compile(r"[^\x00-\x1f\x7f]{0,200}")
_TOKENS = frozenset({"token", "old", "old_token", "beside"})
_OWNER = re.compile(r"owner=[^@]{1,200}@(shared|service:[0-9a-f]{12})")
_PLAIN = re.compile(r"(?:[^%{}\x00-\x1f\x7f-\x9f]|%[0-9A-F]{2})+")
_ESCAPED = re.compile("(?:%[0-9A-F]{2})+")


@dataclass(frozen=True, slots=True)
class _Known:
    """A script that may be run: what its keys and arguments are called, and of what it is a part."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[str, ...]
    stem: str
    several: bool = False


def _listed(field: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in re.sub(r"\([^)]*\)", "", field).split(","))


def _known() -> dict[str, _Known]:
    found: dict[str, _Known] = {}
    for package, names in _NAMES.items():
        for name in names:
            text = files(package).joinpath(f"{name}.lua").read_text(encoding="ascii")
            fields = header(text, name)
            script = with_raw_replies(load(package.__name__, name))
            args = _listed(fields["args"])[:-1]
            keys = _listed(fields["keys"])
            found[script.sha] = _Known(script, keys, args, _STEM_OF[package])
    return found


_SCRIPTS = _known()


@dataclass(frozen=True, slots=True)
class Step:
    """A step that may be run.

    Attributes:
        call: What to send.
        leases: What it takes, renews or leaves, each with its token; nothing for what has no leases.
        ttl_ms: The life that is asked for; 0: none is.
        leaves: Whether it leaves them.
    """

    call: Call
    leases: tuple[tuple[LeaseSpec, str], ...]
    ttl_ms: int
    leaves: bool


def _refuse(text: str) -> Problem:
    return Problem(422, "BAD_CALL", text)


def check_step(ctx: RequestContext, sha: str, words: Sequence[str]) -> Step:
    """What a client asks for, if it may.

    Args:
        ctx: The request.
        sha: Which script.
        words: Its keys and arguments.

    Raises:
        Problem: It may not, or no client of the library asks so.
    """
    known = _SCRIPTS.get(sha)
    if known is None:
        raise Problem(404, "NO_SUCH_STEP", "not available over HTTP, or only in another version of pawlock")
    width = len(known.keys) + len(known.args)
    times = len(words) // width if known.several else 1
    if not times or len(words) != width * times:
        raise _refuse(f"{known.script.name} takes {len(known.keys)} keys and {len(known.args)} arguments")
    keys: list[str] = []
    args: list[str] = []
    leases: list[tuple[LeaseSpec, str]] = []
    ttl_ms = 0
    for number in range(times):
        at, after = number * len(known.keys), len(known.keys) * times + number * len(known.args)
        mine = words[at : at + len(known.keys)]
        given = dict(zip(known.args, words[after : after + len(known.args)], strict=True))
        spec = _check_one(ctx, known, mine, given)
        keys += mine
        args += given.values()
        ttl_ms = int(given.get("ttl_ms", 0))
        if spec is not None:
            leases.append((spec, given.get("token", "")))
    script = for_several(known.script, times) if known.several else known.script
    body = pack_words(*[word.encode() for word in (*keys, *args)])
    leaves = bool(leases) and "leave" in known.script.name
    return Step(Call(script, body), tuple(leases), ttl_ms if leases else 0, leaves)


def _check_one(
    ctx: RequestContext, known: _Known, keys: Sequence[str], args: dict[str, str]
) -> LeaseSpec | None:
    base, stem = _base_of(ctx, known, keys[0])
    _check_args(ctx, args, known)
    _check_keys(known, keys, args, base, stem)
    if args.get("run"):
        raise _refuse("runs are only available to direct clients of the server")
    if args.get("channel", "-") not in ("", "-"):
        args["channel"] = ctx.space.engine.runtime.channel() or "-"
    if "former" in args:
        # The channel before was one of this service too: a mark that is left there ends by itself.
        args["former"] = ""
    if stem in ("latch", "barrier"):
        return None
    plain = base.removeprefix(f"{check_namespace(ctx.space.namespace)}:").removeprefix(_BALLOT)
    name = _ESCAPED.sub(lambda m: bytes.fromhex(m[0].replace("%", "")).decode(errors="replace"), plain)
    if stem != "permits":
        kind = {"": "lock", "%election": "election"}.get(stem) or _side(args.get("mode", ""))
        return LeaseSpec(kind, name)
    permits_ = args.get("permits", "")
    return LeaseSpec("semaphore", name, None, int(permits_) if permits_.isdecimal() else None)


def _side(mode: str) -> str:
    return "rwlock_write" if mode == "x" else "rwlock_read"


def _base_of(ctx: RequestContext, known: _Known, key: str) -> tuple[str, str]:
    base, stem = key, known.stem
    if known.keys[0] == "observers":
        pattern = r"\{(.+)\}:" + WIRE_VERSION + ":observers"
    elif stem in ("", "%election"):
        pattern = "(.+)"
    else:
        pattern = r"\{(.+)\}:" + WIRE_VERSION + f":({stem})"
    found = re.fullmatch(pattern, key, re.DOTALL)
    if found is None:
        raise _refuse("the keys are not those of one lock")
    base = found[1]
    if found.re.groups > 1:
        stem = found[2]
    prefix = check_namespace(ctx.space.namespace) + ":"
    if stem == "%election":
        prefix += _BALLOT
    rest = base.removeprefix(prefix)
    if rest == base or not _PLAIN.fullmatch(rest) or len(rest) > 600:
        raise Problem(403, "FORBIDDEN", "the keys are not those of a lock in this namespace")
    return base, stem


def _check_keys(known: _Known, keys: Sequence[str], args: dict[str, str], base: str, stem: str) -> None:
    stemmed = stem not in ("", "%election")
    home = helper_key(base, f"{WIRE_VERSION}:{stem}") if stemmed else base
    for name, key in zip(known.keys, keys, strict=True):
        what = name
        if name.startswith("dead"):
            what = "dead:" + args["old_token" if name == "dead_old" else "token"]
        if name in ("name", "permits", "latch", "barrier"):
            expected = home
        elif stemmed:
            expected = f"{home}:{what}"
        else:
            expected = helper_key(base, what if what == "fence" else f"{WIRE_VERSION}:{what}")
        if key != expected:
            raise _refuse(f"{name} is not that key of the lock")


def _check_args(ctx: RequestContext, args: dict[str, str], known: _Known) -> None:
    for name, value in args.items():
        # What is shared was checked, and written, before.
        if name != "shared" and not (_PART if name == "part" else _WORD).fullmatch(value):
            raise _refuse(f"{name} has invalid characters")
        if name in _NUMBERS:
            number = _check_number(ctx, name, value, known)
            if name in _QUEUES:
                args[name] = str(min(number, ctx.who.limits.waiters))
    mode = args.get("mode", "0")
    if args.get("ttl_ms") == "0" or not (
        mode in ("u", "x") or (mode.isascii() and mode.isdecimal() and len(mode) < 11)
    ):
        raise _refuse("ttl_ms and mode must be those of a lease")
    # Who only asks who leads has none.
    nobody = known.script.name == "observe" and args.get("token") == "-"
    for name in _TOKENS & args.keys():
        if not is_token(args[name]) and not (nobody or (name == "beside" and not args[name])):
            raise _refuse(f"{name} is not a token of an acquisition")
    if not _OWNER.fullmatch(args.get("owner", "owner=-@shared")):
        raise _refuse("owner is invalid")


def _check_number(ctx: RequestContext, name: str, value: str, known: _Known) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) < 19):
        raise _refuse(f"{name} must be a number")
    limits = ctx.who.limits
    most = _NUMBERS[name] or (_LATCH_TTL_MS if known.stem == "latch" else int(limits.max_ttl * 1000))
    if int(value) > most:
        raise Problem(422, "TTL_LIMIT", f"{name} must be at most {most} for this client, got {value}")
    return int(value)
