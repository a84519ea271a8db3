"""A reply that is lost, whichever it is and on whichever connection, ends no lease that it does not concern."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha1
from typing import Self

import pytest

import pawlock
from tests.faults.rig import teach, until
from tests.support.proxy import Proxy, Request
from tests.support.servers import Server

TTL = 0.9
"""Of the leases that nothing is to happen to: half of a second in vain is too long for one of them."""

SPAN = 2.2 * TTL
CROWD = 12
TRIES = 3


def script_of(request: Request) -> str:
    """What names the script that a request runs; ``""`` for another command."""
    if request.command == "EVALSHA":
        return request.args[1].decode()
    return sha1(request.args[1], usedforsecurity=False).hexdigest() if request.command == "EVAL" else ""


class Traffic:
    """Everything that a client does at once, on behalf of other names than those of the leases that are watched."""

    def __init__(self, client: pawlock.Client, rival: pawlock.Client) -> None:
        self._client = client
        self._rival = rival
        self._stop = threading.Event()
        self.taken = 0
        steps = [self._pass_on] * CROWD + [self._in_order] * 3 + [self._gives_up, self._is_taken, self._waits]
        self._threads = [threading.Thread(target=self._run, args=(step,)) for step in steps]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in self._threads)

    def _run(self, step: Callable[[], None]) -> None:
        while not self._stop.is_set():
            # What becomes of these is not the question: a lost reply may concern them.
            with suppress(pawlock.PawlockError):
                step()

    def _pass_on(self) -> None:
        with self._client.lock("crowded", ttl=30).acquire(timeout=5):
            pass

    def _in_order(self) -> None:
        with self._client.fair_lock("ordered", ttl=30).acquire(timeout=5):
            pass

    def _gives_up(self) -> None:
        with self._rival.lock("theirs", ttl=30):
            with suppress(pawlock.AcquireTimeout):
                self._client.lock("theirs").acquire(timeout=0.05)
            self._stop.wait(0.05)

    def _is_taken(self) -> None:
        lease = self._client.lock("taken", ttl=2).acquire(timeout=5)
        self._stop.wait(0.2)
        self._rival.force_release("taken", reason="a test")
        self._stop.wait(1.0)
        self.taken += lease.state == "lost"
        with suppress(pawlock.PawlockError):
            lease.release()

    def _waits(self) -> None:
        with (
            self._client.lock("kept", ttl=30).acquire(timeout=5),
            self._rival.lock("far"),
            suppress(pawlock.PawlockError),
        ):
            self._client.lock("far").acquire(timeout=1.0)


def watched(client: pawlock.Client, lost: list[str]) -> list[pawlock.Lease]:
    """Leases that nothing happens to."""

    def told(lease: pawlock.Lease) -> None:
        lost.append(f"{lease.name}: {lease.state}")

    return [client.lock(name, ttl=TTL, on_lost=told).acquire() for name in ("first", "second")]


def during(server: Server, script: str, nth: int) -> tuple[list[str], Counter[str]]:
    """What is lost once the n-th reply to a script is; and what scripts ran."""
    server.command("FLUSHALL")
    teach(server)
    lost: list[str] = []
    with (
        Proxy(server) as proxy,
        pawlock.connect(proxy.url, deadlock_after=0.2) as client,
        pawlock.connect(server.url) as rival,
    ):
        leases = watched(client, lost)
        seen = len(proxy.requests())
        with Traffic(client, rival):
            if script:
                rule = proxy.swallow_reply(lambda request: script_of(request) == script, nth=nth)
                until(lambda: rule.hits, 15, f"a reply to {script}")
            time.sleep(SPAN)
            ran = Counter(script_of(request) for request in proxy.requests()[seen:])
            lost += [f"{lease.name}: {lease.state}" for lease in leases if lease.state == "lost"]
        for lease in leases:
            with suppress(pawlock.PawlockError):
                lease.release()
    ran.pop("", None)
    return lost, ran


def costs(server: Server, script: str) -> list[str]:
    """What is lost each time that a reply to this script is: a busy machine may lose a lease so short by itself."""
    lost: list[str] = []
    for _ in range(TRIES):
        lost, _ran = during(server, script, 1)
        if not lost:
            break
    return lost


def scripts_that_run(server: Server) -> list[str]:
    """The scripts of the traffic, without any fault; the leases are held."""
    ran: Counter[str] = Counter()
    lost = ["not tried"]
    for _ in range(TRIES):
        if not lost:
            break
        lost, ran = during(server, "", 1)
    assert not lost, "without any fault"
    assert len(ran) >= 6, "the client does a lot at once"
    return sorted(ran)


@pytest.mark.slow
def test_no_lost_reply_ends_a_lease_that_it_does_not_concern(server: Server) -> None:
    found = {script: costs(server, script) for script in scripts_that_run(server)}
    assert not {script: lost for script, lost in found.items() if lost}
