"""The scripts of sessions, the audit log and the histories, to the letter, on the server in memory."""

from __future__ import annotations

import pytest

from tests.unit.scripts.memory import NOW_MS, Node

RECORD, SESSIONS, ORDER, TAKEN, AUDIT = "r", "s", "o", "t", "a"
LIFE = 60_000


@pytest.fixture
def node() -> Node:
    return Node("session")


def publish(node: Node, number: int, data: str = "{}", *, who: str = "me", ttl: int = LIFE) -> list[object]:
    return node.run("publish", [f"{RECORD}:{who}", SESSIONS, ORDER, TAKEN], who, number, ttl, data)


def find(node: Node, prefix: str = "", after: str = "", limit: int = 10) -> list[object]:
    return node.run("find", [SESSIONS, ORDER], prefix, after, limit)


def test_a_record_is_written_with_both_indexes(node: Node) -> None:
    assert publish(node, 1, "one") == ["P", NOW_MS, []]
    assert node.state() == {
        "r:me": (LIFE, f"{NOW_MS} 1 one"),
        SESSIONS: (LIFE, {"me": NOW_MS + LIFE}),
        ORDER: (LIFE, {"me": 0}),
    }
    node.later(10)
    assert publish(node, 2, "two", ttl=1000)[0] == "P"
    assert node.state()["r:me"] == (1000, f"{NOW_MS + 10} 2 two")
    assert (node.state()[SESSIONS][0], node.state()[ORDER][0]) == (LIFE - 10, LIFE - 10)
    for late in (1, 2):
        assert publish(node, late, "late")[0] == "P"
        assert node.state()["r:me"][1] == f"{NOW_MS + 10} 2 two"
    assert publish(node, 3, "three", ttl=2 * LIFE)[0] == "P"
    assert (node.state()[SESSIONS][0], node.state()[ORDER][0]) == (2 * LIFE, 2 * LIFE)


def test_whoever_writes_sweeps_what_is_over(node: Node) -> None:
    publish(node, 1, who="old", ttl=100)
    publish(node, 1, who="long", ttl=LIFE)
    node.later(100)
    publish(node, 1, who="me")
    assert set(node.state()[SESSIONS][1]) == set(node.state()[ORDER][1]) == {"old", "long", "me"}
    node.later(1)
    publish(node, 2, who="me")
    assert set(node.state()[SESSIONS][1]) == set(node.state()[ORDER][1]) == {"long", "me"}


def test_sessions_are_found_in_order_and_page_by_page(node: Node) -> None:
    for who in ("b1", "a1", "a2", "b0"):
        publish(node, 1, who=who, ttl=100 if who == "a1" else LIFE)
    assert find(node) == ["L", NOW_MS, ["a1", "a2", "b0", "b1"], "b1"]
    assert find(node, "a") == ["L", NOW_MS, ["a1", "a2"], "a2"]
    assert find(node, "b", "b0") == ["L", NOW_MS, ["b1"], "b1"]
    assert find(node, "", "a1", 1) == ["L", NOW_MS, ["a2"], "a2"]
    assert find(node, "c") == ["L", NOW_MS, [], ""]
    node.later(100)
    assert find(node, "a")[2] == ["a1", "a2"]
    node.later(1)
    assert find(node, "a", limit=1) == ["L", NOW_MS + 101, [], "a1"]


def test_records_are_read_and_dropped(node: Node) -> None:
    for who in ("me", "you"):
        publish(node, 1, who, who=who)
    assert node.run("read", ["r:you", "r:none", "r:me"]) == [
        "S",
        NOW_MS,
        [f"{NOW_MS} 1 you", "", f"{NOW_MS} 1 me"],
    ]
    for _ in range(2):
        assert node.run("drop", ["r:me", SESSIONS, ORDER], "me") == ["D"]
        assert node.state() == {
            "r:you": (LIFE, f"{NOW_MS} 1 you"),
            SESSIONS: (LIFE, {"you": NOW_MS + LIFE}),
            ORDER: (LIFE, {"you": 0}),
        }


def test_what_was_taken_is_told_for_as_long_as_it_lives(node: Node) -> None:
    assert node.run("take", [TAKEN], "x", 100) == ["N", NOW_MS]
    node.later(50)
    assert node.run("take", [TAKEN], "y", 20) == ["N", NOW_MS + 50]
    assert node.state() == {TAKEN: (50, {"x": NOW_MS + 100, "y": NOW_MS + 70})}
    assert node.run("taken", [TAKEN]) == ["T", NOW_MS + 50, ["y", "x"]]
    node.later(20)
    assert publish(node, 1)[2] == ["y", "x"]
    node.later(1)
    assert publish(node, 2)[2] == ["x"]
    assert node.run("taken", [TAKEN]) == ["T", NOW_MS + 71, ["x"]]
    assert node.run("take", [TAKEN], "z", 200)[0] == "N"
    assert node.state()[TAKEN] == (200, {"x": NOW_MS + 100, "z": NOW_MS + 271})


def test_an_audit_line_is_written_once_and_the_oldest_go(node: Node) -> None:
    for number in range(4):
        line = [f"id{number}", f"line {number}"]
        assert node.run("note", [AUDIT], *line, 3, LIFE) == ["N", NOW_MS + number]
        assert node.run("note", [AUDIT], *line, 3, LIFE)[0] == "N"
        assert node.state()[AUDIT][0] == LIFE
        node.later(1)
    lines = [f"{NOW_MS + number} id{number} line {number}" for number in (3, 2, 1)]
    assert node.state() == {AUDIT: (LIFE - 1, lines)}
    assert node.run("lines", [AUDIT], 2) == ["A", NOW_MS + 4, lines[:2]]


@pytest.mark.parametrize("kind", [0, 1])
def test_a_message_ends_a_lease_or_wakes_a_waiter(node: Node, kind: int) -> None:
    assert node.run("tell", [SESSIONS], "ch", "tok", kind) == ["T"]
    assert node.mail == [("ch", f"tok 0 {kind} 0")]
