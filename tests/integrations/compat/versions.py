"""What pawlock uses of redis-py, once: run in a process of its own with another version of it."""

import asyncio
import sys
import threading
import time
import warnings

warnings.simplefilter("error")

import redis  # noqa: E402 - imports may warn, too

import pawlock  # noqa: E402

URL = sys.argv[1]


def threads() -> None:
    with pawlock.connect(URL) as one, pawlock.connect(URL) as other:
        first = one.lock("versions").acquire()
        seen: list[int] = []

        def wait() -> None:
            with other.lock("versions", timeout=20) as lease:
                seen.append(lease.fence)

        waiter = threading.Thread(target=wait)
        waiter.start()
        while one.inspect("versions").queue_length == 0:
            time.sleep(0.01)
        first.release()
        waiter.join()
        assert seen[0] > first.fence
        with one.semaphore("versions-s", permits=2), one.rwlock("versions-r").write:
            pass
        with one.lock("versions-t", ttl=1) as lease:
            time.sleep(1.5)
            lease.check()
    with pawlock.connect(redis.Redis.from_url(URL)) as handed, handed.lock("versions"):
        pass


async def tasks() -> None:
    async with pawlock.connect_async(URL) as client:

        async def one() -> None:
            async with client.lock("versions"):
                await asyncio.sleep(0)

        await asyncio.gather(*(one() for _ in range(50)))


threads()
asyncio.run(tasks())
print(redis.__version__)
