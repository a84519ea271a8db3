"""The scripts of a vote, to the letter: replies, keys and expiries on the server in memory."""

from __future__ import annotations

import pytest

from tests.unit.scripts.memory import DAY, HOUR_US, NOW_MS, NOW_US, Node
from tests.unit.scripts.rig import token

A, B = token("a"), token("b")
NAME, FENCE, DEAD = "n", "{n}:fence", "{n}:1:dead"


@pytest.fixture
def node() -> Node:
    return Node("redlock")


def grant(
    node: Node,
    tok: str = A,
    *,
    ttl: int = 30_000,
    block: int = 1,
    proposal: int = 0,
) -> list[object]:
    """Ask as the primitive asks."""
    return node.run("grant", [NAME, FENCE, DEAD], tok, proposal, ttl, block, DAY)


def record(last: int, cur: int, kept_ms: int) -> dict[str, str]:
    return {"last": f"{last}", "cur": f"{cur}", "v": "1", "x": f"{kept_ms}"}


def used(node: Node, *, block: int = 1) -> None:
    """Have the name been granted and given back: its fence record is there."""
    grant(node, block=block)
    assert node.run("leave", [NAME, DEAD], A, 1, 0) == ["R"]
    node.command("DEL", DEAD)


def test_the_first_grant_makes_the_record(node: Node) -> None:
    assert grant(node, block=16) == ["H", NOW_US, 30_000, NOW_US]
    last = NOW_US + 15
    kept = NOW_MS + 1 + DAY
    assert node.state() == {NAME: (30_000, A), FENCE: (1 + DAY, record(last, NOW_US, kept))}
    node.later(10)
    assert grant(node, block=16) == ["H", NOW_US, 29_990, NOW_US + 10_000]
    assert node.state()[FENCE] == (1 + DAY - 10, record(last, NOW_US, kept))


def test_others_are_told_who_holds_it(node: Node) -> None:
    grant(node)
    assert grant(node, B) == ["B", 30_000, 0, "host:1/a", NOW_US]
    node.command("SET", NAME, "foreign", "PX", 500)
    assert grant(node, B) == ["B", 500, 1, "", NOW_US]


def test_a_grant_whose_fence_the_node_lost_is_of_no_use(node: Node) -> None:
    grant(node)
    node.command("DEL", FENCE)
    assert grant(node) == ["X", NOW_US]


def test_a_dead_token_gets_nothing_and_a_living_one_keeps_what_it_has(node: Node) -> None:
    node.command("SET", DEAD, "1", "PX", 500)
    assert grant(node) == ["X", NOW_US]
    assert NAME not in node.state()
    node.command("DEL", DEAD)
    grant(node)
    node.command("SET", DEAD, "1", "PX", 500)
    assert grant(node)[0] == "H"


@pytest.mark.parametrize("known", [False, True], ids=["first", "again"])
def test_a_proposal_is_granted_within_an_hour_of_the_clock(node: Node, *, known: bool) -> None:
    if known:
        used(node)
    proposal = NOW_US + HOUR_US + 2
    assert grant(node, proposal=proposal)[1] == NOW_US + (1 if known else 0)
    node.store.flush()
    if known:
        used(node)
    assert grant(node, proposal=NOW_US + HOUR_US)[1] == NOW_US + HOUR_US


def test_a_proposal_below_what_is_known_is_not_granted(node: Node) -> None:
    used(node, block=100)
    assert grant(node, proposal=NOW_US + 50) == ["H", NOW_US + 100, 30_000, NOW_US]
    node.store.flush()
    used(node, block=100)
    assert grant(node, proposal=NOW_US + 99)[1] == NOW_US + 100


def test_a_proposal_needs_no_clock_and_reserves_its_block(node: Node) -> None:
    used(node)
    kept = NOW_MS + DAY
    node.later(5)
    assert grant(node, proposal=NOW_US + 7, block=16) == ["H", NOW_US + 7, 30_000, 0]
    assert node.state() == {
        NAME: (30_000, A),
        FENCE: (DAY - 5, record(NOW_US + 22, NOW_US + 7, kept)),
    }


@pytest.mark.parametrize("ahead", [1, HOUR_US])
def test_a_proposal_needs_no_clock_from_the_next_fence_to_an_hour_above_it(node: Node, ahead: int) -> None:
    used(node)
    node.command("HSET", FENCE, "x", NOW_MS + 2 * DAY)
    assert grant(node, proposal=NOW_US + ahead) == ["H", NOW_US + ahead, 30_000, 0]
    assert node.run("leave", [NAME, DEAD], A, 1, 0) == ["R"]
    node.command("DEL", DEAD)
    assert grant(node, proposal=NOW_US + ahead) != ["H", NOW_US + ahead, 30_000, 0], "no fence twice"


def test_the_record_is_promised_again_once_a_24th_of_it_is_over(node: Node) -> None:
    used(node)
    node.later(DAY // 24)
    used(node)
    assert node.state()[FENCE][1]["x"] == f"{NOW_MS + DAY}"
    node.later(1)
    grant(node, block=5)
    now = NOW_MS + DAY // 24 + 1
    assert node.state() == {
        NAME: (30_000, A),
        FENCE: (DAY + 1, record(now * 1000 + 4, now * 1000, now + 1 + DAY)),
    }


def test_a_record_ahead_of_the_clock_is_kept_for_as_long(node: Node) -> None:
    ahead = NOW_US + 24 * HOUR_US
    node.command("HSET", FENCE, "last", ahead, "v", "1", "x", NOW_MS + DAY, "cur", ahead)
    node.command("PEXPIREAT", FENCE, NOW_MS + DAY)
    assert grant(node)[1] == ahead + 1
    assert node.state()[FENCE] == (2 * DAY + 1, record(ahead + 1, ahead + 1, NOW_MS + 2 * DAY + 1))


@pytest.mark.parametrize("known", [False, True], ids=["first", "again"])
def test_no_block_is_a_block_of_one(node: Node, *, known: bool) -> None:
    if known:
        used(node)
    grant(node, block=0)
    fence = node.state()[FENCE][1]
    assert fence["last"] == fence["cur"]


def ratify(node: Node, tok: str, fence: int, block: int) -> list[object]:
    return node.run("renew", [NAME, FENCE], tok, fence, 0, block, DAY)


def renew(node: Node, tok: str, ttl: int) -> list[object]:
    return node.run("renew", [NAME, FENCE], tok, 0, ttl, 0, DAY)


def test_a_fence_is_written_back_where_the_token_holds(node: Node) -> None:
    grant(node, block=16)
    proposal = NOW_US + 5000
    assert ratify(node, A, proposal, 16) == ["H", proposal, 30_000, NOW_US]
    assert node.state()[FENCE][1] == record(proposal + 15, proposal, NOW_MS + 1 + DAY)
    node.later(10)
    assert ratify(node, A, proposal - 1, 16) == ["H", proposal - 1, 29_990, NOW_US + 10_000]
    assert node.state()[FENCE][1] == record(proposal + 15, proposal, NOW_MS + 1 + DAY)
    assert ratify(node, B, proposal + 1, 16) == ["U", "other", NOW_US + 10_000]
    node.command("DEL", NAME)
    assert ratify(node, A, proposal + 1, 16) == ["U", "none", NOW_US + 10_000]
    assert node.state()[FENCE][1]["last"] == f"{proposal + 15}"


def test_a_record_that_was_lost_is_written_back_for_as_long_as_the_lease(node: Node) -> None:
    node.command("SET", NAME, A, "PX", 2 * DAY)
    assert ratify(node, A, 77, 1)[1] == 77
    assert node.state()[FENCE] == (2 * DAY, record(77, 77, NOW_MS + DAY))


def test_a_renewal_raises_and_never_takes(node: Node) -> None:
    grant(node)
    node.later(20_000)
    assert renew(node, A, 30_000) == ["H", 0, 30_000, NOW_US + 20_000_000]
    assert renew(node, A, 5_000) == ["H", 0, 30_000, NOW_US + 20_000_000]
    assert renew(node, B, 60_000)[:2] == ["U", "other"]
    assert node.state()[NAME] == (30_000, A)
    node.command("SET", NAME, "foreign")
    assert renew(node, A, 30_000)[:2] == ["U", "foreign"]
    node.command("DEL", NAME)
    assert renew(node, A, 30_000)[:2] == ["U", "none"]
    assert NAME not in node.state()


def test_a_release_takes_its_own_and_bars_what_comes_late(node: Node) -> None:
    grant(node)
    assert node.run("leave", [NAME, DEAD], B, 700, 0) == ["A", "other"]
    assert node.state()[DEAD] == (700, "1")
    assert node.run("leave", [NAME, DEAD], A, 900, 400) == ["R"]
    assert (node.state()[NAME], node.state()[DEAD]) == ((400, "closed@min_hold"), (900, "1"))
    node.command("DEL", NAME)
    assert node.run("leave", [NAME, DEAD], A, 1, 0) == ["A", "none"]
    node.command("SET", NAME, "foreign")
    assert node.run("leave", [NAME, DEAD], A, 1, 400) == ["A", "foreign"]
    assert node.state()[NAME] == (-1, "foreign")
