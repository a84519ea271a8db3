"""What both APIs send and read: packed requests, the handshake, wake-up messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, TypeGuard

import hiredis

from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.runtime import DEAF, FIRST_RID, Fault, FaultKind, Wakeup
from pawlock.core.protocol.scripts import pack_words
from pawlock.topology.endpoint import Endpoint

__all__ = [
    "ENDS_CONNECTION",
    "NOTHING",
    "Handshake",
    "ProtocolError",
    "PushNotification",
    "ReplyError",
    "new_reader",
    "pack",
    "read_push",
    "refusal_of",
    "word_of",
]

NOTHING = object()
"""What a reader returns when no whole reply is there yet."""

ProtocolError = hiredis.ProtocolError
PushNotification = hiredis.PushNotification
ReplyError = hiredis.ReplyError

_OLDEST = (6, 2)
_RID_DIGITS = len(str(FIRST_RID))

_ADVICE = {
    "standalone": "the server is not part of a cluster: use redis://",
    "cluster": "a node of a cluster: use redis+cluster://",
    "sentinel": "a Sentinel: use redis+sentinel://host,host,host/service",
}

ENDS_CONNECTION = frozenset({FaultKind.READ_ONLY, FaultKind.UNREACHABLE})
"""Refusals after which a connection is of no more use: another one may reach the master, or log in anew."""


def refusal_of(text: str) -> Fault:
    """What an error reply on a connection in use means.

    One that asks for a login comes when the server forgot ours (credentials that were rotated, a reset): the next
    connection logs in with the present ones, and if these are wrong it says so.
    """
    # A long command is not even read for who has not logged in.
    if text.startswith(("NOAUTH", "WRONGPASS", "ERR Protocol error: unauthenticated")):
        return Fault(FaultKind.UNREACHABLE, text)
    return classify(text)


def pack(*words: bytes) -> bytes:
    """A whole command as it is sent."""
    return b"*%d\r\n" % len(words) + pack_words(*words)


def new_reader() -> Any:
    """A parser of replies."""
    return hiredis.Reader(notEnoughData=NOTHING)


def read_push(push: Any, hears: Collection[bytes] = ()) -> tuple[str, Wakeup] | None:
    """The token and message of a hand-off, or None for another push.

    Args:
        push: What came.
        hears: Channels of other programs: what comes there says only that something happened there.
    """
    if len(push) != 3 or push[0] != b"message":
        return None
    try:
        if push[1] in hears:
            return push[1].decode(), Wakeup(0, 0)
        token, fence, expires_ms, *_ = push[2].split(b" ")
        return token.decode(), Wakeup(int(fence), int(expires_ms))
    except ValueError:
        return None


class Handshake:
    """The two commands that open a link, and what their answers say.

    Attributes:
        commands: What to send, in one write.
        checks: What to give their replies to, one by one; raises ``Fault`` if this server cannot be used.
        heard: Once all of them are checked, the channel that is heard, or ``DEAF``.

    ``HELLO 3`` (again: redis-py keeps its answer to itself) returns version and role; ``SUBSCRIBE`` opens the channel
    of hand-offs. The subscription is confirmed before the link is used, so no message can be missed.
    """

    __slots__ = ("checks", "commands", "first", "heard", "mode", "shown")

    def __init__(self, channel: str, endpoint: Endpoint, *, first: bool) -> None:
        self.shown: str = endpoint.shown
        self.mode: str = endpoint.mode
        self.first: bool = first and endpoint.fixed
        self.heard: str = channel or DEAF
        self.commands: list[tuple[bytes, ...]] = [(b"HELLO", b"3")]
        self.checks: list[Callable[[Any], None]] = [self._check_hello]
        if channel:
            self.commands.append((b"SUBSCRIBE", channel.encode()))
            self.checks.append(self._check_subscribe)

    def _check_hello(self, reply: Any) -> None:
        if isinstance(reply, ReplyError):
            fault = classify(str(reply))
            if fault.kind is not FaultKind.DENIED:
                raise fault
            return
        if not (_is_map(reply) or _is_list(reply)):
            raise Fault(FaultKind.NOT_REDIS, f"{self.shown}: it answers HELLO with {reply!r:.40}", final=True)
        facts = _facts(reply)
        version = facts.get("version", "")
        found = re.match(r"(\d+)\.(\d+)", version)
        if found and (int(found[1]), int(found[2])) < _OLDEST:
            text = f"{self.shown}: version {version}; pawlock needs Redis 6.2 or Valkey 8, or later"
            raise Fault(FaultKind.UNSUPPORTED, text, final=True)
        mode = facts.get("mode", self.mode)
        if mode != self.mode:
            raise Fault(FaultKind.UNSUPPORTED, f"{self.shown}: {_ADVICE.get(mode, mode)}", final=True)
        if facts.get("role", "master") not in ("master", "primary"):
            # At the first contact the address is wrong; later on it is a failover, which passes.
            raise Fault(FaultKind.READ_ONLY, f"{self.shown} is a replica", final=self.first)

    def _check_subscribe(self, reply: Any) -> None:
        if isinstance(reply, ReplyError):
            fault = classify(str(reply))
            if fault.kind is not FaultKind.DENIED:
                raise fault
            # This user may not listen.
            self.heard = DEAF


def word_of(reply: Any) -> bytes:
    """The request id that a script's reply echoes; ``b""`` for a reply that is not a script's."""
    if _is_list(reply) and len(reply) > 1 and type(word := reply[1]) is bytes:
        # Whatever else is a list has shorter numbers, as the reply to TIME.
        return word if len(word) == _RID_DIGITS and word.isdigit() else b""
    return b""


def _is_list(reply: Any) -> TypeGuard[list[Any]]:
    return type(reply) is list


def _is_map(reply: Any) -> TypeGuard[dict[Any, Any]]:
    return type(reply) is dict


def _facts(reply: Any) -> dict[str, str]:
    if _is_map(reply):
        return {_text(key): _text(value) for key, value in reply.items()}
    if _is_list(reply):
        return {_text(key): _text(value) for key, value in zip(reply[::2], reply[1::2], strict=False)}
    return {}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
