"""What reached too few replicas, or another server than the one that wrote it, does not count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pawlock.core.outcomes import Gone, Granted, Outcome
from pawlock.core.replicas import confirm, renew_with_replicas
from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind
from pawlock.errors import NotReplicated
from tests.unit.scripted import NOW_MS, Rig, held, run

GRANTED = Granted(7, 30_000, NOW_MS)
LOST = Fault(FaultKind.UNANSWERED, "lost")


class Replicas:
    """A runtime whose servers have so many replicas with everything."""

    def __init__(self, *answers: Acknowledged) -> None:
        self.answers = list(answers)
        self.sent: list[str] = []
        self.wanted = 0

    async def call_replicated(self, calls: list[Call], replicas: int, _: float) -> list[Acknowledged]:
        """See ``Carrier``."""
        self.sent += [call.script.name for call in calls]
        self.wanted = replicas
        return self.answers


def test_a_renewal_counts_once_its_own_replicas_have_it() -> None:
    rigs = [Rig(held(), replicas=count) for count in (1, 2, 1, 1)]
    batch = [SimpleNamespace(options=rig.options) for rig in rigs]
    calls = [rig.plan.primitive.renew("t@h", 30_000, 3_000, "") for rig in rigs]
    replicas = Replicas((GRANTED, 1), (GRANTED, 1), (Gone("none"), 1), (LOST, 0))
    outcomes = run(renew_with_replicas(cast("Any", replicas), cast("Any", batch), calls, 1.0))
    assert replicas.wanted == 2, "the most that any of them needs"
    assert outcomes[0] == GRANTED
    assert isinstance(outcomes[1], Fault)
    assert "reached 1 of 2 replicas" in outcomes[1].text
    assert outcomes[2:] == [Gone("none"), LOST]


def test_what_was_adopted_is_asked_for_where_the_replicas_are_waited_for() -> None:
    def adopted(outcome: Outcome, count: int) -> list[str]:
        rig, replicas = Rig(held(), replicas=1), Replicas((outcome, count))
        engine = cast("Any", SimpleNamespace(runtime=replicas))
        run(confirm(engine, rig.plan.primitive, rig.options, "t@h"))
        return replicas.sent

    assert adopted(GRANTED, 1) == ["renew"]
    with pytest.raises(Fault, match="another server"):
        adopted(Gone("none"), 1)
    with pytest.raises(NotReplicated):
        adopted(GRANTED, 0)
