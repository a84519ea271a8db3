"""Who is asked for the master and who is believed, and the thread that learns of failovers."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from pawlock.core.runtime import Fault, FaultKind, run
from pawlock.topology.endpoint import Endpoint, Sentinels
from pawlock.topology.sentinel import View, choose, read_view
from pawlock.transport.sentinel import SentinelRoute
from tests.contract.edges.test_no_threads import Refusal, no_threads

__all__ = ["no_threads"]


def test_failovers_are_watched_for_once_a_thread_can_be_started(no_threads: Refusal) -> None:
    nowhere = Endpoint("redis", "redis://nowhere", {})
    route = SentinelRoute(Sentinels("mymaster", (nowhere,), nowhere, "nowhere"))
    asked = threading.Event()

    def over() -> bool:
        asked.set()
        return True

    nodes: Any = SimpleNamespace(over=over)
    route.nodes = nodes
    assert not route.watch()
    no_threads.end()
    route.watch()
    assert asked.wait(10)


def test_most_are_believed_and_of_as_many_the_newer_configuration() -> None:
    old, new, never = View("a", 1, 5), View("b", 2, 6), View("c", 3, 9)
    assert choose([old]) == (old, 1)
    assert choose([old, new]) == (new, 1)
    assert choose([never, new, new]) == (new, 2)
    assert choose([old, new, old, new]) == (new, 2)


def test_who_conducts_a_failover_still_names_the_old_master() -> None:
    reply = [
        "ip",
        "a",
        "port",
        "1",
        "flags",
        "s_down,o_down,master,failover_in_progress",
        "config-epoch",
        "6",
    ]
    conducts, heard = read_view(reply), View("b", 2, 6)
    assert conducts == View("a", 1, 6, moving=True)
    assert choose([conducts, heard]) == choose([heard, conducts]) == (heard, 1)


class Crowd:
    """Three Sentinels, and what asks them; each has an epoch, or hangs."""

    on_move = None
    connect_timeout: float | None = None

    def __init__(self, **epochs: int | None) -> None:
        self.epochs = epochs
        self.asked: list[tuple[str, float]] = []
        sentinels = tuple(Endpoint("redis", shown, {}) for shown in epochs)
        self._route = SentinelRoute(Sentinels("mymaster", sentinels, Endpoint("redis", "", {}), "group"))
        nodes: Any = self
        self._route.nodes = nodes

    async def ask_node(self, endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> Any:
        """Answer for a Sentinel."""
        assert words == ("SENTINEL", "MASTER", "mymaster")
        self.asked.append((endpoint.shown, timeout))
        epoch = self.epochs[endpoint.shown]
        if epoch is None:
            raise Fault(FaultKind.UNREACHABLE, "no answer in time")
        return {b"ip": b"host", b"port": b"%d" % epoch, b"config-epoch": b"%d" % epoch}

    def leave_others(self, shown: str) -> bool:
        """There are no connections."""
        assert shown
        return False

    def over(self) -> bool:
        """No thread is to look."""
        return True

    def find(self) -> int:
        """The epoch of the master that is found; 0: none is."""
        try:
            return int(run(self._route.locate(("", 0), 3.0)).settings["port"])
        except Fault:
            return 0


def test_a_sentinel_that_hangs_costs_little_and_that_once() -> None:
    crowd = Crowd(first=None, second=1, third=1)
    assert [crowd.find() for _ in range(3)] == [1, 1, 1]
    assert [shown for shown, _ in crowd.asked] == ["first", "second", "third", *("second", "third") * 2]
    assert max(timeout for _, timeout in crowd.asked) < 0.2


def test_who_did_not_answer_soon_is_asked_again_while_too_few_did() -> None:
    crowd = Crowd(first=None, second=1)
    assert crowd.find() == 1
    assert [shown for shown, _ in crowd.asked] == ["first", "second", "first"]
    assert crowd.asked[2][1] == 0.5


def test_sentinels_that_are_far_away_have_the_time_of_the_user() -> None:
    crowd = Crowd(first=None, second=1, third=1)
    crowd.connect_timeout = 2.5
    assert crowd.find() == 1
    assert crowd.asked == [("first", 2.5), ("second", 2.5), ("third", 2.5)], (
        "haste would only break connections"
    )


def test_a_few_do_not_lead_back_to_a_former_master() -> None:
    crowd = Crowd(first=1, second=2, third=2)
    assert crowd.find() == 2
    crowd.epochs.update(second=None, third=None)
    assert crowd.find() == 0
    crowd.epochs.update(first=3)
    assert crowd.find() == 3
    crowd.epochs.update(second=1, third=1)
    assert crowd.find() == 1, "most of them may"
