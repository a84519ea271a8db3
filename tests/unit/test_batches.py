"""An error reply carries no id: after a lost reply no call of a batch gets one that is another's."""

from __future__ import annotations

from typing import Any, cast

import pytest

import pawlock
from pawlock.core.outcomes import Granted
from pawlock.core.runtime import Fault, FaultKind
from pawlock.runtimes.threads import run
from tests.faults.rig import teach
from tests.support.proxy import Proxy
from tests.support.servers import Server


@pytest.mark.parametrize("behind", [0, 1])
def test_after_a_lost_reply_no_call_of_a_batch_gets_the_error_of_another(server: Server, behind: int) -> None:
    teach(server)
    server.command("LPUSH", "pawlock:bad", "x")
    with Proxy(server) as proxy, pawlock.connect(proxy.url) as client:
        leases = [client.lock(name).acquire() for name in ("good", "bystander")[: 1 + behind]]
        bad = cast("Any", client.lock("bad"))._plan.primitive
        calls = [lease._record.hold.primitive.renew(lease.token, 30_000, 3000, "") for lease in leases]
        calls.insert(1, bad.renew("x" * 22, 30_000, 3000, ""))
        proxy.swallow_reply(lambda request: request.contains("pawlock:good"))
        first, second, *rest = run(client._engine.runtime.call_many(calls, 0.5))
        for outcome in (first, second):
            assert isinstance(outcome, Fault)
            assert outcome.kind is FaultKind.UNANSWERED
        assert [type(outcome) for outcome in rest] == [Granted] * behind
