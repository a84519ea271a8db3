"""Increments of an unprotected counter under one lock of five masters, some of which are broken meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.contract.redlock.conftest import Cluster
from tests.faults.clock.shifted import ShiftedServer, why_not
from tests.support.servers import Server

WORKER = """
import asyncio, json, os, sys, time
import pawlock
order = json.loads(sys.argv[1])
options = pawlock.RedlockOptions(fresh=True, max_ttl=order["max_ttl"])
worst, fences = 0.0, []

def bump(lease):
    with open(order["counter"], "r+") as file:
        value = int(file.read())
        file.seek(0)
        file.write(str(value + 1))
    fences.append(lease.fence)

def threads():
    global worst
    client = pawlock.connect(order["urls"], redlock=options, ttl=order["ttl"])
    for _ in range(order["turns"]):
        began = time.monotonic()
        with client.lock("counter").acquire(timeout=60) as lease:
            worst = max(worst, time.monotonic() - began)
            bump(lease)
    client.close()

async def tasks():
    async def worker(turns):
        global worst
        for _ in range(turns):
            began = time.monotonic()
            async with client.lock("counter").acquire(timeout=60) as lease:
                worst = max(worst, time.monotonic() - began)
                bump(lease)
    async with pawlock.connect_async(order["urls"], redlock=options, ttl=order["ttl"]) as client:
        await asyncio.gather(*[worker(order["turns"] // 4) for _ in range(4)])

threads() if order["api"] == "threads" else asyncio.run(tasks())
print(json.dumps({"worst": worst, "fences": fences}))
"""


def kill_and_restart_empty(server: Server, dice: random.Random) -> None:
    """It forgets everything."""
    server.restart(keep_data=False)


def hang(server: Server, dice: random.Random) -> None:
    """It stops for a while, and goes on as if nothing had been."""
    with server.paused():
        time.sleep(dice.uniform(0.05, 0.6))


def flush_scripts(server: Server, dice: random.Random) -> None:
    """It knows no script any more."""
    server.command("SCRIPT", "FLUSH")


def cut_connections(server: Server, dice: random.Random) -> None:
    """Every client has to come again."""
    server.command("CLIENT", "KILL", "TYPE", "normal")


def jump_the_clock(server: Server, dice: random.Random) -> None:
    """Its wall clock is an hour off, or right again."""
    if isinstance(server, ShiftedServer):
        server.jump(dice.choice((-3600, -1, 0, 1, 3600)))


NEMESES = (kill_and_restart_empty, hang, flush_scripts, cut_connections, jump_the_clock)


def torment(servers: list[Server], over: threading.Event, told: list[str]) -> None:
    """Break one or two of five, again and again; never a third before the first two are whole."""
    dice = random.Random(11)
    while not over.wait(dice.uniform(0.05, 0.3)):
        nemesis = dice.choice(NEMESES)
        server = dice.choice(servers[:2])
        told.append(nemesis.__name__)
        nemesis(server, dice)


def count(five: Cluster, folder: Path, turns: int, *, break_some: bool) -> tuple[list[int], float, list[str]]:
    """Let three processes of both APIs count; the fences in the order of each, the worst wait, what was broken."""
    counter = folder / "counter"
    counter.write_text("0" + " " * 20)
    counter.write_text("0")
    order = {"urls": five.urls, "counter": str(counter), "turns": turns, "ttl": 2, "max_ttl": 2}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, json.dumps({**order, "api": api})],
            stdout=subprocess.PIPE, text=True, env={**os.environ},
        )
        for api in ("threads", "asyncio", "threads")
    ]  # fmt: skip
    over = threading.Event()
    told: list[str] = []
    nemesis = threading.Thread(target=torment, args=(five.servers, over, told))
    if break_some:
        nemesis.start()
    fences: list[int] = []
    worst = 0.0
    try:
        for worker in workers:
            out, _ = worker.communicate(timeout=500)
            assert worker.returncode == 0
            report = json.loads(out)
            assert report["fences"] == sorted(set(report["fences"]))
            fences += report["fences"]
            worst = max(worst, report["worst"])
    finally:
        over.set()
        if break_some:
            nemesis.join()
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            worker.wait()
    assert int(counter.read_text()) == 3 * turns
    assert len(set(fences)) == 3 * turns
    return fences, worst, told


def test_three_clients_that_split_votes_are_all_served(five: Cluster, tmp_path: Path) -> None:
    _, worst, _ = count(five, tmp_path, 40, break_some=False)
    print(f"worst wait of 120 acquisitions by 3 processes: {worst:.2f} s")
    assert worst < 30


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:4 masters:RuntimeWarning")
def test_three_clients_on_four_nodes_where_votes_split_half_and_half_are_all_served(tmp_path: Path) -> None:
    four = Cluster(4)
    try:
        _, worst, _ = count(four, tmp_path, 60, break_some=False)
    finally:
        four.stop()
    print(f"worst wait of 180 acquisitions by 3 processes: {worst:.2f} s")
    assert worst < 30


@pytest.mark.slow
def test_a_minority_that_is_killed_stopped_and_emptied_costs_no_increment(
    own_five: Cluster, tmp_path: Path
) -> None:
    _, worst, told = count(own_five, tmp_path, 300, break_some=True)
    assert told
    print(f"worst wait: {worst:.2f} s; broken: {len(told)} times")


def counted_under_torment(folder: Path, turns: int) -> tuple[float, list[str]]:
    """Count on five servers of which two are killed, stopped, emptied, cut off and moved in time again and again."""
    if reason := why_not():
        pytest.skip(reason)
    clocks = folder / "clocks"
    clocks.mkdir()
    five = Cluster(5, lambda: ShiftedServer(clocks, unix=False))
    try:
        _, worst, told = count(five, folder, turns, break_some=True)
    finally:
        five.stop()
    return worst, told


@pytest.mark.slow
def test_clocks_that_jump_cost_no_increment_either(tmp_path: Path) -> None:
    worst, told = counted_under_torment(tmp_path, 200)
    assert told
    print(f"worst wait: {worst:.2f} s; broken: {len(told)} times")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_increments_with_a_minority_broken_all_the_time(tmp_path: Path) -> None:
    worst, told = counted_under_torment(tmp_path, 3400)
    assert set(told) == {nemesis.__name__ for nemesis in NEMESES}
    print(f"worst wait: {worst:.2f} s; broken: {len(told)} times")
