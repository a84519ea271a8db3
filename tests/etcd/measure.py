"""What a lock on etcd costs, beside a transaction and a watch written by hand, other libraries, and pawlock on Redis.

``python -m tests.etcd.measure [--members 3] [--rounds 3] [--only pawlock,by-hand]`` starts the servers, installs the
libraries of others into ``.make/peers`` and prints a table. Each participant runs in processes of its own, all take turns
in each round, and what is shown is the median of all rounds:

- *free pair*: acquire and release of a name that nobody else wants.
- *hand-off*: two processes take turns; from just before the release to the return of the other one's acquire.
- *of 8*: the same with eight processes, seven of which wait.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
TTL = 30


# A participant is what gives an acquire and a release, of threads or of asyncio -----------------------------------------

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def pawlock(url: str, name: str) -> Pair:
    """Sync pawlock, on etcd or on Redis."""
    import pawlock as library

    lock = library.connect(url).lock(name, ttl=TTL)
    held: list[Any] = []
    return lambda: held.append(lock.acquire()), lambda: held.pop().release()


def pawlock_asyncio(url: str, name: str) -> Pair:
    """The same in tasks."""
    import pawlock as library

    lock = library.connect_async(url).lock(name, ttl=TTL)
    held: list[Any] = []

    async def acquire() -> None:
        held.append(await lock.acquire())

    async def release() -> None:
        await held.pop().release()

    return acquire, release


def by_hand(url: str, name: str) -> Pair:
    """No lock: a transaction that writes a key if it is not there, and a watch of that key. Nothing is renewed."""
    from tests.support.etcd_wire import EtcdWire, b64

    host, port = address(url)
    wire = EtcdWire(host, port, timeout=60)
    lease, key = str(wire.grant(600)), b64(name)
    absent = {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
    put = {"request_put": {"key": key, "value": key, "lease": lease}}

    def acquire() -> None:
        while not (answer := wire.txn([absent], [put])).get("succeeded"):
            with wire.watch(name, int(answer["header"]["revision"]) + 1) as events:
                next(event for event in events if event.deleted)

    return acquire, lambda: wire.delete(name, exact=True)


def aetcd(url: str, name: str) -> Pair:
    """``aetcd``: gRPC, asyncio."""
    library: Any = import_module("aetcd")

    host, port = address(url)
    lock = library.Client(host, port).lock(name.encode(), ttl=TTL)
    return lambda: lock.acquire(timeout=None), lock.release


def etcetra(url: str, name: str) -> Pair:
    """``etcetra``: gRPC, asyncio, the lock service of the server."""
    library: Any = import_module("etcetra")

    client = library.EtcdClient(library.HostPortPair(*address(url)))
    held: list[Any] = []

    async def acquire() -> None:
        held.append(client.with_lock(name, ttl=TTL))
        await held[0].__aenter__()

    async def release() -> None:
        await held.pop().__aexit__(None, None, None)

    return acquire, release


def etcd3(url: str, name: str) -> Pair:
    """``etcd3``: gRPC, threads."""
    library: Any = import_module("etcd3")

    host, port = address(url)
    lock = library.client(host, port).lock(name, ttl=TTL)
    return lambda: lock.acquire(timeout=None), lock.release


def etcd_sdk_python(url: str, name: str) -> Pair:
    """``etcd-sdk-python``: a fork of etcd3."""
    library: Any = import_module("pyetcd")

    host, port = address(url)
    lock = library.client(host, port).lock(name, ttl=TTL)
    return lambda: lock.acquire(timeout=None), lock.release


def etcd3_py(url: str, name: str) -> Pair:
    """``etcd3-py``: the JSON gateway, threads."""
    library: Any = import_module("etcd3")

    host, port = address(url)
    lock = library.Client(host, port).Lock(name, lock_ttl=TTL)
    return lock.acquire, lock.release


def etcdctl(url: str, name: str) -> Pair:
    """``etcdctl lock``: a process for each acquire."""
    host, port = address(url)
    held: list[subprocess.Popen[str]] = []

    def acquire() -> None:
        command = [os.environ["ETCDCTL"], "--endpoints", f"{host}:{port}", "lock", name]
        held.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env={**os.environ, "ETCDCTL_API": "3"}
            )
        )
        assert held[-1].stdout is not None
        held[-1].stdout.readline()

    def release() -> None:
        with held.pop() as process:
            process.send_signal(signal.SIGTERM)

    return acquire, release


PARTICIPANTS: dict[str, tuple[Callable[[str, str], Pair], str]] = {
    "by-hand": (by_hand, ""),
    "pawlock": (pawlock, ""),
    "pawlock-asyncio": (pawlock_asyncio, ""),
    "pawlock-redis": (pawlock, ""),
    "aetcd": (aetcd, "aetcd==1.0.0"),
    "etcetra": (etcetra, "etcetra"),
    "etcd3": (etcd3, "etcd3==0.12.0 protobuf<3.21 setuptools<80"),
    "etcd-sdk-python": (etcd_sdk_python, "etcd-sdk-python==0.0.7 protobuf grpcio tenacity"),
    "etcd3-py": (etcd3_py, "etcd3-py==0.1.6"),
    "etcdctl": (etcdctl, ""),
}
"""What each is made by, and what is installed for it."""


def address(url: str) -> tuple[str, int]:
    """The first member of a URL."""
    host, _, port = url.partition("//")[2].partition(",")[0].partition(":")
    return host, int(port)


# A process of a participant -------------------------------------------------------------------------------------------


def drive(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that never suspends."""
    with contextlib.suppress(StopIteration):
        work.send(None)


async def settle(value: Any) -> None:
    """Await what is to be awaited."""
    if inspect.isawaitable(value):
        await value


async def take_turns(who: str, url: str, name: str, turns: int, inside: float) -> None:
    """Take a name in turn, and print when it was held from, and when its release began and ended."""
    acquire, release = PARTICIPANTS[who][0](url, name)
    for warm in range(3):
        del warm
        await settle(acquire())
        await settle(release())
    print("ready", flush=True)
    sys.stdin.readline()
    noted: list[tuple[float, float, float, float]] = []
    for _ in range(turns):
        asked = time.monotonic()
        await settle(acquire())
        held = time.monotonic()
        if inside:
            time.sleep(inside)  # noqa: ASYNC251 - nothing else runs there
        releasing = time.monotonic()
        await settle(release())
        noted.append((asked, held, releasing, time.monotonic()))
    print(json.dumps(noted), flush=True)


def work(who: str, *args: Any) -> None:
    """Run it in the API of the participant."""
    turns = take_turns(who, *args)
    if who in {"pawlock-asyncio", "aetcd", "etcetra"}:
        asyncio.run(turns)
    else:
        drive(turns)
    # Threads of some libraries do not end.
    sys.stdout.flush()
    os._exit(0)


# The whole ------------------------------------------------------------------------------------------------------------


def python_of(who: str) -> str | None:
    """The Python that a participant runs with, made if there is none; None: it cannot be had."""
    needed = PARTICIPANTS[who][1]
    if not needed:
        return sys.executable
    from benchmarks.peers.installed import CACHE, ready

    commands = (sys.executable, "-m", "venv", "."), ("bin/pip", "install", "-q", *needed.split())
    if reason := ready(f"etcd-{who}", (), *commands):
        print(f"{who}: {reason}", file=sys.stderr)
        return None
    return str(CACHE / f"etcd-{who}" / "bin" / "python")


def crowd(python: str, who: str, url: str, processes: int, turns: int, inside: float) -> list[list[float]]:
    """Have some processes take turns; all turns in the order in which they began."""
    name = f"measure-{who}-{time.monotonic_ns()}"
    words = [python, str(HERE), "--worker", who, url, name, str(turns), str(inside)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "src"))))}
    with contextlib.ExitStack() as stack:
        pipe = subprocess.PIPE
        running = [
            stack.enter_context(subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=env))
            for _ in range(processes)
        ]
        try:
            for one in running:
                assert one.stdout is not None
                if one.stdout.readline() != "ready\n":
                    raise RuntimeError(f"{who} did not come up")
            for one in running:
                assert one.stdin is not None
                one.stdin.write("\n")
                one.stdin.flush()
            said = [one.communicate(timeout=120)[0] for one in running]
        finally:
            for one in running:
                one.kill()
    found = [[*turn, number] for number, text in enumerate(said) for turn in json.loads(text)]
    found.sort(key=lambda turn: float(turn[1]))
    if early := sum(after[1] < before[2] for before, after in pairwise(found)):
        print(f"{who}: {early} of {len(found)} were let in while another was inside", file=sys.stderr)
    return found


def pairs(turns: list[list[float]]) -> list[float]:
    """Milliseconds of acquire and release, without what was between."""
    return [1000 * (held - asked + released - releasing) for asked, held, releasing, released, _ in turns]


def hand_offs(turns: list[list[float]]) -> list[float]:
    """Milliseconds from a release to the next one's grant, where that waited already in another process."""
    found = []
    for before, after in pairwise(turns):
        if after[4] != before[4] and after[0] < before[2] < after[1]:
            found.append(1000 * (after[1] - before[2]))
    return found


CASES: dict[str, Callable[[str, str, str, int], list[float]]] = {
    "free pair": lambda python, who, url, n: pairs(crowd(python, who, url, 1, 10 * n, 0)),
    "hand-off": lambda python, who, url, n: hand_offs(crowd(python, who, url, 2, n, 0.03)),
    "of 8": lambda python, who, url, n: hand_offs(crowd(python, who, url, 8, max(3, n // 4), 0.03)),
}


def row(who: str, found: dict[str, list[float]]) -> str:
    """A line of the table."""
    cells = [
        f"{statistics.median(times):.2f} / {sorted(times)[int(0.95 * len(times))]:.2f}"
        if (times := found[case])
        else "–"
        for case in CASES
    ]
    return f"| {who} | {' | '.join(cells)} |"


@contextlib.contextmanager
def servers(members: int) -> Iterator[dict[str, str]]:
    """The URL for each participant."""
    from tests.support.etcd import Etcd
    from tests.support.servers import Server

    with Etcd(members) as etcd, Server("valkey", unix=False) as redis:
        # All at the leader: the others would show one hop more for some of them.
        at = etcd.url_of(etcd.leader())
        yield {who: redis.url if who == "pawlock-redis" else at for who in PARTICIPANTS}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--only", default=",".join(PARTICIPANTS))
    given = parser.parse_args()
    pythons = {who: python for who in given.only.split(",") if (python := python_of(who))}
    if "ETCDCTL" not in os.environ:
        pythons.pop("etcdctl", None)
    found: dict[str, dict[str, list[float]]] = {who: {case: [] for case in CASES} for who in pythons}
    with servers(given.members) as urls:
        for _ in range(given.rounds):
            for case, measure in CASES.items():
                for who, python in pythons.items():
                    try:
                        found[who][case] += measure(python, who, urls[who], given.turns)
                    except (RuntimeError, subprocess.TimeoutExpired, ValueError) as error:
                        print(f"{who}, {case}: {error}", file=sys.stderr)
    print(f"etcd with {given.members} member(s); ms, median / 95 %\n")
    print(f"| | {' | '.join(CASES)} |\n|---|{'---|' * len(CASES)}")
    for who in pythons:
        print(row(who, found[who]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(*sys.argv[2:5], int(sys.argv[5]), float(sys.argv[6]))
    else:
        main()
