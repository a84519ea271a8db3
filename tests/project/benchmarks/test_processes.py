"""The processes of a participant: that they are separate, and that none outlives the run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import pawlock
from benchmarks.process import Child, ParticipantError, Program
from benchmarks.worker import Job
from tests.support.pace import pace
from tests.support.servers import Server

PATIENCE = 30.0
SOON = {"start": 0.0, "seconds": 0.05, "section": 0.0}


def job(server: Server, workload: str = "crowd-threads") -> Job:
    return Job(peer="pawlock", workload=workload, url=server.url, name="crowd", workers=1)


def family(program: Program) -> list[int]:
    """Return the pids of a program that has split itself: the first is that of the one that waits."""
    first = program.pids[0]
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [first, *map(int, children)]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_until_gone(pids: list[int]) -> None:
    until = time.monotonic() + PATIENCE
    while not all(map(gone, pids)):
        assert time.monotonic() < until, pids
        time.sleep(0.01)


def work(children: list[Child]) -> list[int]:
    """Let them work at once; return how many grants each had."""
    for child in children:
        child.tell(SOON | {"start": time.monotonic() + 0.05})
    return [len(child.hear(PATIENCE)["events"]) for child in children]


@pytest.mark.parametrize("workload", ["crowd-threads", "crowd-tasks"])
def test_siblings_work_at_once_and_end_together(valkey: Server, workload: str) -> None:
    with Program(job(valkey, workload), number=3) as program:
        for child in program.children:
            child.hear(PATIENCE)
        pids = family(program)
        assert len(set(pids)) == 4
        # All of them in one such time, which is short: on a busy machine some may not be run in it at all.
        until = time.monotonic() + PATIENCE
        while not all(work(program.children)):
            assert time.monotonic() < until, "they do not work at once"
        clients = valkey.command("CLIENT", "LIST")
        assert isinstance(clients, bytes)
        assert clients.count(b"addr=127.0.0.1") >= 3
    wait_until_gone(pids)


def test_a_sibling_that_dies_is_told_of_and_takes_nobody_along(valkey: Server) -> None:
    with Program(job(valkey), number=2) as program:
        for child in program.children:
            child.hear(PATIENCE)
        os.kill(family(program)[1], signal.SIGKILL)
        with pytest.raises(ParticipantError, match=r"crowd: (died|ended early)"):
            program.children[0].ask(SOON | {"start": time.monotonic()}, PATIENCE)
        assert work(program.children[1:])[0] > 0


def test_who_is_in_the_middle_of_a_lock_is_ended_all_the_same(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, client.lock("crowd"):
        with Program(job(valkey), number=2) as program:
            for child in program.children:
                child.hear(PATIENCE)
                child.tell(SOON | {"start": time.monotonic()})
            pids = family(program)
            until = time.monotonic() + PATIENCE
            while client.inspect("crowd").queue_length < 2:
                assert time.monotonic() < until
                time.sleep(0.01)
        wait_until_gone(pids)


def test_a_worker_ends_with_its_input_whatever_it_is_doing(valkey: Server) -> None:
    with Program(job(valkey), number=2) as program:
        for child in program.children:
            child.hear(PATIENCE)
            child.tell(SOON | {"start": time.monotonic(), "seconds": 20 * PATIENCE})
        _, *workers = family(program)
        until = time.monotonic() + PATIENCE
        while not valkey.command("DBSIZE"):
            assert time.monotonic() < until
            time.sleep(0.01)
        for child in program.children:
            child.hang_up()
        wait_until_gone(workers)


RUNNER = [sys.executable, "-m", "benchmarks", "P4", "--only", "pawlock-strict,pawlock"]


def processes() -> dict[int, tuple[int, bytes]]:
    """Return the parent and the command line of each process that there is."""
    found: dict[int, tuple[int, bytes]] = {}
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parent = re.sub(r".*\) \S (\d+) .*", r"\1", (one / "stat").read_text(), flags=re.DOTALL)
            found[int(one.name)] = int(parent), (one / "cmdline").read_bytes()
    return found


def started_by(runner: subprocess.Popen[bytes]) -> list[int]:
    """Wait until a runner has its two participants, and return all that it has started, and they have."""
    # All libraries are imported first, and compiled where that was never done.
    until = time.monotonic() + pace() * PATIENCE
    while True:
        there = processes()
        theirs, new = set[int](), {runner.pid}
        while new:
            theirs |= new
            new = {pid for pid, (parent, _) in there.items() if parent in theirs} - theirs
        theirs.discard(runner.pid)
        # Its own alone: they split themselves in their turn, at a time that may pass between two looks.
        if sum(b"benchmarks.worker" in there[pid][1] for pid in theirs if there[pid][0] == runner.pid) == 2:
            return sorted(theirs)
        if time.monotonic() > until:
            runner.kill()
            raise AssertionError(f"it started these: {[there[pid] for pid in theirs]}")
        time.sleep(0.05)


@pytest.mark.timeout(600)
def test_a_runner_that_is_killed_leaves_nobody_behind() -> None:
    with subprocess.Popen(RUNNER, stdout=subprocess.DEVNULL) as runner:
        theirs = started_by(runner)
        runner.kill()
    wait_until_gone(theirs)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("word", [signal.SIGINT, signal.SIGTERM])
def test_a_runner_that_is_interrupted_tells_what_it_has(word: signal.Signals, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    with subprocess.Popen([*RUNNER, "--json", str(kept)], stdout=subprocess.PIPE) as runner:
        theirs = started_by(runner)
        runner.send_signal(word)
        told = runner.communicate(timeout=pace() * PATIENCE)[0].decode()
    assert runner.returncode == 130
    assert "P4" in told
    assert "P4" in json.loads(kept.read_text())["scenarios"]
    wait_until_gone(theirs)
