"""The guard of the hot paths: it holds today, and what costs a fifth more does not pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import pawlock
from benchmarks import guard
from tests.support.servers import Server


@pytest.fixture(scope="module")
def idle() -> Iterator[Server]:
    with Server(persist=False) as server:
        yield server


@pytest.fixture
def baseline() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(guard.BASELINE.read_text())
    return document


def test_no_hot_path_costs_more_than_it_may(idle: Server, baseline: dict[str, Any]) -> None:
    assert set(baseline["paths"]) == set(guard.PATHS)
    found = [
        line for name in guard.PATHS for line in guard.compare(name, guard.measure(idle, name), baseline)
    ]
    assert found == []


def test_more_calls_and_one_more_round_trip_are_found(
    idle: Server, baseline: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    release, more = pawlock.Lease.release, int(baseline["paths"]["lock"]["calls"] / 5) + 1

    def wasteful(lease: pawlock.Lease) -> None:
        for number in range(more):
            abs(number)
        release(lease)

    def chatty(lease: pawlock.Lease) -> None:
        lease.extend(30)
        release(lease)

    baseline["python"] = guard.this_python()
    monkeypatch.setattr(pawlock.Lease, "release", wasteful)
    found = " ".join(guard.compare("lock", guard.measure(idle, "lock"), baseline))
    assert "lock: calls " in found
    monkeypatch.setattr(pawlock.Lease, "release", chatty)
    found = " ".join(guard.compare("lock", guard.measure(idle, "lock"), baseline))
    assert all(f"lock: {what} " in found for what in ("commands", "socket_calls", "bytes_in", "server_calls"))


def test_each_cost_is_held(baseline: dict[str, Any]) -> None:
    for what in guard.TOLERANCE:
        costs = dict(baseline["paths"]["semaphore"])
        assert guard.compare("semaphore", costs, baseline) == []
        costs[what] *= 1 + guard.TOLERANCE[what] + guard.OTHER_PYTHON + 0.1
        assert [line.split()[1] for line in guard.compare("semaphore", costs, baseline)] == [what]
