"""Three members, of which some die, stop, or lead no more: exclusion and fences hold, and outages are said and end."""

from __future__ import annotations

import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import pawlock
from tests.contract.contention.rig import Crowd, judge, send
from tests.etcd.rig import AGREED, queue, slow, stand
from tests.faults.rig import Api, until
from tests.support.etcd import Etcd

pytestmark = [pytest.mark.fault, pytest.mark.slow]

ELECTED = 5.0
"""Seconds within which there is another leader: its election timeouts are one second, and at times no candidate wins."""

CROWD: dict[str, Any] = {
    "crowd": 4,
    "turns": 1_000_000,
    "ttl": 10.0,
    "gap": 0.001,
    "options": '{"handover": 4}',
}


def longest_gap(crowd: Crowd) -> float:
    """The longest time between two grants."""
    starts = [span.start for span in crowd.spans()]
    return max(after - before for before, after in pairwise(starts))


def counted(crowd: Crowd) -> int:
    """How many grants there were, once each is known to have added one, and to have kept the rules."""
    grants = [
        entry
        for number in range(len(crowd.processes))
        for entry in crowd.journal(number)
        if entry["event"] == "granted"
    ]
    assert not judge(crowd.spans())
    fences = [entry["fence"] for entry in sorted(grants, key=lambda entry: float(entry["at"]))]
    assert fences == sorted(set(fences)), "fences rise strictly in the order of the grants"
    assert crowd.count == len(grants), "none is lost, and none counted twice"
    lost = [e for n in range(len(crowd.processes)) for e in crowd.journal(n) if e["event"] == "lost"]
    assert not lost
    return len(grants)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("apis", [["threads"] * 4, ["tasks"] * 4], ids=["threads", "asyncio"])
def test_counting_while_leaders_are_killed(three: Etcd, tmp_path: Path, apis: list[str]) -> None:
    with Crowd(three, tmp_path, apis, seconds=60, **CROWD) as crowd:
        crowd.go()
        killed = 0
        end = time.monotonic() + 60
        while time.monotonic() < end - 5:
            time.sleep(8)
            leader = three.leader()
            leader.kill()
            killed += 1
            time.sleep(2)
            three.start()
        crowd.finish(60)
        assert killed >= 5
        assert counted(crowd) > 200
        assert longest_gap(crowd) < slow(ELECTED + 5)


@pytest.mark.parametrize("leading", [False, True], ids=["follower", "leader"])
def test_a_member_that_stops_is_noticed_by_nothing_but_latency(
    three: Etcd, tmp_path: Path, *, leading: bool
) -> None:
    with Crowd(three, tmp_path, ["threads", "threads", "tasks", "tasks"], seconds=20, **CROWD) as crowd:
        crowd.go()
        time.sleep(4)
        # The clients begin at the first member.
        member = three.leader() if leading else next(m for m in three.members if m in three.followers())
        with member.paused():
            time.sleep(10)
        crowd.finish(60)
        assert counted(crowd) > 100
        assert longest_gap(crowd) < slow(ELECTED + 5)


def test_each_member_in_turn_is_stopped_under_a_lease(api: Api, three: Etcd) -> None:
    """Whichever member its client talks to: the lease is renewed in time, though its life is but a few seconds."""
    client = api.connect(three.url)
    lease = client.lock(ttl=6).acquire()
    for member in three.members:
        with member.paused():
            time.sleep(7)
            lease.check()
        three.wait_healthy()
    lease.release()


def test_a_majority_that_is_away_is_an_outage(api: Api, three: Etcd) -> None:
    """Typed errors, leases lost in time by their own clock, and all is well again when it is back."""
    told: list[tuple[float, Any]] = []
    client = api.connect(three.url, unavailable_after=3)
    lease = client.lock(ttl=4, on_lost=lambda lost: told.append((time.monotonic(), lost))).acquire()
    waiting = api.connect(three.url, unavailable_after=60).lock(ttl=4).start(60)
    stand(three, 2)
    with three.paused(*three.members[:2]):
        stopped = time.monotonic()
        with pytest.raises(pawlock.BackendUnavailable):
            client.lock("another").acquire(30)
        assert time.monotonic() - stopped < slow(3 + 3)
        until(lambda: lease.state == "lost", 10, "it is lost")
        # No later than a ttl after the last renewal before the stop.
        assert told
        assert told[0][0] - stopped < slow(4.5)
        assert lease.reason in {"unreachable", "expired"}
        assert not waiting.done()
        with pytest.raises(pawlock.BackendUnavailable):
            client.lock("another", unavailable_after=0.5).try_acquire()
    later = waiting.result(slow(ELECTED + 4 + AGREED + 5))
    assert later.fence > lease.fence
    later.release()
    client.lock("another").acquire(slow(ELECTED)).release()


def test_two_killed_and_started_again(api: Api, three: Etcd) -> None:
    client = api.connect(three.url)
    fence = client.lock().acquire(10)
    fence.release()
    for member in three.members[1:]:
        member.kill()
    with pytest.raises(pawlock.BackendUnavailable):
        client.lock(unavailable_after=2).acquire(30)
    three.start()
    assert client.lock().acquire(slow(ELECTED)).fence > fence.fence


def test_a_waiter_outlives_a_change_of_leaders(api: Api, three: Etcd) -> None:
    held = api.connect(three.url).lock(ttl=10).acquire()
    waiting = api.connect(three.url).lock(ttl=10).start(60)
    stand(three, 2)
    for _ in range(2):
        leader = three.leader()
        leader.kill()
        three.leader()
        three.start()
    held.check()
    held.release()
    assert waiting.result(slow(3)).fence > held.fence


def test_the_member_that_serves_a_watch_is_stopped(api: Api, three: Etcd) -> None:
    """The watch is silent for good, and nothing says so: the waiter asks by itself, and then another member."""
    held = api.connect(three.url_of(three.members[2])).lock(ttl=30).acquire()
    waiting = api.connect(three.url).lock(ttl=30, ticket_ttl=6).start(60)
    stand(three, 2)
    time.sleep(0.5)
    with three.members[0].paused():
        # Where that was the leader, the others need another first.
        time.sleep(0 if three.leader() is not three.members[0] else ELECTED)
        held.release()
        waiting.result(slow(ELECTED + 6))


def test_many_requests_fail_at_one_member_at_one_time(api: Api, three: Etcd) -> None:
    """Each of them says that it failed; all go on at another one, and not round to the same."""
    client = api.connect(three.url, unavailable_after=60)
    held = [client.lock(f"n{number}", ttl=10).acquire() for number in range(6)]
    leader = three.leader()
    with three.members[0].paused():
        time.sleep(0 if leader is not three.members[0] else ELECTED)
        waiting = [client.lock(f"m{number}", ttl=10).start(30) for number in range(9)]
        for one in waiting:
            one.result(slow(ELECTED + 5)).release()
        time.sleep(10)
        for lease in held:
            lease.check()


def test_a_process_of_a_crowd_that_is_stopped_again_and_again(three: Etcd, tmp_path: Path) -> None:
    """It holds, is stopped for longer than its lease lives, and goes on: the others have gone on before."""
    orders = {**CROWD, "ttl": 3.0, "hold": 0.02, "counter": False}
    with Crowd(three, tmp_path, ["threads", "tasks", "threads", "tasks"], seconds=20, **orders) as crowd:
        crowd.go()
        time.sleep(3)
        for _ in range(3):
            send(crowd.processes[0], signal.SIGSTOP)
            time.sleep(4)
            send(crowd.processes[0], signal.SIGCONT)
            time.sleep(1)
        crowd.finish(60)
        assert not judge(crowd.spans())
    assert queue(three, "crowd") == 0
