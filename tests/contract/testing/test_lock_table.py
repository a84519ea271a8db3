"""The lock table by itself: each step of a name, with a clock that the test moves and no client at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from pawlock.core.protocol import outcomes
from pawlock.core.protocol.outcomes import (
    Absent,
    Busy,
    Dead,
    Full,
    Gone,
    Granted,
    Queued,
    Released,
    Withdrawn,
)
from pawlock.core.protocol.primitive import Leaving
from pawlock.errors import NotSupported
from pawlock.testing.lock_table.clock import Moment
from pawlock.testing.lock_table.mail import Message
from pawlock.testing.lock_table.primitives import Ballot, Mutex, Semaphore, SessionRequests
from pawlock.testing.lock_table.requests import Look
from pawlock.testing.lock_table.table import Table

DAY_MS = 86_400_000

Loose: TypeAlias = Any
"""An answer, of which a test knows better what it is; or an option."""


class Bench:
    """A table, its clock and what it told."""

    def __init__(self) -> None:
        self.table = Table()
        self.ms = 1_700_000_000_000
        self.mail: list[Message] = []

    def ask(self, request: object) -> Loose:
        answer, mail = self.table.serve(request, Moment(self.ms * 1000))
        self.mail += mail
        return answer

    def told(self) -> list[Message]:
        mail, self.mail = self.mail, []
        return mail


@pytest.fixture
def bench() -> Bench:
    return Bench()


MUTEX = Mutex("lock", "n", "ns:n", DAY_MS)
BALLOT = Ballot("n", "ns:n", DAY_MS, 2)
SEMAPHORE = Semaphore("n", "ns:n", DAY_MS, 2)


def take(
    of: Mutex, token: str, *, wait: bool = True, ttl: int = 5000, ticket: int = 1000, **more: Loose
) -> Loose:
    given: dict[str, Loose] = {"block": 1, "channel": f"to-{token}", "max_waiters": 10, **more}
    return of.acquire(token, ttl, ticket, wait=wait, **given)


def leave(of: Mutex, token: str, tomb_ms: int = 0, close_ms: int = 0) -> Loose:
    return of.leave(token, tomb_ms, close_ms)


@pytest.mark.parametrize("of", [MUTEX, BALLOT, Semaphore("n", "ns:n", DAY_MS, 1)])
class TestWhatAllShare:
    """What is promised of a name with room for one, whatever it is."""

    def test_a_request_that_comes_again_changes_nothing_and_is_answered_alike(
        self, bench: Bench, of: Mutex
    ) -> None:
        first = bench.ask(take(of, "a"))
        bench.ms += 10
        again = bench.ask(take(of, "a"))
        assert again == first._replace(left_ms=first.left_ms - 10, clock=bench.ms)
        queued = bench.ask(take(of, "b"))
        assert bench.ask(take(of, "b"))[:1] == queued[:1] == (0,)
        assert isinstance(bench.ask(leave(of, "a")), Released)
        assert isinstance(bench.ask(leave(of, "a")), Absent)
        assert isinstance(bench.ask(take(of, "b")), Granted)

    def test_a_token_that_was_left_is_never_granted_again(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "a"))
        bench.ask(leave(of, "a", tomb_ms=60_000))
        assert isinstance(bench.ask(take(of, "a")), Dead)
        # Also one that never asked: its request may come behind the leave.
        bench.ask(leave(of, "b", tomb_ms=60_000))
        assert isinstance(bench.ask(take(of, "b")), Dead)
        bench.ms += 60_001
        assert isinstance(bench.ask(take(of, "b")), Granted)

    def test_a_lease_ends_with_its_life_and_the_next_is_granted(self, bench: Bench, of: Mutex) -> None:
        fence = bench.ask(take(of, "a", ttl=100)).fence
        bench.ms += 100
        assert isinstance(bench.ask(take(of, "b", wait=False)), Busy)
        bench.ms += 1
        assert bench.ask(take(of, "b")).fence > fence
        assert isinstance(bench.ask(of.renew("a", 5000, 1000, "")), Gone)

    def test_a_renewal_raises_and_never_lowers(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "a", ttl=5000))
        assert bench.ask(of.renew("a", 1000, 1000, "")).left_ms == 5000
        assert bench.ask(of.renew("a", 9000, 1000, "")).left_ms == 9000
        assert isinstance(bench.ask(of.renew("nobody", 9000, 1000, "")), Gone)
        assert isinstance(bench.ask(take(of, "b", wait=False)), Busy)

    def test_a_release_hands_on_in_order_and_tells_the_next(self, bench: Bench, of: Mutex) -> None:
        held = bench.ask(take(of, "a"))
        assert [bench.ask(take(of, token)).rank for token in "bcd"] == [0, 1, 2]
        assert isinstance(bench.ask(leave(of, "b")), Withdrawn)
        assert bench.told() == []
        assert isinstance(bench.ask(leave(of, "a")), Released)
        (message,) = bench.told()
        assert (message.channel, message.token) == ("to-c", "c")
        assert message.fence > held.fence
        # The life of its ticket, until it renews: a hand-off raises nothing.
        assert message.expiry_ms == bench.ms + 1000
        assert isinstance(bench.ask(take(of, "e", wait=False)), Busy)
        assert bench.ask(of.renew("c", 5000, 1000, "")) == Granted(message.fence, 5000, bench.ms)

    def test_a_hand_off_lives_as_its_ticket_did(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "a"))
        bench.ask(take(of, "b", ticket=1000))
        bench.ask(leave(of, "a"))
        bench.ms += 1000
        assert isinstance(bench.ask(take(of, "c", wait=False)), Busy)
        bench.ms += 1
        assert isinstance(bench.ask(take(of, "c", wait=False)), Granted)

    def test_who_asks_is_answered_and_not_told(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "a", ttl=100))
        bench.ask(take(of, "b", ticket=3000))
        bench.ms += 101
        granted = bench.ask(of.renew("b", 5000, 1000, ""))
        assert (granted.left_ms, bench.told()) == (5000, [])

    def test_a_renewed_ticket_is_no_shorter_and_is_told_where_its_owner_hears_now(
        self, bench: Bench, of: Mutex
    ) -> None:
        bench.ask(take(of, "a"))
        bench.ask(take(of, "b", ticket=3000))
        bench.ask(take(of, "c", ticket=3000))
        assert bench.ask(of.beat("b", 5000, 1000, "to-b-anew", ["c"])).expires_ms == bench.ms + 3000
        bench.ms += 2000
        bench.ask(leave(of, "a"))
        bench.ask(leave(of, "b"))
        assert [message.channel for message in bench.told()] == ["to-b-anew", "to-c"]

    def test_tickets_are_numbered_in_their_order_whatever_the_clock_does(
        self, bench: Bench, of: Mutex
    ) -> None:
        bench.ask(take(of, "a"))
        bench.ask(take(of, "b", ticket=9000))
        bench.ms -= 1000
        bench.ask(take(of, "c", ticket=9000))
        first, second = bench.ask(of.inspect(10)).waiters
        assert second.number == first.number + 1

    def test_dead_tickets_are_passed_over(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "a"))
        bench.ask(take(of, "dead", ticket=100))
        bench.ask(take(of, "dead too", ticket=100))
        bench.ask(take(of, "alive", ticket=3000))
        bench.ms += 200
        bench.ask(leave(of, "a"))
        assert [message.token for message in bench.told()] == ["alive"]
        assert isinstance(bench.ask(of.renew("dead", 5000, 1000, "")), Gone)

    def test_a_ticket_that_lapsed_is_good_until_somebody_is_served_in_its_place(
        self, bench: Bench, of: Mutex
    ) -> None:
        bench.ask(take(of, "a"))
        bench.ask(take(of, "b", ticket=100))
        bench.ms += 200
        assert bench.ask(of.renew("b", 5000, 1000, "")).rank == 0
        bench.ask(leave(of, "a"))
        assert [message.token for message in bench.told()] == ["b"]

    def test_nobody_gets_in_before_one_who_waits(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "a", ttl=100))
        bench.ask(take(of, "b", ticket=3000))
        bench.ms += 101
        assert isinstance(bench.ask(take(of, "c", wait=False)), Busy)
        assert [message.token for message in bench.told()] == ["b"]

    def test_beyond_max_waiters_one_is_refused_but_the_dead_do_not_count(
        self, bench: Bench, of: Mutex
    ) -> None:
        bench.ask(take(of, "a"))
        bench.ask(take(of, "b", ticket=100, max_waiters=1))
        assert bench.ask(take(of, "c", max_waiters=1)) == Full(1)
        bench.ms += 200
        assert isinstance(bench.ask(take(of, "c", max_waiters=1)), Queued)

    def test_who_cannot_listen_is_granted_and_not_told(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "a"))
        bench.ask(take(of, "b", channel="-"))
        bench.ask(leave(of, "a"))
        assert bench.told() == []
        assert isinstance(bench.ask(of.renew("b", 5000, 1000, "")), Granted)

    def test_several_tickets_are_renewed_together(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "a"))
        for token in "bcd":
            bench.ask(take(of, token, ticket=1000))
        bench.ms += 900
        assert bench.ask(of.beat("b", 5000, 1000, "", ["d", "gone"])).ranks == (2, -1)
        bench.ms += 200
        bench.ask(leave(of, "a"))
        bench.ask(leave(of, "b"))
        # The ticket of `c` was not renewed.
        assert [message.token for message in bench.told()] == ["b", "d"]

    def test_it_stays_closed_for_as_long_as_its_holder_says(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "a"))
        assert isinstance(bench.ask(leave(of, "a", close_ms=500)), Released)
        assert isinstance(bench.ask(take(of, "b", wait=False)), Busy)
        bench.ms += 501
        assert isinstance(bench.ask(take(of, "b", wait=False)), Granted)

    def test_fences_rise_though_the_clock_is_set_back_or_all_is_forgotten(
        self, bench: Bench, of: Mutex
    ) -> None:
        before = bench.ask(take(of, "a")).fence
        bench.ask(leave(of, "a"))
        bench.ms -= 3_600_000
        after = bench.ask(take(of, "b")).fence
        assert after == before + 1
        bench.table.forget()
        bench.ms += 3_600_001
        assert bench.ask(take(of, "c")).fence > after

    def test_nothing_is_kept_of_names_that_nobody_uses(self, bench: Bench, of: Mutex) -> None:
        for number in range(3000):
            one: Any = type(of).__new__(type(of))
            for slot in ("kind", "name", "keep_ms", "_most", "permits", "weight"):
                if hasattr(of, slot):
                    setattr(one, slot, getattr(of, slot))
            one.key = f"ns:{number}"
            bench.ask(take(one, "a"))
            bench.ask(leave(one, "a"))
            bench.ms += DAY_MS
        assert len(bench.table.seen("ns:", Moment(bench.ms * 1000))) < 1100

    def test_what_others_see_has_no_secret(self, bench: Bench, of: Mutex) -> None:
        bench.ask(take(of, "secret1@host:7/main"))
        bench.ask(take(of, "secret2@host:7/other"))
        look = bench.ask(of.inspect(10))
        assert (look.holder, look.left_ms, look.queue_length) == ("host:7/main", 5000, 1)
        assert [waiter.who for waiter in look.waiters] == ["host:7/other"]
        assert "secret" not in repr(look)
        assert bench.ask(take(of, "c", wait=False)).holder == "host:7/main"


class TestExclusive:
    """What only a name with one holder has."""

    def test_a_block_of_fences_is_never_given_out_twice(self, bench: Bench) -> None:
        first = bench.ask(take(MUTEX, "a", block=16))
        bench.ask(leave(MUTEX, "a"))
        assert bench.ask(take(MUTEX, "b")).fence == first.fence + 16

    @pytest.mark.parametrize("waits", [False, True])
    def test_swap_leaves_and_queues_in_one_step(self, bench: Bench, *, waits: bool) -> None:
        bench.ask(take(MUTEX, "a"))
        if waits:
            bench.ask(take(MUTEX, "b"))
        swap = MUTEX.swap(Leaving("a", 60_000), "c", 5000, 1000, block=1, channel="to-c", max_waiters=10)
        answer = bench.ask(swap)
        assert isinstance(answer, Queued if waits else Granted)
        assert [message.token for message in bench.told()] == (["b"] if waits else [])
        assert bench.ask(swap)[:1] == answer[:1]
        assert isinstance(bench.ask(take(MUTEX, "a")), Dead)

    def test_a_late_swap_takes_nothing(self, bench: Bench) -> None:
        bench.ask(take(MUTEX, "a"))
        bench.ask(leave(MUTEX, "c", tomb_ms=60_000))
        swap = MUTEX.swap(Leaving("a", 0), "c", 5000, 1000, block=1, channel="to-c", max_waiters=10)
        assert isinstance(bench.ask(swap), Dead)
        assert isinstance(bench.ask(take(MUTEX, "d", wait=False)), Granted)

    def test_a_lease_is_adopted_once(self, bench: Bench) -> None:
        held = bench.ask(take(MUTEX, "a", ttl=20_000))
        adopted = bench.ask(MUTEX.adopt("a", "b", 5000))
        assert adopted == Granted(held.fence, 5000, bench.ms)
        assert bench.ask(MUTEX.adopt("a", "b", 5000)) == adopted
        assert bench.ask(MUTEX.adopt("a", "c", 5000)) == Gone("other")
        assert isinstance(bench.ask(leave(MUTEX, "a")), Absent)
        assert isinstance(bench.ask(leave(MUTEX, "b")), Released)

    def test_an_operator_takes_it_from_the_holder_that_was_seen(self, bench: Bench) -> None:
        held = bench.ask(take(MUTEX, "a"))
        bench.ask(take(MUTEX, "b"))
        seen = bench.ask(MUTEX.peek())
        assert (seen.value, seen.fence, seen.held) == ("a", held.fence, True)
        forced = bench.ask(MUTEX.force("a", 60_000, "to-a"))
        granted, notice = bench.told()
        assert held.fence < forced.fence < granted.fence
        assert (granted.token, notice) == ("b", Message("to-a", "a", 0, 0))
        assert bench.ask(MUTEX.force("a", 60_000, "to-a")).holder == ""
        for _ in range(2):
            assert bench.ask(leave(MUTEX, "a", tomb_ms=60_000)) == Absent("other", forced=True)
        assert isinstance(bench.ask(MUTEX.force("z", 60_000, "")), Absent)

    def test_tickets_that_were_served_go_and_those_behind_are_named(self, bench: Bench) -> None:
        for token in ("a@h:1/x", "b@h:1/x", "c@h:1/y", "d@h:1/z", "e@h:2/x"):
            bench.ask(take(MUTEX, token))
        bench.ask(MUTEX.leave_run("a@h:1/x", 0, 0, 16, ["b@h:1/x"]))
        (message,) = bench.told()
        assert (message.token, message.behind) == ("c@h:1/y", ("d@h:1/z",))


class TestPermits:
    """What only permits have."""

    def test_as_many_as_there_are_each_with_a_fence_of_its_own(self, bench: Bench) -> None:
        first, second = bench.ask(take(SEMAPHORE, "a")), bench.ask(take(SEMAPHORE, "b"))
        assert second.fence > first.fence
        assert isinstance(bench.ask(take(SEMAPHORE, "c", wait=False)), Busy)
        bench.ask(leave(SEMAPHORE, "a"))
        assert isinstance(bench.ask(take(SEMAPHORE, "c", wait=False)), Granted)
        assert isinstance(bench.ask(take(SEMAPHORE, "d", wait=False)), Busy)

    def test_who_asks_for_much_is_not_passed_by_who_asks_for_little(self, bench: Bench) -> None:
        both = SEMAPHORE.of("semaphore", "2")
        bench.ask(take(SEMAPHORE, "a"))
        assert isinstance(bench.ask(take(both, "big")), Queued)
        assert isinstance(bench.ask(take(SEMAPHORE, "small", wait=False)), Busy)
        assert bench.told() == []
        bench.ask(leave(SEMAPHORE, "a"))
        assert [message.token for message in bench.told()] == ["big"]
        assert bench.ask(SEMAPHORE.inspect(10)).used == 2

    def test_one_release_serves_all_who_fit_then(self, bench: Bench) -> None:
        both = SEMAPHORE.of("semaphore", "2")
        bench.ask(take(both, "a"))
        for token in "bcd":
            bench.ask(take(SEMAPHORE, token))
        bench.ask(leave(both, "a"))
        first, second = bench.told()
        assert (first.token, second.token) == ("b", "c")
        assert second.fence > first.fence

    def test_another_number_is_refused_until_it_is_changed(self, bench: Bench) -> None:
        bench.ask(take(SEMAPHORE, "a"))
        three = Semaphore("n", "ns:n", DAY_MS, 3)
        assert bench.ask(take(three, "b")) == outcomes.LimitRefused("limit", 2, 2)
        assert bench.ask(take(SEMAPHORE.of("semaphore", "3"), "b")) == outcomes.LimitRefused("weight", 2, 2)
        bench.ask(take(SEMAPHORE, "b"))
        assert isinstance(bench.ask(take(SEMAPHORE, "c")), Queued)
        assert bench.ask(SEMAPHORE.limit(3)) == outcomes.LimitChanged(2)
        assert [message.token for message in bench.told()] == ["c"]
        # Who still declares the old number goes on.
        assert isinstance(bench.ask(take(SEMAPHORE, "d", wait=False)), Busy)
        assert isinstance(bench.ask(take(three, "d", wait=False)), Busy)

    def test_one_who_can_never_be_served_is_woken_to_ask(self, bench: Bench) -> None:
        both = SEMAPHORE.of("semaphore", "2")
        bench.ask(take(both, "a"))
        bench.ask(take(both, "b"))
        bench.ask(SEMAPHORE.limit(1))
        (message,) = bench.told()
        assert (message.token, message.fence) == ("b", 0)
        assert isinstance(bench.ask(both.renew("b", 5000, 1000, "")), Gone)
        assert isinstance(bench.ask(take(both, "b")), outcomes.LimitRefused)


class TestElection:
    """What only an election has."""

    def observe(self, bench: Bench, token: str, **more: Loose) -> Loose:
        given: dict[str, Loose] = {"ticket_ms": 3000, "channel": f"to-{token}", "former": "", **more}
        return bench.ask(BALLOT.observe(token, **given))

    def test_every_change_of_the_leader_wakes_the_observers(self, bench: Bench) -> None:
        assert self.observe(bench, "o") == outcomes.Leading("", -2, 0)
        fence = bench.ask(take(BALLOT, "a@h:1/x")).fence
        (message,) = bench.told()
        assert (message.channel, message.token, message.fence) == ("to-o", "o", 0)
        assert self.observe(bench, "o") == outcomes.Leading("h:1/x", 5000, fence)
        bench.ask(BALLOT.renew("a@h:1/x", 5000, 1000, ""))
        assert bench.told() == []
        bench.ask(leave(BALLOT, "a@h:1/x"))
        assert [message.token for message in bench.told()] == ["o"]

    def test_a_leader_that_died_is_seen_by_who_looks(self, bench: Bench) -> None:
        bench.ask(take(BALLOT, "a@h:1/x", ttl=100))
        bench.ms += 101
        assert self.observe(bench, "o").leader == ""

    def test_observers_are_limited_and_forgotten(self, bench: Bench) -> None:
        self.observe(bench, "o")
        self.observe(bench, "p")
        assert self.observe(bench, "q") == Full(2)
        # The same under another channel is no third one.
        assert isinstance(self.observe(bench, "o", channel="new", former="to-o"), outcomes.Leading)
        assert isinstance(self.observe(bench, "q", ticket_ms=0), outcomes.Leading)
        bench.ms += 3001
        assert isinstance(self.observe(bench, "q"), outcomes.Leading)

    def test_one_who_ends_is_woken_once_more_and_then_no_more(self, bench: Bench) -> None:
        self.observe(bench, "o")
        bench.ask(BALLOT.unobserve("o", "to-o"))
        assert [message.token for message in bench.told()] == ["o"]
        bench.ask(take(BALLOT, "a"))
        assert bench.told() == []


class TestWhatClientsPublish:
    """Sessions, the audit log, histories: read by others, and each for a while."""

    CALLS = SessionRequests("ns")

    def test_a_late_record_replaces_no_newer_one_and_all_are_listed_in_order(self, bench: Bench) -> None:
        for session, number in (("h:1/b", 2), ("h:1/a", 1), ("h:2/c", 1), ("h:1/b", 1)):
            bench.ask(self.CALLS.publish(session, number, 1000, f"data {number}"))
        assert bench.ask(self.CALLS.find("h:1/", "", 10)).ids == ["h:1/a", "h:1/b"]
        assert bench.ask(self.CALLS.find("", "h:1/a", 1))[1:] == (["h:1/b"], "h:1/b")
        texts = bench.ask(self.CALLS.read(["h:1/b", "nobody"])).texts
        assert texts == [f"{bench.ms} 2 data 2", ""]
        bench.ask(self.CALLS.drop("h:1/b"))
        assert bench.ask(self.CALLS.find("h:1/", "", 10)).ids == ["h:1/a"]
        bench.ms += 1001
        assert bench.ask(self.CALLS.find("", "", 10)) == outcomes.Listed(bench.ms, [], "")

    def test_grants_that_were_taken_are_told_for_a_while(self, bench: Bench) -> None:
        bench.ask(self.CALLS.take("tag", 1000))
        assert bench.ask(self.CALLS.taken()).tags == ["tag"]
        assert bench.ask(self.CALLS.publish("s", 1, 1000, "")).taken == ["tag"]
        bench.ms += 1001
        assert bench.ask(self.CALLS.taken()).tags == []

    def test_a_message_about_a_token_ends_it_or_makes_it_ask(self, bench: Bench) -> None:
        bench.ask(self.CALLS.tell("to-a", "a"))
        bench.ask(self.CALLS.wake("to-b", "b"))
        assert bench.told() == [Message("to-a", "a", 0, 0), Message("to-b", "b", 0, 1)]

    def test_a_line_is_written_once_and_the_newest_are_kept(self, bench: Bench) -> None:
        began = bench.ms
        for line in "aabc":
            bench.ask(self.CALLS.note(line, f"says {line}", 2, 1000))
            bench.ms += 1
        expected = [f"{began + 3} c says c", f"{began + 2} b says b"]
        assert bench.ask(self.CALLS.audit_log(10)).texts == expected
        bench.ask(self.CALLS.note("b", "something else", 2, 1000))
        assert bench.ask(self.CALLS.audit_log(10)).texts == expected
        assert bench.ask(self.CALLS.audit_log(1)).texts == expected[:1]
        bench.ms += 1001
        assert bench.ask(self.CALLS.audit_log(10)).texts == []

    def test_a_history_keeps_what_is_known_best(self, bench: Bench) -> None:
        def remember(*lines: str, limit: int = 3) -> list[str]:
            text = "".join(f"{line}\n" for line in lines)
            bench.ask(self.CALLS.remember("ns:n", limit, 1000, text))
            return [" ".join(one.split(" ")[::3]) for one in bench.ask(self.CALLS.recall("ns:n", 10)).texts]

        began = bench.ms
        assert remember("7 5 - held lock t7 me") == ["7 held me"]
        assert remember("7 9 1 released lock t7 me", "7 9 - held lock t7 me") == ["7 released me"]
        assert remember("7 9 1 expired lock t7 me", "7 9 1 released lock t7 me") == ["7 expired me"]
        assert remember("9 2 - held lock t9 you", "8 3 - held lock t8 me") == [
            "7 expired me",
            "8 held me",
            "9 held you",
        ]
        assert remember("10 1 - held lock tA me") == ["8 held me", "9 held you", "10 held me"]
        # About a grant that another client recorded, known by its tag alone.
        bench.ms += 10
        remember("0 1 0 forced lock t9 you", "0 1 0 forced lock unknown you")
        texts = bench.ask(self.CALLS.recall("ns:n", 2)).texts
        assert texts[0] == f"9 {began - 2} {bench.ms} forced lock t9 you"
        bench.ms += 1001
        assert bench.ask(self.CALLS.recall("ns:n", 10)).texts == []


class _Stranger:
    """Nothing that a lock table was asked before."""


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_Stranger, "no _Stranger"),
        (lambda: ("EVALSHA", b"body"), "no tuple"),
        (SEMAPHORE.peek, "no Peek of permits"),
        (lambda: Look(key="k", family="latch", most=1), "names of latch"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(
    bench: Bench, make: Callable[[], object], says: str
) -> None:
    with pytest.raises(NotSupported, match=says):
        bench.ask(make())
