"""``Election.run``: one of several candidates runs the function, and the next one after each kind of end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import pawlock
from tests.contract.gates.rig import Made, make, number, program, says
from tests.faults.rig import Api, remains, until
from tests.support.servers import Server

KEY = "pawlock:%election:cron"
QUEUE = "{pawlock:%election:cron}:1:queue"
QUICK = (0.05, 0.1)
CANDIDATE = """
import asyncio, os, pawlock, signal, sys, time
url, api = sys.argv[1:]

def say(lease):
    print(os.getpid(), lease.fence, flush=True)

def threads():
    def lead(lease):
        say(lease)
        while not lease.lost.wait(0.02):
            pass
    with pawlock.connect(url) as client:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("ready", flush=True)
        client.election("cron", ttl=2).run(lead)

async def tasks():
    async def lead(lease):
        say(lease)
        await asyncio.sleep(3600)
    async with pawlock.connect_async(url) as client:
        task = asyncio.ensure_future(client.election("cron", ttl=2).run(lead))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        print("ready", flush=True)
        await asyncio.wait([task])

asyncio.run(tasks()) if api == "asyncio" else threads()
"""


class Work:
    """The leader's function in either API: notes each start and end, and goes on until it is let go."""

    def __init__(self, api: Api) -> None:
        self.fences: list[int] = []
        self.ended: list[str] = []
        self.done = threading.Event()
        self.result: object = "done"
        self.raises: list[Exception] = []
        self.function: Callable[[Any], Any] = self.task if api.name == "asyncio" else self.thread

    def _begin(self, lease: pawlock.Lease | pawlock.AsyncLease) -> None:
        self.fences.append(lease.fence)
        if self.raises:
            raise self.raises.pop()

    def begun(self) -> bool:
        return bool(self.fences)

    def thread(self, lease: pawlock.Lease) -> object:
        self._begin(lease)
        while not self.done.is_set():
            if lease.lost.wait(0.01):
                break
        self.ended.append("lost" if lease.lost else "done")
        lease.check()
        return self.result

    async def task(self, lease: pawlock.AsyncLease) -> object:
        self._begin(lease)
        try:
            while not self.done.is_set():  # noqa: ASYNC110 - it is set by another thread
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.ended.append("lost" if lease.lost else "cancelled")
            raise
        self.ended.append("done")
        return self.result


def runs(election: Made, work: Work, **options: object) -> Future[Any]:
    found: Future[Any] = election.start("run", work.function, **{"backoff": QUICK, **options})
    return found


def test_one_runs_and_its_result_is_returned_then_the_next_one_runs(clean: Server, api: Api) -> None:
    one, two = (make(api.connect(clean.url), "election", "cron", identity=who) for who in ("one", "two"))
    first, second = Work(api), Work(api)
    running = runs(one, first)
    until(lambda: first.fences)
    waiting = runs(two, second)
    assert not second.fences
    assert two.do("leader").identity == "one"
    first.done.set()
    assert running.result(20) == "done"
    until(lambda: second.fences)
    second.done.set()
    assert waiting.result(20) == "done"
    assert second.fences[0] > first.fences[0]
    assert not remains(clean)


def test_a_lost_lead_ends_the_function_and_it_stands_again(clean: Server, api: Api) -> None:
    election, work = make(api.connect(clean.url), "election", "cron", ttl=0.6), Work(api)
    running = runs(election, work)
    until(lambda: work.fences)
    clean.command("DEL", KEY)
    until(lambda: len(work.fences) == 2, what="the second term")
    assert work.ended == ["lost"]
    work.done.set()
    assert running.result(20) == "done"
    assert work.fences == sorted(set(work.fences))


def test_a_function_that_raises_resigns_pauses_and_runs_again(
    clean: Server, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    election, work = make(api.connect(clean.url), "election", "cron"), Work(api)
    work.raises = [ValueError("third"), ValueError("second"), ValueError("first")]
    with caplog.at_level(logging.WARNING, "pawlock.election"):
        running = runs(election, work)
        until(lambda: len(work.fences) == 4)
    work.done.set()
    assert running.result(20) == "done"
    said = [record.getMessage() for record in caplog.records if record.name == "pawlock.election"]
    assert len(said) == 3
    assert "ValueError: first" in said[0]
    assert work.fences == sorted(set(work.fences)), "it resigned each time"


@pytest.mark.parametrize("leading", [True, False], ids=["leading", "waiting"])
def test_stop_and_close_end_it_and_leave_nothing(clean: Server, api: Api, *, leading: bool) -> None:
    def waits() -> bool:
        return number(clean, "ZCARD", QUEUE) > 0

    for end in ("stop", "close"):
        other = make(api.connect(clean.url), "election", "cron")
        keeper = Work(api)
        kept = None if leading else runs(other, keeper)
        if kept:
            until(keeper.begun)
        client = api.connect(clean.url)
        election, work, stop = make(client, "election", "cron"), Work(api), threading.Event()
        running = runs(election, work, stop=stop)
        until(work.begun if leading else waits)
        if end == "stop":
            stop.set()
            if api.name == "threads":
                work.done.set()  # what watches the event returns
        else:
            api.run(client.raw.close)
        ended = running.result(20)
        assert ended in (None, "done")
        assert ended is None or (leading and end == "stop" and api.name == "threads")
        keeper.done.set()
        if kept:
            assert kept.result(20) == "done"
        until(lambda: not remains(clean), what="nothing is left")


def test_it_stands_again_when_the_server_is_back(own_server: Server, api: Api) -> None:
    client = api.connect(own_server.url)
    election = make(client, "election", "cron", ttl=0.8, unavailable_after=0.3)
    work = Work(api)
    running = runs(election, work)
    until(lambda: work.fences)
    own_server.kill()
    until(lambda: work.ended == ["lost"], what="the loss")
    own_server.start()
    until(lambda: len(work.fences) == 2, timeout=30, what="the second term")
    work.done.set()
    assert running.result(30) == "done"


async def test_the_caller_may_cancel_it_and_a_function_that_cleans_up_has_ended_before(clean: Server) -> None:
    steps: list[str] = []

    async def lead(lease: pawlock.AsyncLease) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            lease.check()
            steps.append("cleaned up while it still led")

    async with pawlock.connect_async(clean.url) as client:
        running = asyncio.ensure_future(client.election("cron").run(lead))
        while not await client.election("cron").leader():  # noqa: ASYNC110 - the server is asked
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert steps == ["cleaned up while it still led"]
        assert await client.election("cron").leader() is None


def test_wrong_arguments_are_refused_and_a_leader_cannot_stand_again(clean: Server) -> None:
    with pawlock.connect(clean.url) as client:
        election = client.election("cron")
        for wrong in ((0, 1), (1, -1), ("x", 1)):
            with pytest.raises(pawlock.ConfigurationError, match="backoff"):
                election.run(lambda _lease: None, backoff=wrong)  # type: ignore[arg-type]
        with election.campaign(), pytest.raises(pawlock.DeadlockDetected):
            election.run(lambda _lease: None)


@pytest.mark.parametrize("api", ["threads", "asyncio"])
def test_of_several_processes_one_runs_and_the_next_follows_a_kill_and_a_term(
    clean: Server, api: str
) -> None:
    with program(CANDIDATE, clean.url, api) as one, program(CANDIDATE, clean.url, api) as two:
        processes: dict[int, Any] = {one.pid: one, two.pid: two}
        until(lambda: clean.command("EXISTS", KEY))
        first = leader_pid(clean)
        pid, fence = map(int, says(processes[first]).split())
        assert pid == first
        second = next(iter(set(processes) - {first}))
        os.kill(first, signal.SIGKILL)
        pid, later = map(int, says(processes[second]).split())
        assert (pid, later > fence) == (second, True)
        began = time.monotonic()
        os.kill(second, signal.SIGTERM)
        assert processes[second].wait(30) == 0
        until(lambda: not clean.command("EXISTS", KEY), what="it resigned")
        assert time.monotonic() - began < 30


def leader_pid(server: Server) -> int:
    value = server.command("GET", KEY)
    assert isinstance(value, bytes)
    return int(value.decode().rpartition(":")[2].partition("/")[0])
