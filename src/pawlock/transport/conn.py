"""A connection without a socket: the bytes of each request, and what comes of the bytes that arrive.

The one place where replies are matched to requests, for threads and for event loops. A script echoes the id of its
request, and replies are matched by that id alone: after a lost or doubled reply, matching by order would hand out what
is another's.

Error replies carry no id. They come in the order of the requests, so it is known whose they are once as many have come
as requests are under way, or as stand before the next that is answered with its id. Where the numbers differ, a reply
was lost, and none of these requests gets any: each counts as unanswered. A command that is the oldest takes the next
error. So does ``ASKING``, which is sent with a script and has a request of its own: refused, it refuses that script.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import hiredis

from pawlock.core.faults import classify
from pawlock.core.outcomes import Unexpected
from pawlock.core.runtime import FIRST_RID, UNREADABLE, Call, Fault, FaultKind, Wakeup
from pawlock.core.scripts import pack_words

__all__ = ["ENDS_CONNECTION", "NOTHING", "Conn", "ReplyError", "Request", "Words", "read_push", "refusal_of"]

NOTHING = object()
"""What there is while no whole reply came."""

ReplyError = hiredis.ReplyError

Words: TypeAlias = tuple[bytes, ...]
"""A command and its arguments."""

_RID_DIGITS = len(str(FIRST_RID))
_SUBSCRIPTIONS = (b"SUBSCRIBE", b"UNSUBSCRIBE")
_KEPT_MESSAGES = 1024
"""The others are for waiters that gave up; a lost message is only a lost hint."""

ENDS_CONNECTION = frozenset({FaultKind.READ_ONLY, FaultKind.UNREACHABLE})
"""Refusals after which a connection is of no more use: another one may reach the master, or log in anew."""


class Request:
    """A request under way.

    Attributes:
        call: The script that runs; None for a command.
        word: By what its reply is known.
        outcome: What came of it; ``NOTHING`` while it is under way. Of a script an outcome or a ``Fault``; of a command
            the reply as it is, be it an error.
        taught: Whether it was sent again with its text.
        then: The script that is refused with it.
    """

    call: Call | None = None
    word: bytes = b""
    outcome: Any = NOTHING
    taught: bool = False
    then: Request | None = None

    def answer(self, outcome: Any) -> None:
        """Note what came of it first."""
        if self.outcome is NOTHING:
            self.outcome = outcome


R = TypeVar("R", bound=Request)


class Conn(Generic[R]):
    """What is under way on a connection. Used by one thread or loop at a time.

    Args:
        make: Makes the request of an ``ASKING``, which nobody waits for.

    Attributes:
        pending: The requests under way, in the order in which they are sent.
        messages: The pushes that nobody asked for, for the caller to take.
        resend: What the caller is to send, behind all that it was given before: texts of scripts.
        over: Why the connection serves no more, once the server said so.
    """

    def __init__(self, make: Callable[[], R]) -> None:
        self._make = make
        self.pending: deque[R] = deque()
        self.messages: deque[Any] = deque(maxlen=_KEPT_MESSAGES)
        self.resend: list[bytes] = []
        self.over: Fault | None = None
        self._rid: int = FIRST_RID
        # Error replies of which it is not known yet whose they are.
        self._errors: list[Any] = []
        reader: Any = hiredis.Reader(notEnoughData=NOTHING)
        self._feed = reader.feed
        self._gets = reader.gets

    def send(self, call: Call, request: R) -> bytes:
        """The bytes of a request, which is under way from now on."""
        self._rid = rid = self._rid + 1
        request.call = call
        request.word = word = b"%d" % rid
        self.pending.append(request)
        return b"".join((call[0].evalsha, call[1], b"$10\r\n", word, b"\r\n"))

    def put(self, what: Sequence[Call | Words], requests: Sequence[R]) -> bytes:
        """The same for several scripts and commands. A command echoes nothing: it gets the next reply of no script.

        A subscription gets what confirms its channel.
        """
        data: list[bytes] = []
        for one, request in zip(what, requests, strict=True):
            if isinstance(one, Call):
                if one.script.before:
                    asking = self._make()
                    asking.then = request
                    self.pending.append(asking)
                data.append(self.send(one, request))
                continue
            if one[0] in _SUBSCRIPTIONS:
                request.word = one[1]
            self.pending.append(request)
            data.append(b"*%d\r\n" % len(one) + pack_words(*one))
        return b"".join(data)

    def feed(self, data: bytes) -> None:
        """Take what came, and answer the requests whose replies it has."""
        self._feed(data)
        pending = self.pending
        while (reply := self._gets()) is not NOTHING:
            if pending and not self._errors and reply.__class__ is list and reply[1:2] == [pending[0].word]:
                # Nearly always: the same as below, in fewer steps.
                request = pending[0]
                if (call := request.call) is not None:
                    try:
                        reply = call[0].read[reply[0]](reply[2:])
                    except UNREADABLE:
                        reply = Unexpected(reply)
                request.answer(reply)
                pending.popleft()
            elif reply.__class__ is hiredis.PushNotification:
                if reply[0].upper() in _SUBSCRIPTIONS:
                    self._match(reply, reply[1])
                else:
                    self.messages.append(reply)
            elif isinstance(reply, ReplyError):
                self._errors.append(reply)
                # The oldest alone, where that is a command.
                count = 1 if pending and pending[0].call is None else len(pending)
                if len(self._errors) >= count:
                    self._settle(count)
            else:
                self._match(reply, _word_of(reply))

    def fail(self, fault: Fault) -> None:
        """The connection is over, and so is what is under way."""
        while self.pending:
            self._answer(fault)

    def _match(self, reply: Any, word: bytes) -> None:
        """Give a reply to the first request that has its word. Without one it came twice, or was given up."""
        for index, request in enumerate(self.pending):
            if request.word == word:
                self._settle(index)
                self._answer(reply if request.call is None else request.call.answer(reply))
                return

    def _settle(self, count: int) -> None:
        """The first so many requests were answered with errors, or one of their replies was lost."""
        errors, self._errors = self._errors, []
        for index in range(count):
            request = self.pending[0]
            if len(errors) != count:
                self._answer(Fault(FaultKind.UNANSWERED, "the reply was lost", maybe_applied=True))
            elif request.call is None:
                if request.then is not None:
                    request.then.answer(refusal_of(str(errors[index])))
                self._answer(errors[index])
            else:
                self._refuse(request, request.call, str(errors[index]))

    def _refuse(self, request: R, call: Call, text: str) -> None:
        if text.startswith("NOSCRIPT") and not request.taught:
            request.taught = True
            self._rid = rid = self._rid + 1
            request.word = b"%d" % rid
            self.resend.append(call.pack_eval(rid))
            self.pending.rotate(-1)
            return
        fault = refusal_of(text, call.script.source)
        if fault.kind in ENDS_CONNECTION:
            self.over = Fault(FaultKind.UNANSWERED, text, maybe_applied=True)
        self._answer(fault)

    def _answer(self, outcome: Any) -> None:
        """End the oldest request. It stays pending until it has its outcome."""
        self.pending[0].answer(outcome)
        self.pending.popleft()


def refusal_of(text: str, source: bytes = b"") -> Fault:
    """What an error reply on a connection in use means; ``source`` is the script that it is the reply to.

    One that asks for a login comes when the server forgot ours (credentials that were rotated, a reset): the next
    connection logs in with the present ones, and if these are wrong it says so.
    """
    # A long command is not even read for who has not logged in.
    if text.startswith(("NOAUTH", "WRONGPASS", "ERR Protocol error: unauthenticated")):
        return Fault(FaultKind.UNREACHABLE, text)
    return classify(text, source)


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


def _word_of(reply: Any) -> bytes:
    """The request id that a script's reply echoes; ``b""`` for a reply that is not a script's."""
    if reply.__class__ is list and len(reply) > 1 and type(word := reply[1]) is bytes:
        # Whatever else is a list has shorter numbers, as the reply to TIME.
        return word if len(word) == _RID_DIGITS and word.isdigit() else b""
    return b""
