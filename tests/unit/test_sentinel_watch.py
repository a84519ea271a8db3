"""The thread that hears of failovers, where none can be started at first."""

from __future__ import annotations

from pawlock.topology.endpoint import Endpoint, Sentinels
from pawlock.transport.sentinel import MasterWatch
from tests.contract.edges.test_no_threads import Refusal, no_threads

__all__ = ["no_threads"]


def test_a_failover_is_listened_for_once_a_thread_can_be_started(no_threads: Refusal) -> None:
    nowhere = Endpoint("redis", "redis://nowhere", {})
    watch = MasterWatch(Sentinels("mymaster", (), nowhere, "nowhere"), lambda: None, lambda: True)
    assert watch.begin() is None
    no_threads.end()
    assert watch.begin() is watch
    watch.stop()
    watch.join(10)
