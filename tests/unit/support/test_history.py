"""The checks of a history: each hand-made bad one fails in the check that is meant, each good one passes."""

from __future__ import annotations

import json
from math import inf

import pytest

from tests.support.history import (
    History,
    Journal,
    Mode,
    Outcome,
    Rules,
    Violation,
    check,
    exclusion,
    fences,
    fifo,
    orphans,
    report,
    resource,
)
from tests.unit.support.stories import BAD, GOOD, two_hold_at_once
from tests.unit.support.story import Story, reader

RULES = Rules(ttl=5.0, slack=1.0, overtakes=0, grace=0.05)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_fails_in_the_check_that_is_meant(name: str) -> None:
    broken, tell = BAD[name]
    story = Story()
    tell(story)
    found = check(story.history, RULES)
    assert {violation.check for violation in found} == {broken}, report(found)
    for violation in found:
        assert len(violation.operations) >= 1
        assert str(violation).startswith(f"{broken} of 'n': ")


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    story = Story()
    GOOD[name](story)
    assert report(check(story.history, RULES)) == ""


def test_every_check_is_shown_to_fail() -> None:
    found = {broken for broken, _ in BAD.values()}
    assert found == {f.__name__ for f in (exclusion, fences, resource, fifo, orphans)}


def test_a_bounded_number_of_overtakes_is_allowed() -> None:
    story = Story()
    story.hold("a", 1, 5, 1)
    for number in range(3):
        story.hold(f"c{number}", 5.2 + number, 6 + number, 2 + number)
    waiter = story.take("b", 2, 9, 9, queued=2.5)
    story.give(waiter, 10, 10.1)
    assert fifo(story.history, 3) == []
    assert len(fifo(story.history, 2)) == 1
    assert check(story.history, Rules(overtakes=None)) == []


def test_a_report_is_read_by_a_person() -> None:
    story = Story()
    two_hold_at_once(story)
    one, two = story.history.operations["a#1"], story.history.operations["b#3"]
    assert report([Violation("exclusion", "n", "two were sure of it", (one, two))] * 3, 1) == (
        "exclusion of 'n': two were sure of it\n"
        "    [0.000000 – 0.100000] a acquire ok fence 1 sure until 3.100000\n"
        "    [2.000000 – 2.100000] b acquire ok fence 2 sure until 5.100000\n"
        "… and 2 more"
    )
    assert report([]) == ""


def test_journals_of_several_processes_are_one_history() -> None:
    first: list[str] = []
    second: list[str] = []
    a, b = Journal(first.append), Journal(second.append)
    lease = a.invoke(1.0, "a", "acquire", "n", mode=Mode.PERMITS, permits=2, limit=3)
    a.ok(2.0, lease, fence=7, deadline=5.0)
    a.renewed(3.0, lease, 9.0)
    left = a.invoke(4.0, "a", "release", "n", lease=lease)
    a.ok(4.5, left)
    waiting = b.invoke(3.5, "b", "acquire", "n")
    b.queued(3.6, waiting)
    b.crash(8.0, "b")
    history = History.read([*second, *first, '{"what": "invo'])
    assert history.names == ["n"]
    assert history.origin == 1.0
    taken, queued, gone = (history.operations[key] for key in (lease, waiting, left))
    assert (taken.outcome, taken.fence, taken.deadline, taken.permits) == (Outcome.OK, 7, 9.0, 2)
    assert taken.sure_until == 4.0
    assert taken.ended_by == [gone]
    assert (queued.outcome, queued.queued, queued.died, queued.end) == (Outcome.INFO, 3.6, 8.0, 8.0)
    assert [op.id for op in history.of("n", "acquire")] == [lease, waiting]
    assert json.loads(first[0])["permits"] == 2
    assert "inf" not in "".join(first).lower()


def test_a_journal_that_contradicts_itself_is_refused() -> None:
    lines: list[str] = []
    journal = Journal(lines.append)
    journal.ok(2.0, "nobody#1")
    with pytest.raises(ValueError, match="nobody#1"):
        History.read(lines)
    lines = [
        '{"what": "invoke", "at": 1, "id": "a#1", "process": "a", "action": "acquire", "name": "n"}\n'
    ] * 2
    with pytest.raises(ValueError, match="twice"):
        History.read(lines)


def test_what_never_ended_is_unknown() -> None:
    story = Story()
    lease = story.take("a", 0, None)
    operation = story.history.operations[lease]
    assert (operation.outcome, operation.end) == (Outcome.INFO, inf)
    assert "..." in operation.describe()


def test_readers_that_were_let_in_at_the_same_time_may_share_a_fence() -> None:
    """Of several masters, each of two may mint the largest number of one reader."""
    both = Story()
    both.take("a", 0, 2, fence=7, **reader())
    both.take("b", 1, 3, fence=7, **reader())
    assert not fences(both.history)
    later = Story()
    later.take("a", 0, 1, fence=7, **reader())
    later.take("b", 2, 3, fence=7, **reader())
    assert "two owners have 7" in str(fences(later.history)[0])
    writer = Story()
    writer.take("a", 0, 2, fence=7, **reader())
    writer.take("b", 1, 3, fence=7)
    assert "two owners have 7" in str(fences(writer.history)[0])
