"""Messages that come before somebody waits for them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pawlock
from pawlock.core.protocol.runtime import Wakeup
from pawlock.runtimes.threads import run
from tests.support.pace import pace
from tests.support.servers import Server

OVER, GATE, ASK = "0 0 0", "0 1700000000000 1700000000000", "0 1 0"
LEFT_FREE = "0 0 1700000000000"
"""The name is left free for other programs: the first in the queue is to ask again."""


def test_a_message_of_a_gate_is_no_notice(client: pawlock.Client, valkey: Server) -> None:
    """Nobody leads any more: that has no fence, and was taken for the loss of a lease while nobody listened."""
    runtime = client._engine.runtime
    run(runtime.ready(2.0))
    for token, words in (("gate", GATE), ("ask", ASK), ("free", LEFT_FREE), ("over", OVER)):
        assert valkey.command("PUBLISH", runtime.channel(), f"{token} {words}") == 1
    time.sleep(0.1)
    assert runtime.notices() == ["over"]
    began = time.monotonic()
    assert run(runtime.wait_wakeup("gate", 5.0)) == Wakeup(0, 1700000000000)
    assert time.monotonic() - began < pace() * 1.0


async def test_a_message_of_a_gate_is_no_notice_in_tasks(valkey: Server) -> None:
    async with pawlock.connect_async(valkey.url) as client:
        runtime = client._engine().runtime
        await runtime.ready(2.0)
        for token, words in (("gate", GATE), ("ask", ASK), ("free", LEFT_FREE), ("over", OVER)):
            assert valkey.command("PUBLISH", runtime.channel(), f"{token} {words}") == 1
        await runtime.pause(0.1)
        assert runtime.notices() == ["over"]
        began = time.monotonic()
        assert await runtime.wait_wakeup("gate", 5.0) == Wakeup(0, 1700000000000)
        assert time.monotonic() - began < pace() * 1.0


async def test_who_is_told_to_ask_again_before_it_waits_keeps_what_it_is_then_granted(valkey: Server) -> None:
    """The message came with the answer that put it into the queue, and was taken for the loss of its later lease."""
    async with pawlock.connect_async(valkey.url) as client, pawlock.connect_async(valkey.url) as other:
        # Its waits are published, so that it looks for what an operator takes from it.
        before = await other.lock("late").acquire()
        waiting = asyncio.ensure_future(client.lock("late", ttl=30.0).acquire())
        publisher = client._engine().reports.publisher
        assert publisher is not None
        while not publisher.published:  # noqa: ASYNC110 - the maintenance sets no event
            await asyncio.sleep(0.01)
        await before.release()
        lease = await waiting
        runtime = client._engine().runtime
        token = lease._record.server_lease.token
        assert valkey.command("PUBLISH", runtime.channel(), f"{token} {LEFT_FREE}") == 1
        client._engine().wake_maintenance()
        await runtime.pause(0.3)
        assert not lease.lost
        assert await other.lock("late").try_acquire() is None
        await lease.release()


def _wakes(engine: Any, lease: Any) -> Any:
    """What a waiter that is refused for a deadlock is woken with: it was granted the name in the meantime."""
    return engine.reports.publisher.setup.calls.wake(
        engine.runtime.channel(), lease._record.server_lease.token
    )


def test_a_late_wake_up_ends_no_lease(client: pawlock.Client) -> None:
    engine = client._engine
    with client.semaphore("late", permits=3).acquire(2) as lease:
        run(engine.runtime.call(_wakes(engine, lease), 2.0))
        engine.runtime.nudge()
        time.sleep(0.2)
        assert not lease.lost


async def test_a_late_wake_up_ends_no_lease_of_a_task(valkey: Server) -> None:
    async with pawlock.connect_async(valkey.url) as client:
        engine = client._engine()
        async with client.rwlock("late").write as lease:
            await engine.runtime.call(_wakes(engine, lease), 2.0)
            await engine.runtime.pause(0.2)
            assert not lease.lost
