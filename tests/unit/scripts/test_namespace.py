"""The scripts about a namespace as a whole, to the letter, on the server in memory."""

from __future__ import annotations

import pytest

from pawlock.core.options import LockOptions
from pawlock.primitives.found import Finder
from tests.support.refusal import case
from tests.unit.scripts.memory import NOW_MS, Node

WAITS, AUDIT = "w", "a"
LIFE = 60_000


@pytest.fixture
def node() -> Node:
    return Node("namespace")


def write(node: Node, client: str, record: str, *wakes: str) -> list[object]:
    return node.run("waits", [WAITS], client, record, LIFE, *(wakes or ("", "")))


def test_each_client_has_one_record_of_a_process(node: Node) -> None:
    assert write(node, "me", "one") == ["N", NOW_MS]
    assert node.state() == {WAITS: (LIFE, {"me": f"{NOW_MS} one"})}
    node.later(10)
    write(node, "you", "other")
    write(node, "me", "two")
    assert node.state()[WAITS] == (LIFE, {"me": f"{NOW_MS + 10} two", "you": f"{NOW_MS + 10} other"})
    found = node.run("waiting", [WAITS], LIFE)
    assert found[:2] == ["A", NOW_MS + 10]
    assert sorted(found[2]) == ["me", "other", "two", "you"]
    for _ in range(2):
        assert write(node, "me", "") == ["N", NOW_MS + 10]
    assert node.state()[WAITS][1] == {"you": f"{NOW_MS + 10} other"}


def test_a_record_that_nobody_renews_counts_no_more_and_goes(node: Node) -> None:
    write(node, "old", "x")
    node.later(LIFE)
    write(node, "me", "y")
    assert sorted(node.run("waiting", [WAITS], LIFE)[2]) == ["me", "old", "x", "y"]
    node.later(1)
    assert node.run("waiting", [WAITS], LIFE)[2] == ["me", "y"]
    write(node, "me", "z")
    assert set(node.state()[WAITS][1]) == {"me"}


def test_a_waiter_is_woken_by_a_message_that_grants_nothing(node: Node) -> None:
    write(node, "me", "x", "ch", "tok")
    assert node.mail == [("ch", "tok 0 1 0")]


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


FOUND = {
    "pawlock:a:b": ("pawlock", "lock", "a:b"),
    "pawlock:x:fence": ("pawlock", "lock", "x:fence"),
    "pawlock:50%25": ("pawlock", "lock", "50%"),
    "pawlock:%election:%7Bx%7D": ("pawlock", "election", "{x}"),
    "pawlock:%once:x": ("pawlock", "once", "x"),
    "{pawlock:x}:1:permits": ("pawlock", "semaphore", "x"),
    "{pawlock:x}:1:rwlock": ("pawlock", "rwlock", "x"),
    # What stands for nobody who holds, and what is no name of this namespace.
    "{pawlock:x}:fence": None,
    "{pawlock:x}:1:queue": None,
    "{pawlock:x}:1:permits:queue": None,
    "{pawlock:x}:2:permits": None,
    "pawlock:50%": None,
    "pawlock:": None,
    "other:pawlock:x": None,
    "{other}:pawlock:1:permits": None,
}
BY_FENCE = {
    "{order:42}:fence": ("order", "lock", "42"),
    "{pawlock:%once:x}:fence": ("pawlock", "once", "x"),
    "{x}:fence": ("", "lock", "x"),
    "a{x}b:pawlock:fence": ("", "lock", "a{x}b"),
    "{%election:x}:fence": ("", "election", "x"),
    "{pawlock:x}:1:permits:fence": ("pawlock", "semaphore", "x"),
    "a{x}b:pawlock:1:rwlock:fence": ("", "rwlock", "a{x}b"),
    "{order:50%}:fence": None,
    "order:42:fence": None,
}


def test_a_key_tells_of_a_name_and_its_kind() -> None:
    for everywhere, expected in ((False, FOUND), (True, BY_FENCE)):
        find = Finder("pawlock", LockOptions(), everywhere=everywhere)
        for key, wanted in expected.items():
            with case(key):
                found = find(key)
                assert (found and (found.namespace, found.kind, found.primitive.name)) == wanted
