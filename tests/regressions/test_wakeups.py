"""Messages that come before somebody waits for them."""

from __future__ import annotations

import time

import pawl
from pawl.core.runtime import Wakeup
from pawl.runtimes.threads import run
from pawl.testing.servers import Server
from tests.pace import pace

OVER, GATE = "0 0 0", "0 1700000000000 1700000000000"


def test_a_message_of_a_gate_is_no_notice(client: pawl.Client, valkey: Server) -> None:
    """Nobody leads any more: that has no fence, and was taken for the loss of a lease while nobody listened."""
    runtime = client._engine.runtime
    run(runtime.ready(2.0))
    for token, words in (("gate", GATE), ("over", OVER)):
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
        for token, words in (("gate", GATE), ("over", OVER)):
            assert valkey.command("PUBLISH", runtime.channel(), f"{token} {words}") == 1
        await runtime.pause(0.1)
        assert runtime.notices() == ["over"]
        began = time.monotonic()
        assert await runtime.wait_wakeup("gate", 5.0) == Wakeup(0, 1700000000000)
        assert time.monotonic() - began < pace() * 1.0
