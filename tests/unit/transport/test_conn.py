"""The matching of replies to requests, without a socket: whatever is lost, doubled or cut anywhere."""

from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pawlock.core.runtime import Call, Fault, FaultKind
from pawlock.core.scripts import Script
from pawlock.transport.conn import NOTHING, Conn, ReplyError, Request, Words
from pawlock.transport.routing import Asking

LOST = "the reply was lost"
PUSH = b">3\r\n+message\r\n+channel\r\n+token 5 6 7\r\n"


def call(number: int = 0) -> Call:
    """A call whose outcome is what its reply carries beside the id."""
    read: Any = {b"H": itemgetter(0)}
    return Call(Script(f"s{number}", b"", 0, 0, read), b"%d;" % number)


def reply(request: Request, value: int = 7) -> bytes:
    return b"*3\r\n+H\r\n$10\r\n%b\r\n:%d\r\n" % (request.word, value)


def error(text: str) -> bytes:
    return b"-%b\r\n" % text.encode()


class Asked(Request):
    """A request that is in a list once it is answered, unless it was given up."""

    def __init__(self) -> None:
        self.answered: list[Request] = []

    def answer(self, outcome: Any) -> None:
        """See ``Request``."""
        if self.outcome is NOTHING:
            super().answer(outcome)
            self.answered.append(self)


class Line(Conn[Asked]):
    """A connection of which is known what was answered."""

    def __init__(self) -> None:
        super().__init__(Asked)
        self.answered: list[Request] = []

    def sent(self, what: Call | Words) -> tuple[Asked, bytes]:
        """A request, and its bytes."""
        request = Asked()
        request.answered = self.answered
        return request, self.put([what], [request])


def started(count: int) -> tuple[Line, list[Asked]]:
    conn = Line()
    return conn, [conn.sent(call(number))[0] for number in range(count)]


def feed(conn: Line, data: bytes) -> list[Request]:
    """What is answered by some bytes."""
    conn.answered.clear()
    conn.feed(data)
    return list(conn.answered)


def failed(conn: Line, fault: Fault) -> list[Request]:
    """What is answered since it breaks."""
    conn.answered.clear()
    conn.fail(fault)
    return list(conn.answered)


def told(request: Request) -> Any:
    """Its outcome; of a fault, whether it says that the reply was lost, else its text."""
    found = request.outcome
    if not isinstance(found, Fault):
        return found
    assert (found.kind is FaultKind.UNANSWERED) == found.maybe_applied, (
        "only who was not answered is in doubt"
    )
    return LOST if found.maybe_applied else found.text


def fed(count: int, *parts: Any) -> list[Any]:
    """What becomes of so many requests; of the parts, numbers stand for a reply to that request, texts for errors."""
    conn, requests = started(count)
    feed(conn, b"".join([_bytes(requests, part) for part in parts]))
    return [told(request) for request in requests]


def _bytes(requests: list[Asked], part: Any) -> bytes:
    if isinstance(part, int):
        return reply(requests[part], part)
    return error(part) if isinstance(part, str) else part


def test_a_request_is_sent_by_its_digest_and_its_id() -> None:
    conn = Line()
    request, data = conn.sent(call(3))
    assert data == call(3).script.evalsha + b"3;$10\r\n" + request.word + b"\r\n"
    assert conn.sent(call(3))[0].word != request.word
    assert request.outcome is NOTHING


def test_replies_and_pushes_may_be_cut_anywhere() -> None:
    conn, requests = started(3)
    data = reply(requests[0], 1) + PUSH + error("WRONGTYPE 2") + reply(requests[2], 3) + PUSH
    for at in range(len(data) + 1):
        conn, requests = started(3)
        answered = [*feed(conn, data[:at]), *feed(conn, data[at:])]
        assert answered == requests
        assert [told(request) for request in requests] == [1, "WRONGTYPE 2", 3]
        assert [push[2] for push in conn.messages] == [b"token 5 6 7"] * 2
        assert not conn.pending


def test_a_reply_that_comes_byte_by_byte() -> None:
    conn, (request,) = started(1)
    data = reply(request)
    assert all(feed(conn, data[at : at + 1]) == [] for at in range(len(data) - 1))
    assert feed(conn, data[-1:]) == [request]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("OOM a", 1, 2), ["OOM a", 1, 2]),
        ((0, "OOM b", 2), [0, "OOM b", 2]),
        ((0, 1, "OOM c"), [0, 1, "OOM c"]),
        (("OOM a", "OOM b", 2), ["OOM a", "OOM b", 2]),
        ((0, "OOM b", "OOM c"), [0, "OOM b", "OOM c"]),
        (("OOM a", "OOM b", "OOM c"), ["OOM a", "OOM b", "OOM c"]),
        (("OOM a", 1, "OOM c"), ["OOM a", 1, "OOM c"]),
        ((PUSH, "OOM a", PUSH, 1, "OOM c", PUSH), ["OOM a", 1, "OOM c"]),
        # The first, the second, or both replies before the one with an id were lost.
        (("OOM ?", 2), [LOST, LOST, 2]),
        ((2,), [LOST, LOST, 2]),
        ((1,), [LOST, 1, NOTHING]),
        # Not yet: one more may come.
        (("OOM ?", "OOM ?"), [NOTHING] * 3),
        ((0, "OOM ?"), [0, NOTHING, NOTHING]),
        # One too many, which may be anybody's.
        (("OOM ?", 0, "OOM b", 2), [0, "OOM b", 2]),
        (("OOM ?", "OOM ?", 1, 2), [LOST, 1, 2]),
    ],
)
def test_errors_without_an_id(parts: tuple[Any, ...], expected: list[Any]) -> None:
    assert fed(3, *parts) == expected


def test_an_error_that_is_left_over_is_nobodys() -> None:
    conn, (request,) = started(1)
    feed(conn, reply(request) + error("OOM late"))
    after, _ = conn.sent(call())
    assert feed(conn, reply(after)) == [after]
    assert told(after) == 7


def test_doubled_replies_count_once() -> None:
    assert fed(3, 0, 0, 1, 0, 1, 2, 2) == [0, 1, 2]


def test_a_reply_of_nobody_ends_nothing() -> None:
    conn, (request,) = started(1)
    stray = (
        b"*3\r\n+H\r\n$10\r\n0000000001\r\n:1\r\n",
        b"*1\r\n+H\r\n",
        b"*3\r\n+H\r\n*0\r\n:1\r\n",
        b"+OK\r\n",
        b"_\r\n",
    )
    assert feed(conn, b"".join(stray)) == []
    assert feed(conn, reply(request)) == [request]


def test_a_script_that_is_unknown_is_sent_by_its_text_behind_the_others() -> None:
    conn, requests = started(3)
    first, second, third = requests
    old = second.word
    assert feed(conn, reply(first) + error("NOSCRIPT No matching script.") + reply(third)) == [first, third]
    assert conn.resend == [call(1).script.eval + b"1;$10\r\n" + second.word + b"\r\n"]
    assert second.word != old
    fourth, _ = conn.sent(call(4))
    assert list(conn.pending) == [second, fourth]
    assert feed(conn, reply(second, 1) + reply(fourth, 4)) == [second, fourth]
    assert [told(request) for request in (*requests, fourth)] == [7, 1, 7, 4]


def test_all_are_unknown() -> None:
    conn, requests = started(3)
    assert feed(conn, error("NOSCRIPT x") * 3) == []
    assert len(conn.resend) == 3
    assert list(conn.pending) == requests
    assert feed(conn, b"".join([reply(request) for request in requests])) == requests


def test_a_text_that_is_refused_is_not_sent_again() -> None:
    conn, (request,) = started(1)
    feed(conn, error("NOSCRIPT x"))
    assert feed(conn, error("NOSCRIPT y")) == [request]
    assert len(conn.resend) == 1
    assert request.outcome.kind is FaultKind.SCRIPT


def test_it_is_not_known_who_asked_for_an_unknown_script() -> None:
    conn, requests = started(3)
    feed(conn, error("NOSCRIPT x") + reply(requests[2]))
    assert [told(request) for request in requests] == [LOST, LOST, 7]
    assert not conn.resend


def test_a_late_reply_of_a_request_that_was_given_up_is_dropped() -> None:
    conn, (first, second) = started(2)
    first.outcome = given_up = Fault(FaultKind.UNANSWERED, "no answer", maybe_applied=True)
    assert feed(conn, reply(first)) == []
    assert first.outcome is given_up
    assert feed(conn, reply(second)) == [second]


def test_a_late_error_of_a_request_that_was_given_up_is_not_anothers() -> None:
    conn, (first, second) = started(2)
    first.outcome = Fault(FaultKind.UNANSWERED, "no answer", maybe_applied=True)
    assert feed(conn, error("OOM a") + error("OOM b")) == [second]
    assert told(second) == "OOM b"


def test_a_refusal_after_which_the_connection_serves_nobody() -> None:
    conn, (first, second) = started(2)
    assert feed(conn, error("READONLY x") + reply(second)) == [first, second]
    assert conn.over is not None
    assert conn.over.maybe_applied
    assert told(first) == "READONLY x"
    assert told(second) == 7


def test_the_connection_breaks() -> None:
    conn, (first, second, third) = started(3)
    feed(conn, reply(first))
    third.outcome = given_up = Fault(FaultKind.UNANSWERED, "no answer", maybe_applied=True)
    broke = Fault(FaultKind.UNANSWERED, "the connection broke", maybe_applied=True)
    assert failed(conn, broke) == [second]
    assert [request.outcome for request in (first, second, third)] == [7, broke, given_up]
    assert not conn.pending
    assert failed(conn, broke) == []


def test_whatever_raises_nobody_is_left_without_an_outcome() -> None:
    conn, requests = started(3)
    with pytest.raises(Exception, match="Protocol error"):
        feed(conn, reply(requests[0]) + b"nonsense\r\n")
    broke = Fault(FaultKind.NOT_REDIS, "the stream broke", maybe_applied=True)
    assert failed(conn, broke) == requests[1:]
    assert [request.outcome for request in requests] == [7, broke, broke]


# Commands ------------------------------------------------------------------------------------------------------------


def test_a_command_has_the_next_reply_that_is_no_scripts() -> None:
    conn = Line()
    hello, data = conn.sent((b"HELLO", b"3"))
    assert data == b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"
    script, _ = conn.sent(call())
    info, _ = conn.sent((b"INFO",))
    assert feed(conn, b"%1\r\n+role\r\n+master\r\n" + reply(script) + b"+all\r\n") == [hello, script, info]
    assert hello.outcome == {b"role": b"master"}
    assert info.outcome == b"all"


def test_the_reply_of_a_command_may_look_like_a_scripts() -> None:
    conn = Line()
    clock, _ = conn.sent((b"TIME",))
    assert feed(conn, b"*2\r\n$10\r\n1795825889\r\n$6\r\n839151\r\n") == [clock]
    assert clock.outcome == [b"1795825889", b"839151"]


def test_a_command_may_be_answered_with_nothing() -> None:
    conn = Line()
    pop, _ = conn.sent((b"LPOP", b"x"))
    assert feed(conn, b"_\r\n") == [pop]
    assert pop.outcome is None


def test_the_error_of_a_command_is_its_reply() -> None:
    conn, (script,) = started(1)
    hello, _ = conn.sent((b"HELLO", b"3"))
    assert feed(conn, reply(script) + error("NOPERM x")) == [script, hello]
    assert isinstance(hello.outcome, ReplyError)


def test_the_oldest_command_has_the_next_error() -> None:
    conn = Line()
    hello, _ = conn.sent((b"HELLO", b"3"))
    database, _ = conn.sent((b"SELECT", b"9"))
    channel, _ = conn.sent((b"SUBSCRIBE", b"c"))
    assert feed(conn, error("NOAUTH x")) == [hello]
    assert feed(conn, b"+OK\r\n" + error("NOPERM x")) == [database, channel]
    assert database.outcome == b"OK"
    assert isinstance(channel.outcome, ReplyError)


def test_a_subscription_is_confirmed_for_its_channel() -> None:
    conn = Line()
    old, _ = conn.sent((b"UNSUBSCRIBE", b"old"))
    new, _ = conn.sent((b"SUBSCRIBE", b"new"))
    script, _ = conn.sent(call())
    assert feed(conn, b">3\r\n+unsubscribe\r\n+old\r\n:1\r\n>3\r\n+subscribe\r\n+other\r\n:1\r\n") == [old]
    assert feed(conn, PUSH + b">3\r\n+subscribe\r\n+new\r\n:1\r\n" + reply(script)) == [new, script]
    assert len(conn.messages) == 1


def test_the_answer_to_asking_is_nobody_elses() -> None:
    conn = Line()
    info, _ = conn.sent((b"INFO",))
    asked, data = conn.sent(Asking.of(call(1)))
    other, _ = conn.sent((b"INFO",))
    script, _ = conn.sent(call(2))
    assert data == b"*1\r\n$6\r\nASKING\r\n" + call(1).script.eval + b"1;$10\r\n" + asked.word + b"\r\n"
    replies = b"+one\r\n" + b"+OK\r\n" + reply(asked, 1) + b"+two\r\n" + reply(script, 2)
    assert feed(conn, replies) == [info, asked, other, script]
    assert [told(request) for request in (info, asked, other, script)] == [b"one", 1, b"two", 2]
    assert not conn.pending


def test_errors_around_asking() -> None:
    conn, (first,) = started(1)
    asked, _ = conn.sent(Asking.of(call(1)))
    last, _ = conn.sent(call(2))
    assert feed(conn, error("OOM a") + b"+OK\r\n" + error("OOM b") + reply(last)) == [first, asked, last]
    assert [told(request) for request in (first, asked, last)] == ["OOM a", "OOM b", 7]


def test_who_may_not_ask_is_told_so_and_not_that_the_slot_is_elsewhere() -> None:
    conn = Line()
    asked, _ = conn.sent(Asking.of(call()))
    other, _ = conn.sent(call(1))
    assert feed(conn, error("NOPERM asking") + error("MOVED 1 b:1") + reply(other)) == [asked, other]
    assert asked.outcome.kind is FaultKind.DENIED
    assert other.outcome == 7
    assert not conn.pending


# Against a model ------------------------------------------------------------------------------------------------------

REPLIES, ERRORS, UNKNOWN = ("reply", "OOM", "NOSCRIPT")
Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3)),
        st.tuples(st.sampled_from([REPLIES, ERRORS, UNKNOWN, "lose", "push", "give up"]), st.integers(0, 3)),
    ),
    max_size=30,
)


class Model:
    """A server that answers in order, and a line that loses replies; requests are numbered."""

    def __init__(self, cut: int) -> None:
        self.conn = Line()
        self.requests: list[Asked] = []
        self.queue: deque[tuple[Asked, bytes]] = deque()
        self.truth: dict[Request, Any] = {}
        self.lost: set[Request] = set()
        self.given_up: set[Request] = set()
        self.data = b""
        self.cut = cut

    def run(self, step: str, number: int) -> None:
        if step == "send":
            for _ in range(number):
                request, _ = self.conn.sent(call())
                self.requests.append(request)
                self.queue.append((request, request.word))
        elif step == "push":
            self.data += PUSH
        elif step == "give up":
            self.deliver()
            for request in list(self.conn.pending)[:number]:
                request.outcome = Fault(FaultKind.UNANSWERED, "given up", maybe_applied=True)
                self.given_up.add(request)
        elif self.queue:
            self.answer(step)

    def answer(self, how: str) -> None:
        request, word = self.queue.popleft()
        number = self.requests.index(request)
        self.truth[request] = number if how in (REPLIES, "lose") else f"{how} {number}"
        if how == "lose":
            self.lost.add(request)
        elif how == REPLIES:
            self.data += b"*3\r\n+H\r\n$10\r\n%b\r\n:%d\r\n" % (word, number)
        else:
            self.data += error(f"{how} {number}")

    def deliver(self) -> None:
        data, self.data = self.data, b""
        for part in (data[: self.cut], data[self.cut :]):
            before = list(self.conn.pending)
            feed(self.conn, part)
            for sent in self.conn.resend:
                (request,) = [one for one in before if one.word in sent]
                self.queue.append((request, request.word))
            self.conn.resend.clear()

    def finish(self) -> None:
        """Answer what is left."""
        self.deliver()
        while self.queue:
            self.answer(REPLIES)
            self.deliver()

    def check(self) -> None:
        """Nobody has what is another's."""
        for request in self.requests:
            if request.outcome is not NOTHING and (found := told(request)) != LOST:
                assert found == self.truth[request]
                assert request not in self.lost


@given(STEPS, st.integers(0, 400))
def test_nobody_gets_what_is_anothers(steps: list[Step], cut: int) -> None:
    model = Model(cut)
    for step in steps:
        model.run(*step)
    model.deliver()
    model.check()
    model.finish()
    model.check()
    after, _ = model.conn.sent(call())
    feed(model.conn, reply(after))
    assert after.outcome == 7
    assert not model.conn.pending, "a reply with an id ends all before it"
    if not model.lost:
        answered = [one for one in model.requests if one not in model.given_up]
        assert [told(one) for one in answered] == [model.truth[one] for one in answered]
