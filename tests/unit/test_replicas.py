"""A write that went to one server, and replicas of another: they say nothing of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pawlock.core.keep.engine import Engine
from pawlock.core.keep.replicas import check_renewals, confirm
from pawlock.core.protocol.outcomes import Expiry, Gone, Granted, Outcome
from pawlock.core.protocol.runtime import Call, Fault
from pawlock.errors import NotReplicated
from pawlock.transport.durable import touch
from tests.support.refusal import case
from tests.unit.scripted import NOW_MS, Rig, held, run


def engine_of(outcome: Outcome | None, count: int, sent: list[Call]) -> Engine:
    async def call_durable(call: Call, *_: object) -> tuple[Outcome | None, int]:
        sent.append(call)
        return outcome, count

    runtime = SimpleNamespace(
        call_durable=call_durable, touch=touch, streams=lambda calls: [list(range(len(calls)))]
    )
    return cast("Engine", SimpleNamespace(runtime=runtime))


def test_a_renewal_counts_on_the_server_that_has_it() -> None:
    cases: list[tuple[int, bool]] = [
        (NOW_MS + 30_000, True),
        (NOW_MS + 20_000, False),
        (0, False),
    ]
    for expiry_ms, counts in cases:
        with case(expiry_ms, counts):
            rig = Rig(held(), replicas=1)
            server_lease = SimpleNamespace(options=rig.options, primitive=rig.plan.primitive)
            outcomes: list[Outcome | Fault] = [Granted(7, 30_000, NOW_MS)]
            engine = engine_of(Expiry(expiry_ms), 1, [])
            call = rig.plan.primitive.renew("t@h", 30_000, 3_000, "")
            run(check_renewals(engine, [cast("Any", server_lease)], [call], outcomes, 1.0))
            assert isinstance(outcomes[0], Fault) is not counts


def test_what_was_adopted_is_asked_for_where_the_replicas_are_waited_for() -> None:
    rig, sent = Rig(held(), replicas=1), list[Call]()
    primitive = rig.plan.primitive
    run(confirm(engine_of(Granted(7, 30_000, NOW_MS), 1, sent), primitive, rig.options, "t@h"))
    assert [call.script.name for call in sent] == ["renew"]
    with pytest.raises(Fault, match="another server"):
        run(confirm(engine_of(Gone("none"), 1, []), primitive, rig.options, "t@h"))
    with pytest.raises(NotReplicated):
        run(confirm(engine_of(Granted(7, 30_000, NOW_MS), 0, []), primitive, rig.options, "t@h"))
