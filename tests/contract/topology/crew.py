"""A process that counts up under a lock of a cluster, many times, and says how long it waited."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import redis

import pawlock


def main() -> None:
    """`crew.py API url counter_url name rounds`; prints a line when it is ready, waits for one, then counts."""
    api, url, counter_url, name, rounds = sys.argv[1:6]
    counter = redis.Redis.from_url(counter_url)
    waits: list[float] = []
    began = 0.0

    def step(fence: int) -> None:
        waits.append(time.monotonic() - began)
        value = int(counter.get("counter") or 0)
        highest = int(counter.get("fence") or 0)
        if fence <= highest:
            counter.incr("falling")
        counter.set("fence", fence)
        counter.set("counter", value + 1)

    def threads() -> None:
        nonlocal began
        with pawlock.connect(url) as client:
            lock = client.lock(name, ttl=20.0)
            for _ in range(int(rounds)):
                began = time.monotonic()
                with lock as lease:
                    step(lease.fence)

    async def tasks() -> None:
        nonlocal began
        async with pawlock.connect_async(url) as client:
            lock = client.lock(name, ttl=20.0)
            for _ in range(int(rounds)):
                began = time.monotonic()
                async with lock as lease:
                    step(lease.fence)

    print("ready", flush=True)
    sys.stdin.readline()
    if api == "threads":
        threads()
    else:
        asyncio.run(tasks())
    print(json.dumps(waits), flush=True)


if __name__ == "__main__":
    main()
