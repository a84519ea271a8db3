"""A cancel at each place where an operation waits, one after the other: nothing is left behind.

For every operation of every primitive: the n-th wait for all n, up to the last.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from pawlock.primitives.registry import REGISTRY
from pawlock.testing.memory.store import Value, ZSet
from tests.simulator import Client, Operation, Plan
from tests.simulator.mutants.of_one import CLIENTS, wrong
from tests.simulator.simulation import Simulation, quiet
from tests.simulator.world import Violation

MOST = 90

_BLOCK = Operation(0, "acquire", None, 0.01, (), "block")
_IN_TIME = replace(_BLOCK, timeout=0.3, end="release")
_TRY = Operation(0, "try", 0.0, 0.01, (), "release")
_EXTEND = replace(_BLOCK, body=("extend:2",))
_AGAIN = replace(_BLOCK, body=("again",))
_INSPECT = Operation(0, "inspect")
_LONG = replace(_BLOCK, hold=2.5)
_PASS_ON = replace(_BLOCK, end="pass_on")
_COMMON = {
    "acquire": _BLOCK,
    "acquire in time": _IN_TIME,
    "try": _TRY,
    "extend": _EXTEND,
    "inspect": _INSPECT,
}


class Form(NamedTuple):
    """A primitive, and what is swept of it.

    Attributes:
        kind: Its kind in the registry.
        options: Its options.
        steps: What is done with it.
        other: What all others do meanwhile.
    """

    kind: str
    options: dict[str, Any]
    steps: dict[str, Operation]
    other: Operation = replace(_BLOCK, hold=0.02, rest=0.001)


_MUTEX = {**_COMMON, "long": _LONG}
_BEGIN = Operation(0, "begin", None, 0.01, (), "finish")
_WAIT = Operation(0, "wait", 0.3, rest=0.001)
_FORMS: dict[str, Form] = {
    "lock": Form("lock", {}, {**_MUTEX, "pass on": _PASS_ON}),
    "strict": Form("lock", {"handover": 0}, _MUTEX),
    "fixed": Form("lock", {"renew": False}, _MUTEX),
    "rlock": Form("rlock", {}, {**_MUTEX, "again": _AGAIN}),
    "semaphore": Form("semaphore", {"permits": 2}, {**_COMMON, "two": replace(_BLOCK, permits=2), "long": _LONG}),
    "reader": Form("rwlock_read", {}, {**_COMMON, "again": _AGAIN}),
    "writer": Form("rwlock_write", {}, {**_COMMON, "downgrade": replace(_BLOCK, body=("downgrade",)), "long": _LONG}),
    "multi_lock": Form("multi_lock", {}, {**_COMMON, "long": _LONG}),
    "election": Form("election", {}, {**_COMMON, "observe": Operation(0, "observe", hold=0.1)}),
    "once": Form(
        "once", {"keep": 0.05},
        {"begin": _BEGIN, "block": replace(_BEGIN, end="block"), "abandon": replace(_BEGIN, end="abandon"),
         "forget": Operation(0, "forget"), "inspect": _INSPECT},
        replace(_BEGIN, hold=0.02, rest=0.001),
    ),
    "latch": Form(
        "latch", {},
        {"wait": _WAIT, "count": Operation(0, "count"), "reset": Operation(0, "reset"), "inspect": _INSPECT},
        Operation(0, "count", rest=0.01),
    ),
    "barrier": Form("barrier", {}, {"wait": _WAIT, "inspect": _INSPECT}, _WAIT),
}  # fmt: skip
_LEAST_TICKET = 3.0
"""For how long a ticket that nobody took back keeps others waiting. Without one all is done long before."""
_REMEMBERED = b":seen", b":passed", b":fence", b":done"
"""Keys that remember what was done, so that a late copy is not done again; it ends by itself."""


def _plan(form: Form, step: Operation, api: str) -> Plan:
    ttl = 1.0 if step is _LONG else 30.0
    options = form.options if form.kind in ("latch", "barrier") else {"ttl": ttl, **form.options}
    others = Client("tasks", 1.0, False, ((form.other,) * 6, (form.other,) * 6))
    swept = Client(api, 1.0, False, ((step,), (form.other,) * 3))
    return Plan(1, ((form.kind, "a", options),), (swept, others), (), 0.0005, 0.0)


def _left(sim: Simulation) -> list[str]:
    """Keys in which the worker that was cancelled still waits, holds or listens."""
    store = sim.fleet.master.store
    store.begin(sim.fleet.master.us_at(sim.world.now))
    found: list[str] = []
    for key, value in store.data.items():
        if store.expires.get(key, store.now_ms) >= store.now_ms and not key.endswith(_REMEMBERED):
            found += [f"{key.decode()}: {part!r}" for part in _parts(value) if b"@c0:0/w0" in part]
    return found


def _parts(value: Value) -> list[bytes]:
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, ZSet):
        return [*value.scores]
    if isinstance(value, dict):
        # Who passed a barrier is remembered there too.
        return [part for pair in value.items() if not pair[1].startswith(b"p ") for part in pair]
    return value


def _sweep(plan: Plan, what: str) -> int:
    """Cancel the first worker at its n-th wait, for each n; how many waits there were."""
    step = plan.clients[0].workers[0][0]
    for wait in range(MOST):
        sim = Simulation(plan)
        task = sim.members[0].tasks[0]
        task.cancel(after=wait + 1)
        sim.run()
        cancelled = any(event[2:4] == ("w0", "cancelled") for event in sim.world.trace if event[1] == "c0")
        left = _left(sim)
        for member in sim.members:
            member.kill()
        if not sim.loose:
            assert not left, f"{what}, cancelled at wait {wait}"
            assert sim.world.now < _LEAST_TICKET + step.hold, (
                f"{what}, cancelled at wait {wait}, and it kept others waiting"
            )
        if not cancelled:
            return wait
    raise AssertionError(f"{what}: more than {MOST} waits")


@pytest.mark.parametrize("name", _FORMS)
def test_a_cancel_at_any_wait_leaves_nothing(name: str) -> None:
    form = _FORMS[name]
    with quiet():
        for what, step in form.steps.items():
            for api in ("tasks", "threads"):
                assert _sweep(_plan(form, step, api), f"{what} in {api}") >= 1


def test_a_sweep_sees_what_is_left() -> None:
    """By a client whose cancelled acquire takes its token back nowhere."""
    patches = CLIENTS["a cancelled acquire leaves its token"]()
    with quiet(), wrong(patches):
        for name in ("fixed", "semaphore", "writer", "multi_lock", "election"):
            with pytest.raises((AssertionError, Violation)):
                _sweep(_plan(_FORMS[name], _BLOCK, "tasks"), name)


def test_every_primitive_is_swept() -> None:
    known = {form.kind for form in _FORMS.values()} | {"fair_lock"}
    assert known == {*REGISTRY}
