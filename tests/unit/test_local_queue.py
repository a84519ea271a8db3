"""The local queue against a list: whatever its callers do, and wherever they are interrupted."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pawlock.core.local_queue import ASK, LocalQueue, Place

HANDOVER, TICKET_TTL, RUN = 2, 10.0, 0.02


class Caller(Place):
    """One that comes to the name."""

    def __init__(self, number: int) -> None:
        self.id = number

    def __repr__(self) -> str:
        return f"<{self.id}>"


class Hold:
    """What a caller holds."""

    def __init__(self, *, uncontended: bool) -> None:
        self.uncontended = uncontended
        self.used = 0
        self.valid_until = 1000.0
        self.options: Any = SimpleNamespace(handover=HANDOVER, ticket=TICKET_TTL, hand_over_for=RUN)
        self.good, self.lost = True, False
        self.owner: Place | None = None

    @property
    def done(self) -> bool:
        return self.lost

    def may_be_given(self) -> bool:
        return self.good

    def give_to(self, place: Place, now: float) -> None:
        self.used += 1
        place.given, place.number, self.owner = self, self.used, place


class Model(RuleBasedStateMachine):
    """``asleep`` and ``busy`` are the lists that the queue must agree with."""

    def __init__(self) -> None:
        super().__init__()
        self.by_key: dict[Any, LocalQueue] = {}
        self.asleep: list[Caller] = []
        self.busy: list[Any] = []
        self.gone = 0
        self.lost: list[Hold] = []
        self.parted: list[Hold] = []
        self.most = 0
        self.since = 0.0
        self.now = 100.0
        self.count = 0
        self.capacity = 1
        self.last = LocalQueue("y", {}, 1, Caller(0))

    @initialize(capacity=st.sampled_from([1, 1, 3]))
    def of(self, capacity: int) -> None:
        self.capacity = capacity

    @property
    def queue(self) -> LocalQueue:
        return self.by_key.get("x") or self.last

    def woken(self, places: list[Place]) -> None:
        """Those that are to be woken slept first, and have a turn now."""
        for place in places:
            assert place is self.asleep.pop(0)
            assert place.given is not None
            if place.given is ASK or isinstance(place.given, str):
                self.busy.append(place)

    @rule()
    def one_comes(self) -> None:
        self.count += 1
        caller, queue = Caller(self.count), self.by_key.get("x")
        if queue is None:
            self.last = LocalQueue("x", self.by_key, self.capacity, caller)
            self.busy.append(caller)
        elif queue.begin(caller):
            assert not self.asleep
            # A turn of one that is gone is free at once for who comes.
            self.gone = min(self.gone, self.capacity - len(self.busy) - 1)
            self.busy.append(caller)
        else:
            assert self.asleep or len(self.busy) + self.gone >= self.capacity
            queue.sleepers.append(caller)
            self.asleep.append(caller)

    @precondition(lambda self: self.busy)
    @rule(index=st.integers(0, 2), uncontended=st.booleans())
    def one_is_granted(self, index: int, *, uncontended: bool) -> None:
        caller = self.busy[index % len(self.busy)]
        if isinstance(caller, Hold):
            return
        if self.capacity == 1:
            hold = Hold(uncontended=uncontended)
            self.queue.granted(hold)
            self.busy[0] = hold
        else:
            self.busy.remove(caller)
            self.woken(self.queue.end(caller))

    @precondition(lambda self: self.busy)
    @rule(passed=st.sampled_from([0.0, 0.001, 0.03]), good=st.sampled_from([True, True, True, False]),
          left=st.sampled_from([1000.0, 1000.0, 1000.0, 4.0]))  # fmt: skip
    def an_owner_is_done(self, passed: float, *, good: bool, left: float) -> None:
        hold = self.busy[0]
        if not isinstance(hold, Hold):
            return
        self.now += passed
        hold.good, hold.valid_until = good, self.now + left
        used, queue, first = hold.used, self.queue, self.asleep[:1]
        if used == 0:
            self.since, self.most = (
                self.now,
                HANDOVER if hold.uncontended else min(HANDOVER, len(self.asleep)),
            )
        goes_on = used == 0 or self.now - self.since < RUN
        passes = bool(first) and good and left > TICKET_TTL / 2 and used < HANDOVER and goes_on
        woken = queue.pass_on(hold, self.now)
        assert bool(woken) is passes
        if not passes:
            assert hold.used == used
            self.busy.clear()
            self.woken(queue.end(hold))
            return
        assert woken[0] is first[0]
        assert woken[0].given is hold
        assert hold.used == woken[0].number == used + 1
        del self.asleep[0]
        if hold.used >= self.most and not hold.uncontended:
            # The last of a run: the next one asks while it works, and the name is its own affair.
            self.parted.append(hold)
            self.busy.clear()
            assert len(woken) == 1 + bool(self.asleep)
            self.woken(woken[1:])
        else:
            assert len(woken) == 1

    @precondition(lambda self: self.parted)
    @rule()
    def one_that_parted_is_done(self) -> None:
        hold = self.parted.pop()
        assert self.queue.pass_on(hold, self.now) == []
        assert self.queue.end(hold) == []

    @precondition(lambda self: self.busy)
    @rule(index=st.integers(0, 2), ticket=st.booleans())
    def one_gives_up(self, index: int, *, ticket: bool) -> None:
        caller = self.busy[index % len(self.busy)]
        if isinstance(caller, Hold):
            return
        first, given = self.asleep[:1], "a ticket" if ticket else ASK
        queue = self.queue
        self.busy.remove(caller)
        woken = queue.end(caller, given)
        assert [place.given for place in woken] == [given] * len(first)
        self.woken(woken)
        assert queue.end(caller, given) == [], "safe to repeat"

    @precondition(lambda self: self.asleep)
    @rule(index=st.integers(0, 5))
    def a_sleeper_leaves(self, index: int) -> None:
        caller = self.asleep.pop(index % len(self.asleep))
        assert self.queue.leave(caller)

    @precondition(lambda self: self.busy)
    @rule(index=st.integers(0, 2))
    def one_is_gone(self, index: int) -> None:
        """Interrupted where nothing is given back: no reference is left, or its lease is lost."""
        caller = self.busy.pop(index % len(self.busy))
        if isinstance(caller, Hold):
            caller.lost = True
            self.lost.append(caller)
        self.gone += 1
        del caller
        gc.collect(0)

    @precondition(lambda self: self.asleep)
    @rule()
    def a_sleeper_wakes_by_itself(self) -> None:
        while self.gone and self.asleep:
            woken = self.queue.heal()
            self.gone = 0 if not woken else max(0, self.capacity - len(self.busy) - len(woken))
            self.woken(woken)
        assert not self.asleep or len(self.busy) == self.capacity

    @invariant()
    def the_same(self) -> None:
        queue = self.by_key.get("x")
        if queue is None:
            assert not self.asleep
            assert not self.busy
            return
        assert list(queue.sleepers) == self.asleep
        living = [turn() for turn in queue.turns]
        living = [one for one in living if one is not None and not one.lost]
        assert sorted(map(id, living)) == sorted(map(id, self.busy))
        assert len(living) <= self.capacity
        # Nobody sleeps while a turn is free, but for a second after somebody was interrupted.
        assert not self.asleep or len(self.busy) + self.gone >= self.capacity


TestLocalQueue = Model.TestCase
TestLocalQueue.settings = settings(max_examples=200, stateful_step_count=40, deadline=None, database=None)
