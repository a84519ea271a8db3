"""Messages that come before somebody waits for them."""

from __future__ import annotations

import time

import pawlock
from pawlock.core.runtime import Wakeup
from pawlock.runtimes.threads import run
from tests.support.pace import pace
from tests.support.servers import Server

GATE = "gate 0 1700000000000 1700000000000"


def test_a_message_that_comes_before_its_wait_ends_it_at_once(client: pawlock.Client, valkey: Server) -> None:
    runtime = client._engine.runtime
    run(runtime.ready(2.0))
    assert valkey.command("PUBLISH", runtime.channel(), GATE) == 1
    time.sleep(0.1)
    began = time.monotonic()
    assert run(runtime.wait_wakeup("gate", 5.0)) == Wakeup(0, 1700000000000)
    assert time.monotonic() - began < pace() * 1.0


async def test_the_same_of_a_task(valkey: Server) -> None:
    async with pawlock.connect_async(valkey.url) as client:
        runtime = client._engine().runtime
        await runtime.ready(2.0)
        assert valkey.command("PUBLISH", runtime.channel(), GATE) == 1
        await runtime.pause(0.1)
        began = time.monotonic()
        assert await runtime.wait_wakeup("gate", 5.0) == Wakeup(0, 1700000000000)
        assert time.monotonic() - began < pace() * 1.0
