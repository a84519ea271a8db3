"""Processes that die or stop in the middle of their turn: the others go on, and no two leases overlap."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import time
from pathlib import Path
from time import monotonic as now
from typing import Any

import pytest

import pawlock
from tests.contract.contention.rig import Crowd, eventually, judge, left_over, send
from tests.support.servers import Server

TTL = 1.0
APIS = {"threads": ["threads"] * 4, "tasks": ["tasks"] * 4}


def in_its_turn(crowd: Crowd, number: int) -> dict[str, Any] | None:
    """The last note of a process, if it stands in its turn now: nobody has a later one."""
    entries = crowd.journal(number)
    if not entries or entries[-1]["event"] in {"lost", "over"} or crowd.holder() != number:
        return None
    return entries[-1] if now() - entries[-1]["at"] < 0.02 else None


def stop_in_its_turn(crowd: Crowd, number: int) -> dict[str, Any]:
    """SIGSTOP a process while it holds; its last note then."""
    process = crowd.processes[number]
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        if in_its_turn(crowd, number):
            send(process, signal.SIGSTOP)
            time.sleep(0.05)
            last = crowd.journal(number)[-1]
            if crowd.holder() == number and last["event"] not in {"lost", "over"}:
                # Nobody was granted it since, and it is not about to pass it on: it was stopped inside its turn.
                return last
            send(process, signal.SIGCONT)
    raise AssertionError("the process never had its turn")


@pytest.mark.fault
@pytest.mark.parametrize(
    "apis", [APIS["threads"], pytest.param(APIS["tasks"], marks=pytest.mark.slow)], ids=APIS
)
def test_one_is_killed_and_one_is_stopped_past_its_ttl(
    valkey: Server, tmp_path: Path, apis: list[str]
) -> None:
    valkey.command("FLUSHALL")
    orders: dict[str, Any] = {
        "crowd": 8,
        "turns": 15,
        "ttl": TTL,
        "hold": 0.005,
        "options": json.dumps({"handover": 4}),
    }
    with Crowd(valkey, tmp_path, apis, **orders) as crowd:
        crowd.go()
        stopped = stop_in_its_turn(crowd, 0)
        fence = int(stopped["fence"])
        eventually(
            lambda: any(e["fence"] > fence for n in (1, 2, 3) for e in crowd.journal(n)), "others go on"
        )
        # Killed wherever it is, with its tickets in the queue.
        eventually(lambda: in_its_turn(crowd, 1), "the one to be killed has its turn")
        send(crowd.processes[1], signal.SIGKILL)
        killed_at = now()
        eventually(
            lambda: any(e["at"] > killed_at + 0.02 for n in (2, 3) for e in crowd.journal(n)),
            "others go on again",
        )
        resumed_at = now()
        assert resumed_at > stopped["valid_until"]
        guarded = max(int(e["fence"]) for n in (2, 3) for e in crowd.journal(n))
        crowd_guard(tmp_path, guarded)
        send(crowd.processes[0], signal.SIGCONT)
        crowd.finish(timeout=60.0, but=1)
        spans = crowd.spans()
        assert judge(spans) == []
        lost = [e for e in crowd.journal(0) if e["event"] == "lost" and e["fence"] == fence]
        assert len(lost) == 1, "the stopped owner was told, once"
        assert "LeaseLost" in lost[0]["how"]
        assert lost[0]["rows"] == 0, "the fence stopped its late write"
        late = [
            e
            for e in crowd.journal(0)
            if e["event"] == "alive" and e["fence"] == fence and e["at"] >= resumed_at
        ]
        assert late == [], "it did nothing more under the lost lease"
    # The next comer finds the dead ones' tickets, and clears them away.
    with pawlock.connect(valkey.url) as client:
        client.lock("crowd", ttl=TTL).acquire(timeout=TTL + 5.0).release()
    assert left_over(valkey, "crowd") == []


@pytest.mark.fault
def test_a_stopped_task_that_never_checks_is_told_at_its_next_await(valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    orders: dict[str, Any] = {
        "crowd": 1,
        "turns": 1,
        "ttl": TTL,
        "hold": 30.0,
        "check": False,
        "counter": False,
    }
    with Crowd(valkey, tmp_path, ["tasks"], **orders) as crowd:
        crowd.go()
        last = stop_in_its_turn(crowd, 0)
        with pawlock.connect(valkey.url) as client:
            lease = client.lock("crowd").acquire(timeout=10.0)
            crowd_guard(tmp_path, lease.fence)
            resumed_at = now()
            assert resumed_at > last["valid_until"]
            send(crowd.processes[0], signal.SIGCONT)
            crowd.finish(timeout=20.0)
            lease.check()
            lease.release()
        entries = crowd.journal(0)
        assert entries[-1]["event"] == "lost"
        assert "LeaseLost" in entries[-1]["how"]
        assert entries[-1]["rows"] == 0
        # The await that was under way at the stop may end; the next one is cancelled.
        assert len([e for e in entries if e["event"] == "alive" and e["at"] >= resumed_at]) <= 1


def crowd_guard(folder: Path, fence: int) -> None:
    """Let the guarded row have seen a fence, as a write of the newer owner does."""
    with contextlib.closing(sqlite3.connect(folder / "guarded.db", timeout=20.0)) as db, db:
        assert db.execute("UPDATE guarded SET fence = :f WHERE fence <= :f", {"f": fence}).rowcount == 1
