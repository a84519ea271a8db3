"""What a client publishes of itself: when, how much, for how long; never a secret, and never in the way of a lock."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
import time

import pytest

import pawlock
from pawlock.testing import Sim
from tests.contract.edges.helpers import Script, script_calls
from tests.contract.sessions.rig import eventually, record_keys, run_threads, session_texts, wait_in_vain
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.slow


def records(server: Server) -> list[dict[str, list[list[object]]]]:
    return [json.loads(text.split(" ", 2)[2]) for text in session_texts(server).splitlines() if text]


def held_names(server: Server) -> set[object]:
    return {row[1] for record in records(server) for row in record["h"]}


def test_an_old_hold_is_told_and_its_end_too(clean: Server) -> None:
    with pawlock.connect(clean.url) as client:
        with client.lock("old") as lease:
            eventually(lambda: held_names(clean) == {"old"}, "it is told", timeout=3)
            ((kind, name, fence, used, _, label, since_ms, bound),) = records(clean)[0]["h"]
            assert (kind, name, fence, used, label, bound) == ("lock", "old", lease.fence, 0, "MainThread", 0)
            assert isinstance(since_ms, int)
            assert 0.5 < time.time() - since_ms / 1000 < 10
            (key,) = record_keys(clean)
            assert f":{os.getpid()}/" in key
            left = clean.command("PTTL", key)
            assert isinstance(left, int)
            assert 0 < left <= 15_000
            for index in ("sessions", "sessions:order"):
                left = clean.command("PTTL", f"{{pawlock}}:1:{index}")
                assert isinstance(left, int)
                assert 0 < left <= 15_000
        eventually(lambda: record_keys(clean) == [], "it is taken back", timeout=5)
        assert clean.command("EXISTS", "{pawlock}:1:sessions", "{pawlock}:1:sessions:order") == 0


def test_a_client_that_closes_takes_its_record_away(clean: Server) -> None:
    client = pawlock.connect(clean.url)
    lease = client.lock("open").acquire()
    eventually(lambda: held_names(clean) == {"open"}, "it is published", timeout=3)
    client.close()
    assert lease.state == "lost"
    assert record_keys(clean) == []


def test_a_lease_is_listed_at_each_moment_of_its_renewals(pawlock_sim: Sim) -> None:
    """Each look of the maintenance meets a renewal: the rhythm of both is one second."""
    with pawlock.connect() as client, pawlock.connect() as other, client.lock("renewed", ttl=3):
        pawlock_sim.sleep(2)
        for _ in range(200):
            pawlock_sim.sleep(0.05)
            assert [info.name for info in other.locks()] == ["renewed"]


async def test_a_task_is_told_by_its_name(clean: Server) -> None:
    async with pawlock.connect_async(clean.url) as client, client.lock("old"):
        task = asyncio.current_task()
        assert task is not None
        task.set_name("the-worker")
        for _ in range(60):
            await asyncio.sleep(0.05)
            if held_names(clean):
                break
        assert records(clean)[0]["h"][0][5] == "the-worker"
    assert record_keys(clean) == [], "closing takes it back"


def test_short_holds_cost_no_command(clean: Server) -> None:
    """Neither a pair, nor a client that goes on for seconds with short ones: beside its one look at the server."""
    with pawlock.connect(clean.url) as client:
        lock = client.lock("short")
        lock.acquire().release()
        before, pairs = script_calls(clean), 0
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            lock.acquire().release()
            pairs += 1
        assert script_calls(clean) - before == 2 * pairs + 1
    assert record_keys(clean) == []


def test_a_waiter_is_told_with_its_thread(clean: Server) -> None:
    with pawlock.connect(clean.url, deadlock_after=0.1) as client, client.lock("busy"):
        threads = [
            threading.Thread(target=wait_in_vain, args=(client, "busy", 1.0), name=f"w{n}") for n in range(2)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: any(len(record["w"]) == 2 for record in records(clean)), "both are told")
        assert {row[4] for record in records(clean) for row in record["w"]} == {"w0", "w1"}
        assert {row[1] for record in records(clean) for row in record["w"]} == {"busy"}
        for thread in threads:
            thread.join(10)
        assert client._engine.queues.waits == {}
        eventually(lambda: not any(record["w"] for record in records(clean)), "they gave up", timeout=5)


def test_a_killed_client_is_forgotten_within_its_ttl(clean: Server) -> None:
    ttl = 15
    text = """
        import sys, time, pawlock
        client = pawlock.connect(sys.argv[1])
        with client.lock("dead", ttl=60):
            print("ready", flush=True)
            time.sleep(60)
    """
    with Script(text, clean.url) as script, pawlock.connect(clean.url) as client:
        assert script.line() == "ready"
        eventually(lambda: held_names(clean) == {"dead"}, "it is told", timeout=5)
        os.kill(script.process.pid, signal.SIGKILL)
        died = time.monotonic()
        with client.lock("alive"):
            eventually(lambda: held_names(clean) == {"alive"}, "its record goes", timeout=20)
            assert time.monotonic() - died < pace() * (ttl + 2)
            # The next record that is written sweeps the indexes.
            eventually(
                lambda: clean.command("ZCARD", "{pawlock}:1:sessions") == 1, "its entry goes", timeout=8
            )
            assert clean.command("ZCARD", "{pawlock}:1:sessions:order") == 1


def test_no_record_holds_a_secret(clean: Server) -> None:
    with (
        pawlock.connect(clean.url, deadlock_after=0.1) as client,
        pawlock.connect(clean.url, deadlock_after=0.1) as other,
    ):
        lease = client.lock("a").acquire()
        own = client.rlock("b", owner="job").acquire()
        thread = threading.Thread(target=wait_in_vain, args=(other, "a", 0.8))
        thread.start()
        eventually(lambda: any(record["w"] for record in records(clean)), "it is told")
        text = session_texts(clean) + repr(record_keys(clean))
        assert lease.token.split("@")[0] not in text
        assert own.token.split("@")[0] not in text
        queue = clean.command("ZRANGE", "{pawlock:a}:1:queue", "0", "-1")
        assert isinstance(queue, list)
        tokens = [token.split(b"@")[0].decode() for token in queue if isinstance(token, bytes)]
        assert tokens
        assert all(token not in text for token in tokens)
        thread.join(10)
        own.release()
        lease.release()


def test_a_record_is_bounded(clean: Server) -> None:
    with pawlock.connect(clean.url) as client:
        leases = [client.lock(f"n{number}").acquire() for number in range(700)]
        all_old = time.monotonic() + 1.5
        told: list[int] = []

        def full() -> bool:
            told.extend(len(record["h"]) for record in records(clean))
            return time.monotonic() > all_old and told[-1:] == [500]

        eventually(full, "as many as fit are told, once all are old", timeout=30)
        assert max(told) == 500
        assert len(session_texts(clean)) < 100_000
        for lease in leases:
            lease.release()


def test_a_user_without_the_right_still_locks(own_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The account of an earlier version may not write sessions: one line, and renewals go on."""
    own_server.command(
        "ACL",
        "SETUSER",
        "old",
        "on",
        ">secret",
        "~pawlock:*",
        "~{pawlock:*",
        "&pawlock:*",
        "+@all",
        "-@dangerous",
    )
    url = own_server.url.replace("redis://", "redis://old:secret@")
    with caplog.at_level(logging.INFO, "pawlock"), pawlock.connect(url, ttl=1.5) as client:
        with client.lock("kept") as lease:
            renewed = client._engine.reports.counters
            eventually(lambda: renewed["renewed"] >= 6, "it is renewed on and on", timeout=10)
            lease.check()
        with client.lock("kept"):
            time.sleep(1.2)
    told = [record for record in caplog.records if "session records" in record.getMessage()]
    assert len(told) == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == told


def test_a_child_is_another_session(clean: Server) -> None:
    from tests.contract.edges.helpers import in_child

    with pawlock.connect(clean.url) as client, client.lock("parents"):
        eventually(lambda: held_names(clean) == {"parents"}, "it is told", timeout=5)

        def child() -> list[str]:
            with client.lock("childs"):
                eventually(lambda: len(record_keys(clean)) == 2, "both are told", timeout=5)
                return record_keys(clean)

        assert len(set(in_child(child))) == 2
        assert held_names(clean) >= {"parents"}


def test_a_session_of_another_version_is_passed_over(client: pawlock.Client, clean: Server) -> None:
    """Whatever stands in a record of this very process does not stop those who read it."""
    from tests.contract.sessions.rig import Party

    host = client.lock("x").acquire()
    prefix = host.token.partition("@")[2].rpartition("/")[0]
    host.release()
    clean.command("SET", f"{{pawlock}}:1:session:{prefix}/future", '1 2 {"v":9}', "PX", "60000")
    clean.command("ZADD", "{pawlock}:1:sessions", str(int(time.time() * 1000) + 60000), f"{prefix}/future")
    clean.command("ZADD", "{pawlock}:1:sessions:order", "0", f"{prefix}/future")
    parties = [Party(client, ("a", "b")), Party(client, ("b", "a"), after=0.05)]
    run_threads(*parties)
    assert parties[1].error is not None
