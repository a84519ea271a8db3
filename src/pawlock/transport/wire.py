"""What both APIs send and read: packed requests, the handshake, wake-up messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import hiredis

from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.runtime import DEAF, FIRST_RID, Fault, FaultKind, Wakeup
from pawlock.core.protocol.scripts import pack_words
from pawlock.topology.endpoint import Endpoint
from pawlock.topology.sentinel import fields_of

__all__ = [
    "ENDS_CONNECTION",
    "NOTHING",
    "Greeting",
    "PushNotification",
    "ReplyError",
    "new_reader",
    "pack",
    "read_push",
    "refusal_in_greeting",
    "refusal_of",
    "word_of",
]

NOTHING = object()
"""What a reader returns when no whole reply is there yet."""

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


class Greeting:
    """The commands that open a connection, and what their answers say.

    The subscription is confirmed before the connection is used, so no message can be missed.

    Args:
        endpoint: Where it leads.
        login: Username and password, or a password; nothing: there is no login.
        channel: The channel on which hand-offs will be heard; "": none; None: whatever is there will do.
        first: Whether the client was never connected before.

    Attributes:
        commands: What to send, in one write.
        heard: Once all of them are answered, the channel that is heard, or ``DEAF``.
    """

    def __init__(
        self, endpoint: Endpoint, login: Sequence[str], channel: str | None, *, first: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._first = first and endpoint.fixed
        self._checks = channel is not None
        self.heard: str = channel or DEAF
        settings = endpoint.settings
        hello = ["HELLO", "3"]
        if login:
            hello += ["AUTH", *(("default",) if len(login) == 1 else ()), *login]
        if settings.get("client_name"):
            hello += ["SETNAME", settings["client_name"]]
        found = [hello]
        if settings.get("db"):
            found.append(["SELECT", str(settings["db"])])
        if channel:
            found.append(["SUBSCRIBE", channel])
        self.commands: list[tuple[bytes, ...]] = [tuple([word.encode() for word in words]) for words in found]

    def take(self, command: tuple[bytes, ...], reply: Any) -> None:
        """The reply to one of the commands. Raises ``Fault`` if this server cannot be used."""
        if isinstance(reply, Fault):
            raise reply
        if isinstance(reply, ReplyError):
            fault = refusal_in_greeting(str(reply), self._endpoint.shown)
            if command[0] != b"SUBSCRIBE" or fault.kind is not FaultKind.DENIED:
                raise fault
            # This user may not listen.
            self.heard = DEAF
        elif command[0] == b"HELLO" and self._checks:
            self._check(reply)

    def _check(self, reply: Any) -> None:
        shown, wanted = self._endpoint.shown, self._endpoint.mode
        if not isinstance(reply, (dict, list)):
            raise Fault(FaultKind.NOT_REDIS, f"{shown}: it answers HELLO with {reply!r:.40}", final=True)
        facts = fields_of(reply)
        version = facts.get("version", "")
        found = re.match(r"(\d+)\.(\d+)", version)
        if found and (int(found[1]), int(found[2])) < _OLDEST:
            text = f"{shown}: version {version}; pawlock needs Redis 6.2 or Valkey 8, or later"
            raise Fault(FaultKind.UNSUPPORTED, text, final=True)
        mode = facts.get("mode", wanted)
        if mode != wanted:
            raise Fault(FaultKind.UNSUPPORTED, f"{shown}: {_ADVICE.get(mode, mode)}", final=True)
        if facts.get("role", "master") not in ("master", "primary", "sentinel"):
            # At the first contact the address is wrong; later on it is a failover, which passes.
            raise Fault(FaultKind.READ_ONLY, f"{shown} is a replica", final=self._first)


def refusal_in_greeting(text: str, shown: str) -> Fault:
    """What an error reply means by which a server refuses a connection.

    Args:
        text: The error reply.
        shown: The address, without credentials.
    """
    if "unknown command" in text.lower() and "hello" in text.lower():
        text = "a server without HELLO: pawlock needs Redis 6.2 or Valkey 8, or later"
        return Fault(FaultKind.UNSUPPORTED, f"{shown}: {text}", final=True)
    if "DB index" in text:
        text = f"{shown}: {text}: the server has no such database"
        return Fault(FaultKind.UNSUPPORTED, text, final=True)
    kind = classify(text).kind
    return Fault(kind, f"{shown}: {text}", final=kind in (FaultKind.DENIED, FaultKind.UNSUPPORTED))


def word_of(reply: Any) -> bytes:
    """The request id that a script's reply echoes; ``b""`` for a reply that is not a script's."""
    if reply.__class__ is list and len(reply) > 1 and type(word := reply[1]) is bytes:
        # Whatever else is a list has shorter numbers, as the reply to TIME.
        return word if len(word) == _RID_DIGITS and word.isdigit() else b""
    return b""
