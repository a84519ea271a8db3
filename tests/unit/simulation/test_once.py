"""What is done once, in the simulator: who comes after a starter that died, and whoever waits for a result."""

from __future__ import annotations

from tests.simulator import Client, Fault, Operation, Plan
from tests.simulator.simulation import Result, quiet, run

TTL = 1.0
LATER = 0.5
"""Seconds after the end of a dead starter's lease within which a waiter starts."""

_BEGIN = Operation(0, "begin", None, 0.01, (), "finish")


def _run(first: Operation, *faults: Fault) -> Result:
    """One client starts, two others come a moment later and wait."""
    clients = (
        Client("tasks", 1.0, False, ((first,),)),
        *[
            Client(api, 1.0, False, ((Operation(0, "inspect", rest=0.05), _BEGIN),))
            for api in ("tasks", "threads")
        ],
    )
    locks = (("once", "a", {"ttl": TTL, "keep": 60.0}),)
    with quiet():
        result = run(Plan(1, locks, clients, faults, 0.0005, 0.0))
    assert not result.violation
    return result


def _granted(result: Result) -> list[float]:
    return [event[0] for event in result.trace if event[3:4] == ("granted",)]


def test_whoever_waits_gets_the_result_at_once() -> None:
    result = _run(Operation(0, "begin", None, 0.5, (), "finish"))
    assert len(_granted(result)) == 1
    assert (result.counts["finished"], result.counts["done"]) == (1, 2)
    assert result.seconds < 0.52, "they waited for more than a message"


def test_the_next_starts_within_the_life_of_a_dead_starter() -> None:
    result = _run(Operation(0, "begin", None, 60.0, (), "finish"), Fault("kill", 0.3, 90.0, 0))
    first, second = _granted(result)
    # Renewed at most until it was killed.
    assert first + TTL < second < 0.3 + TTL + LATER
    assert (result.counts["finished"], result.counts["done"]) == (1, 1)


def test_the_next_starts_at_once_after_one_that_gives_up() -> None:
    result = _run(Operation(0, "begin", None, 0.3, (), "abandon"))
    first, second = _granted(result)
    assert second - first < 0.32
    assert (result.counts["finished"], result.counts["done"]) == (1, 1)


def test_a_stale_holder_records_nothing() -> None:
    late = Operation(0, "begin", None, 0.5, ("blind",), "finish")
    result = _run(late, Fault("pause", 0.3, 3.0, 0))
    assert len(_granted(result)) == 2
    assert result.counts["finished"] == 1
    assert any(event[3:4] == ("LeaseLost",) for event in result.trace)
