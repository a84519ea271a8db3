"""The mutex scripts, rule by rule: expiries that only rise, fences, hand-offs, tickets, late copies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tests.unit.scripts.model import CLOSED, take
from tests.unit.scripts.rig import DAY, Reply, Rig, token

A, B, C, D = (token(text) for text in "abcd")
HOUR = DAY // 24


# A late request shortens nothing.


def test_a_late_renewal_shortens_no_lease(rig: Rig) -> None:
    rig.acquire(A, 200)
    assert rig.renew(A, 2000)[2] == 2000
    rig.advance(10)
    kind, _, pttl, _ = rig.renew(A, 200)
    assert (kind, pttl) == ("H", 1990)
    rig.advance(1980)
    assert rig.acquire(B, mode=0)[0] == "B"
    rig.advance(11)
    assert rig.acquire(B, mode=0)[0] == "H"


def test_a_late_renewal_shortens_no_lease_on_the_servers_clock(live: Rig) -> None:
    live.acquire(A, 150)
    live.renew(A, 5000)
    live.renew(A, 150)
    live.advance(200)
    assert live.acquire(B, mode=0)[0] == "B"


def test_a_late_acquire_neither_shortens_nor_lengthens(rig: Rig) -> None:
    _, cur, _, _ = rig.acquire(A, 500)
    rig.renew(A, 2000)
    rig.advance(10)
    before = rig.raw()
    assert rig.acquire(A, 500)[:3] == ("H", cur, 1990)
    assert rig.acquire(A, 60_000)[:3] == ("H", cur, 1990)
    assert rig.raw() == before


def test_a_late_acquire_or_renewal_lowers_no_ticket(rig: Rig) -> None:
    rig.acquire(A, 5000)
    first = rig.acquire(B, ticket_ttl=900)
    rig.advance(1)
    again = rig.acquire(B, ticket_ttl=100, channel="elsewhere", block=7)
    assert again[3] == first[3]
    assert rig.renew(B, ticket_ttl=100)[3] == first[3]
    assert rig.tickets()[B].split(" ")[2:] == ["1", "ch", "-"]
    assert rig.renew(B, ticket_ttl=1000)[3] == first[3] + 101


def test_a_clock_that_moves_within_the_script_lowers_nothing(rig: Rig) -> None:
    rig.acquire(A, 1000)
    rig.acquire(B, 1000, 1000)
    before = take(rig)
    rig.drift_us = 5000
    rig.renew(A, 998)
    rig.renew(B, 1000, 998)
    after = take(rig)
    assert after.expiry == before.expiry
    assert after.queue[B].expiry == before.queue[B].expiry
    assert all(after.key_expiry[part] >= before.key_expiry[part] for part in before.key_expiry)


# What a client needs to judge a reply or a message that comes late.


def test_queued_replies_and_messages_carry_the_expiry(rig: Rig) -> None:
    rig.acquire(A)
    kind, rank, pttl, expiry, now, foreign = rig.acquire(B, ticket_ttl=400)
    assert (kind, rank, pttl, foreign) == ("Q", 0, 1000, 0)
    assert (now, expiry) == (rig.now, rig.now + 400)
    assert rig.acquire(C)[1] == 1
    rig.advance(50)
    assert rig.renew(B, ticket_ttl=400)[1:5] == (0, 950, rig.now + 400, rig.now)
    rig.advance(100)
    rig.leave(A)
    ((channel, words),) = rig.mail()
    _, cur, pttl, now = rig.renew(B, ttl=100)
    assert channel == "ch"
    assert words == [B, str(cur), str(rig.now + 300), str(rig.now)]
    assert (pttl, now) == (300, rig.now)


def test_a_message_reaches_a_subscriber(live: Rig) -> None:
    with live.redis.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe("ch:b")
        heard.get_message(timeout=1)
        live.acquire(A)
        expiry = live.acquire(B, channel="ch:b")[3]
        live.leave(A)
        message = heard.get_message(timeout=2) or heard.get_message(timeout=2)
    assert message is not None
    tok, cur, at, now = message["data"].split(" ")
    assert (tok, int(at)) == (B, expiry)
    assert int(now) <= live.now
    assert live.renew(B)[1] == int(cur)


def test_nothing_is_published_for_who_is_answered_or_named_no_channel(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(B)
    rig.acquire(C, ticket_ttl=5000, channel="")
    rig.advance(299)
    rig.renew(B, ticket_ttl=5000)
    rig.advance(702)
    assert rig.renew(B)[0] == "H"
    assert rig.leave(B) == ("R",)
    assert rig.value() == C
    assert rig.mail() == []


# Fences.


def test_blocks_never_overlap_when_the_clock_is_behind(rig: Rig) -> None:
    _, first, _, _ = rig.acquire(A, block=16)
    rig.leave(A)
    rig.now_us -= 60_000_000
    _, second, _, _ = rig.acquire(B, block=1)
    rig.acquire(C, block=5)
    rig.leave(B)
    _, third, _, _ = rig.renew(C)
    rig.leave(C)
    _, fourth, _, _ = rig.acquire(D)
    assert (second, third, fourth) == (first + 16, first + 17, first + 22)


def test_blocks_never_overlap_on_a_name_that_runs_ahead_of_the_clock(live: Rig) -> None:
    fences = []
    for number in range(4):
        tok = token(f"t{number}")
        fences.append(live.acquire(tok, block=10_000_000)[1])
        live.leave(tok)
    assert [after - before for before, after in pairwise(fences)] == [10_000_000] * 3


def test_a_fence_is_the_clock_in_microseconds(rig: Rig) -> None:
    assert rig.acquire(A)[1] == rig.now_us


def test_fences_stay_exact_at_any_size(rig: Rig) -> None:
    high = 2**53 - 100
    rig.redis.hset(rig.key("fence"), mapping={"last": high, "cur": high, "v": "1"})
    assert rig.acquire(A, block=16)[1] == high + 1
    assert rig.redis.hget(rig.key("fence"), "last") == str(high + 16)
    assert rig.inspect()[3:5] == (high + 1, high + 16)


def test_the_fence_key_outlives_its_value_by_a_day(rig: Rig) -> None:
    key = rig.key("fence")

    def expiry() -> int:
        return int(rig.raw([key])[key][1])

    def up(us: int) -> int:
        return -(-us // 1000)

    rig.acquire(A)
    rig.leave(A)
    first = expiry()
    assert first == up(rig.now_us) + DAY
    rig.advance(HOUR - 5000)
    rig.acquire(A)
    rig.leave(A)
    assert expiry() == first, "written only once an hour of it is over"
    rig.advance(6000)
    rig.acquire(A)
    rig.leave(A)
    assert expiry() == up(rig.now_us) + DAY
    assert rig.redis.hget(key, "x") == str(expiry())
    rig.acquire(B, block=2 * DAY * 1000)
    last = int(rig.redis.hget(key, "last") or 0)
    assert expiry() == up(last) + DAY


def test_without_the_fence_key_a_holder_is_told_zero(rig: Rig) -> None:
    rig.acquire(A)
    rig.redis.delete(rig.key("fence"))
    assert rig.renew(A)[:2] == ("H", 0)
    assert rig.acquire(A)[:2] == ("H", 0)
    rig.leave(A)
    assert rig.acquire(B)[1] >= rig.now_us


# Leaving, tombstones, repeated requests.


def test_a_late_acquire_after_leave_finds_a_tombstone(rig: Rig) -> None:
    for late in (lambda: rig.acquire(A), lambda: rig.acquire(A, mode=0)):
        rig.redis.flushall()
        rig.acquire(A)
        assert rig.leave(A, tomb=500) == ("R",)
        rig.advance(400)
        assert late() == ("X",)
        assert rig.value() is None
        rig.advance(101)
        assert rig.acquire(A)[0] == "H"


def test_a_tombstone_is_set_whatever_leave_finds(rig: Rig) -> None:
    assert rig.leave(A, tomb=500) == ("A", "none", 0)
    assert rig.acquire(A) == ("X",)
    rig.acquire(B)
    rig.acquire(C)
    assert rig.leave(C, tomb=500) == ("W",)
    assert rig.acquire(C) == ("X",)
    assert rig.leave(D, tomb=500) == ("A", "other", 0)
    assert rig.acquire(D) == ("X",)


def test_renew_never_creates(rig: Rig) -> None:
    assert rig.renew(A) == ("U", "none")
    assert rig.raw() == {}
    rig.acquire(A)
    rig.acquire(B)
    rig.leave(B)
    before = rig.raw()
    assert rig.renew(B) == ("U", "other")
    assert rig.raw() == before
    rig.redis.set("n", "of somebody else")
    assert rig.renew(A) == ("U", "foreign")


def test_renew_saves_a_ticket_past_its_expiry_that_was_not_dropped(rig: Rig) -> None:
    rig.acquire(A, 5000)
    rig.acquire(B, ticket_ttl=300)
    rig.acquire(C, ticket_ttl=5000)
    rig.advance(400)
    assert rig.renew(B)[:2] == ("Q", 0)
    rig.leave(A)
    assert rig.value() == B


def test_a_repeated_leave_frees_nobody_else(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(B)
    assert rig.leave(A) == ("R",)
    assert rig.leave(A) == ("A", "other", 0)
    assert rig.value() == B
    rig.redis.set("n", "of somebody else")
    assert rig.leave(A) == ("A", "foreign", 0)
    assert rig.leave(B) == ("A", "foreign", 0)
    assert rig.redis.get("n") == "of somebody else"


def test_repeated_requests_change_nothing(rig: Rig) -> None:
    requests: list[Callable[[], Reply]] = [
        lambda: rig.acquire(A),
        lambda: rig.acquire(B),
        lambda: rig.acquire(C, mode=0),
        lambda: rig.renew(A),
        lambda: rig.renew(B),
        lambda: rig.leave(B, tomb=100),
        lambda: rig.leave(D, tomb=100),
        rig.inspect,
    ]
    for number, request in enumerate(requests):
        rig.advance(1)
        first = request()
        state = rig.raw()
        again = request()
        if first[0] in "HQB":
            assert again == first, number
        assert rig.raw() == state, number


def test_a_ticket_that_lapsed_is_created_again_only_at_the_tail(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(B, ticket_ttl=5000)
    rig.acquire(C, ticket_ttl=5000)
    rig.redis.hdel(rig.key("tickets"), B)
    assert rig.acquire(B)[1] == 1
    assert rig.queue() == [C, B]


def test_closing_keeps_the_name_shut_for_a_while(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(B, ticket_ttl=2000)
    assert rig.leave(A, close=500) == ("R",)
    assert rig.value() == CLOSED
    assert rig.acquire(C, mode=0) == ("B", 500, 0, "min_hold")
    assert rig.leave(A, close=500) == ("A", "other", 0)
    assert rig.renew(B, ticket_ttl=2000)[0] == "Q"
    rig.advance(501)
    assert rig.renew(B)[0] == "H"
    assert rig.leave(C, close=500) == ("A", "other", 0)
    assert rig.value() == B


def test_leaving_a_wait_closes_nothing(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(B)
    assert rig.leave(B, close=500) == ("W",)
    assert rig.value() == A


# The queue and the pump.


def test_dead_waiters_cost_one_ticket_ttl_together(rig: Rig) -> None:
    rig.acquire(A, 100)
    for number in range(5):
        rig.acquire(token(f"dead{number}"), 1000, 300)
    rig.advance(101)
    for _ in range(2):  # the first dead one is granted for what its ticket has left
        rig.acquire(B, 1000, 300)
        rig.advance(99)
    assert rig.renew(B)[0] == "Q"
    rig.advance(4)
    assert rig.renew(B)[0] == "H"


def test_dead_waiters_cost_one_ticket_ttl_on_the_servers_clock(live: Rig) -> None:
    live.acquire(A, 5000)
    for number in range(5):
        live.acquire(token(f"dead{number}"), 5000, 250)
    live.leave(A)
    live.acquire(B, 5000, 3000)
    live.advance(270)
    assert live.renew(B)[0] == "H"


def test_a_hand_off_keeps_the_tickets_expiry(rig: Rig) -> None:
    rig.acquire(A)
    expiry = rig.acquire(B, ttl=60_000, ticket_ttl=300)[3]
    rig.advance(100)
    rig.leave(A)
    assert rig.raw(["n"])["n"][1] == expiry
    assert rig.renew(B, ttl=60_000)[2] == 60_000


PUMPS: dict[str, Callable[[Rig], Reply]] = {
    "acquire": lambda rig: rig.acquire(C),
    "try": lambda rig: rig.acquire(C, mode=0),
    "renew": lambda rig: rig.renew(B),
    "unknown renew": lambda rig: rig.renew(C),
    "leave": lambda rig: rig.leave(C),
    "withdraw": lambda rig: rig.leave(D),
}


def test_every_script_passes_a_free_name_on(rig: Rig) -> None:
    for script, run in PUMPS.items():
        rig.redis.flushall()
        rig.acquire(A, 100)
        rig.acquire(D, 1000, 50)
        rig.acquire(B, 1000, 500)
        rig.advance(101)
        run(rig)
        assert rig.value() == B, script
        assert D not in rig.queue(), script


def test_inspect_leaves_the_queue_alone(rig: Rig) -> None:
    rig.acquire(A, 100)
    rig.acquire(B)
    rig.advance(101)
    assert rig.inspect()[1] == ""
    before = rig.raw()
    rig.inspect()
    assert rig.raw() == before


def test_the_pump_works_on_the_servers_clock(live: Rig) -> None:
    live.acquire(A, 60)
    live.acquire(B, 1000, 500)
    live.advance(80)
    assert live.acquire(C, mode=0)[0] == "B"
    assert live.value() == B


def test_waiters_are_served_in_order_whatever_the_clock_does(rig: Rig) -> None:
    rig.acquire(A, 60_000)
    waiting = [token(f"w{number}") for number in range(40)]
    for tok in waiting:
        rig.acquire(tok, 60_000, 60_000)
        rig.now_us -= 1000
    assert rig.queue() == waiting
    holder = A
    for tok in waiting:
        rig.leave(holder)
        holder = tok
        assert rig.value() == tok


def test_hundreds_of_dead_tickets_are_dropped_at_once(rig: Rig) -> None:
    rig.acquire(A, 60_000)
    for number in range(40):
        rig.acquire(token(f"dead{number}"), 1000, 100)
    rig.redis.zadd(rig.key("queue"), {f"gone{number}": number for number in range(2500)})
    rig.acquire(B, 1000, 500, room=10_000)
    rig.advance(200)
    rig.leave(A)
    assert rig.value() == B
    assert rig.queue() == []
    assert rig.tickets() == {}


def test_a_full_queue_refuses(rig: Rig) -> None:
    rig.acquire(A, 60_000)
    assert rig.acquire(B, room=0) == ("F", 0)
    rig.acquire(B, room=2)
    rig.acquire(C, room=2)
    assert rig.acquire(D, room=2) == ("F", 2)
    assert rig.acquire(C, room=2)[:2] == ("Q", 1), "who waits already is not refused"
    rig.renew(B, ticket_ttl=5000)
    rig.advance(400)
    assert rig.acquire(D, room=2)[:2] == ("Q", 1), "the dead make room"
    assert rig.queue() == [B, D]


def test_a_channel_with_white_space_is_none(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(C, channel="c")
    rig.acquire(B, channel="a b")
    rig.renew(C, channel="a b")
    tickets = rig.redis.hgetall(rig.key("tickets"))
    assert tickets[B].split()[3:] == ["-", "-"]
    assert tickets[C].split()[3:] == ["c", "-"]


# Foreign values.


def test_a_foreign_value_is_said_to_be_foreign(rig: Rig) -> None:
    rig.redis.set("n", "secret")
    assert rig.acquire(A, mode=0) == ("B", -1, 1, "")
    assert rig.acquire(A)[5] == 1
    assert rig.renew(A)[5] == 1
    assert rig.leave(B) == ("A", "foreign", 0)
    assert rig.inspect()[:3] == ("I", "", -1)
    rig.redis.delete("n")
    assert rig.renew(A)[0] == "H"
    assert rig.acquire(B)[5] == 0


def test_a_secret_is_never_shown(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(B)
    assert rig.acquire(C, mode=0)[3] == "host:1/a"
    kind, holder, pttl, cur, last, now, foreign, count, waiting, waiters = rig.inspect()
    assert (kind, holder, pttl, foreign, count, waiting) == ("I", "host:1/a", 1000, 0, 1, 1)
    assert (cur, last, now) == (rig.now_us, rig.now_us, rig.now)
    assert waiters == ["host:1/b", rig.now_us, rig.now + 300]


def test_inspect_of_an_unknown_name(rig: Rig) -> None:
    assert rig.inspect() == ("I", "", -2, 0, 0, rig.now, 0, 0, 0, [])


def test_inspect_lists_as_many_as_asked(rig: Rig) -> None:
    rig.acquire(A)
    rig.redis.zadd(rig.key("queue"), {token(f"w{number}"): number for number in range(2500)})
    assert len(rig.inspect(limit=2400)[9]) == 3 * 2400
    assert len(rig.inspect(limit=9999)[9]) == 3 * 2500
    assert rig.inspect(limit=0)[8:] == (2500, [])


def test_the_keys_of_a_long_queue_outlive_its_last_ticket(rig: Rig) -> None:
    rig.acquire(A, HOUR)
    for number in range(100):
        expiry = rig.acquire(token(f"w{number}"), ticket_ttl=300)[3]
        assert expiry == rig.now + 300
        raw = rig.raw([rig.key("queue"), rig.key("tickets")])
        assert all(key_expiry >= expiry for _, key_expiry, _ in raw.values()), number
        rig.advance(290)


def test_adopting_sets_the_life_once_and_a_late_copy_lowers_nothing(rig: Rig) -> None:
    rig.acquire(A, ttl=60_000)
    adopt = lambda: rig.run("adopt", (B, A, 1000, rig.fence_ttl), dead=B)  # noqa: E731 - the same call each time
    assert adopt()[2] == 1000
    assert take(rig).expiry == rig.now + 1000
    assert rig.renew(B, ttl=5000)[2] == 5000
    assert adopt()[2] == 5000, "the late copy of an answered call"
    assert take(rig).expiry == rig.now + 5000
    rig.acquire(C)
    assert rig.run("adopt", (C, A, 1000, rig.fence_ttl), dead=C)[0] == "U", "the ticket of an adopted lease"
    assert take(rig).expiry == rig.now + 5000
    rig.run("adopt", (A, B, 9000, rig.fence_ttl), dead=A)
    assert take(rig).expiry == rig.now + 9000
