"""The scripts of names and permits to the letter: the short ways and the long ways, on the server in memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scripts.memory import DAY, NOW_MS, NOW_US, Node
from tests.unit.scripts.rig import KEYS, token

A, B, C, D = (token(letter) for letter in "abcd")
NAME, FENCE, QUEUE, TICKETS, HOLDS = "n", "{n}:fence", "{n}:1:queue", "{n}:1:tickets", "{n}:1:holds"


class Names(Node):
    """One name of a mutex."""

    def __init__(self) -> None:
        super().__init__("mutex")

    def call(self, script: str, tok: str, *args: object) -> list[Any]:
        parts = {"name": NAME, "fence": FENCE}
        keys = [
            parts.get(one, f"{{n}}:1:{one}" + (f":{tok}" if one == "dead" else ""))
            for one in KEYS.get(script, KEYS["acquire"])
        ]
        return self.run(script, keys, *args)

    def acquire(
        self,
        tok: str,
        *,
        ttl: int = 30_000,
        mode: int = 1,
        block: int = 16,
        channel: str = "ch",
        room: int = 100,
    ) -> list[Any]:
        return self.call("acquire", tok, tok, ttl, 3000, mode, block, channel, room, DAY)

    def leave(self, tok: str, *, tomb: int = 0) -> list[Any]:
        return self.call("leave", tok, tok, tomb, 0, DAY)

    def fence(self) -> dict[str, str]:
        fields: dict[str, str] = self.state()[FENCE][1]
        return fields


@pytest.fixture
def names() -> Names:
    return Names()


def known(names: Names) -> Names:
    """Have the name been used: its record is there, and is good for a while."""
    names.acquire(A)
    assert names.leave(A) == ["R"]
    names.later(10)
    return names


@pytest.mark.parametrize("again", [False, True], ids=["the long way", "the short way"])
def test_a_grant_reserves_its_block(names: Names, *, again: bool) -> None:
    if again:
        known(names)
    cur = NOW_US + 10_000 if again else NOW_US
    assert names.acquire(B) == ["H", cur, 30_000, cur // 1000]
    assert names.state()[NAME] == (30_000, B)
    assert (names.fence()["last"], names.fence()["cur"]) == (f"{cur + 15}", f"{cur}")
    assert names.acquire(B)[1] == cur, "a copy"


@pytest.mark.parametrize("again", [False, True], ids=["the long way", "the short way"])
def test_a_grant_is_above_a_record_that_is_ahead_of_the_clock(names: Names, *, again: bool) -> None:
    known(names)
    ahead = NOW_US + 5_000_000
    names.command("HSET", FENCE, "last", ahead)
    if not again:
        names.command("HSET", FENCE, "x", 0)
    assert names.acquire(B, block=0)[1] == ahead + 1
    assert names.fence()["last"] == f"{ahead + 1}"


def test_a_ticket_says_who_waits_for_how_long_and_where_it_hears(names: Names) -> None:
    known(names)
    names.acquire(A)
    now = NOW_MS + 10
    assert names.acquire(B, block=3) == ["Q", 0, 30_000, now + 3000, now, 0]
    assert names.acquire(C, ttl=50, block=5, channel="other") == ["Q", 1, 30_000, now + 3000, now, 0]
    assert names.acquire(D, ttl=70, channel="") == ["Q", 2, 30_000, now + 3000, now, 0]
    assert names.state()[TICKETS][1] == {
        B: f"{now + 3000} 30000 3 ch -",
        C: f"{now + 3000} 50 5 other -",
        D: f"{now + 3000} 70 16 - -",
    }
    assert list(names.state()[QUEUE][1]) == [B, C, D]
    assert names.state()[QUEUE][0] == names.state()[TICKETS][0] == 13_000


def test_who_waits_hears_whether_the_holder_is_of_another_kind(names: Names) -> None:
    known(names)
    names.command("SET", NAME, "foreign", "PX", 700)
    now = NOW_MS + 10
    assert names.acquire(B) == ["Q", 0, 700, now + 3000, now, 1]
    assert names.acquire(C) == ["Q", 1, 700, now + 3000, now, 1]
    assert names.acquire(D, channel="") == ["Q", 2, 700, now + 3000, now, 1]


@pytest.mark.parametrize("channel", ["ch", ""], ids=["the short way", "the long way"])
def test_places_follow_the_order_in_which_they_came_whatever_the_clock_does(
    names: Names, channel: str
) -> None:
    known(names)
    names.acquire(A)
    names.acquire(B)
    names.later(-5)
    assert names.acquire(C, channel=channel)[1] == 1
    assert names.acquire(D, channel=channel)[1] == 2
    numbers = names.state()[QUEUE][1]
    assert (numbers[C], numbers[D]) == (numbers[B] + 1, numbers[B] + 2)


def test_who_comes_keeps_a_record_that_is_nearly_over(names: Names) -> None:
    known(names)
    names.acquire(A)
    names.acquire(B)
    names.command("HSET", FENCE, "x", NOW_MS + 10 + DAY * 23 // 24 - 1)
    assert names.acquire(C)[0] == "Q"
    assert names.fence()["x"] == f"{NOW_MS + 11 + DAY}", "past the end of its block"


def test_a_ticket_that_is_renewed_keeps_the_queue(names: Names) -> None:
    known(names)
    names.acquire(A)
    names.acquire(B)
    names.later(2500)
    for key in (QUEUE, TICKETS):
        names.command("PEXPIREAT", key, NOW_MS + 10 + 3000)
    assert names.acquire(B)[3] == NOW_MS + 10 + 5500
    assert names.state()[QUEUE][0] == names.state()[TICKETS][0] == 13_000


def test_who_is_next_takes_a_name_that_is_free_with_what_its_ticket_has_left(names: Names) -> None:
    known(names)
    names.acquire(A)
    names.acquire(B)
    names.later(1000)
    names.command("DEL", NAME)
    assert names.acquire(B)[2:] == [2000, NOW_MS + 1010]
    assert names.state()[NAME] == (2000, B)
    assert QUEUE not in names.state()


def test_a_hand_off_is_told(names: Names) -> None:
    known(names)
    names.acquire(A)
    for tok in (B, C, D):
        names.acquire(tok, block=4)
    names.later(20)
    assert names.leave(A) == ["R"]
    now, cur = NOW_MS + 30, NOW_US + 30_000
    assert names.mail == [("ch", f"{B} {cur} {NOW_MS + 3010} {now}")]
    assert names.state()[NAME] == (2980, B)
    assert (names.fence()["last"], names.fence()["cur"]) == (f"{cur + 3}", f"{cur}")


def test_a_release_by_an_operator_is_answered_the_same_again(names: Names) -> None:
    known(names)
    names.acquire(A)
    names.acquire(B)
    first = names.call("force", A, A, 5000, DAY)
    assert first[0] == "R"
    assert first[2] == "host:1/a"
    assert names.state()[NAME][1] == B
    again = names.call("force", A, A, 5000, DAY)
    assert again == ["R", int(names.fence()["last"]), "host:1/a"]
    assert names.state()[NAME][1] == B


def test_what_ended_by_itself_is_not_said_to_be_taken_by_an_operator(names: Names) -> None:
    known(names)
    names.acquire(A)
    names.acquire(B)
    assert names.call("leave", A, A, 5000, 0, DAY) == ["R"]
    assert names.call("force", A, A, 5000, DAY) == ["A", "host:1/b", "other"]
    assert names.state()[NAME][1] == B


KEYS_OF_PERMITS = ["n", FENCE, QUEUE, TICKETS]


class Permits(Node):
    """One semaphore."""

    def __init__(self) -> None:
        super().__init__("permits")

    def acquire(
        self, tok: str, mode: str = "1", *, permits: int = 5, ttl: int = 30_000, wait: int = 0
    ) -> list[Any]:
        keys = [*KEYS_OF_PERMITS, f"{{n}}:1:dead:{tok}", HOLDS]
        return self.run("acquire", keys, tok, mode, permits, ttl, 3000, wait, "ch", 100, DAY)

    def leave(self, tok: str, mode: str = "1", *, permits: int = 5, tomb: int = 0) -> list[Any]:
        keys = [*KEYS_OF_PERMITS, f"{{n}}:1:dead:{tok}", HOLDS]
        return self.run("leave", keys, tok, mode, permits, tomb, 0, DAY)

    def inspect(self) -> list[Any]:
        return self.run("inspect", [*KEYS_OF_PERMITS, HOLDS], 5, 10)


@pytest.fixture
def permits() -> Permits:
    return Permits()


def test_who_is_refused_hears_when_the_first_is_over_and_who_that_is(permits: Permits) -> None:
    permits.acquire(A, "3", ttl=20_000)
    permits.acquire(B, "2", ttl=10_000)
    permits.later(1000)
    assert permits.acquire(C) == ["B", 9000, 0, "host:1/b"]


def test_a_limit_that_was_lowered_holds_for_the_first_who_comes(permits: Permits) -> None:
    permits.acquire(A)
    permits.leave(A)
    assert permits.run("limit", [*KEYS_OF_PERMITS, HOLDS], 2, 5, DAY)[0] == "L"
    assert permits.acquire(B, "3") == ["N", "weight", 2, 5]
    assert permits.acquire(B, "2")[0] == "H"
    assert permits.acquire(C)[0] == "B"


def test_all_that_is_known_of_permits(permits: Permits) -> None:
    permits.acquire(A, "3", ttl=20_000)
    permits.acquire(B, "2", ttl=10_000)
    assert permits.acquire(C, wait=1) == ["Q", 0, 10_000, NOW_MS + 3000, NOW_MS, 0]
    holders = ["2", "host:1/b", NOW_MS + 10_000, "3", "host:1/a", NOW_MS + 20_000]
    found = permits.inspect()
    assert found[:13] == [
        *("I", "host:1/b", 20_000, NOW_US + 1, NOW_US + 1, NOW_MS, 0, 2, 1),
        *(["host:1/c", NOW_US, NOW_MS + 3000], 5, 5, holders),
    ]
    assert found[13:] == [[NOW_US + 1, NOW_US]]
    assert permits.leave(A, "3") == ["R"]
    assert permits.inspect()[7:9] == [2, 0], "who waited is in"
    assert permits.leave(A, "3") == ["A", "held", 0]


def test_a_limit_is_kept_from_the_first_on(permits: Permits) -> None:
    assert permits.acquire(A, permits=1)[0] == "H"
    fence = permits.state()[FENCE][1]
    assert (fence["limit"], fence["declared"]) == ("1", "1")
    assert permits.acquire(B, permits=2) == ["N", "limit", 1, 1]


def test_a_probe_tells_each_section_it_may_read() -> None:
    node = Node("probe")
    node.store.info = lambda section: b"of:" + section
    told = node.run("probe", ["k"])
    assert told == ["P", "of:server\r\nof:replication\r\nof:memory\r\nof:persistence", NOW_US]


def test_the_audit_trail_is_written_on_a_server_that_is_out_of_memory() -> None:
    node = Node("namespace")
    node.run("note", ["a"], "id1", "one", 10, 60_000)
    node.store.no_memory = True
    assert node.run("note", ["a"], "id2", "two", 10, 60_000)[0] == "N"
    assert node.state()["a"] == (60_000, [f"{NOW_MS} id2 two", f"{NOW_MS} id1 one"])


def test_a_renewal_leaves_the_others_their_time_though_it_is_all_that_is_known(permits: Permits) -> None:
    permits.acquire(A, ttl=60_000)
    permits.acquire(B, ttl=10_000)
    permits.command("DEL", HOLDS)
    assert permits.run("renew", [*KEYS_OF_PERMITS, HOLDS], B, "1", 5, 10_000, 3000, "", DAY)[0] == "H"
    assert permits.state()["n"][0] >= 60_000


def test_places_at_a_barrier_follow_the_order_of_arrival_whoever_asked_again() -> None:
    node = Node("barrier")

    def arrive(tok: str) -> list[Any]:
        return node.run(
            "arrive", ["b", "b:w", "b:p", "b:t", "b:dead"], tok, 0, 3, 3000, 60_000, f"ch{tok[0]}"
        )

    assert arrive(A)[:2] == ["W", 1]
    assert arrive(B)[:2] == ["W", 2]
    assert arrive(B)[:2] == ["W", 2], "a copy"
    assert arrive(C)[:2] == ["P", 0]
    assert [arrive(tok)[1] for tok in (A, B, C)] == [2, 1, 0]
    assert [channel for channel, _ in node.mail] == ["chb", "cha"]
