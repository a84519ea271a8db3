"""The reference clients and pawlock in one queue: order, fences, hand-offs, loss, and what they leave behind."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path

import pytest

import pawlock
from interop import client_scripts, kills
from interop.conftest import pttl, wanted
from interop.counting import COUNTER, begin, chosen, count, value_of
from interop.judge import Part, Verdict, judge
from interop.kinds import DRIVERS, HOME, KINDS, ROOT
from interop.line import Driver
from tests.faults.rig import in_thread, script, teach, until
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.pace import pace
from tests.support.proxy import Proxy, Rule
from tests.support.servers import Server

KEY = "pawlock:x"
GO = ROOT / "interop" / "clients" / "go"

Start = Callable[..., Driver]
CLIENTS = ("gowire", "nodewire")


@pytest.fixture(params=CLIENTS)
def wire(request: pytest.FixtureRequest) -> str:
    """Each of the reference clients."""
    found: str = request.param
    return found


@pytest.fixture
def own(server: Server) -> Iterator[pawlock.Client]:
    """A client with the namespace that both have by default."""
    with pawlock.connect(server.url) as client:
        yield client


@pytest.fixture
def proxied(wire: str, server: Server) -> Iterator[tuple[Driver, Proxy]]:
    """The client behind a proxy; the server knows the scripts, so that the n-th request is the n-th of the protocol."""
    wanted(wire)
    teach(server)
    with Proxy(server) as proxy, Driver(KINDS[wire], proxy.url) as them:
        yield them.ready(), proxy


def keys(server: Server) -> set[bytes]:
    """All keys of the name but the record of its fencing tokens."""
    found = server.command("KEYS", "*pawlock:x*")
    assert isinstance(found, list)
    return {key for key in found if isinstance(key, bytes)} - {b"{pawlock:x}:fence"}


def scripts_run(server: Server) -> int:
    """How many the server has run by their hash."""
    told = server.command("INFO", "commandstats")
    assert isinstance(told, bytes)
    return int(re.findall(rb"cmdstat_evalsha:calls=(\d+)", told)[0])


def deliver(server: Server, late: Rule) -> None:
    """Let a request go on that was held back, and wait until the server has carried it out."""
    before = scripts_run(server)
    late.release()
    until(lambda: scripts_run(server) > before, what="the late request")


@pytest.mark.parametrize("path", client_scripts.PATHS, ids=lambda path: path.parent.name)
def test_its_scripts_are_pawlocks(path: Path) -> None:
    text = path.read_text(encoding="ascii")
    assert text == client_scripts.text(), "run python -m interop.client_scripts"


def environ_of_go(**more: str) -> dict[str, str]:
    """With the libraries that are installed for the drivers."""
    caches = {"GOMODCACHE": str(HOME / "go" / "modules"), "GOCACHE": str(HOME / "go" / "cache")}
    return {**os.environ, **caches, "GOFLAGS": "-modcacherw", **more}


def test_the_tests_of_the_go_client(server: Server) -> None:
    wanted("gowire")
    environ = environ_of_go(WIRE_URL=server.url)
    command = ["go", "test", "-count=1", "-timeout=100s", "./..."]
    done = subprocess.run(command, cwd=GO, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SKIP" not in done.stdout


def test_the_code_of_the_go_client_is_formatted_and_vetted() -> None:
    wanted("gowire")
    for folder in (GO, DRIVERS / "go"):
        subprocess.run(["go", "vet", "./..."], cwd=folder, env=environ_of_go(), check=True, timeout=300)
        # It comes with Go, not always on PATH.
        root = subprocess.check_output(["go", "env", "GOROOT"], cwd=folder, text=True).strip()
        gofmt = shutil.which("gofmt") or str(Path(root) / "bin" / "gofmt")
        assert subprocess.check_output([gofmt, "-l", "."], cwd=folder, text=True) == ""


def test_the_names_of_the_node_client() -> None:
    """Keys, and what is refused, by the examples of docs/wire/names.json."""
    wanted("nodewire")
    program = DRIVERS / "node" / "names.mjs"
    names = ROOT / "docs" / "wire" / "names.json"
    done = subprocess.run(["node", program, names], capture_output=True, text=True, check=False)
    assert done.stdout == "26 names\n", done.stderr


def test_a_client_that_only_polls_stands_in_the_queue(server: Server, own: pawlock.Client) -> None:
    """Level 1 of the page: it gets the lock in its turn, with a fencing token, and hands it on."""
    wanted("nodewire")
    environ = {**os.environ, **dict(KINDS["nodewire"].environ)}
    command = ["node", str(DRIVERS / "node" / "polite.mjs"), server.url, "x"]
    lease = own.lock("x").acquire()
    with (
        pawlock.connect(server.url) as other,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True
        ) as them,
    ):
        assert them.stdin is not None
        assert them.stdout is not None
        try:
            until(lambda: own.inspect("x").queue_length == 1, what="it queues")
            waiting = in_thread(lambda: other.lock("x").acquire(timeout=20))
            until(lambda: own.inspect("x").queue_length == 2, what="pawlock queues behind it")
            lease.release()
            fence = int(them.stdout.readline())
            assert fence > lease.fence
            assert pttl(server, KEY) > 20_000
            them.stdin.write("\n")
            them.stdin.flush()
            last = waiting.result(20)
            assert last.fence > fence
            last.release()
            assert them.wait(10) == 0
        finally:
            them.kill()
    assert not keys(server)


# ---- Order, fences and hand-offs


def test_each_waits_for_the_other_and_is_told(wire: str, start: Start, own: pawlock.Client) -> None:
    them = start(wire)
    lease = own.lock("x").acquire()
    assert them.ask("try", KEY, 30_000) | {"t": 0, "t0": 0} == {"ok": False, "t": 0, "t0": 0}
    them.send("lock", KEY, 30_000, -1)
    until(lambda: own.inspect("x").queue_length == 1, what="it queues")
    asked = time.monotonic()
    lease.release()
    got = them.reply()
    # Well below a third of a ticket, when it would have asked by itself.
    assert got["t"] - asked < pace() * 0.5
    assert got["ok"]
    assert got["fence"] > lease.fence
    info = own.inspect("x")
    assert (info.held, info.foreign, info.fence) == (True, False, got["fence"])
    assert str(info.holder).endswith(f":{them.pid}/{wire.removesuffix('wire')}")
    waiting = in_thread(lambda: own.lock("x").acquire(timeout=20))
    until(lambda: own.inspect("x").queue_length == 1, what="pawlock queues")
    asked = time.monotonic()
    assert them.ask("unlock", KEY)["ok"]
    second = waiting.result(20)
    assert time.monotonic() - asked < pace() * 0.5
    assert second.fence > got["fence"]
    second.release()


def test_who_came_first_is_first(wire: str, start: Start, own: pawlock.Client) -> None:
    them = [start(wire) for _ in range(3)]
    lease = own.fair_lock("x").acquire()
    fences = [lease.fence]
    for index, one in enumerate(them):
        one.send("lock", KEY, 30_000, -1)
        until(lambda index=index: own.inspect("x").queue_length == index + 1, what="it queues")  # type: ignore[misc]
    lease.release()
    for one in them:
        fences.append(one.reply()["fence"])
        assert one.ask("unlock", KEY)["ok"]
    assert fences == sorted(set(fences))


def test_without_a_message_it_finds_the_grant_by_asking(
    proxied: tuple[Driver, Proxy], own: pawlock.Client
) -> None:
    them, proxy = proxied
    lease = own.lock("x").acquire()
    lost = proxy.cut_push("message")
    them.send("lock", KEY, 30_000, -1)
    until(lambda: own.inspect("x").queue_length == 1, what="it queues")
    lease.release()
    assert them.reply()["ok"]
    assert lost.hits == 1


def alike(verdict: Verdict) -> None:
    """Nobody was inside with another, and nobody has a tenth more grants than another."""
    assert verdict.safe, verdict.as_json()
    grants = [len(part.grants) for part in verdict.parts]
    assert min(grants) > 50, verdict.as_json()
    assert max(grants) <= min(grants) * 1.1, verdict.as_json()
    assert [part.errors for part in verdict.parts] == [[]] * len(grants)
    assert all("fence" in grant for part in verdict.parts for grant in part.grants)


def test_a_counter_of_two_pawlock_and_two_others(wire: str, valkey: Server) -> None:
    """The history checker looks at the fences of all four: they rise."""
    wanted(wire)
    valkey.command("FLUSHALL")
    alike(count(valkey.url, chosen(f"pawlock,pawlock-asyncio,{wire},{wire}"), 4.0, ttl=10.0))


def test_a_counter_of_two_python_two_node_and_two_go(valkey: Server) -> None:
    """One queue: each has a sixth of the grants, whatever it is written in."""
    wanted(*CLIENTS)
    valkey.command("FLUSHALL")
    mix = chosen("pawlock,pawlock-asyncio,nodewire,nodewire,gowire,gowire")
    alike(count(valkey.url, mix, 6.0, ttl=10.0))


# ---- Processes that die or stand still


def test_processes_that_are_killed(wire: str, valkey: Server) -> None:
    wanted(wire)
    valkey.command("FLUSHALL")
    verdict, done = kills.run(valkey.url, chosen(f"pawlock,{wire},{wire}"), 8.0, 1.0, 0.02, "7")
    assert verdict.safe, verdict.as_json()
    assert done.killed[wire] > 1


@pytest.mark.parametrize(
    ("dead", "waits"),
    [
        (dead, waits)
        for dead in (*CLIENTS, "pawlock")
        for waits in (*CLIENTS, "pawlock")
        if (dead, waits) != ("pawlock", "pawlock")
    ],
)
def test_the_next_has_it_soon_after_a_kill(dead: str, waits: str, server: Server) -> None:
    wanted(dead, waits)
    ttl, environ = 2.0, {"PAWLOCK_WIRE": "own"}
    with (
        Driver(KINDS[dead], server.url, **environ) as one,
        Driver(KINDS[waits], server.url, **environ) as next_,
    ):
        first = one.ready().ask("lock", KEY, round(ttl * 1000), -1)
        next_.ready().send("lock", KEY, 30_000, -1)
        until(lambda: server.command("ZCARD", "{pawlock:x}:1:queue") == 1, what="it queues")
        one.kill()
        killed = time.monotonic()
        got = next_.reply()
        assert got["ok"]
        assert got["fence"] > first["fence"]
        assert got["t"] - killed < ttl + pace() * 1.0


def test_a_waiter_that_is_killed_delays_nobody_for_longer_than_its_ticket(
    wire: str, start: Start, own: pawlock.Client
) -> None:
    dead, them = start(wire), start(wire)
    lease = own.fair_lock("x").acquire()
    for number, one in enumerate((dead, them), 1):
        one.send("lock", KEY, 2000, -1)
        until(lambda number=number: own.inspect("x").queue_length == number, what="it queues")  # type: ignore[misc]
    dead.kill()
    released = time.monotonic()
    lease.release()
    assert them.reply()["t"] - released < 2.0 + pace() * 1.0


def test_it_notices_that_its_key_is_gone(
    wire: str, start: Start, server: Server, own: pawlock.Client
) -> None:
    them = start(wire)
    assert them.ask("lock", KEY, 600, -1)["ok"]
    assert them.ask("state", KEY)["state"] == "held"
    server.command("DEL", KEY)
    until(lambda: them.ask("state", KEY)["state"] == "lost", what="it is told")
    with own.lock("x").acquire(timeout=5) as lease:
        lost = them.ask("unlock", KEY)
        assert not lost["ok"]
        assert "lost" in lost["error"]
        lease.check()
    assert not keys(server)


def test_it_notices_that_an_operator_took_its_lock(wire: str, start: Start, own: pawlock.Client) -> None:
    them = start(wire)
    assert them.ask("lock", KEY, 600, -1)["ok"]
    own.force_release("x", reason="a test")
    until(lambda: them.ask("state", KEY)["state"] == "lost", what="it is told")


def test_it_knows_that_it_was_stopped_for_longer_than_its_ttl(
    wire: str, start: Start, server: Server, own: pawlock.Client
) -> None:
    them = start(wire)
    held = them.ask("lock", KEY, 500, -1)
    time.sleep(0.8)
    assert them.ask("state", KEY)["state"] == "held", "renewed"
    os.kill(them.pid, signal.SIGSTOP)
    try:
        until(lambda: server.command("EXISTS", KEY) == 0, what="it expires")
        lease = own.lock("x").acquire(timeout=5)
        assert lease.fence > held["fence"]
        # What it reads first when it goes on.
        them.send("state", KEY)
    finally:
        os.kill(them.pid, signal.SIGCONT)
    assert them.reply()["state"] == "lost"
    assert not them.ask("unlock", KEY)["ok"]
    lease.check()
    assert server.command("GET", KEY) == lease.token.encode()
    lease.release()


# ---- What is lost on the way, and what is left behind


def test_a_wait_that_ends_leaves_nothing(
    wire: str, start: Start, server: Server, own: pawlock.Client
) -> None:
    them = start(wire)
    with own.lock("x", ttl=60.0):
        before = keys(server)
        assert not them.ask("lock", KEY, 30_000, 300)["ok"]
        until(lambda: keys(server) == before, what="its ticket is gone")
    until(lambda: not keys(server), what="nothing is left")


@pytest.mark.parametrize("free", [True, False])
def test_a_wait_that_ends_before_its_answer_leaves_nothing(
    proxied: tuple[Driver, Proxy], server: Server, own: pawlock.Client, *, free: bool
) -> None:
    """The reply comes when nobody waits for it any more: what it gave is withdrawn, without a tombstone."""
    them, proxy = proxied
    lease = None if free else own.lock("x", ttl=60.0).acquire()
    before = keys(server)
    held = proxy.hold_reply(script("acquire"))
    assert not them.ask("lock", KEY, 30_000, 300)["ok"]
    assert keys(server) > before
    held.release()
    until(lambda: keys(server) == before, what="it is withdrawn")
    if lease is not None:
        lease.release()


@pytest.mark.parametrize("free", [True, False])
def test_a_wait_that_ends_without_an_answer_leaves_nothing_but_a_tombstone(
    proxied: tuple[Driver, Proxy], server: Server, own: pawlock.Client, *, free: bool
) -> None:
    """Its request arrives after it was withdrawn: it gets nothing."""
    them, proxy = proxied
    lease = None if free else own.lock("x", ttl=60.0).acquire()
    before = keys(server)
    late = proxy.hold_request(script("acquire"))
    assert not them.ask("lock", KEY, 30_000, 300)["ok"]
    until(lambda: len(keys(server) - before) == 1, what="the tombstone")
    deliver(server, late)
    (tomb,) = keys(server) - before
    assert tomb.startswith(b"{pawlock:x}:1:dead:")
    if lease is not None:
        lease.release()


@pytest.mark.parametrize("how", ["swallow_reply", "kill_on_reply", "drop_request", "reset"])
def test_a_lost_acquire_is_sent_again(
    how: str, proxied: tuple[Driver, Proxy], server: Server, own: pawlock.Client
) -> None:
    them, proxy = proxied
    rule = getattr(proxy, how)(script("acquire"))
    got = them.ask("lock", KEY, 30_000, 10_000)
    assert got["ok"]
    assert rule.hits == 1
    assert own.inspect("x").fence == got["fence"], "granted once"
    assert them.ask("unlock", KEY)["ok"]
    # It cannot know that no earlier copy is on its way.
    assert all(key.startswith(b"{pawlock:x}:1:dead:") for key in keys(server))
    own.lock("x").acquire(timeout=0).release()


@pytest.mark.parametrize("broken", [False, True])
def test_a_late_copy_of_an_acquire_gets_nothing(
    proxied: tuple[Driver, Proxy], server: Server, own: pawlock.Client, *, broken: bool
) -> None:
    """Where the connection breaks, the Redis library would send the request again by itself, and tell nobody."""
    them, proxy = proxied
    late = proxy.hold_request(script("acquire"))
    them.send("lock", KEY, 30_000, 10_000)
    proxy.wait_hit(late)
    if broken:
        proxy.reset_all()
    assert them.reply()["ok"]
    assert them.ask("unlock", KEY)["ok"]
    deliver(server, late)
    assert server.command("EXISTS", KEY) == 0
    own.lock("x").acquire(timeout=0).release()


def test_a_grant_to_a_ticket_that_it_knew_nothing_of_is_raised(
    proxied: tuple[Driver, Proxy], server: Server, own: pawlock.Client
) -> None:
    """Its reply is lost, the lock handed to it: until it renews, it has the lock for as long as its ticket."""
    them, proxy = proxied
    lease = own.lock("x").acquire()
    lost = proxy.swallow_reply(script("acquire"))
    them.send("lock", KEY, 30_000, -1)
    proxy.wait_hit(lost)
    lease.release()
    assert them.reply()["ok"]
    assert pttl(server, KEY) > 20_000


@pytest.mark.parametrize("how", ["swallow_reply", "kill_on_reply", "drop_request"])
def test_a_lost_release_is_sent_again(
    how: str, proxied: tuple[Driver, Proxy], server: Server, own: pawlock.Client
) -> None:
    them, proxy = proxied
    assert them.ask("lock", KEY, 30_000, -1)["ok"]
    rule = getattr(proxy, how)(script("leave"))
    assert them.ask("unlock", KEY)["ok"]
    assert rule.hits == 1
    assert not keys(server)
    own.lock("x").acquire(timeout=0).release()


def test_a_lost_renewal_is_sent_again(proxied: tuple[Driver, Proxy], own: pawlock.Client) -> None:
    them, proxy = proxied
    got = them.ask("lock", KEY, 3000, -1)
    rule = proxy.swallow_reply(script("renew"))
    proxy.wait_hit(rule, 10.0)
    renewed = len(proxy.requests(script("renew")))
    until(lambda: len(proxy.requests(script("renew"))) > renewed, what="it asks again")
    time.sleep(3.0)
    assert them.ask("state", KEY)["state"] == "held"
    assert own.inspect("x").fence == got["fence"]


def test_connections_that_break_while_it_waits(proxied: tuple[Driver, Proxy], own: pawlock.Client) -> None:
    them, proxy = proxied
    lease = own.lock("x").acquire()
    them.send("lock", KEY, 30_000, -1)
    until(lambda: own.inspect("x").queue_length == 1, what="it queues")
    for _ in range(3):
        proxy.reset_all()
        time.sleep(0.3)
    lease.release()
    got = them.reply()
    assert got["ok"]
    assert got["fence"] > lease.fence


def test_a_counter_while_their_network_breaks(wire: str, valkey: Server) -> None:
    """Requests, replies, messages and connections are lost; pawlock's own processes share the lock with a good network."""
    wanted(wire)
    valkey.command("FLUSHALL")
    chance, seconds = random.Random(21), 8.0
    begin(valkey.url)
    kind, own_kind = KINDS[wire], KINDS["pawlock"]
    with Proxy(valkey) as proxy, ExitStack() as stack:
        where = [(kind, proxy.url), (kind, proxy.url), (own_kind, valkey.url), (own_kind, valkey.url)]
        environ = {"COUNTER_URL": valkey.url, "PAWLOCK_WIRE": "own"}
        running = [stack.enter_context(Driver(one, url, **environ)) for one, url in where]
        faults = (
            lambda: proxy.swallow_reply("EVALSHA"),
            lambda: proxy.kill_on_reply("EVALSHA"),
            lambda: proxy.drop_request("EVALSHA"),
            lambda: proxy.reset("EVALSHA"),
            lambda: proxy.duplicate_request_late("EVALSHA", seconds=0.3),
            lambda: proxy.hold_request("EVALSHA", seconds=1.5),
            lambda: proxy.hold_reply("EVALSHA", seconds=1.5),
            lambda: proxy.cut_push("message", times=3),
            proxy.reset_all,
        )
        for driver in running:
            driver.ready()
        start = time.monotonic()
        for driver in running:
            driver.send("count", KEY, 2000, seconds, COUNTER, 2)
        while time.monotonic() < start + seconds - 1:
            time.sleep(chance.uniform(0.1, 0.5))
            chance.choice(faults)()
        proxy.clear()
        for driver in running:
            driver.reply(60.0)
        parts = [
            Part(
                f"{one.name}-{index}",
                one.name,
                driver.pid,
                driver.events,
                start,
                start + seconds,
                queues=True,
            )
            for index, ((one, _), driver) in enumerate(zip(where, running, strict=True))
        ]
        verdict = judge(parts, KEY, 2.0, value_of(valkey.url))
    assert verdict.safe, verdict.as_json()
    assert min(len(part.grants) for part in parts) > 3, verdict.as_json()


# ---- Rights, Sentinel, cluster


def test_what_the_acl_of_the_package_allows_is_enough(wire: str, own_server: Server) -> None:
    wanted(wire)
    line = (
        files("pawlock")
        .joinpath("pawlock.acl")
        .read_text(encoding="ascii")
        .replace("CHANGE-THIS-PASSWORD", "s")
    )
    own_server.command("ACL", "SETUSER", *line.split()[1:])
    url = own_server.url.replace("redis://", "redis://pawlock:s@")
    with pawlock.connect(url) as client, Driver(KINDS[wire], url) as them:
        lease = client.lock("x").acquire()
        them.ready().send("lock", KEY, 30_000, -1)
        until(lambda: client.inspect("x").queue_length == 1, what="it queues")
        asked = time.monotonic()
        lease.release()
        got = them.reply()
        assert got["ok"]
        assert got["t"] - asked < pace() * 0.5, "told by a message"
        assert them.ask("unlock", KEY)["ok"]


def test_in_a_cluster_it_stands_in_one_queue_with_pawlock(wire: str, valkey: Server) -> None:
    wanted(wire)
    with ClusterGroup() as cluster:
        mix = chosen(f"pawlock,pawlock,{wire},{wire}")
        alike(count(cluster.url, mix, 4.0, ttl=10.0, counter_at=valkey.url))


def test_it_keeps_its_lease_and_its_place_through_a_failover(wire: str) -> None:
    wanted(wire)
    kind = KINDS[wire]
    with SentinelGroup() as group, pawlock.connect(group.url) as client:  # noqa: SIM117 - servers, then programs
        with Driver(kind, group.url) as holder, Driver(kind, group.url) as waiter:
            held = holder.ready().ask("lock", KEY, 20_000, -1)
            waiter.ready().send("lock", KEY, 20_000, -1)
            until(lambda: client.inspect("x").queue_length == 1, what="it queues")
            until(
                lambda: all(
                    group.ask(replica, "ZCARD", "{pawlock:x}:1:queue") == 1 for replica in group.replicas
                ),
                what="the replica has its ticket",
            )
            old = group.master
            old.kill()
            group.wait_for_failover(old)
            until(lambda: client.inspect("x").fence == held["fence"], what="the new master knows it")
            assert holder.ask("state", KEY)["state"] == "held"
            assert holder.ask("unlock", KEY)["ok"]
            got = waiter.reply()
            assert got["ok"]
            assert got["fence"] > held["fence"]
            assert waiter.ask("unlock", KEY)["ok"]
            with client.lock("x").acquire(timeout=10) as lease:
                assert lease.fence > got["fence"]


def test_it_learns_what_a_failover_lost(wire: str) -> None:
    """Its lock never reached the replica: the new master gives it to another, with a larger fencing token."""
    wanted(wire)
    with SentinelGroup() as group, pawlock.connect(group.url) as client:
        client.lock("x").acquire().release()
        with Driver(KINDS[wire], group.url) as them:
            them.ready()
            group.freeze_replication()
            held = them.ask("lock", KEY, 3000, -1)
            old = group.master
            old.kill()
            group.wait_for_failover(old)
            with client.lock("x").acquire(timeout=20) as lease:
                assert lease.fence > held["fence"]
                until(lambda: them.ask("state", KEY)["state"] == "lost", what="it is lost")
                assert not them.ask("unlock", KEY)["ok"]
                lease.check()
