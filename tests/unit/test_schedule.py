"""When leases are due: in order, once, and never after they ended."""

from __future__ import annotations

from contextlib import nullcontext
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from pawlock.core.local_queue import Waiter
from pawlock.core.options import LockOptions
from pawlock.core.records import Hold, Schedule
from pawlock.model import LeaseState
from pawlock.primitives.mutex import Mutex

OPTIONS = LockOptions()
MUTEX = Mutex("lock", "x", "pawlock:x")


def hold(valid_until: float = 1e9) -> Hold:
    return Hold(MUTEX, OPTIONS, Waiter("t@h"), 1, valid_until, 0.0)


def schedule() -> Schedule:
    return Schedule(nullcontext())


def test_nothing_is_due() -> None:
    empty = schedule()
    assert empty.take_due(1e9, 10) == []
    assert empty.sleep_until(0.0) == inf
    assert empty.first_need() == inf
    assert empty.all() == []


def test_due_in_time_and_once() -> None:
    plan, first, second = schedule(), hold(), hold()
    plan.add(first, 10.0, 10.0)
    plan.add(second, 10.0, 12.0)
    assert plan.take_due(9.9, 10) == []
    assert plan.sleep_until(9.9) == 10.0
    assert plan.take_due(10.0, 10) == [first]
    assert plan.take_due(11.9, 10) == []
    assert plan.take_due(100.0, 10) == [second]
    assert plan.take_due(200.0, 10) == []


def test_who_adds_something_sooner_than_the_sleep_is_told_to_nudge() -> None:
    plan = schedule()
    plan.add(hold(), 10.0, 10.0)
    assert not plan.add(hold(), 5.0, 5.0), "nobody sleeps yet"
    assert plan.sleep_until(0.0) == 5.0
    assert plan.add(hold(), 1.0, 4.0)
    assert plan.add_once(hold(), 3.0)
    assert not plan.add(hold(), 30.0, 30.0)
    assert not plan.add_once(hold(), 5.0)
    plan.take_due(0.0, 10)
    assert not plan.add_once(hold(), 1.0), "awake: it will look by itself"


def test_a_released_lease_leaves_nothing_behind() -> None:
    plan, lease = schedule(), hold()
    plan.add(lease, 10.0, 10.0)
    plan.discard(lease)
    plan.discard(lease)
    assert plan.all() == []
    assert plan.take_due(1e9, 10) == []


def test_one_out_of_rhythm_is_dropped_when_its_time_comes() -> None:
    plan, lease = schedule(), hold()
    plan.add_once(lease, 10.0)
    assert plan.all() == [lease]
    lease.state = LeaseState.RELEASED
    plan.discard(lease)
    assert plan.all() == []
    assert plan.take_due(10.0, 10) == []


def test_a_batch_has_an_end() -> None:
    plan = schedule()
    for _ in range(25):
        plan.add(hold(), 1.0, 1.0)
    for _ in range(5):
        plan.add_once(hold(), 1.0)
    assert [len(plan.take_due(2.0, 10)) for _ in range(4)] == [10, 10, 10, 0]


def test_deadlines_bound_a_wait_for_the_server() -> None:
    plan = schedule()
    assert plan.first_need() == inf
    plan.add(hold(valid_until=25.0), 10.0, 3.0)
    assert plan.first_need() == 14.0, "half of the time is for a renewal and its answer"
    plan.add(hold(), 30.0, 12.0, deadline=True)
    assert plan.first_need() == 12.0
    plan.add_once(hold(valid_until=15.0), 1.0)
    assert plan.first_need() == 8.0


def test_what_is_in_hand_is_still_known() -> None:
    """A client that closes while a renewal is on its way must release that lease as well."""
    plan, lease = schedule(), hold()
    plan.add(lease, 1.0, 1.0)
    plan.take_due(1.0, 10)
    assert plan.all() == [lease]
    plan.take_due(1.0, 10)
    assert plan.all() == []


def test_who_is_to_be_served_out_of_rhythm_is_served_once_at_the_first_time() -> None:
    plan, lease = schedule(), hold()
    for due in (3.0, 2.0, 5.0):
        plan.add_once(lease, due)
    assert plan.take_due(1.9, 10) == []
    assert plan.take_due(2.0, 10) == [lease]
    assert plan.take_due(9.0, 10) == []
    plan.add_once(lease, 10.0)
    plan.discard(lease, once=False)
    assert plan.sleep_until(9.0) == 10.0, "whoever doubts a lease has it asked for, whatever its rhythm"
    plan.discard(lease)
    assert plan.sleep_until(9.0) == inf
    assert not plan.busy()


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1.0, 10.0]), st.integers(0, 50), st.sampled_from(["bucket", "once", "gone"])
        )
    )
)
def test_every_lease_is_served_exactly_once(script: list[tuple[float, int, str]]) -> None:
    plan = schedule()
    expected: list[Hold] = []
    due: dict[float, float] = {1.0: 0.0, 10.0: 0.0}
    for every, step, how in script:
        lease = hold()
        if how == "once":
            plan.add_once(lease, float(step))
        else:
            due[every] += step
            plan.add(lease, every, due[every])
        if how == "gone":
            plan.discard(lease)
        else:
            expected.append(lease)
    served: list[Hold] = []
    now = 0.0
    while (wake := plan.sleep_until(now)) < inf:
        # A bucket that is empty now is looked at once more: what is added to it needs no nudge.
        now = max(now, wake)
        served += plan.take_due(now, 3)
    assert len(served) == len(expected)
    assert set(served) == set(expected)
