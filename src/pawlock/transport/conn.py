"""A connection without a socket: the bytes of each request, and what comes of the bytes that arrive.

The one place where replies are matched to requests, for threads and for event loops. A script echoes the id of its
request, and by nothing else its reply is known: after a lost or doubled one, whoever went by the order would get what
is another's.

Error replies carry no id. They come in the order of the requests, so it is known whose they are once as many have come
as requests are under way, or as stand before the next that is answered with its id. Where the numbers differ, a reply
was lost, and none of these requests gets any: each counts as unanswered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pawlock.core.protocol.runtime import FIRST_RID, Call, Fault, FaultKind
from pawlock.transport.wire import (
    ENDS_CONNECTION,
    NOTHING,
    PushNotification,
    ReplyError,
    new_reader,
    pack,
    refusal_of,
    word_of,
)

__all__ = ["Conn", "Request"]

_SUBSCRIPTIONS = (b"subscribe", b"unsubscribe")
_KEPT_MESSAGES = 1024
"""The others are for waiters that gave up; a lost message is only a lost hint."""


class Request:
    """A request under way.

    Args:
        call: The script that runs; None for a command.
        word: By what its reply is known.

    Attributes:
        outcome: What came of it; ``NOTHING`` while it is under way. Of a script an outcome or a ``Fault``; of a command
            the reply as it is, be it an error. Who sets it gives the request up: its reply is dropped.
    """

    __slots__ = ("call", "outcome", "taught", "word")

    def __init__(self, call: Call | None, word: bytes) -> None:
        self.call: Call | None = call
        self.word: bytes = word
        self.outcome: Any = NOTHING
        # Whether it was sent again with its text.
        self.taught: bool = False


R = TypeVar("R", bound=Request)


class Conn(Generic[R]):
    """What is under way on a connection. Used by one thread or loop at a time.

    Args:
        make: Makes a request of a call and the word by which its reply is known.

    Attributes:
        pending: The requests under way, in the order in which they are sent.
        answered: Those that have an outcome of which the caller has not told anybody; it clears the list then.
        messages: The pushes that nobody asked for, for the caller to take.
        resend: What the caller is to send, behind all that it was given before: texts of scripts.
        over: Why the connection serves no more, once the server said so.
    """

    def __init__(self, make: Callable[[Call | None, bytes], R]) -> None:
        self.pending: deque[R] = deque()
        self.answered: list[R] = []
        self.messages: deque[Any] = deque(maxlen=_KEPT_MESSAGES)
        self.resend: list[bytes] = []
        self.over: Fault | None = None
        self._make = make
        self._rid: int = FIRST_RID
        # Error replies of which it is not known yet whose they are.
        self._errors: list[Any] = []
        reader = new_reader()
        self._feed = reader.feed
        self._gets = reader.gets

    def send(self, call: Call) -> tuple[R, bytes]:
        """A request, and its bytes."""
        self._rid = rid = self._rid + 1
        word = b"%d" % rid
        request = self._make(call, word)
        self.pending.append(request)
        return request, b"".join((call[0].evalsha, call[1], b"$10\r\n", word, b"\r\n"))

    def command(self, *words: bytes) -> tuple[R, bytes]:
        """The same for a command, which echoes nothing: it gets the next reply that is no script's.

        A subscription gets what confirms its channel.
        """
        subscribes = words[0].lower() in _SUBSCRIPTIONS
        request = self._make(None, words[1] if subscribes else b"")
        self.pending.append(request)
        return request, pack(*words)

    def feed(self, data: bytes) -> list[R]:
        """Take what came; returns ``answered``. Whatever it raises, ``fail`` returns all that anybody waits for."""
        self._feed(data)
        pending, answered = self.pending, self.answered
        while (reply := self._gets()) is not NOTHING:
            if type(reply) is list and pending and not self._errors and reply[1:2] == [pending[0].word]:
                # Nearly always: the same as below, in fewer steps.
                request = pending[0]
                if request.outcome is NOTHING:
                    request.outcome = reply if request.call is None else request.call.answer(reply)
                    answered.append(request)
                pending.popleft()
            elif type(reply) is PushNotification:
                self._push(reply)
            elif isinstance(reply, ReplyError):
                self._errors.append(reply)
                if len(self._errors) >= len(pending):
                    self._settle(len(pending))
            else:
                self._match(reply, word_of(reply))
        return self.answered

    def fail(self, fault: Fault) -> list[R]:
        """The connection is over, and so is what is under way; returns ``answered``."""
        while self.pending:
            self._answer(fault)
        return self.answered

    def _push(self, push: Any) -> None:
        if push[0] in _SUBSCRIPTIONS:
            self._match(push, push[1])
        else:
            self.messages.append(push)

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
                self._answer(errors[index])
            else:
                self._refuse(request, request.call, str(errors[index]))

    def _refuse(self, request: R, call: Call, text: str) -> None:
        if text.startswith("NOSCRIPT") and not request.taught and request.outcome is NOTHING:
            request.taught = True
            self._rid = rid = self._rid + 1
            request.word = b"%d" % rid
            self.resend.append(call.pack_eval(rid))
            self.pending.rotate(-1)
            return
        fault = refusal_of(text)
        if fault.kind in ENDS_CONNECTION:
            self.over = Fault(FaultKind.UNANSWERED, text, maybe_applied=True)
        self._answer(fault)

    def _answer(self, outcome: Any) -> None:
        """End the oldest request; at any time it is in one of the two lists."""
        request = self.pending[0]
        if request.outcome is NOTHING:
            request.outcome = outcome
            self.answered.append(request)
        self.pending.popleft()
