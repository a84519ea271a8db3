"""Messages that come before somebody waits for them."""

from __future__ import annotations

import time
from typing import Any

import pawl
from pawl.core.protocol.runtime import Wakeup
from pawl.runtimes.threads import run
from pawl.testing.servers import Server
from tests.pace import pace

OVER, GATE, ASK = "0 0 0", "0 1700000000000 1700000000000", "0 1 0"


def test_a_message_of_a_gate_is_no_notice(client: pawl.Client, valkey: Server) -> None:
    """Nobody leads any more: that has no fence, and was taken for the loss of a lease while nobody listened."""
    runtime = client._engine.runtime
    run(runtime.ready(2.0))
    for token, words in (("gate", GATE), ("ask", ASK), ("over", OVER)):
        assert valkey.command("PUBLISH", runtime.channel(), f"{token} {words}") == 1
    time.sleep(0.1)
    assert runtime.notices() == ["over"]
    began = time.monotonic()
    assert run(runtime.wait_wakeup("gate", 5.0)) == Wakeup(0, 1700000000000)
    assert time.monotonic() - began < pace() * 1.0


async def test_a_message_of_a_gate_is_no_notice_in_tasks(valkey: Server) -> None:
    async with pawl.connect_async(valkey.url) as client:
        runtime = client._engine().runtime
        await runtime.ready(2.0)
        for token, words in (("gate", GATE), ("ask", ASK), ("over", OVER)):
            assert valkey.command("PUBLISH", runtime.channel(), f"{token} {words}") == 1
        await runtime.pause(0.1)
        assert runtime.notices() == ["over"]
        began = time.monotonic()
        assert await runtime.wait_wakeup("gate", 5.0) == Wakeup(0, 1700000000000)
        assert time.monotonic() - began < pace() * 1.0


def _wakes(engine: Any, lease: Any) -> Any:  # noqa: ANN401 - either API
    """What a waiter that is refused for a deadlock is woken with: it was granted the name in the meantime."""
    return engine.reports.publisher.setup.calls.wake(
        engine.runtime.channel(), lease._record.server_lease.token
    )


def test_a_late_wake_up_ends_no_lease(client: pawl.Client) -> None:
    engine = client._engine
    with client.semaphore("late", permits=3).acquire(2) as lease:
        run(engine.runtime.call(_wakes(engine, lease), 2.0))
        engine.runtime.nudge()
        time.sleep(0.2)
        assert not lease.lost


async def test_a_late_wake_up_ends_no_lease_of_a_task(valkey: Server) -> None:
    async with pawl.connect_async(valkey.url) as client:
        engine = client._engine()
        async with client.rwlock("late").write as lease:
            await engine.runtime.call(_wakes(engine, lease), 2.0)
            await engine.runtime.pause(0.2)
            assert not lease.lost
