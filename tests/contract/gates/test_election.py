"""One leads at a time, the next one soon after it fails, and whoever observes hears of it."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any, cast

import pytest

import pawlock
from tests.contract.gates.polls import TTL, Heard, Stalls, candidate, leading, leads
from tests.contract.gates.rig import endless, make, number, program, says, tell
from tests.faults.rig import Api, until
from tests.support.proxy import Proxy
from tests.support.servers import Server

# Works without asking whether it still leads, then writes with its fence, then asks.
PAUSED = """
import sqlite3, sys, pawlock
url, path, ttl = sys.argv[1], sys.argv[2], float(sys.argv[3])
client = pawlock.connect(url)
election = client.election("n", identity="paused", ttl=ttl)
lease = election.campaign(30)

def write():
    with sqlite3.connect(path) as db:
        return db.execute("UPDATE guarded SET fence = :f WHERE fence <= :f", {"f": lease.fence}).rowcount

assert write() == 1
print("ready", flush=True)
sys.stdin.readline()
print(write(), flush=True)
try:
    lease.check()
except pawlock.LeaseLost as lost:
    print("told", lost.reason, flush=True)

@election.leader_only
def work():
    print("worked", flush=True)

try:
    work()
except pawlock.NotHeld:
    print("refused", flush=True)
"""


def test_one_leads_and_the_next_follows_with_a_higher_fence(clean: Server, api: Api) -> None:
    one = make(api.connect(clean.url), "election", "n", identity="one")
    two = make(api.connect(clean.url), "election", "n", identity="two")
    assert one.do("leader") is None
    lease = leads(one)
    assert leading(one)
    assert not leading(two)
    assert two.do("leader") == pawlock.Leader("one", lease.fence)
    with pytest.raises(pawlock.AcquireTimeout, match="by one"):
        two.do("campaign", 0)
    standing = two.start("campaign", 10)
    until(lambda: number(clean, "ZCARD", "{pawlock:%election:n}:1:queue") == 1)
    one.do("resign")
    after = standing.result(5)
    assert after.fence > lease.fence
    assert not leading(one)
    assert one.do("leader") == pawlock.Leader("two", after.fence)
    with pytest.raises(pawlock.NotHeld):
        one.do("resign")
    api.run(after.release)
    assert two.do("leader") is None
    assert endless(clean) == []


def test_without_an_identity_it_is_host_and_process(clean: Server, api: Api) -> None:
    election = make(api.connect(clean.url), "election", "n")
    lease = leads(election)
    leader = election.do("leader")
    assert leader.identity == lease.token.partition("@")[2]
    assert f":{__import__('os').getpid()}/" in leader.identity
    api.run(lease.release)


def test_the_candidates_of_one_client_are_candidates_too(clean: Server, api: Api) -> None:
    """No local hand-over: each leader is elected on the server, where all see it."""
    client = api.connect(clean.url)
    first = leads(make(client, "election", "n", identity="a"))
    standing = make(client, "election", "n", identity="b").start("campaign", 10)
    until(lambda: number(clean, "ZCARD", "{pawlock:%election:n}:1:queue") == 1)
    api.run(first.release)
    lease = standing.result(5)
    assert make(client, "election", "n").do("leader") == pawlock.Leader("b", lease.fence)
    api.run(lease.release)


def test_a_lock_of_the_same_name_is_another_thing(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    lease = leads(make(client, "election", "n"))
    held = client.lock("n").acquire(1)
    assert make(client, "election", "n").do("leader").fence == lease.fence
    other = client.lock("%election:n").acquire(1)
    for one in (held, other):
        one.release()
    api.run(lease.release)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("what", "kinds"),
    [
        pytest.param(signal.SIGKILL, ("threads", "tasks"), id="SIGKILL-threads"),
        pytest.param(signal.SIGSTOP, ("tasks", "threads"), id="SIGSTOP-tasks", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, ("tasks", "threads"), id="SIGKILL-tasks", marks=pytest.mark.slow),
        pytest.param(signal.SIGSTOP, ("threads", "tasks"), id="SIGSTOP-threads", marks=pytest.mark.slow),
    ],
)
def test_the_next_leads_within_the_ttl_and_a_second(
    clean: Server, api: Api, kinds: tuple[str, str], what: signal.Signals
) -> None:
    heard = Heard(api.connect(clean.url))
    assert heard.next() is None
    with candidate(clean, kinds[0], "first") as leader:
        first = heard.next()
        assert first is not None
        assert first.identity == "first"
        with candidate(clean, kinds[1], "second") as other:
            until(lambda: number(clean, "ZCARD", "{pawlock:%election:n}:1:queue") == 1)
            with Stalls() as stalls:
                began = time.monotonic()
                leader.send_signal(what)
                second, at = heard.next_at(TTL + 9.0)
                if second is None:
                    # The lease had ended, and the next in line had not noticed yet.
                    second, at = heard.next_at(9.0)
            assert second is not None
            assert second.identity == "second"
            assert second.fence > first.fence
            assert at - began < TTL + 1.0 + stalls.total
            assert says(other) == f"leads {second.fence}"
            tell(other)
    heard.close()


@pytest.mark.fault
def test_a_paused_leader_is_stopped_by_the_fence_and_by_its_clock(clean: Server, tmp_path: Path) -> None:
    path = tmp_path / "guarded.db"
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE guarded (fence INTEGER)")
        db.execute("INSERT INTO guarded VALUES (0)")
    with program(PAUSED, clean.url, str(path), str(TTL)) as process, pawlock.connect(clean.url) as client:
        process.send_signal(signal.SIGSTOP)
        with client.election("n", identity="next").campaign(TTL + 2.0) as lease:
            with contextlib.closing(sqlite3.connect(path)) as db, db:
                update = "UPDATE guarded SET fence = :f WHERE fence <= :f"
                assert db.execute(update, {"f": lease.fence}).rowcount == 1
            process.send_signal(signal.SIGCONT)
            tell(process)
            assert says(process) == "0", "the fence refused its write"
            assert says(process).startswith("told"), "its own clock says that it leads no more"
            assert says(process) == "refused"
            lease.check()


@pytest.mark.fault
def test_a_leader_without_a_server_is_told_before_another_can_lead(
    proxy: Proxy, clean: Server, api: Api
) -> None:
    far = make(api.connect(proxy.url), "election", "n", ttl=TTL, identity="far")
    near = make(api.connect(clean.url), "election", "n", ttl=TTL, identity="near")
    lease = leads(far)
    standing = near.start("campaign", 10)
    until(lambda: number(clean, "ZCARD", "{pawlock:%election:n}:1:queue") == 1)
    proxy.drop_request(times=None)
    while leading(far):
        assert not standing.done()
        time.sleep(0.002)
    assert not standing.done() or standing.result().valid_until > lease.valid_until
    after = standing.result(5)
    with pytest.raises(pawlock.LeaseLost):
        api.run(lease.check)
    api.run(after.release)


def test_leader_only_runs_for_the_leader_alone(clean: Server, api: Api) -> None:
    election = make(api.connect(clean.url), "election", "n")
    raw = cast("pawlock.Election", election.raw)

    @raw.leader_only
    def work(number_: int) -> int:
        """Works."""
        return number_ + 1

    @raw.leader_only(on_follower="skip")
    def skipped() -> str:
        return "done"

    @raw.leader_only
    async def awork(number_: int) -> int:
        return number_ + 1

    @raw.leader_only(on_follower="skip")
    async def askipped() -> str:
        return "done"

    def call(function: Any, *args: object) -> Any:
        return api.run(lambda: function(*args))

    def acall(function: Any, *args: object) -> Any:
        return call(function, *args) if api.is_async else asyncio.run(function(*args))

    assert work.__name__ == "work"
    assert work.__doc__ == "Works."
    for one, run in ((work, call), (awork, acall)):
        with pytest.raises(pawlock.NotHeld, match="not the leader"):
            run(one, 1)
    assert call(skipped) is None
    assert acall(askipped) is None
    lease = leads(election)
    assert (call(work, 1), acall(awork, 1), call(skipped), acall(askipped)) == (2, 2, "done", "done")
    api.run(lease.release)
    with pytest.raises(pawlock.NotHeld):
        call(work, 1)


@pytest.mark.fault
def test_a_result_of_a_leader_that_was_lost_meanwhile_is_not_given(clean: Server, api: Api) -> None:
    election = make(api.connect(clean.url), "election", "n", ttl=0.3, renew=False)
    raw = cast("pawlock.Election", election.raw)
    lease = leads(election)

    @raw.leader_only
    def work() -> str:
        time.sleep(0.35)
        return "too late"

    with pytest.raises(pawlock.LeaseLost):
        api.run(work)
    assert api.run(lambda: lease.state) == "lost"
    lease._record.released = True


@pytest.mark.fault
async def test_a_loss_cancels_a_coroutine_that_only_the_leader_may_run(clean: Server) -> None:
    async with pawlock.connect_async(clean.url) as client:
        election = client.election("n", ttl=1.0)
        lease = await election.campaign()
        reached = []

        @election.leader_only
        async def work() -> None:
            reached.append("begun")
            clean.command("DEL", "pawlock:%election:n")
            await asyncio.sleep(10)
            reached.append("went on")

        with pytest.raises(pawlock.LeaseLost):
            await work()
        assert reached == ["begun"]
        assert lease.state == "lost"
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

        lease = await election.campaign(5)
        again = asyncio.create_task(work_for_ever(election))
        await asyncio.sleep(0.05)
        again.cancel()
        with pytest.raises(asyncio.CancelledError):
            await again
        lease.check()
        await lease.release()


async def work_for_ever(election: pawlock.AsyncElection) -> None:
    @election.leader_only
    async def work() -> None:
        await asyncio.sleep(60)

    await work()


def test_a_lease_that_is_dropped_leads_no_more(clean: Server) -> None:
    with pawlock.connect(clean.url) as client:
        election = client.election("n", ttl=0.5)
        with pytest.warns(ResourceWarning, match="never released"):
            election.campaign()
        assert not election.leading
        until(lambda: election.leader() is None, timeout=2)


def test_an_election_travels(clean: Server) -> None:
    with pawlock.connect(clean.url) as client:
        election = client.election("n", identity="a", ttl=5)
        copy = pickle.loads(pickle.dumps(election))
        with copy.campaign(1) as lease:
            assert election.leader() == pawlock.Leader("a", lease.fence)
            assert copy.leading
            assert not election.leading
            with pytest.raises(pawlock.NotSupported):
                lease.detach()
        copy._client.close()
