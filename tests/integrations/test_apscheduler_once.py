"""``pawlock.integrations.apscheduler.once``: schedulers with the same jobs, of which one runs each firing."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

import pawlock
from pawlock.integrations.apscheduler import Firing, firing, once
from tests.nightly.apps.rig import rig, until
from tests.support.servers import Server

pytestmark = pytest.mark.slow
APP = Path(__file__).with_name("apscheduler_app.py")
EVERY = 0.2


@pytest.fixture
def server(valkey: Server) -> Server:
    valkey.command("FLUSHALL")
    return valkey


def moment() -> datetime:
    """A fire time that all schedulers of a test have in common; it has just passed."""
    return datetime.now(UTC).replace(microsecond=0)


class Outcomes:
    """What a scheduler says of its jobs: their results, and the errors that they raised."""

    def __init__(self, scheduler: Any) -> None:
        self.results: list[object] = []
        self.errors: list[BaseException] = []
        scheduler.add_listener(self._take, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)

    def _take(self, event: Any) -> None:
        if event.exception is None:
            self.results.append(event.retval)
        else:
            self.errors.append(event.exception)


def fire(job: Any, at: datetime, count: int = 1, **options: Any) -> list[Outcomes]:
    """Fire a job of one time by so many schedulers, and wait until each is done with it."""
    schedulers = [BackgroundScheduler(timezone=UTC) for _ in range(count)]
    said = [Outcomes(scheduler) for scheduler in schedulers]
    for scheduler in schedulers:
        scheduler.add_job(job, "date", run_date=at, id="job", misfire_grace_time=None, **options)
        scheduler.start()
    until("all are done", lambda: all(one.results or one.errors for one in said))
    for scheduler in schedulers:
        scheduler.shutdown()
    return said


def lines(path: Path) -> list[tuple[str, str, float]]:
    words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(word, what, float(at)) for word, what, at, _ in words]


def test_two_processes_run_each_firing_once_and_one_that_is_killed_loses_none(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "said"
    with rig(tmp_path, {}) as here:
        processes = {
            word: here.start("python", str(APP), server.url, str(path), word) for word in ("one", "two")
        }
        until("both run firings", lambda: {word for word, _, _ in lines(path)} == {"one", "two"})
        path.with_suffix(".hang").touch()
        hung = until("one hangs", lambda: [line for line in lines(path) if line[1] == "hangs"])
        (word, _, at) = hung[0]
        processes[word].send_signal(signal.SIGKILL)
        processes[word].wait()
        (other,) = set(processes) - {word}
        until("the other one runs that firing", lambda: (other, "ended", at) in lines(path))
        last = max(at for _, what, at in lines(path) if what == "ended")
        until("and goes on", lambda: any(at > last + 2 * EVERY for _, _, at in lines(path)))
    ended = Counter(round(at / EVERY) for _, what, at in lines(path) if what == "ended")
    assert set(ended.values()) == {1}, ended
    upto = round(last / EVERY)
    assert sorted(each for each in ended if each <= upto) == list(range(min(ended), upto + 1)), "none is lost"
    began = Counter(line[2] for line in lines(path) if line[1] == "began")
    assert [each for each, times in began.items() if times > 1] == [at]


def test_one_runs_it_and_its_name_is_the_fire_time_in_utc(server: Server) -> None:
    seen: list[Firing] = []
    with pawlock.connect(server.url) as client:

        @once(client, "report:{shop}:{scheduled}:{job}")
        def report(shop: str) -> str:
            seen.append(firing())
            return shop

        at = moment()
        said = fire(report, at, 3, args=["x"])
        assert sorted(repr(one.results) for one in said) == ["['x']", "[None]", "[None]"]
        (one,) = seen
        assert (one.scheduled, one.job) == (at, "job")
        assert one.lease.state == "released"
        name = f"report:x:{at:%Y-%m-%dT%H:%M:%S}Z:job"
        done = client.once(name).begin()
        assert isinstance(done, pawlock.Done)
        assert done.fence == one.lease.fence
        with pytest.raises(pawlock.NotHeld):
            firing()


@pytest.mark.parametrize("retry", [False, True])
def test_a_firing_that_raises_counts_as_run_unless_it_is_to_be_tried_again(
    server: Server, *, retry: bool
) -> None:
    runs: list[int] = []
    with pawlock.connect(server.url) as client:

        @once(client, "report:{scheduled}", retry=retry)
        def report() -> None:
            runs.append(firing().lease.fence)
            raise RuntimeError("the report failed")

        said = fire(report, moment(), 2)
    assert len(runs) == 1 + retry
    assert sorted(runs) == runs
    assert sum(bool(one.errors) for one in said) == 1 + retry


def test_a_firing_without_wait_is_passed_over_while_it_runs(server: Server) -> None:
    end = threading.Event()
    with pawlock.connect(server.url) as client:

        @once(client, "report:{scheduled}", wait=False)
        def report() -> str:
            assert end.wait(60)
            return "ran"

        schedulers = [BackgroundScheduler(timezone=UTC) for _ in range(2)]
        said = [Outcomes(scheduler) for scheduler in schedulers]
        at = moment()
        for scheduler in schedulers:
            scheduler.add_job(report, "date", run_date=at, misfire_grace_time=None)
            scheduler.start()
        until("one passes it over", lambda: [one.results for one in said if one.results] == [[None]])
        end.set()
        for scheduler in schedulers:
            scheduler.shutdown()
        assert sorted(repr(one.results) for one in said) == ["['ran']", "[None]"]


def test_shutdown_ends_the_wait_for_another_process(server: Server) -> None:
    with pawlock.connect(server.url) as client:

        @once(client, "report:{scheduled}")
        def report() -> None:
            raise AssertionError("another one runs it")

        at = moment()
        running = client.once(f"report:{at:%Y-%m-%dT%H:%M:%S}Z").begin()
        assert isinstance(running, pawlock.Started)
        scheduler = BackgroundScheduler(timezone=UTC)
        said = Outcomes(scheduler)
        scheduler.add_job(report, "date", run_date=at, misfire_grace_time=None)
        scheduler.start()
        until("it waits", lambda: server.command("KEYS", "*:queue"))
        scheduler.shutdown()
        assert said.results == [None]
        running.finish()


async def test_coroutine_functions_of_asyncio_schedulers(server: Server) -> None:
    ran: list[Firing] = []
    async with pawlock.connect_async(server.url) as client:

        @once(client, "report:{scheduled}")
        async def report() -> str:
            ran.append(firing())
            await asyncio.sleep(0)
            return "ran"

        at = moment()
        schedulers = [AsyncIOScheduler(timezone=UTC) for _ in range(2)]
        said = [Outcomes(scheduler) for scheduler in schedulers]
        for scheduler in schedulers:
            scheduler.add_job(report, "date", run_date=at, id="job", misfire_grace_time=None)
            scheduler.start()
        while not all(one.results or one.errors for one in said):  # noqa: ASYNC110 - what it counts knows no loop
            await asyncio.sleep(0.01)
        assert sorted(repr(one.results) for one in said) == ["['ran']", "[None]"]
        assert [one.scheduled for one in ran] == [at]
        for scheduler in schedulers:
            scheduler.shutdown()
        await asyncio.sleep(0)


def test_fire_times_that_other_processes_do_not_have_are_refused(server: Server) -> None:
    with pawlock.connect(server.url) as client:

        @once(client, "report:{scheduled}")
        def report() -> None:
            raise AssertionError("never")

        scheduler = BackgroundScheduler(timezone=UTC)
        said = Outcomes(scheduler)
        scheduler.add_job(report, "interval", seconds=0.05, max_instances=1)
        scheduler.add_job(report, "cron", second="*", jitter=1)
        scheduler.add_job(report)
        scheduler.start()
        until("all are refused", lambda: len({str(error) for error in said.errors}) >= 3)
        scheduler.shutdown()
        assert {type(error) for error in said.errors} == {pawlock.ConfigurationError}
        assert any("jitter" in str(error) for error in said.errors)
        assert any("start_date" in str(error) for error in said.errors)
        with pytest.raises(pawlock.ConfigurationError, match="no fire time"):
            report()


def test_what_can_never_work_is_refused(server: Server) -> None:
    with pawlock.connect(server.url) as client:
        with pytest.raises(pawlock.ConfigurationError, match="scheduled"):
            once(client, "report")
        with pytest.raises(pawlock.ConfigurationError, match="min_hold"):
            once(client, "report:{scheduled}", min_hold=1)
        with pytest.raises(pawlock.ConfigurationError, match="coroutine"):

            @once(client, "report:{scheduled}")
            async def report() -> None: ...
