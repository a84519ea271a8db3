"""What both APIs send and read: packed requests, the handshake, wake-up messages."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, TypeGuard

import hiredis

from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.runtime import DEAF, Call, Fault, FaultKind, Wakeup, make_call
from pawlock.core.protocol.scripts import Script, pack_words
from pawlock.topology.endpoint import Endpoint

__all__ = [
    "ENDS_CONNECTION",
    "NOTHING",
    "Handshake",
    "ProtocolError",
    "PushNotification",
    "ReplyError",
    "behind_subscribe",
    "new_reader",
    "pack",
    "read_push",
    "refusal_of",
    "rid_of",
    "word_of",
]

NOTHING = object()
"""What a reader returns when no whole reply is there yet."""

ProtocolError = hiredis.ProtocolError
PushNotification = hiredis.PushNotification
ReplyError = hiredis.ReplyError

_OLDEST = (6, 2)

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


def read_push(push: Any) -> tuple[str, Wakeup] | None:
    """The token and message of a hand-off, or None for another push."""
    if len(push) != 3 or push[0] != b"message":
        return None
    words = push[2].split(b" ")
    if len(words) < 4:
        return None
    try:
        return words[0].decode(), Wakeup(int(words[1]), int(words[2]))
    except ValueError:
        return None


class Handshake:
    """The two commands that open a link, and what their answers say.

    ``HELLO 3`` (again: redis-py keeps its answer to itself) returns version and role; ``SUBSCRIBE`` opens the channel
    of hand-offs. The subscription is confirmed before the link is used, so no message can be missed.
    """

    __slots__ = ("channel", "first", "mode", "request", "shown")

    def __init__(self, channel: str, endpoint: Endpoint, *, first: bool) -> None:
        self.channel: str = channel
        self.shown: str = endpoint.shown
        self.mode: str = endpoint.mode
        self.first: bool = first and endpoint.fixed
        self.request: bytes = pack(b"HELLO", b"3")
        if channel:
            self.request += pack(b"SUBSCRIBE", channel.encode())

    def check_hello(self, reply: Any) -> None:
        """Raise ``Fault`` if this server cannot be used."""
        if isinstance(reply, ReplyError):
            fault = classify(str(reply))
            if fault.kind is FaultKind.DENIED:
                return
            raise fault
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

    def check_subscribe(self, reply: Any) -> str:
        """The channel, or ``DEAF`` if this user may not listen."""
        if isinstance(reply, ReplyError):
            fault = classify(str(reply))
            if fault.kind is FaultKind.DENIED:
                return DEAF
            raise fault
        return self.channel


def word_of(reply: Any) -> bytes:
    """The request id that a script's reply echoes; ``b""`` for a reply that is not a script's."""
    if _is_list(reply) and len(reply) > 1 and type(reply[1]) is bytes and reply[1].isdigit():
        return reply[1]
    return b""


def rid_of(reply: Any) -> int | None:
    """The same as a number."""
    word = word_of(reply)
    return int(word) if word else None


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


_BEHIND: dict[tuple[str, str], Script] = {}
_MOST_KEPT = 1000


def behind_subscribe(call: Call, channel: str) -> Call:
    """The same call behind a ``SUBSCRIBE`` of the channel that its connection hears already, which changes nothing.

    A server writes what it owes to its clients in the reverse order of who was the first to be owed anything. Without
    that, the message that a script publishes is written after the script's own reply: who gives the name back is woken
    first, and on a machine with few CPUs takes the one that the new owner needs.
    """
    if channel in ("", DEAF):
        return call
    key = call[0].sha, channel
    script = _BEHIND.get(key)
    if script is None:
        if len(_BEHIND) >= _MOST_KEPT:
            _BEHIND.clear()
        subscribe = b"*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%b\r\n" % (len(channel), channel.encode())
        script = _BEHIND[key] = replace(call[0], evalsha=subscribe + call[0].evalsha)
    return make_call((script, call[1]))
