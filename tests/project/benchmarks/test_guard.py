"""The guard of the hot paths: it holds today, and what costs a fifth more does not pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import pawlock
from benchmarks import guard
from pawlock.core.protocol.runtime import Call
from pawlock.primitives.mutex import Mutex
from tests.support.servers import Server


@pytest.fixture(scope="module")
def idle() -> Iterator[Server]:
    with Server(persist=False) as server:
        yield server


@pytest.fixture
def baseline() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(guard.BASELINE.read_text())
    return document


def test_every_path_has_a_baseline(baseline: dict[str, Any]) -> None:
    assert set(baseline["paths"]) == set(guard.PATHS)
    assert all(set(costs) == set(guard.TOLERANCE) for costs in baseline["paths"].values())


@pytest.mark.parametrize("name", guard.PATHS)
def test_no_hot_path_costs_more_than_it_may(idle: Server, baseline: dict[str, Any], name: str) -> None:
    assert guard.compare(name, guard.measure(idle, name), baseline) == []


def test_a_fifth_more_calls_are_found(
    idle: Server, baseline: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = int(baseline["paths"]["lock"]["calls"] / 5) + 1
    acquire = Mutex.acquire

    def wasteful(*args: Any, **options: Any) -> Call:
        for number in range(more):
            abs(number * number + 2 * number - number)
        return acquire(*args, **options)

    monkeypatch.setattr(Mutex, "acquire", wasteful)
    baseline["python"] = guard.this_python()
    found = guard.compare("lock", guard.measure(idle, "lock"), baseline)
    assert any(line.startswith("lock: calls ") for line in found), found
    assert any(line.startswith("lock: instructions ") for line in found), found


def test_one_more_round_trip_is_found(
    idle: Server, baseline: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    release = pawlock.Lease.release

    def chatty(lease: pawlock.Lease) -> None:
        lease.extend(30)
        release(lease)

    monkeypatch.setattr(pawlock.Lease, "release", chatty)
    found = " ".join(guard.compare("lock", guard.measure(idle, "lock"), baseline))
    assert all(f"lock: {what} " in found for what in ("commands", "socket_calls", "bytes_in", "server_calls"))


@pytest.mark.parametrize("what", guard.TOLERANCE)
def test_each_cost_is_held(baseline: dict[str, Any], what: str) -> None:
    costs = dict(baseline["paths"]["semaphore"])
    assert guard.compare("semaphore", costs, baseline) == []
    costs[what] *= 1 + guard.TOLERANCE[what] + guard.OTHER_PYTHON + 0.1
    assert [line.split()[1] for line in guard.compare("semaphore", costs, baseline)] == [what]
