"""Histories made by hand, each by its name: what is wrong with it, or that nothing is."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.support.story import Story, permits, reader

BAD: dict[str, tuple[str, Callable[[Story], object]]] = {}
GOOD: dict[str, Callable[[Story], object]] = {}


def bad(broken: str) -> Callable[[Callable[[Story], object]], Callable[[Story], object]]:
    """A story that breaks one check and no other."""

    def keep(tell: Callable[[Story], object]) -> Callable[[Story], object]:
        BAD[tell.__name__] = broken, tell
        return tell

    return keep


def good(tell: Callable[[Story], object]) -> Callable[[Story], object]:
    """A story that breaks nothing."""
    GOOD[tell.__name__] = tell
    return tell


# Exclusion ----------------------------------------------------------------------------------------------------------


@bad("exclusion")
def two_hold_at_once(s: Story) -> None:
    s.hold("a", 1, 4, 1)
    s.hold("b", 3, 6, 2)


@bad("exclusion")
def a_grant_within_the_deadline_of_one_that_never_released(s: Story) -> None:
    s.take("a", 0, 1, 1, until=5)
    s.hold("b", 4, 6, 2)


@bad("exclusion")
def a_grant_within_the_deadline_of_a_crashed_holder_that_renewed(s: Story) -> None:
    lease = s.take("a", 0, 1, 1, until=3)
    s.history.renewed(2, lease, 8)
    s.hold("b", 4, 6, 2)


@bad("exclusion")
def one_process_holds_twice_what_is_not_reentrant(s: Story) -> None:
    s.hold("a", 1, 4, 1)
    s.hold("a", 2, 3, 2)


@bad("exclusion")
def a_writer_beside_a_reader(s: Story) -> None:
    s.hold("r", 1, 5, 1, **reader())
    s.hold("w", 2, 3, 2)


@bad("exclusion")
def a_reader_beside_a_writer(s: Story) -> None:
    s.hold("w", 1, 5, 1)
    s.hold("r", 2, 3, 2, **reader())


@bad("exclusion")
def a_reader_before_the_writer_has_downgraded(s: Story) -> None:
    lease = s.take("w", 0, 1, 1)
    s.hold("r", 2, 6, 2, **reader())
    s.give(lease, 3, 3.1, action="downgrade")
    s.give(lease, 7, 7.1)


@bad("exclusion")
def a_writer_beside_one_who_has_downgraded(s: Story) -> None:
    lease = s.take("w", 0, 1, 1)
    s.give(lease, 3, 3.1, action="downgrade")
    s.hold("v", 4, 5, 2)
    s.give(lease, 6, 6.1)


@bad("exclusion")
def more_permits_than_there_are(s: Story) -> None:
    s.hold("a", 1, 6, 1, **permits(2, 3))
    s.hold("b", 2, 5, 2, **permits(1, 3))
    s.hold("c", 3, 4, 3, **permits(1, 3))


@bad("exclusion")
def permits_beside_somebody_who_has_it_alone(s: Story) -> None:
    s.hold("a", 1, 4, 1)
    s.hold("b", 2, 3, 2, **permits(1, 3))


@good
def one_after_the_other(s: Story) -> None:
    s.hold("a", 1, 2, 1)
    s.hold("b", 3, 4, 2)
    s.hold("c", 4.15, 5, 3)


@good
def two_names_have_nothing_to_do_with_each_other(s: Story) -> None:
    s.hold("a", 1, 4, 7, name="n")
    s.hold("b", 2, 3, 1, name="m")


@good
def a_grant_after_the_deadline_of_one_that_never_released(s: Story) -> None:
    s.take("a", 0, 1, 1, until=3)
    s.hold("b", 3.5, 6, 2)


@good
def a_grant_after_the_owner_was_told_of_its_loss(s: Story) -> None:
    lease = s.take("a", 0, 1, 1, until=9)
    s.history.lost(2, lease)
    s.hold("b", 2.5, 6, 2)


@good
def a_grant_while_a_release_is_under_way(s: Story) -> None:
    lease = s.take("a", 0, 1, 1)
    s.hold("b", 3, 4, 2)
    s.give(lease, 2, 5)


@good
def a_crashed_holder_holds_nothing(s: Story) -> None:
    s.take("a", 0, 1, 1, until=9)
    s.history.crash(2, "a")
    s.hold("b", 3, 4, 2)


@good
def what_the_server_forgot_excludes_nobody(s: Story) -> None:
    lease = s.take("a", 0, 1, 1, until=9)
    s.history.amnesia(2)
    s.hold("b", 3, 4, 2)
    s.history.lost(5, lease)


@good
def readers_share_and_a_downgraded_writer_joins_them(s: Story) -> None:
    lease = s.take("w", 0, 1, 1)
    s.give(lease, 3, 3.1, action="downgrade")
    s.hold("r", 3.5, 6, 2, **reader())
    s.hold("q", 4, 5, 3, **reader())
    s.give(lease, 7, 7.1)
    s.hold("v", 8, 9, 4)


@good
def a_limit_that_was_lowered_revokes_nothing(s: Story) -> None:
    s.hold("a", 1, 8, 1, **permits(2, 3))
    s.hold("b", 2, 5, 2, **permits(1, 3))
    s.hold("c", 9, 10, 3, **permits(1, 1))


# Fences -------------------------------------------------------------------------------------------------------------


@bad("fences")
def a_fence_that_falls(s: Story) -> None:
    s.hold("a", 1, 2, 7)
    s.hold("b", 3, 4, 6)


@bad("fences")
def a_fence_given_twice(s: Story) -> None:
    s.hold("a", 1, 2, 7)
    s.hold("b", 3, 4, 7)


@bad("fences")
def a_fence_that_falls_between_two_who_had_both_asked_before(s: Story) -> None:
    first = s.take("a", 2.4, 3, 7)
    s.give(first, 4, 4.1)
    second = s.take("b", 2.5, 5, 6)
    s.give(second, 6, 6.1)


@bad("fences")
def a_fence_that_falls_after_the_server_lost_it(s: Story) -> None:
    s.hold("a", 1, 2, 7)
    s.history.amnesia(3)
    s.hold("b", 4, 5, 1)


@bad("fences")
def a_fence_that_falls_below_one_long_ago(s: Story) -> None:
    s.hold("a", 1, 2, 7, **reader())
    s.hold("b", 3, 4, 9, **reader())
    s.hold("c", 5, 6, 8, **reader())


@good
def fences_of_those_who_asked_at_once_may_come_in_any_order(s: Story) -> None:
    first = s.take("a", 1, 1.9, 7, **reader())
    second = s.take("b", 1.1, 1.5, 8, **reader())
    s.give(first, 5, 5.1)
    s.give(second, 5, 5.1)


@good
def nobody_knows_the_fence(s: Story) -> None:
    s.hold("a", 1, 2)
    s.hold("b", 3, 4, 5)
    s.hold("c", 5, 6)


@bad("resource")
def a_stale_write_that_was_taken(s: Story) -> None:
    old = s.take("a", 0, 1, 1, until=3)
    new = s.take("b", 3.5, 4, 2)
    s.write(new, 5, 5.1, 2)
    s.write(old, 6, 6.1, 1)
    s.give(new, 7, 7.1)


@good
def a_stale_write_that_was_refused(s: Story) -> None:
    old = s.take("a", 0, 1, 1, until=3)
    new = s.take("b", 3.5, 4, 2)
    s.write(new, 5, 5.1, 2)
    s.write(new, 5.2, 5.3, 2)
    s.write(old, 6, 6.1, 1, "fail")
    s.give(new, 7, 7.1)


@good
def a_stale_write_at_the_same_time_as_a_newer_one(s: Story) -> None:
    old = s.take("a", 0, 1, 1, until=3)
    new = s.take("b", 3.5, 4, 2)
    s.write(new, 5, 6.1, 2)
    s.write(old, 6, 6.2, 1)
    s.give(new, 7, 7.1)


# Order --------------------------------------------------------------------------------------------------------------


@bad("fifo")
def one_who_came_later_was_served_first(s: Story) -> None:
    s.hold("a", 1, 5, 1)
    s.hold("c", 5.2, 6, 2)
    waiter = s.take("b", 2, 6.2, 3, queued=2.5)
    s.give(waiter, 7, 7.1)


@bad("fifo")
def served_first_while_another_waited_in_vain(s: Story) -> None:
    s.take("b", 2, 9, queued=2.5, how="fail")
    s.hold("a", 1, 5, 1)
    s.hold("c", 5.5, 8.95, 2)


@bad("fifo")
def a_reader_that_came_later_overtakes_a_writer(s: Story) -> None:
    s.hold("a", 1, 5, 1, **reader())
    s.hold("r", 3, 4, 2, **reader())
    waiter = s.take("w", 2, 5.5, 3, queued=2.5)
    s.give(waiter, 6, 6.1)


@good
def served_in_the_order_of_coming(s: Story) -> None:
    s.hold("a", 1, 5, 1)
    first = s.take("b", 2, 5.2, 2, queued=2.5)
    second = s.take("c", 3, 6.2, 3, queued=3.5)
    s.give(first, 6, 6.1)
    s.give(second, 7, 7.1)


@good
def nobody_knows_who_came_first(s: Story) -> None:
    s.hold("a", 1, 5, 1)
    first = s.take("c", 2, 5.2, 2)
    second = s.take("b", 2.1, 6.2, 3, queued=2.5)
    s.give(first, 6, 6.1)
    s.give(second, 7, 7.1)


@good
def a_paused_waiter_may_lose_its_place(s: Story) -> None:
    s.hold("a", 1, 5, 1)
    waiter = s.history.invoke(2, "b", "acquire", "n")
    s.history.queued(2.5, waiter)
    s.history.pause(3, "b")
    s.hold("c", 5.2, 6, 2)
    s.history.ok(6.2, waiter, fence=3)
    s.give(waiter, 7, 7.1)


@good
def a_crashed_waiter_is_passed_over(s: Story) -> None:
    s.hold("a", 1, 5, 1)
    waiter = s.history.invoke(2, "b", "acquire", "n")
    s.history.queued(2.5, waiter)
    s.history.crash(4, "b")
    s.hold("c", 5.2, 6, 2)


@good
def given_up_in_the_instant_of_the_grant(s: Story) -> None:
    s.take("b", 2, 5.2, queued=2.5, how="fail")
    s.hold("a", 1, 5, 1)
    s.hold("c", 5.18, 6, 2)


# Orphans ------------------------------------------------------------------------------------------------------------


@bad("orphans")
def nobody_holds_and_one_waits(s: Story) -> None:
    s.hold("a", 1, 2, 1)
    s.hold("b", 9, 10, 2, queued=None)
    waiting = s.take("c", 3, 12, 3)
    s.give(waiting, 13, 13.1)


@bad("orphans")
def a_dead_holder_keeps_the_name_longer_than_its_ttl(s: Story) -> None:
    s.take("a", 0, 1, 1, until=9)
    s.history.crash(2, "a")
    waiting = s.take("b", 3, 9, 2)
    s.give(waiting, 10, 10.1)


@bad("orphans")
def a_wait_in_vain_for_what_nobody_has(s: Story) -> None:
    s.hold("a", 1, 2, 1)
    s.take("b", 3, 5, how="fail")


@bad("orphans")
def permits_that_do_not_come_back(s: Story) -> None:
    s.hold("a", 1, 2, 1, **permits(1, 2))
    s.hold("b", 1, 9, 2, **permits(1, 2))
    waiting = s.take("c", 3, 6, 3, **permits(1, 2))
    s.give(waiting, 7, 7.1)


@bad("orphans")
def readers_kept_out_by_nobody(s: Story) -> None:
    s.hold("w", 1, 2, 1)
    waiting = s.take("r", 2.5, 5, 2, **reader())
    s.give(waiting, 6, 6.1)


@good
def a_dead_holder_frees_the_name_within_its_ttl(s: Story) -> None:
    s.take("a", 0, 1, 1, until=9)
    s.history.crash(2, "a")
    waiting = s.take("b", 3, 7.9, 2)
    s.give(waiting, 10, 10.1)


@good
def one_waits_while_others_hold(s: Story) -> None:
    s.hold("a", 1, 5, 1)
    s.hold("b", 5.5, 9, 2)
    waiting = s.take("c", 3, 9.5, 3)
    s.give(waiting, 10, 10.1)


@good
def an_unknown_acquire_may_hold_for_a_ttl(s: Story) -> None:
    s.take("a", 0, 2, how="info")
    waiting = s.take("b", 1, 7, 2)
    s.give(waiting, 10, 10.1)


@good
def a_reader_waits_behind_a_writer_that_waits(s: Story) -> None:
    s.hold("r", 1, 9, 1, **reader())
    writer = s.take("w", 2, 9.5, 2)
    waiting = s.take("q", 3, 10.5, 3, **reader())
    s.give(writer, 10, 10.1)
    s.give(waiting, 11, 11.1)


@good
def a_heavy_permit_waits_at_the_head(s: Story) -> None:
    s.hold("a", 1, 9, 1, **permits(1, 2))
    heavy = s.take("b", 2, 9.5, 2, **permits(2, 2))
    light = s.take("c", 3, 10.5, 3, **permits(1, 2))
    s.give(heavy, 10, 10.1)
    s.give(light, 11, 11.1)
