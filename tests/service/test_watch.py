"""What the page is told: the latest picture, and which holds last too long."""

import asyncio


async def test_what_waits_for_a_reader_of_events_is_the_latest_picture_alone() -> None:
    from pawlock.service.watch import Watch

    watch = Watch(None)  # type: ignore[arg-type]
    watch._task = asyncio.get_running_loop().create_future()  # type: ignore[assignment]
    queue = watch.join()
    for number in range(50):
        watch._publish(str(number))
    assert (queue.qsize(), await queue.get()) == (1, "49")
    watch._publish("one more")
    watch._publish(None)
    assert await queue.get() is None


def test_a_hold_is_stuck_when_it_lasts_far_longer_than_is_usual_for_its_name() -> None:
    from pawlock.service.watch import Holds

    holds = Holds()
    assert holds.assess("lock\0a", 600) == (None, False)
    assert holds.assess("lock\0a", 3601) == (None, True)
    for seconds in (10, 20, 11, 9, 12):
        holds.ended("lock\0a", seconds)
    assert holds.assess("lock\0a", 100) == (11, False)
    assert holds.assess("lock\0a", 111) == (11, True)
    assert holds.assess("lock\0b", 111) == (11, True), "what is usual of the kind"
    assert holds.assess("semaphore\0b", 111) == (None, False)
    for _ in range(50):
        holds.ended("lock\0a", 0.5)
    assert holds.assess("lock\0a", 59) == (0.5, False)
    assert holds.assess("lock\0a", 60) == (0.5, True)
    assert holds.assess("lock\0a", None) == (0.5, False)
