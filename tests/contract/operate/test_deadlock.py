"""Waiters in a circle: the last one is told, with the circle, and the others go on."""

from __future__ import annotations

import contextlib
import pickle
import threading
import time

import pytest

import pawlock
from tests.contract.edges.helpers import Script
from tests.contract.operate.rig import (
    AFTER,
    Party,
    eventually,
    published_waits,
    run_tasks,
    run_threads,
)
from tests.support.servers import Server

SOON = 2.0


def youngest_is_told(parties: list[Party], *, after: float = AFTER) -> pawlock.DeadlockDetected:
    told = [party for party in parties if party.error is not None]
    assert told == [parties[-1]], "the last to come, and nobody else"
    assert all(party.done for party in parties[:-1])
    assert after <= told[0].waited < after + 1.0 + (SOON - 1.0)
    assert told[0].error is not None
    return told[0].error


@pytest.mark.parametrize("size", [2, 3, 5])
def test_threads_of_one_client(client: pawlock.Client, size: int) -> None:
    names = [f"n{number}" for number in range(size)]
    parties = [
        Party(client, (names[number], names[(number + 1) % size]), after=0.05 * number)
        for number in range(size)
    ]
    run_threads(*parties)
    error = youngest_is_told(parties)
    assert error.cycle == (names[0], *names[1:], names[0])
    assert [name for _, name, _ in error.waiters] == list(error.cycle[:-1])
    who = [who.rpartition("/")[2] for who, _, _ in error.waiters]
    assert who == [f"party-{(number - 1) % size}" for number in range(size)]
    since = [since for _, _, since in error.waiters]
    assert max(since) == since[0], "the one that is told came last"
    assert all(abs(one - time.time()) < 10 for one in since)
    assert error.holder == error.waiters[1][0]
    assert all(name in str(error) for name in names)


@pytest.mark.parametrize("size", [2, 3])
def test_clients_of_threads(client: pawlock.Client, other: pawlock.Client, clean: Server, size: int) -> None:
    with pawlock.connect(clean.url, deadlock_after=AFTER) as third:
        clients = [client, other, third][:size]
        parties = [
            Party(one, (f"n{number}", f"n{(number + 1) % size}"), after=0.05 * number)
            for number, one in enumerate(clients)
        ]
        run_threads(*parties)
        youngest_is_told(parties)
        assert all(not one._engine.waits for one in clients)


async def test_tasks(clean: Server) -> None:
    async with (
        pawlock.connect_async(clean.url, deadlock_after=AFTER) as one,
        pawlock.connect_async(clean.url, deadlock_after=AFTER) as two,
    ):
        for first, second in ((one, one), (one, two)):
            parties = [Party(first, ("a", "b")), Party(second, ("b", "a"), after=0.05)]
            await run_tasks(*parties)
            error = youngest_is_told(parties)
            assert error.cycle == ("a", "b", "a")
            assert [who.rpartition("/")[2] for who, _, _ in error.waiters] == ["party-1", "party-0"]


async def test_a_thread_and_a_task(client: pawlock.Client, clean: Server) -> None:
    """Whoever comes last is told, whatever it is."""
    import asyncio

    async with pawlock.connect_async(clean.url, deadlock_after=AFTER) as tasks:
        for late in (0, 1):
            thread, task = Party(client, ("a", "b"), 0.1 * (1 - late)), Party(tasks, ("b", "a"), 0.1 * late)
            ready = threading.Barrier(2)

            class Both:
                async def wait(self, ready: threading.Barrier = ready) -> None:
                    await asyncio.to_thread(ready.wait, 10)

            running = asyncio.create_task(asyncio.to_thread(thread.run, ready))
            await task.arun(Both())  # type: ignore[arg-type]
            await running
            youngest_is_told([task, thread] if late == 0 else [thread, task])


def test_the_default_finds_it_within_two_seconds(clean: Server) -> None:
    with pawlock.connect(clean.url) as one, pawlock.connect(clean.url) as two:
        parties = [Party(one, ("a", "b")), Party(two, ("b", "a"), after=0.02)]
        run_threads(*parties)
        youngest_is_told(parties, after=1.0)
        assert parties[1].waited < SOON


def test_local_waiters_behind_each_other(client: pawlock.Client) -> None:
    """The one that closes the circle sleeps behind another of its client, which holds nothing."""
    ready = threading.Barrier(2)
    behind = threading.Event()

    def bystander() -> None:
        with client.lock("a").acquire(timeout=20):
            behind.set()

    parties = [Party(client, ("a", "b")), Party(client, ("b", "a"), after=0.2)]
    threads = [threading.Thread(target=party.run, args=(ready,)) for party in parties]
    for thread in threads:
        thread.start()
    eventually(lambda: client.inspect("a").held, "a is taken")
    threads.append(threading.Thread(target=bystander))
    threads[-1].start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    youngest_is_told(parties)
    assert behind.is_set()


@pytest.mark.slow
def test_processes(clean: Server) -> None:
    text = """
        import sys, time, pawlock
        url, first, second, pause = sys.argv[1:]
        with pawlock.connect(url) as client, client.lock(first):
            print("ready", flush=True)
            sys.stdin.readline()
            time.sleep(float(pause))
            began = time.monotonic()
            try:
                with client.lock(second).acquire(timeout=20):
                    print("done", flush=True)
            except pawlock.DeadlockDetected as error:
                print("told", *error.cycle, f"{time.monotonic() - began:.2f}", flush=True)
    """
    names = ["a", "b", "c"]
    with contextlib.ExitStack() as stack:
        scripts = [
            stack.enter_context(Script(text, clean.url, names[i], names[(i + 1) % 3], f"{0.1 * i}"))
            for i in range(3)
        ]
        for script in scripts:
            assert script.line() == "ready"
        for script in scripts:
            script.say()
        words = scripts[2].line().split()
        assert words[:5] == ["told", "a", "b", "c", "a"]
        assert float(words[5]) < SOON
        assert [script.line() for script in scripts[:2]] == ["done", "done"]
        assert all(script.end()[0] == 0 for script in scripts)


def test_switched_off(clean: Server) -> None:
    with pawlock.connect(clean.url, deadlock_after=None) as client:
        ready = threading.Barrier(2)
        outcomes: list[str] = []

        def work(first: str, second: str) -> None:
            with client.lock(first):
                ready.wait(10)
                try:
                    client.lock(second).acquire(timeout=0.8).release()
                    outcomes.append("done")
                except pawlock.PawlockError as error:
                    outcomes.append(type(error).__name__)

        threads = [threading.Thread(target=work, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert "DeadlockDetected" not in outcomes
        assert "AcquireTimeout" in outcomes
        assert client._engine.reports.counters["deadlocks"] == 0


def test_who_gives_up_in_time_was_no_deadlock(client: pawlock.Client, other: pawlock.Client) -> None:
    """The first waiter's time is up before the second comes: its old record must not count."""
    with client.lock("a"):
        ready = threading.Event()

        def second() -> None:
            with other.lock("b"):
                with pytest.raises(pawlock.AcquireTimeout):
                    other.lock("a").acquire(timeout=AFTER * 3)
                ready.set()
                time.sleep(1.0)

        thread = threading.Thread(target=second)
        thread.start()
        assert ready.wait(10)
        with client.lock("b").acquire(timeout=10):
            pass
        thread.join(10)
    assert client._engine.reports.counters["deadlocks"] + other._engine.reports.counters["deadlocks"] == 0


def test_a_paused_process_is_no_deadlock(client: pawlock.Client, clean: Server) -> None:
    """Its record stands, but nobody writes a newer one: that proves nothing."""
    import os
    import signal

    text = """
        import sys, pawlock
        with pawlock.connect(sys.argv[1], deadlock_after=0.1) as client, client.lock("b", ttl=60):
            print("ready", flush=True)
            try:
                client.lock("a").acquire(timeout=3)
            except pawlock.AcquireTimeout:
                print("gave up", flush=True)
    """
    with client.lock("a"), Script(text, clean.url) as script:
        assert script.line() == "ready"
        eventually(lambda: '"a"' in "".join(published_waits(clean)), "its wait is published")
        os.kill(script.process.pid, signal.SIGSTOP)
        with pytest.raises(pawlock.AcquireTimeout):
            client.lock("b").acquire(timeout=2.0)
        os.kill(script.process.pid, signal.SIGCONT)


def test_the_error_travels(client: pawlock.Client) -> None:
    parties = [Party(client, ("a", "b")), Party(client, ("b", "a"), after=0.05)]
    run_threads(*parties)
    error = youngest_is_told(parties)
    there = pickle.loads(pickle.dumps(error))
    assert (there.cycle, there.waiters, str(there)) == (error.cycle, error.waiters, str(error))


def test_waiting_shortly_is_not_told(client: pawlock.Client, clean: Server) -> None:
    for _ in range(3):
        with client.lock("a"):
            threads = [
                threading.Thread(target=lambda: client.lock("a").acquire().release()) for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            eventually(lambda: len(client._engine.waits) == 3, "all wait")
        for thread in threads:
            thread.join(10)
    assert published_waits(clean) == []
