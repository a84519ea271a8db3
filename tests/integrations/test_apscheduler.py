"""``pawlock.integrations.apscheduler``: of several schedulers with the same jobs, the one that leads fires them."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apscheduler.events import EVENT_JOB_MISSED
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.redis import RedisJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_RUNNING
from apscheduler.schedulers.blocking import BlockingScheduler
from apscheduler.triggers.interval import IntervalTrigger

import pawlock
from pawlock.integrations.apscheduler import lead
from tests.contract.edges.helpers import run_script
from tests.nightly.apps.rig import until
from tests.support.servers import Server

EVERY = 0.05


class Log:
    """Who fired, in order."""

    def __init__(self) -> None:
        self.fired: list[str] = []

    def job(self, word: str) -> None:
        self.fired.append(word)

    async def async_job(self, word: str) -> None:
        self.fired.append(word)

    def after(self, count: int, word: str) -> bool:
        return word in self.fired[count:]


def background(log: Log, word: str) -> Any:
    scheduler = BackgroundScheduler()
    scheduler.add_job(log.job, "interval", seconds=EVERY, args=[word], id="job", max_instances=5)
    return scheduler


def test_one_of_two_schedulers_fires_and_shutdown_passes_the_lead_on(server: Server) -> None:
    log = Log()
    with pawlock.connect(server.url) as one, pawlock.connect(server.url) as two:
        first = background(log, "one")
        leading = lead(first, one.election("cron"))
        until("one fires", lambda: log.after(0, "one"))
        assert leading.lease.fence
        second = background(log, "two")
        waiting = lead(second, two.election("cron"))
        fired = len(log.fired)
        until("one fires on", lambda: len(log.fired) > fired + 5)
        assert set(log.fired) == {"one"}
        with pytest.raises(pawlock.NotHeld):
            print(waiting.lease)
        first.shutdown()
        ended = len(log.fired)
        until("two fires", lambda: log.after(ended, "two"))
        assert set(log.fired[ended:]) == {"two"}
        assert not leading.leading
        second.shutdown()
        assert one.election("cron").leader() is None
    left = threading.enumerate()
    assert [thread.name for thread in left if thread.name.startswith(("pawlock-apsch", "APSch"))] == []


def test_a_lead_that_is_taken_away_stops_the_firing(server: Server) -> None:
    log = Log()
    with pawlock.connect(server.url, ttl=1.5) as client:
        scheduler = background(log, "one")
        with lead(scheduler, client.election("cron")) as leading:
            until("it fires", lambda: log.fired)
            fence = leading.lease.fence
            server.command("DEL", "pawlock:%election:cron")
            until(
                "it leads anew", lambda: leading.leading and leading._lease and leading._lease.fence > fence
            )
            fired = len(log.fired)
            until("it fires again", lambda: len(log.fired) > fired)
        fired = len(log.fired)
        time.sleep(4 * EVERY)
        assert len(log.fired) <= fired + 1, "one may have been on its way"
        assert scheduler.running
        scheduler.shutdown()


def test_no_job_fires_after_the_lease_ended_even_before_the_pause(server: Server) -> None:
    """As after SIGCONT: the scheduler's thread may run before the one that pauses it."""
    log = Log()
    with pawlock.connect(server.url) as client:
        scheduler = BackgroundScheduler()
        leading = lead(scheduler, client.election("cron"))
        until("it leads", lambda: scheduler.state == 1)
        leading._stop_leading = lambda: None  # type: ignore[method-assign]
        leading._election.resign()
        scheduler.add_job(log.job, args=["late"])
        time.sleep(0.2)
        assert log.fired == []
        del leading._stop_leading
        scheduler.shutdown()


ran_in_store: list[int] = []


def run_in_store(number: int) -> None:
    ran_in_store.append(number)


def test_with_a_store_that_all_share_the_next_leader_runs_nothing_again(server: Server) -> None:
    ran_in_store.clear()
    schedulers = [
        BackgroundScheduler(timezone=UTC, jobstores={"default": RedisJobStore(port=server.port)})
        for _ in "ab"
    ]
    now = datetime.now(UTC)
    with pawlock.connect(server.url) as client:
        for number, scheduler in enumerate(schedulers):
            leading = lead(scheduler, client.election("cron"))
            if number == 0:
                always: dict[str, Any] = {"misfire_grace_time": None, "next_run_time": now}
                scheduler.add_job(run_in_store, "interval", seconds=3600, args=[7], **always)
            until("it ran", lambda: ran_in_store == [7])
        schedulers[0].shutdown()
        until("the other one leads", lambda: leading.leading and schedulers[1].state == STATE_RUNNING)
        (job,) = schedulers[1].get_jobs()
        assert job.next_run_time > now
        time.sleep(0.2)
        assert ran_in_store == [7]
        schedulers[1].shutdown()


def test_what_an_earlier_leader_ran_is_not_run_again(server: Server) -> None:
    """A follower's own store says that jobs are due since an hour: only the seconds of the takeover count."""
    log = Log()
    missed: list[str] = []
    past = datetime.now(UTC) - timedelta(hours=1)
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.add_listener(lambda event: missed.append(event.job_id), EVENT_JOB_MISSED)
    always: dict[str, Any] = {"misfire_grace_time": None, "next_run_time": past}
    scheduler.add_job(
        log.job, IntervalTrigger(seconds=60, start_date=past), args=["interval"], id="i", **always
    )
    scheduler.add_job(log.job, "date", run_date=past, args=["date"], id="d", **always)
    scheduler.add_job(log.job, "cron", hour="*", minute=past.minute, args=["cron"], id="c", **always)
    recent = datetime.now(UTC) - timedelta(seconds=2)
    scheduler.add_job(log.job, "date", run_date=recent, args=["takeover"], misfire_grace_time=60)
    scheduler.add_job(log.job, "date", run_date=recent, args=["strict"], misfire_grace_time=1, id="strict")
    with pawlock.connect(server.url, ttl=5) as client, lead(scheduler, client.election("cron")):
        until("the takeover is run", lambda: "takeover" in log.fired)
        until("the strict one is reported", lambda: missed == ["strict"])
        assert log.fired.count("interval") <= 1
        assert log.fired.count("cron") <= 1
        assert "date" not in log.fired
        assert {job.id for job in scheduler.get_jobs()} == {"i", "c"}
        assert scheduler.get_job("i").next_run_time > datetime.now(UTC)
        scheduler.shutdown()


def end(scheduler: Any) -> None:
    if scheduler.running:
        scheduler.shutdown()


@pytest.mark.parametrize("elected_first", [True, False])
def test_blocking_schedulers_are_started_by_the_caller(server: Server, *, elected_first: bool) -> None:
    log = Log()
    schedulers, led, running = {}, {}, []
    with pawlock.connect(server.url) as client, ThreadPoolExecutor(2) as threads, ExitStack() as ends:
        earlier = client.election("cron").campaign()
        for word in ("one", "two"):
            scheduler = schedulers[word] = BlockingScheduler()
            scheduler.add_jobstore(MemoryJobStore())
            scheduler.add_job(log.job, "interval", seconds=EVERY, args=[word])
            leading = led[word] = lead(scheduler, client.election("cron"))
            ends.callback(leading.close)
            if word == "one" and elected_first:
                earlier.release()
                until("it is elected", lambda: led["one"].leading and led["one"]._lease)
            running.append(threads.submit(scheduler.start))
            until("it runs", lambda: schedulers[word].running)
            ends.callback(end, scheduler)
        if not elected_first:
            time.sleep(4 * EVERY)
            assert log.fired == []
            earlier.release()
        until("one fires", lambda: len(log.fired) > 2)
        first, second = ("one", "two") if log.fired[0] == "one" else ("two", "one")
        assert set(log.fired) == {first}
        assert first == "one" or not elected_first
        schedulers[first].shutdown()
        until("the other one fires", lambda: second in log.fired)
        assert led[second].lease.fence
        schedulers[second].shutdown()
        assert [one.result(10) for one in running] == [None, None]


async def test_asyncio_schedulers_lead_in_turn(server: Server) -> None:
    log = Log()
    schedulers, led = [], []
    async with pawlock.connect_async(server.url) as one, pawlock.connect_async(server.url) as two:
        for client, word in ((one, "one"), (two, "two")):
            scheduler = AsyncIOScheduler()
            scheduler.add_job(log.async_job, "interval", seconds=EVERY, args=[word])
            schedulers.append(scheduler)
            led.append(lead(scheduler, client.election("cron")))
            while not log.fired:  # noqa: ASYNC110 - what it counts knows no loop
                await asyncio.sleep(0.01)
        await asyncio.sleep(4 * EVERY)
        assert set(log.fired) == {"one"}
        assert [each.leading for each in led] == [True, False]
        schedulers[0].shutdown()
        while "two" not in log.fired:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        assert led[1].lease.fence
        assert "one" not in log.fired[log.fired.index("two") :]
        await led[1].close()
        assert await one.election("cron").leader() is None
        fired = len(log.fired)
        await asyncio.sleep(4 * EVERY)
        assert len(log.fired) == fired
        schedulers[1].shutdown()
        await asyncio.sleep(0)


def test_what_can_never_work_is_refused(server: Server) -> None:
    with pawlock.connect(server.url) as client:
        with pytest.raises(pawlock.ConfigurationError, match="APScheduler 3"):
            lead(object(), client.election("cron"))
        scheduler = BackgroundScheduler()
        with (
            lead(scheduler, client.election("cron")),
            pytest.raises(pawlock.ConfigurationError, match="once"),
        ):
            lead(scheduler, client.election("cron"))
        scheduler.shutdown()


@pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed")
def test_the_scheduler_of_gevent_is_started_here(server: Server) -> None:
    """It is a ``BlockingScheduler`` by its class, and its ``start()`` returns."""
    text = """
        from gevent import monkey
        monkey.patch_all()
        import sys, gevent, pawlock
        from apscheduler.schedulers.gevent import GeventScheduler
        from pawlock.integrations.apscheduler import lead

        fired = []
        scheduler = GeventScheduler()
        scheduler.add_job(fired.append, "interval", seconds=0.05, args=[1])
        with pawlock.connect(sys.argv[1]) as client:
            lead(scheduler, client.election("gevent"))
            while not fired:
                gevent.sleep(0.01)
            scheduler.shutdown()
        print("fired")
    """
    assert run_script(text, server.url, PYTHONWARNINGS="ignore::RuntimeWarning") == "fired"


async def test_a_scheduler_that_blocks_is_refused_in_asyncio(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        with pytest.raises(pawlock.ConfigurationError, match="BlockingScheduler"):
            lead(BlockingScheduler(), client.election("cron"))
