"""Each acquisition is reported once, also one that consists of several."""

from __future__ import annotations

import pawlock
import pawlock.metrics
from tests.support.servers import Server


class _Outcomes:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def acquired(self, kind: str, name: str, *, waited: float, contended: bool, degraded: str) -> None:
        del waited, contended
        self.seen.append(f"{kind} {name} acquired {degraded}".rstrip())

    def refused(self, kind: str, name: str, *, waited: float, outcome: str) -> None:
        del waited
        self.seen.append(f"{kind} {name} {outcome}")

    def _ignore(self, *_: object, **__: object) -> None:
        pass

    queued = released = lost = counted = called = _ignore


def test_a_degraded_acquisition_is_not_a_failed_one_too() -> None:
    with Server() as server, pawlock.connect(server.url) as client:
        outcomes = _Outcomes()
        pawlock.metrics.observe(client, outcomes)
        with client.lock("a", on_unavailable="local", unavailable_after=0.2):
            pass
        with server.paused(), client.lock("a", on_unavailable="local", unavailable_after=0.2):
            pass
        assert outcomes.seen == ["lock a acquired", "lock a acquired local"]
