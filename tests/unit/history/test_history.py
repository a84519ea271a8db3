"""Who had a name, with which fence, from when to when, and how it ended: as the clients that keep histories tell it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from typing import Any, cast
from unittest.mock import patch

import pytest

import pawlock
from pawlock.core.state.history import History, _note_of
from tests.contract.edges.helpers import Script, script_calls
from tests.contract.sessions.rig import eventually
from tests.support.servers import Server

pytestmark = pytest.mark.slow

KEY = "{pawlock:job}:1:history"
HERE = f"{socket.gethostname()}:{os.getpid()}"


def hows(client: pawlock.Client, name: str = "job") -> list[str]:
    return [entry.how for entry in client.history(name)]


def members(server: Server, key: str = KEY) -> list[str]:
    found = server.command("ZRANGE", key, "0", "-1")
    assert isinstance(found, list)
    return [word.decode() for word in found if isinstance(word, bytes)]


def test_each_grant_is_told_with_who_fence_and_times(clean: Server) -> None:
    began = time.time()
    with pawlock.connect(clean.url, history=10) as client, pawlock.connect(clean.url) as reader:
        fences: list[int] = []
        for make in (client.lock, client.rlock, client.fair_lock):
            with make("job") as lease:
                fences.append(lease.fence)
                time.sleep(0.02)
        eventually(lambda: len(reader.history("job")) == 3, "all are written", timeout=5)
        entries = reader.history("job")
        assert [entry.fence for entry in entries] == fences[::-1]
        assert [entry.kind for entry in entries] == ["fair_lock", "rlock", "lock"]
        assert {(entry.name, entry.how, entry.who) for entry in entries} == {
            ("job", "released", f"{HERE}/MainThread")
        }
        for entry in entries:
            assert entry.ended is not None
            assert began - 2 < entry.granted < entry.ended < time.time() + 2
            assert 0.01 < entry.ended - entry.granted < 5
        assert [entry.fence for entry in reader.history("job", limit=1)] == [fences[-1]]
        assert reader.history("another") == []


async def test_tasks_and_a_grant_that_lasts(clean: Server) -> None:
    async with pawlock.connect_async(clean.url, history=10) as client:
        async with client.lock("job") as lease:
            entries: list[pawlock.HistoryEntry] = []
            for _ in range(200):
                entries = await client.history("job")
                if entries:
                    break
                await asyncio.sleep(0.02)
            (entry,) = entries
            task = asyncio.current_task()
            assert task is not None
            assert (entry.how, entry.ended, entry.fence) == ("held", None, lease.fence)
            assert entry.who == f"{HERE}/{task.get_name()}"
        for _ in range(200):
            (entry,) = await client.history("job")
            if entry.how == "released":
                break
            await asyncio.sleep(0.02)
        assert (entry.how, entry.fence) == ("released", lease.fence)
        assert entry.ended is not None


def test_the_end_of_the_client_writes_what_is_left(clean: Server) -> None:
    with pawlock.connect(clean.url, history=10) as client:
        client.lock("job").acquire().release()
        held = client.lock("job").acquire()
    with pawlock.connect(clean.url) as reader:
        assert hows(reader) == ["closed", "released"]
        assert reader.history("job")[0].fence == held.fence


def test_the_end_of_the_client_and_the_maintenance_thread_write_one_after_the_other(clean: Server) -> None:
    """Both took the oldest entry of a name out, and the second one's ``KeyError`` came out of ``close()``."""
    with pawlock.connect(clean.url, history=2) as client:
        engine, lock = client._engine, client.lock("job")
        history = cast("History", engine.reports.history)
        with lock.acquire() as lease:
            note = _note_of(lease._record.server_lease, engine.runtime.now(), "released")
        within: list[int] = []
        other: list[bool] = []

        def make(*_: object) -> object:
            within.append(threading.get_ident())
            time.sleep(0.01)
            other.append(within[-1] != threading.get_ident())
            return lock

        def due(later: float) -> None:
            history.due(engine, engine.runtime.now() + later)

        history._unwritten.extend((lock._plan.primitive, note._replace(fence=n)) for n in range(8))
        with patch.object(history, "_setup", history._setup._replace(make=cast("Any", make))):
            history._look_at = float("-inf")
            threads = [threading.Thread(target=due, args=(later,)) for later in (100, 200)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(within) >= 8
        assert not any(other)


async def test_the_end_of_an_asyncio_client_too(clean: Server) -> None:
    async with pawlock.connect_async(clean.url, history=10) as client:
        leases = [await client.lock(name).acquire() for name in ("job", "other")]
    assert [lease.state for lease in leases] == [pawlock.LeaseState.LOST] * 2
    async with pawlock.connect_async(clean.url) as reader:
        assert [entry.how for entry in await reader.history("job")] == ["closed"]
        assert [entry.how for entry in await reader.history("other")] == ["closed"]


def test_local_hand_overs_are_told_each_with_its_fence(clean: Server) -> None:
    with pawlock.connect(clean.url, history=1000) as client:
        lock = client.lock("job")
        fences: list[tuple[int, str]] = []

        def work() -> None:
            for _ in range(20):
                with lock as lease:
                    fences.append((lease.fence, f"{HERE}/{threading.current_thread().name}"))

        threads = [threading.Thread(target=work, name=f"t{n}") for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert client._engine.reports.counters["handed_over"] > 10
        eventually(lambda: len(client.history("job", limit=1000)) == 80, "all are written", timeout=5)
        entries = client.history("job", limit=1000)
        assert [(entry.fence, entry.who) for entry in reversed(entries)] == fences
        assert {entry.how for entry in entries} == {"released"}


def test_no_more_than_asked_for_and_not_for_ever(clean: Server) -> None:
    with pawlock.connect(clean.url, history=5) as client:
        lock = client.lock("job")
        fences: list[int] = []
        for _ in range(40):
            with lock as lease:
                fences.append(lease.fence)
        eventually(
            lambda: [e.fence for e in client.history("job")] == fences[:-6:-1], "the newest", timeout=5
        )
        assert len(members(clean)) == 5
        left = clean.command("PTTL", KEY)
        assert isinstance(left, int)
        assert 6 * 86_400_000 < left <= 7 * 86_400_000


def test_nothing_is_written_and_nothing_sent_when_off(clean: Server) -> None:
    with pawlock.connect(clean.url) as client:
        lock = client.lock("job")
        lock.acquire().release()
        before, pairs = script_calls(clean), 0
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            lock.acquire().release()
            pairs += 1
        assert pairs > 100
        assert script_calls(clean) - before <= 2 * pairs + 3, "beside the one look at the server"
        assert client._engine.reports.history is None
    assert clean.command("EXISTS", KEY) == 0


def test_many_short_holds_are_written_together(clean: Server) -> None:
    with pawlock.connect(clean.url, history=1000) as client:
        lock = client.lock("job")
        lock.acquire().release()
        before, pairs, began = script_calls(clean), 0, time.monotonic()
        while time.monotonic() - began < 1.5:
            lock.acquire().release()
            pairs += 1
        more = script_calls(clean) - before - 2 * pairs
        assert pairs > 100
        assert 0 < more < 10 * (time.monotonic() - began) + pairs / 50


DYING = """
    import sys, time, pawlock
    client = pawlock.connect(sys.argv[1], history=10, ttl=1.0)
    with client.lock("job") as lease:
        print(lease.fence, flush=True)
        time.sleep(60)
"""


def test_a_killed_holder_is_told_as_expired(clean: Server) -> None:
    with Script(DYING, clean.url) as script, pawlock.connect(clean.url, history=10) as client:
        fence = int(script.line())
        eventually(lambda: hows(client) == ["held"], "it is noted while it lasts", timeout=5)
        os.kill(script.process.pid, signal.SIGKILL)
        with client.lock("job") as lease:
            older = client.history("job")[-1]
            assert (older.how, older.fence, older.ended) == ("expired", fence, None)
            assert f":{script.process.pid}/" in older.who
            eventually(lambda: hows(client) == ["held", "expired"], "the next one is told too", timeout=5)
            assert client.history("job")[0].fence == lease.fence
    with pawlock.connect(clean.url) as reader:
        assert hows(reader) == ["released", "expired"]


def test_a_killed_holder_of_a_free_name_is_told_as_expired(clean: Server) -> None:
    with Script(DYING, clean.url) as script, pawlock.connect(clean.url) as client:
        script.line()
        eventually(lambda: hows(client) == ["held"], "it is noted while it lasts", timeout=5)
        os.kill(script.process.pid, signal.SIGKILL)
        eventually(lambda: client.inspect("job").held is False, "it runs out", timeout=5)
        assert hows(client) == ["expired"]


def test_a_stopped_holder_tells_its_loss(clean: Server) -> None:
    with Script(DYING, clean.url) as script, pawlock.connect(clean.url) as client:
        script.line()
        eventually(lambda: hows(client) == ["held"], "it is noted while it lasts", timeout=5)
        os.kill(script.process.pid, signal.SIGSTOP)
        eventually(lambda: client.inspect("job").held is False, "it runs out", timeout=5)
        os.kill(script.process.pid, signal.SIGCONT)
        eventually(lambda: client.history("job")[0].ended is not None, "it tells the end itself", timeout=10)
        assert hows(client) == ["expired"]


def test_what_an_operator_took_is_told_as_forced(clean: Server) -> None:
    with pawlock.connect(clean.url, history=10) as hanging, pawlock.connect(clean.url) as operator:
        with hanging.lock("job"):
            pass
        lease = hanging.lock("job").acquire()
        assert operator.force_release("job", reason="it hangs")
        assert lease.lost.wait(15)
        eventually(lambda: hows(operator) == ["forced", "released"], "how it ended", timeout=5)
        assert operator.history("job")[0].fence == lease.fence


def test_what_somebody_took_is_told_as_taken(clean: Server) -> None:
    with pawlock.connect(clean.url, history=10, ttl=0.6) as client:
        lease = client.lock("job").acquire()
        clean.command("SET", "pawlock:job", "another-program", "PX", "5000")
        assert lease.lost.wait(5)
        eventually(lambda: hows(client) == ["taken"], "how it ended", timeout=5)


def test_the_holds_of_an_owner_are_told_apart(clean: Server) -> None:
    with (
        pawlock.connect(clean.url, history=10) as one,
        pawlock.connect(clean.url, history=10) as two,
    ):
        first = one.rlock("job", owner="night").acquire()
        second = two.rlock("job", owner="night").acquire()
        assert first.fence == second.fence
        first.release()
        eventually(lambda: sorted(hows(one)) == ["held", "released"], "one is left", timeout=5)
        second.release()
        eventually(lambda: hows(one) == ["released"] * 2, "both are over", timeout=5)


def test_a_lease_that_moves_stays_one_entry(clean: Server) -> None:
    with pawlock.connect(clean.url, history=10) as one, pawlock.connect(clean.url, history=10) as two:
        lease = one.lock("job").acquire()
        eventually(lambda: hows(two) == ["held"], "it is noted while it lasts", timeout=5)
        moved = two.adopt(lease.detach())
        assert hows(two) == ["held"]
        moved.release()
        eventually(lambda: hows(two) == ["released"], "its end is told", timeout=5)


def test_a_multi_lock_is_told_by_its_names(clean: Server) -> None:
    with pawlock.connect(clean.url, history=10) as client:
        with client.multi_lock(["job", "other"]) as lease:
            fences = dict(lease.fences)
        eventually(lambda: hows(client) == ["released"] and hows(client, "other") == ["released"], "both")
        assert {name: client.history(name)[0].fence for name in ("job", "other")} == fences


def test_no_entry_holds_a_secret(clean: Server) -> None:
    with pawlock.connect(clean.url, history=10) as client:
        leases = [client.lock("job").acquire(), client.rlock("own", owner="night").acquire()]
        secrets = [lease.token.split("@")[0] for lease in leases]
        eventually(lambda: hows(client) == ["held"] and hows(client, "own") == ["held"], "they are noted")
        for lease in leases:
            lease.release()
        eventually(
            lambda: hows(client) == ["released"] and hows(client, "own") == ["released"], "so are their ends"
        )
        text = "\n".join(
            members(clean) + members(clean, "{pawlock:own}:1:history") + [repr(client.history("job"))]
        )
        assert all(secret not in text for secret in secrets)


def test_what_others_may_hold_at_once_is_left_out(clean: Server) -> None:
    with pawlock.connect(clean.url, history=10) as client:
        with client.semaphore("job", permits=2), client.rwlock("job").read, client.election("job").campaign():
            time.sleep(0.6)
        client.lock("job").acquire().release()
        eventually(lambda: len(client.history("job")) == 1, "the lock is noted", timeout=5)
        assert client.history("job")[0].kind == "lock"


def test_a_key_in_the_way_costs_the_history_only(clean: Server) -> None:
    clean.command("SET", KEY, "mine")
    with pawlock.connect(clean.url, history=10, ttl=0.6) as client, client.lock("job") as lease:
        eventually(
            lambda: client._engine.reports.counters["renewed"] >= 4, "it is renewed on and on", timeout=10
        )
        lease.check()
        with pytest.raises(pawlock.WrongKey):
            client.history("job")
    assert clean.command("GET", KEY) == b"mine"


def test_it_goes_on_after_the_server_was_away(own_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pawlock.connect(own_server.url, history=10) as client:
        client.lock("job").acquire().release()
        own_server.kill()
        own_server.start()
        client.lock("job").acquire(timeout=10).release()
        eventually(
            lambda: hows(client)[:1] == ["released"], "it is written when the server is back", timeout=10
        )
