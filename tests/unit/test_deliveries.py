"""What is still to be sent to masters is sent again at a pace that leaves the CPU to those who work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pawlock.core.keep.majority import redeliver
from pawlock.core.protocol.runtime import Fault, FaultKind, run
from pawlock.core.quorum.votes import Delivery
from tests.support.refusal import case


class Nodes:
    """Masters of which none can be reached."""

    node_timeout = 0.05

    def now(self) -> float:
        return 100.0

    def random(self) -> float:
        return 0.5

    async def ask(self, _questions: object, _timeout: float) -> None:
        raise Fault(FaultKind.UNREACHABLE, "no connection")


def owed(others: int) -> float:
    """How long a delivery rests after it was sent without an answer, beside so many others."""
    delivery = Delivery([cast("Any", "call")], lambda: cast("Any", "call"), lambda _: None)
    delivery.until, delivery.posted = 160.0, True
    outbox: dict[object, None] = {delivery: None, **dict.fromkeys(range(others))}
    engine = SimpleNamespace(runtime=Nodes(), outbox=SimpleNamespace(entries=outbox), count=lambda _: None)
    run(redeliver(cast("Any", engine), [delivery], 1.0))
    assert delivery in outbox
    return delivery.due - 100.0


def test_one_is_sent_again_soon() -> None:
    assert owed(0) < 0.5


def test_many_are_sent_again_at_a_thousand_a_second() -> None:
    for others in (2_000, 20_000):
        with case(others):
            assert others / 1000 < owed(others) < others / 1000 + 0.5
