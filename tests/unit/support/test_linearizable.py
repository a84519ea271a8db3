"""The search for an order: models accept and refuse what they must, and it agrees with trying every order."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations
from math import inf

import pytest

from tests.support.history import (
    FencedMutex,
    History,
    Mode,
    Model,
    ReadWrite,
    Semaphore,
    Step,
    TooManySteps,
    linearizable,
)
from tests.support.history.linearizable import steps_of
from tests.unit.support.story import Story, permits, reader

Tell = Callable[[Story], object]
BAD: dict[str, tuple[Model, Tell]] = {}
GOOD: dict[str, tuple[Model, Tell]] = {}


def told(where: dict[str, tuple[Model, Tell]], *models: Model) -> Callable[[Tell], Tell]:
    """A story that each of the models accepts or refuses."""

    def keep(tell: Tell) -> Tell:
        for model in models:
            where[f"{tell.__name__}-{type(model).__name__}"] = model, tell
        return tell

    return keep


EXCLUSIVE = (FencedMutex(), ReadWrite())


@told(GOOD, *EXCLUSIVE)
def in_turn(s: Story) -> None:
    s.hold("a", 1, 2, 1)
    s.hold("b", 3, 4, 2)


@told(GOOD, *EXCLUSIVE)
def one_waits_for_the_other(s: Story) -> None:
    first = s.take("a", 0, 1, 1)
    second = s.take("b", 0.5, 5, 2)
    s.give(first, 4, 6)
    s.give(second, 7, 8)


@told(GOOD, *EXCLUSIVE)
def an_unknown_acquire_that_never_happened(s: Story) -> None:
    s.take("a", 0, 1, how="info")
    s.hold("b", 2, 3, 1)


@told(GOOD, *EXCLUSIVE)
def an_unknown_acquire_that_happened_late(s: Story) -> None:
    s.hold("b", 1, 3, 1)
    lease = s.take("a", 0, 1, how="info")
    s.give(lease, 5, 6)


@told(GOOD, *EXCLUSIVE)
def an_unknown_release_that_happened(s: Story) -> None:
    lease = s.take("a", 0, 1, 1)
    s.give(lease, 2, 3, "info")
    s.hold("b", 4, 5, 2)


@told(GOOD, *EXCLUSIVE)
def a_lease_that_ended_at_its_deadline(s: Story) -> None:
    s.take("a", 0, 1, 1, until=3)
    s.hold("b", 3.5, 5, 2)


@told(GOOD, *EXCLUSIVE)
def a_release_that_came_too_late(s: Story) -> None:
    lease = s.take("a", 0, 1, 1, until=3)
    s.hold("b", 3.5, 5, 2)
    s.give(lease, 4, 4.5, "fail")


@told(GOOD, *EXCLUSIVE)
def a_lease_that_was_taken_away(s: Story) -> None:
    lease = s.take("a", 0, 1, 1, until=9)
    s.history.lost(3, lease)
    s.hold("b", 2, 5, 2)


@told(BAD, *EXCLUSIVE)
def held_by_two(s: Story) -> None:
    s.hold("a", 1, 4, 1)
    s.hold("b", 2, 3, 2)


@told(BAD, *EXCLUSIVE)
def taken_before_the_release_was_asked_for(s: Story) -> None:
    first = s.take("a", 0, 1, 1)
    second = s.take("b", 0.5, 3, 2)
    s.give(first, 4, 6)
    s.give(second, 7, 8)


@told(BAD, *EXCLUSIVE)
def taken_before_the_deadline(s: Story) -> None:
    s.take("a", 0, 1, 1, until=3)
    s.hold("b", 2.5, 5, 2)


@told(BAD, *EXCLUSIVE)
def released_twice(s: Story) -> None:
    lease = s.hold("a", 1, 2, 1)
    s.give(lease, 3, 4)


@told(BAD, *EXCLUSIVE)
def released_after_it_had_passed_on(s: Story) -> None:
    lease = s.take("a", 0, 1, 1, until=3)
    s.hold("b", 3.5, 5, 2)
    s.give(lease, 6, 7)


@told(BAD, *EXCLUSIVE)
def a_fence_that_falls(s: Story) -> None:
    s.hold("a", 1, 2, 5)
    s.hold("b", 3, 4)
    s.hold("c", 5, 6, 4)


@told(BAD, *EXCLUSIVE)
def a_fence_that_stays(s: Story) -> None:
    s.hold("a", 1, 2, 5)
    s.hold("b", 3, 4, 5)


@told(GOOD, ReadWrite(fenced=False))
def a_fence_that_nobody_looks_at(s: Story) -> None:
    a_fence_that_falls(s)


@told(GOOD, Semaphore(3))
def as_many_as_there_are(s: Story) -> None:
    s.hold("a", 1, 5, **permits(2, 3))
    s.hold("b", 2, 6, **permits(1, 3))
    waiter = s.take("c", 3, 5.05, **permits(1, 3))
    s.give(waiter, 7, 8)


@told(BAD, Semaphore(3))
def more_than_there_are(s: Story) -> None:
    s.hold("a", 1, 5, **permits(2, 3))
    s.hold("b", 2, 6, **permits(1, 3))
    s.hold("c", 3, 4, **permits(1, 3))


@told(BAD, Semaphore(2))
def a_permit_that_was_given_back_twice(s: Story) -> None:
    lease = s.hold("a", 1, 2, **permits(1, 2))
    s.give(lease, 3, 4)


@told(GOOD, ReadWrite())
def readers_together_and_a_writer_alone(s: Story) -> None:
    s.hold("a", 1, 5, 1, **reader())
    s.hold("b", 2, 4, 2, **reader())
    lease = s.take("w", 3, 6, 3)
    s.give(lease, 7, 7.5, action="downgrade")
    s.hold("c", 8, 9, 4, **reader())
    s.give(lease, 10, 11)


@told(BAD, ReadWrite())
def a_reader_beside_a_writer(s: Story) -> None:
    s.hold("w", 1, 6, 1)
    s.hold("r", 2, 3, 2, **reader())


@told(BAD, ReadWrite())
def a_writer_beside_a_reader(s: Story) -> None:
    s.hold("r", 1, 6, 1, **reader())
    s.hold("w", 2, 3, 2)


@told(BAD, ReadWrite())
def a_writer_beside_one_who_downgraded(s: Story) -> None:
    lease = s.take("w", 0, 1, 1)
    s.give(lease, 2, 3, action="downgrade")
    s.hold("v", 4, 5, 2)
    s.give(lease, 6, 7)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_has_an_order(name: str) -> None:
    model, tell = GOOD[name]
    story = Story()
    tell(story)
    verdict = linearizable(story.history, model)
    assert verdict, str(verdict)
    assert "is linearizable" in str(verdict)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_has_none(name: str) -> None:
    model, tell = BAD[name]
    story = Story()
    tell(story)
    verdict = linearizable(story.history, model)
    assert not verdict
    assert verdict.stuck
    assert "is not linearizable: after" in str(verdict)


def test_a_verdict_says_where_it_is_stuck() -> None:
    story = Story()
    held_by_two(story)
    assert str(linearizable(story.history, FencedMutex())) == (
        "'n' is not linearizable: after 1 steps, in state ('a#1', 1),\n"
        "    was   [0.000000 – 0.100000] a#1 acquire exclusive\n"
        "    not   [1.000000 – 1.100000] b#3 acquire exclusive"
    ).replace("acquire exclusive", "acquire exclusive fence 1", 1).replace(
        "b#3 acquire exclusive", "b#3 acquire exclusive fence 2"
    )


def test_each_name_is_judged_by_itself() -> None:
    story = Story()
    story.hold("a", 1, 4, name="n")
    story.hold("b", 2, 3, name="m")
    assert linearizable(story.history, FencedMutex(), "n")
    assert linearizable(story.history, FencedMutex(), "m")
    with pytest.raises(ValueError, match="m, n"):
        linearizable(story.history, FencedMutex())
    assert linearizable(History(), FencedMutex())


def test_a_search_that_takes_too_long_is_given_up() -> None:
    story = Story()
    for number in range(12):
        story.take(f"a{number}", 0, 20, **permits(1, 20))
    story.hold("b", 21, 22, **permits(9, 20))
    with pytest.raises(TooManySteps, match="no verdict after 500 states"):
        linearizable(story.history, Semaphore(20), most=500)


def test_a_long_history_is_judged_quickly() -> None:
    story = Story()
    for number in range(2000):
        story.hold(f"a{number % 7}", number * 2.0 + 1, number * 2.0 + 2, number)
    verdict = linearizable(story.history, FencedMutex())
    assert verdict
    assert verdict.tried < 10_000


def by_force(steps: list[Step], model: Model) -> bool:
    """Try every order of every choice of the steps that need not have happened."""
    needed = {at for at, step in enumerate(steps) if not step.optional}
    for length in range(len(needed), len(steps) + 1):
        for order in permutations(range(len(steps)), length):
            if needed <= set(order) and _runs([steps[at] for at in order], model):
                return True
    return False


def _runs(order: list[Step], model: Model) -> bool:
    earliest = -inf
    for step in order:
        # Each takes effect at the earliest instant that is left to it.
        earliest = max(earliest, step.start)
        if earliest > step.end:
            return False
    state = model.initial
    for step in order:
        after = model.step(state, step)
        if after is None:
            return False
        state = after
    return True


def random_story(seed: int) -> Story:
    dice = random.Random(seed)
    story = Story()
    for number in range(dice.randint(2, 3)):
        start = dice.uniform(0, 4)
        end = start + dice.uniform(0.1, 3)
        mode = dice.choice([Mode.EXCLUSIVE, Mode.SHARED])
        how = dice.choice(["ok", "ok", "ok", "info"])
        lease = story.take(
            f"p{number}", start, end, dice.choice([None, 1, 2, 3]), how=how, until=end + 1, mode=mode
        )
        if dice.random() < 0.7:
            start = end + dice.uniform(0, 2)
            story.give(lease, start, start + dice.uniform(0.1, 2), dice.choice(["ok", "ok", "info", "fail"]))
    return story


def test_the_search_agrees_with_trying_every_order() -> None:
    models = (FencedMutex(), ReadWrite(), ReadWrite(fenced=False))
    verdicts = {True: 0, False: 0}
    for seed in range(250):
        story = random_story(seed)
        model = models[seed % len(models)]
        verdict = bool(linearizable(story.history, model))
        assert verdict == by_force(list(steps_of(story.history, "n")), model), f"seed {seed}"
        verdicts[verdict] += 1
    assert min(verdicts.values()) > 40, verdicts
