"""Pauses, clocks, starved renewals, forks and ends of processes: the holder's own clock decides."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pawlock
from tests.faults.rig import Api, Client, in_thread, key, remains, script, until
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.servers import Server

pytestmark = pytest.mark.fault

HOLDER = {
    "threads": """
import sys, time, pawlock
client = pawlock.connect(sys.argv[1])
lease = client.lock("n", ttl=float(sys.argv[2]), renew=sys.argv[3] == "renew").acquire(10)
print(lease.fence, flush=True)
sys.stdin.readline()
try:
    lease.check()
    print("held", flush=True)
except pawlock.LeaseLost as lost:
    print("lost", lost.reason, lease.state, lease.remaining(), flush=True)
""",
    "asyncio": """
import asyncio, sys, pawlock
async def main():
    async with pawlock.connect_async(sys.argv[1]) as client:
        lease = await client.lock("n", ttl=float(sys.argv[2]), renew=sys.argv[3] == "renew").acquire(10)
        print(lease.fence, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        try:
            lease.check()
            print("held", flush=True)
        except pawlock.LeaseLost as lost:
            print("lost", lost.reason, lease.state, lease.remaining(), flush=True)
asyncio.run(main())
""",
}


class Process:
    """A holder in a process of its own."""

    def __init__(self, api: str, url: str, ttl: float, *, renew: bool = True) -> None:
        words = [sys.executable, "-c", HOLDER[api], url, str(ttl), "renew" if renew else "no"]
        self.popen = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.fence = int(self.line())

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def ask(self) -> str:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()
        return self.line()

    def end(self) -> None:
        self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for process in made:
        process.end()


def starve(api: Api, client: Client) -> threading.Event:
    """Hold the maintenance of a client where it would renew, until the event is set."""
    background = api.run(lambda: api.engine(client.raw).background)
    go = threading.Event()
    real = background.call_many

    async def hang(*words: Any) -> Any:
        while not go.is_set():
            await background.pause(0.02)
        return await real(*words)

    background.call_many = hang
    return go


def test_row_17_a_holder_paused_past_its_ttl(
    api: Api, rival: Client, server: Server, processes: list[Process]
) -> None:
    process = Process(api.name, server.url, 1.0)
    processes.append(process)
    process.popen.send_signal(signal.SIGSTOP)
    newer = rival.lock(ttl=20).acquire(10)
    assert newer.fence > process.fence
    time.sleep(0.1)
    process.popen.send_signal(signal.SIGCONT)
    words = process.ask().split()
    assert words[0] == "lost"
    assert words[2:] == ["lost", "0.0"]
    newer.check()
    assert server.command("GET", key("n")) == newer.token.encode()


def test_row_18_a_starved_renewal_is_told_by_the_clock(api: Api, client: Client) -> None:
    go = starve(api, client)
    lease = client.lock(ttl=0.6).acquire(5)
    time.sleep(0.62)
    with pytest.raises(pawlock.LeaseLost):
        lease.check()
    assert lease.remaining() == 0
    go.set()


def test_row_19_a_blocked_event_loop(server: Server) -> None:
    import asyncio

    async def body() -> None:
        async with pawlock.connect_async(server.url) as client:
            lease = await client.lock("n", ttl=0.5, renew=False).acquire(5)
            time.sleep(0.6)  # noqa: ASYNC251 - that is the fault
            with pytest.raises(pawlock.LeaseLost):
                lease.check()
            assert lease.lost

    asyncio.run(body())


def test_row_20_the_loss_comes_at_the_old_deadline(client: Client, proxy: Proxy, api: Api) -> None:
    told: list[float] = []
    clock = api.run(lambda: api.engine(client.raw).runtime.now)
    lease = client.lock(ttl=1.0, on_lost=lambda _: told.append(clock())).acquire(5)
    proxy.blackhole()
    until(lambda: lease.state == "suspect", what="failing renewals")
    deadline = lease.raw.valid_until
    assert deadline > clock()
    lease.check()
    until(lambda: told, timeout=5, what="on_lost")
    assert -0.01 < told[0] - deadline < 0.8
    assert lease.reason == "unreachable"
    proxy.blackhole(on=False)


def test_row_20_lost_is_final(client: Client, proxy: Proxy, server: Server) -> None:
    """A good renewal that was under way when the deadline passed revives nothing."""
    rule = proxy.hold_reply(script("renew"), times=None)
    lease = client.lock(ttl=0.9, ticket_ttl=0.9).acquire(5)
    rule.wait()
    until(lambda: lease.state == "lost", what="the loss")
    rule.remove()
    time.sleep(0.3)
    assert lease.state == "lost"
    assert lease.remaining() == 0
    with pytest.raises(pawlock.NotHeld):
        lease.extend(10)
    until(lambda: remains(server) == [], what="a free name")


def test_row_21_one_bad_renewal_ends_nothing(client: Client, proxy: Proxy) -> None:
    rule = proxy.reset(script("renew"))
    lease = client.lock(ttl=3, renew=0.2).acquire(5)
    rule.wait()
    first = lease.raw.valid_until
    until(lambda: lease.raw.valid_until > first + 0.5, what="several good renewals")
    assert lease.state == "held"


def test_row_22_an_administrator_deletes_the_key(client: Client, server: Server, proxy: Proxy) -> None:
    lost: list[object] = []
    lease = client.lock(ttl=20, renew=0.15, on_lost=lost.append).acquire(5)
    server.command("DEL", key("n"))
    until(lambda: lost, timeout=5, what="on_lost")
    assert lease.reason == "expired"
    asked = len(proxy.requests(script("renew")))
    time.sleep(0.5)
    assert len(proxy.requests(script("renew"))) == asked
    assert server.command("EXISTS", key("n")) == 0


def test_row_23_renewal_never_outlives_release(client: Client, proxy: Proxy, server: Server) -> None:
    for _ in range(3):
        rule = proxy.hold_reply(script("renew"), seconds=0.15)
        lease = client.lock(ttl=6, renew=0.05).acquire(5)
        rule.wait()
        lease.release()
        assert remains(server) == []
        asked = len(proxy.requests(script("renew")))
        time.sleep(0.25)
        assert len(proxy.requests(script("renew"))) == asked
        assert remains(server) == []
        rule.remove()


def test_row_24_no_wall_clock_decides_anything() -> None:
    root = Path(pawlock.__file__).parent
    found = []
    for folder in ("core", "runtimes", "transport", "primitives", "topology"):
        for path in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    word = f"{node.value.id}.{node.attr}"
                    if word in {
                        "time.time",
                        "time.time_ns",
                        "datetime.now",
                        "datetime.utcnow",
                        "time.localtime",
                    }:
                        found.append(f"{path.name}:{node.lineno} {word}")
                if isinstance(node, ast.ImportFrom) and "wall" in [name.name for name in node.names]:
                    found.append(f"{path.name}:{node.lineno} the wall clock of _system")
    assert found == []


def test_row_25_a_suspended_machine(client: Client, api: Api) -> None:
    """The clock of every deadline goes on while the machine sleeps."""
    lease = client.lock(ttl=20, renew=False).acquire(5)
    runtime = api.run(lambda: api.engine(client.raw).runtime)
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(runtime.now() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 0.5
    real = runtime.now
    runtime.now = lambda: real() + 60
    with pytest.raises(pawlock.LeaseLost):
        lease.check()


@pytest.mark.parametrize("ttl", [0.3, 3.0, 300.0])
def test_row_28_drift_is_taken_off(ttl: float, client: Client, server: Server) -> None:
    lease = client.lock(ttl=ttl, renew=False).acquire(5)
    left = int(str(server.command("PTTL", key("n")))) / 1000
    assert lease.remaining() <= left - ttl * 0.009
    assert lease.remaining() <= ttl - ttl * 0.01 - 0.002
    with pytest.raises(pawlock.ConfigurationError):
        client.lock(ttl=0.049)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_row_29_a_forked_child_touches_nothing(server: Server) -> None:
    code = """
import os, sys, warnings, pawlock
warnings.simplefilter("ignore")
client = pawlock.connect(sys.argv[1])
lease = client.lock("n", ttl=20).acquire(5)
pid = os.fork()
if pid == 0:
    seen = []
    for step in (lease.check, lease.release, lambda: lease.extend(9)):
        try:
            step()
            seen.append("done")
        except pawlock.PawlockError as error:
            seen.append(type(error).__name__)
    print(seen, client.lock("other").acquire(5).fence > 0, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
lease.check()
print(client.inspect("n").held, flush=True)
lease.release()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, server.url], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines() == ["['LeaseLost', 'NotHeld', 'NotHeld'] True", "True"]


def test_row_30_one_lock_object_many_owners(client: Client, server: Server) -> None:
    lock = client.lock(ttl=20)
    inside, most, grants = 0, 0, []

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            lease = lock.acquire(20)
            inside += 1
            most = max(most, inside)
            grants.append((lease.fence, lease.token))
            inside -= 1
            lease.release()

    for future in [in_thread(work) for _ in range(6)]:
        future.result(30)
    assert most == 1
    assert len(set(grants)) == len(grants) == 30
    assert len({fence for fence, _ in grants}) == 30
    assert remains(server) == []


def test_row_31_tokens_are_random(client: Client) -> None:
    tokens = set()
    for _ in range(50):
        lease = client.lock(handover=0).acquire(5)
        tokens.add(lease.token.partition("@")[0])
        lease.release()
    assert len(tokens) == 50
    # Base 62: 24 digits are more than 128 bits.
    assert all(len(token) == 24 for token in tokens)


def test_row_32_a_killed_holder(api: Api, rival: Client, server: Server, processes: list[Process]) -> None:
    process = Process(api.name, server.url, 1.0)
    processes.append(process)
    waiting = rival.lock(ttl=20, ticket_ttl=0.9).start(20)
    process.popen.send_signal(signal.SIGKILL)
    began = time.monotonic()
    lease = waiting.result(10)
    assert time.monotonic() - began < pace() * (1.0 + 0.3 + 1.5)
    assert lease.fence > process.fence


def test_row_33_reentry_into_a_lost_lease(server: Server) -> None:
    with pawlock.connect(server.url) as client:
        lock = client.rlock("n", ttl=0.3, renew=False)
        outer = lock.acquire(5)
        time.sleep(0.35)
        with pytest.raises(pawlock.LeaseLost):
            lock.acquire(5)
        with pytest.raises(pawlock.NotHeld):
            outer.release()


@pytest.mark.parametrize("reachable", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_row_15_the_interpreter_ends_while_it_holds(
    *, reachable: bool, api: Api, server: Server, processes: list[Process]
) -> None:
    with Proxy(server) as proxy:
        process = Process(api.name, proxy.url, 20.0)
        processes.append(process)
        if not reachable:
            proxy.blackhole()
        began = time.monotonic()
        assert process.ask() == "held"
        process.popen.wait(10)
        assert time.monotonic() - began < pace() * 8
        assert process.popen.returncode == 0
        if reachable:
            until(lambda: remains(server) == [], timeout=2, what="a free name")


def test_row_16_a_dropped_lease_is_no_longer_renewed(server: Server) -> None:
    with pawlock.connect(server.url) as client:
        with pytest.warns(ResourceWarning, match="never released"):
            client.lock("n", ttl=0.6).acquire(5)
        until(lambda: server.command("EXISTS", key("n")) == 0, timeout=5, what="the end of the ttl")
        client.lock("n").acquire(5).release()
