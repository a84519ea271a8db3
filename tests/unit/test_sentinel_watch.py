"""The thread that hears of failovers, where none can be started at first."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from pawlock.topology.endpoint import Endpoint, Sentinels
from pawlock.transport.sentinel import SentinelRoute
from tests.contract.edges.test_no_threads import Refusal, no_threads

__all__ = ["no_threads"]


def test_a_failover_is_listened_for_once_a_thread_can_be_started(no_threads: Refusal) -> None:
    nowhere = Endpoint("redis", "redis://nowhere", {})
    route = SentinelRoute(Sentinels("mymaster", (nowhere,), nowhere, "nowhere"))
    asked = threading.Event()

    def over() -> bool:
        asked.set()
        return True

    nodes: Any = SimpleNamespace(over=over)
    route.nodes = nodes
    assert not route.listen()
    no_threads.end()
    route.listen()
    assert asked.wait(10)
