"""From a server's words to a fault, and from a fault to the error that a user sees.

The table is the protocol's own: https://redis.io/docs/latest/develop/reference/protocol-spec/ names the error
prefix as the stable part of an error reply.
"""

from __future__ import annotations

import re

from pawlock import errors
from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Fault, FaultKind
from pawlock.errors import BackendUnavailable, ClockDrift, NotSupported, PawlockError, QuorumNotReached

__all__ = ["classify", "is_transient", "or_raise", "to_error"]

_PREFIXES = {
    FaultKind.NOT_READY: ("LOADING", "MASTERDOWN", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "UNKILLABLE"),
    FaultKind.READ_ONLY: ("NOREPLICAS", "MISCONF", "READONLY"),
    FaultKind.REDIRECTED: ("MOVED", "ASK"),
    FaultKind.OUT_OF_MEMORY: ("OOM",),
    FaultKind.DENIED: ("NOPERM", "NOAUTH", "WRONGPASS", "DENIED"),
    FaultKind.WRONG_KEY: ("WRONGTYPE",),
    FaultKind.UNSUPPORTED: ("NOPROTO",),
}
_BY_PREFIX = {prefix: kind for kind, prefixes in _PREFIXES.items() for prefix in prefixes}

_TRANSIENT = frozenset(
    {FaultKind.UNREACHABLE, FaultKind.UNANSWERED, FaultKind.NOT_READY, FaultKind.READ_ONLY, FaultKind.LATE}
)

_HINTS: dict[FaultKind, tuple[type[PawlockError], str]] = {
    FaultKind.UNREACHABLE: (BackendUnavailable, "the server could not be reached"),
    FaultKind.UNANSWERED: (BackendUnavailable, "the server did not answer in time"),
    FaultKind.NOT_READY: (BackendUnavailable, "the server is not ready"),
    FaultKind.LATE: (ClockDrift, "what was granted is over already"),
    FaultKind.NOT_REDIS: (BackendUnavailable, "the server does not speak the Redis protocol"),
    FaultKind.NO_TLS: (BackendUnavailable, "no TLS connection to the server"),
    FaultKind.READ_ONLY: (errors.BackendReadOnly, "the server accepts no writes"),
    FaultKind.OUT_OF_MEMORY: (errors.BackendOutOfMemory, "the server is out of memory and refuses new locks"),
    FaultKind.DENIED: (errors.BackendDenied, "the server denied access: check the password and the ACL"),
    FaultKind.WRONG_KEY: (errors.WrongKey, "the key of this lock has a value that is not pawlock's"),
    FaultKind.SCRIPT: (errors.ScriptError, "a script failed on the server"),
    FaultKind.UNSUPPORTED: (NotSupported, "this server is not supported"),
    FaultKind.REDIRECTED: (NotSupported, "the server is a node of a cluster: use redis+cluster://"),
    FaultKind.CLOSED: (errors.ClientClosed, "the client is closed"),
}

# What a server replies to a script about a key that is elsewhere or on its way, for a cluster that is down, or with all
# its connections taken. Each version words it a little differently. Scripts meet it before they have written anything,
# so it is worth a retry.
_ON_ITS_WAY = re.compile(
    r"access a non local key|undeclared keys were accessed during rehashing|access a slot not served"
    r"|while the cluster is down|max number of clients"
)

_INNER = re.compile(r"\b(WRONGTYPE|OOM|NOPERM|READONLY|NOREPLICAS|MISCONF|PAWLOCKWIRE)\b")

_OTHER_WIRE = re.compile(r"(?<=pawlock wire version )1r\b")
"""What the record of a name says that is locked as Redisson locks it; see ``key/_redisson.lua``."""

_DENIED = re.compile(r"(?:ACL failure|The user executing the script can't|.*(?i:invalid password)).*")
_UNKNOWN = re.compile(r"(?i)unknown (?:redis )?command(?:\W+(\w+)\W+with args)?")
_AT_LINE = re.compile(r"@user_script: ?(\d+)")
_COMMAND = re.compile(rb"call\('(\w+)'")

_LINE = re.compile(r"[ ,]*\bscript: (?:[0-9a-f]{40}, )?on @user_script:\d+\.?$")
"""Where in a script the server refused a command: of no use beside the reason."""


def classify(text: str, source: bytes = b"") -> Fault:
    """The fault that an error reply stands for.

    Args:
        text: The error reply, without the leading ``-``.
        source: The script that it was the reply to.
    """
    prefix = text.split(" ", 1)[0].rstrip(":")
    kind = _BY_PREFIX.get(prefix)
    if kind is None and _ON_ITS_WAY.search(text):
        kind = FaultKind.NOT_READY
    if kind is None and (denied := _DENIED.search(text)):
        kind, text = FaultKind.DENIED, denied[0].replace("this command", _command_at(text, source))
    if kind is None and (unknown := _UNKNOWN.search(text)):
        # Not in its own words: these go on with the arguments, of an EVAL with the text of the script.
        what = unknown[1] or _command_at(text, source)
        text = f"it does not know {what} (disabled, renamed, or not passed on by a proxy)"
        kind = FaultKind.UNSUPPORTED
    if kind is None and (inner := _INNER.search(text)):
        # Redis before 7 wraps the error of an inner command: "ERR Error running script ... WRONGTYPE ...".
        kind = _BY_PREFIX.get(inner.group(1))
    text = _OTHER_WIRE.sub("1 with pawlock.Key.redisson: two wires on one name", text)
    text = text.replace("read only replica.", "read only replica. Use the address of the master")
    return Fault(FaultKind.SCRIPT, text) if kind is None else Fault(kind, _LINE.sub("", text))


def _command_at(text: str, source: bytes) -> str:
    """The command that Redis 6.2 and 7.0 name by its line in the script; the others name it themselves."""
    at = int(line[1]) if (line := _AT_LINE.search(text)) else 0
    found = _COMMAND.search(b"".join(source.splitlines()[at - 1 : at]))
    return found[1].decode() if found else "a command of the script"


def or_raise(answer: Outcome | Fault) -> Outcome:
    """The answer; a fault is raised."""
    if not isinstance(answer, Fault):
        return answer
    try:
        raise answer
    finally:
        # The error's traceback has this frame: the two, and the caller's lease, would keep each other alive.
        del answer


def is_transient(kind: FaultKind) -> bool:
    """True if waiting may help, so that the request is worth another try with the same token."""
    return kind in _TRANSIENT


def to_error(fault: Fault, name: str | None, doing: str) -> PawlockError:
    """The error that reports this fault to a user.

    Args:
        fault: What happened.
        name: The name of the lock concerned.
        doing: What was being done, as in ``"acquire"``.
    """
    # Its frames may refer to it too, in a cycle; its text is enough for the error.
    fault.with_traceback(None)
    cls, hint = _HINTS.get(fault.kind, (errors.BackendError, "the server refused"))
    what = f"{doing} {name!r}" if name is not None else doing
    if fault.outcomes is not None and cls in (BackendUnavailable, ClockDrift):
        told = ClockDrift if cls is ClockDrift else QuorumNotReached
        return told(f"{what}: {fault.text}", name=name, outcomes=fault.outcomes)
    text = f"{what}: {hint}"
    if fault.text and fault.text != hint:
        text += f": {fault.text}"
    error = cls(text, name=name)
    if fault.outcomes is not None:
        error.add_note("; ".join(f"{node}: {word}" for node, word in fault.outcomes.items()))
    return error
