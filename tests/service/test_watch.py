"""What the page is told: the latest picture."""

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
