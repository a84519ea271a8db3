"""Servers that are far away: ``request_timeout`` and ``connect_timeout``, and who is silent within them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import pawlock
from tests.faults.rig import APIS, Api, in_thread, key, script, until
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.servers import Server

each_api = pytest.mark.parametrize("api", APIS)
WAY = 0.6
FAR: dict[str, Any] = {"request_timeout": 3, "connect_timeout": 5}


@pytest.fixture
def proxy(valkey: Server) -> Iterator[Proxy]:
    """What is between client and server."""
    with Proxy(valkey) as proxy:
        yield proxy
        proxy.clear()


@each_api
def test_a_server_that_is_far_away_serves_who_says_so(valkey: Server, proxy: Proxy, api: str) -> None:
    proxy.delay(requests=WAY, replies=WAY)
    with Api(api) as chosen:
        usual = chosen.connect(proxy.url)
        with pytest.raises(pawlock.BackendUnavailable):
            usual.lock("far1").acquire(timeout=2.5)
        here, there = (chosen.connect(proxy.url, **FAR) for _ in range(2))
        lease = here.lock("far1", renew=1.0).acquire()
        waits = there.lock("far1").start(timeout=30)
        until(lambda: here.counter("renewed") >= 2, what="two renewals")
        assert lease.reason is None
        assert not waits.done()
        made = proxy.accepted
        lease.release()
        given = waits.result(20)
        assert given.fence > lease.fence
        given.release()
        assert valkey.command("EXISTS", key("far1")) == 0
        # Who was away a moment ago comes back by a connection of its own.
        assert proxy.accepted <= made + 1, "no connection broke"


@each_api
def test_a_wait_for_a_far_server_that_ends_is_no_outage(proxy: Proxy, api: str) -> None:
    """The last question of a wait may be too late for its answer: that is no outage."""
    with Api(api) as chosen:
        far = {"request_timeout": 0.8}
        holder, other = (chosen.connect(proxy.url, **far) for _ in range(2))
        lease = holder.lock("far2", ttl=20).acquire()
        other.lock("warm").acquire().release()
        proxy.delay(requests=0.2, replies=0.2)
        channel = other.engine.runtime.channel()
        # It asks 0.4 s after each third of its ticket, so at 2.8 s, too.
        with pytest.raises(pawlock.AcquireTimeout):
            other.lock("far2").acquire(timeout=3.0)
        assert other.counter("outages") == 0
        assert lease.reason is None
        if api == "asyncio":
            assert other.engine.runtime.channel() == channel, "others use the connection, too"
        proxy.delay()


@each_api
def test_what_is_left_in_the_background_is_sent_once(proxy: Proxy, api: str) -> None:
    stop = threading.Event()
    with Api(api) as chosen:
        holder, client = (chosen.connect(proxy.url, request_timeout=3) for _ in range(2))
        lease = holder.lock("far3").acquire()
        client.lock("warm").acquire().release()
        asked = len(proxy.requests(script("leave")))
        proxy.delay(requests=WAY, replies=WAY)
        waits = in_thread(lambda: chosen.run(lambda: client.lock("far3").raw.acquire(stop=stop)))
        until(lambda: client.engine.waits, what="a wait")
        stop.set()
        with pytest.raises(pawlock.NotAcquired):
            waits.result(10)
        until(lambda: client.counter("departed"), what="the leave of its ticket")
        assert len(proxy.requests(script("leave"))) == asked + 1
        assert lease.reason is None
        proxy.delay()


def test_a_deadlock_on_a_far_server_is_found(proxy: Proxy) -> None:
    both = threading.Barrier(2)
    with pawlock.connect(proxy.url, request_timeout=0.9, deadlock_after=0.5) as client:

        def take(first: str, second: str) -> str:
            try:
                with client.lock(first):
                    both.wait(10)
                    with client.lock(second):
                        return "both"
            except pawlock.DeadlockDetected:
                return "deadlock"

        proxy.delay(requests=0.2, replies=0.2)
        ends = [in_thread(lambda: take("a", "b")), in_thread(lambda: take("b", "a"))]
        assert sorted(end.result(30) for end in ends) == ["both", "deadlock"]
        proxy.delay()


@each_api
@pytest.mark.parametrize("answers", [0.3, 2.0])
def test_a_silent_server_is_noticed_after_the_request_timeout(proxy: Proxy, api: str, answers: float) -> None:
    with Api(api) as chosen:
        client = chosen.connect(proxy.url, request_timeout=answers, unavailable_after=0)
        client.lock("warm").acquire().release()
        proxy.blackhole()
        began = time.monotonic()
        with pytest.raises(pawlock.BackendUnavailable):
            client.lock("far5").acquire(timeout=None)
        assert answers - 0.01 <= time.monotonic() - began < answers + pace() * 0.5
        proxy.blackhole(on=False)
        client.lock("far5").acquire().release()


@each_api
def test_a_slow_login_has_the_time_of_the_connect(proxy: Proxy, api: str) -> None:
    with Api(api) as chosen:
        client = chosen.connect(proxy.url, connect_timeout=8, unavailable_after=0)
        proxy.hold_reply("HELLO", seconds=1.5)
        client.lock("far6").acquire().release()


@each_api
def test_a_silent_server_has_no_longer_than_the_connect_timeout_or_the_caller(proxy: Proxy, api: str) -> None:
    proxy.blackhole()
    with Api(api) as chosen:
        for connects, timeout, least in ((0.5, None, 0.5), (20, 0.5, 0.5)):
            client = chosen.connect(proxy.url, connect_timeout=connects, unavailable_after=0)
            began = time.monotonic()
            with pytest.raises(pawlock.BackendUnavailable):
                client.lock("far7").acquire(timeout=timeout)
            assert least - 0.01 <= time.monotonic() - began < 1.0 + pace() * 0.5
        proxy.blackhole(on=False)


@each_api
def test_the_end_of_a_lease_waits_for_no_connect(proxy: Proxy, api: str) -> None:
    """However long a connect may take: it goes on aside, and the background reports each end in time."""
    with Api(api) as chosen:
        client = chosen.connect(proxy.url, request_timeout=1, connect_timeout=60)
        lease = client.lock("far8", ttl=3.0).acquire()
        proxy.blackhole()
        proxy.reset_all()
        # Whether its last renewal has failed by then decides what it says.
        assert until(lambda: any(map(client.counter, ("lost_expired", "lost_unreachable"))), 5) < pace() * 3.5
        assert lease.reason in ("expired", "unreachable")
        proxy.blackhole(on=False)


@each_api
def test_a_name_server_that_hangs_delays_no_report_of_a_loss(
    proxy: Proxy, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing bounds a lookup in the calling thread; a task goes on at its timeout, and all learn of a loss in time."""
    look_up, hangs, name = socket.getaddrinfo, threading.Event(), "locks.example.org"

    def slow(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == name and hangs.is_set():
            time.sleep(3)
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return look_up("127.0.0.1" if host == name else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with Api(api) as chosen:
        client = chosen.connect(f"redis://{name}:{proxy.port}")
        lease = client.lock("names1", ttl=1.0).acquire()
        hangs.set()
        proxy.refuse()
        proxy.reset_all()
        began = time.monotonic()
        waits = client.lock("names2").start(timeout=0.5)
        assert until(lambda: lease.reason, what="the loss") < pace() * 1.4
        with pytest.raises(pawlock.BackendUnavailable):
            waits.result(20)
        if chosen.is_async:
            assert time.monotonic() - began < pace() * 2.5
        hangs.clear()
