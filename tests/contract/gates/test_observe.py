"""Whoever observes an election hears of each change of the leader, soon, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

import pawlock
from tests.contract.gates.polls import OBSERVERS, Heard, candidate, leads
from tests.contract.gates.rig import TICKET, Made, endless, make, number, says, tell
from tests.faults.rig import Api, in_thread, until
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.servers import Server


def test_observers_hear_of_each_change_at_once(clean: Server, api: Api) -> None:
    heard = [Heard(api.connect(clean.url)) for _ in range(2)]
    assert [one.next() for one in heard] == [None, None]
    until(lambda: number(clean, "ZCARD", OBSERVERS) == 2)
    election = make(api.connect(clean.url), "election", "n", identity="a")
    for _ in range(3):
        began = time.monotonic()
        lease = leads(election)
        for one in heard:
            leader, at = one.next_at()
            assert leader == pawlock.Leader("a", lease.fence)
            assert at - began < 0.5, "told, not found by asking a third of a ticket (1 s) later"
        began = time.monotonic()
        api.run(lease.release)
        for one in heard:
            leader, at = one.next_at()
            assert leader is None
            assert at - began < 0.5
    heard[0].close()
    heard[0].ended.result(1)
    heard[1].made.api.run(lambda: _client(heard[1]).close(1.0))
    heard[1].ended.result(5)
    until(lambda: number(clean, "ZCARD", OBSERVERS) == 0)
    assert endless(clean) == []


def _client(heard: Heard) -> Any:
    return heard.made.raw._client


def test_a_hand_off_is_heard_as_the_next_leader(clean: Server, api: Api) -> None:
    heard = Heard(api.connect(clean.url))
    assert heard.next() is None
    with candidate(clean, "threads", "a") as one, candidate(clean, "tasks", "b") as two:
        first = heard.next()
        assert first is not None
        leader, other = (one, two) if first.identity == "a" else (two, one)
        assert says(leader) == f"leads {first.fence}"
        until(lambda: number(clean, "ZCARD", "{pawlock:%election:n}:1:queue") == 1)
        tell(leader)
        second = heard.next()
        assert second is not None, "nobody leads for no moment between the two"
        assert second.fence > first.fence
        assert {first.identity, second.identity} == {"a", "b"}
        assert says(leader) == "resigned"
        assert says(other) == f"leads {second.fence}"
    heard.close()
    heard.ended.result(5)


@pytest.mark.fault
def test_a_leader_that_dies_alone_is_heard_when_its_lease_ends(clean: Server, api: Api) -> None:
    heard = Heard(api.connect(clean.url))
    assert heard.next() is None
    with candidate(clean, "threads", "a", ttl=0.5) as process:
        assert heard.next() is not None
        began = time.monotonic()
        process.send_signal(signal.SIGKILL)
        leader, at = heard.next_at()
        assert leader is None
        assert at - began < pace() * 0.7, "its lease said when to look: not a third of a ticket (1 s) later"
    heard.close()


@pytest.mark.fault
def test_an_observer_that_hears_nothing_asks(proxy: Proxy, clean: Server, api: Api) -> None:
    heard = Heard(api.connect(proxy.url), ticket_ttl=TICKET)
    assert heard.next() is None
    proxy.cut_push("message")
    lease = leads(make(api.connect(clean.url), "election", "n", identity="a"))
    began = time.monotonic()
    assert heard.next() == pawlock.Leader("a", lease.fence)
    assert time.monotonic() - began < pace() * TICKET
    api.run(lease.release)
    heard.close()
    heard.ended.result(5)


@pytest.mark.fault
def test_an_observer_bears_a_lost_connection_and_tells_a_lost_server(
    proxy: Proxy, clean: Server, api: Api
) -> None:
    heard = Heard(api.connect(proxy.url), unavailable_after=0.5)
    assert heard.next() is None
    until(lambda: number(clean, "ZCARD", OBSERVERS) == 1)
    clean.command("CLIENT", "KILL", "TYPE", "pubsub")
    lease = leads(make(api.connect(clean.url), "election", "n", identity="a"))
    assert heard.next() == pawlock.Leader("a", lease.fence)
    proxy.stop()
    with pytest.raises(pawlock.BackendUnavailable):
        heard.ended.result(10)
    api.run(lease.release)


@pytest.mark.fault
def test_an_observer_that_is_asked_again_after_an_outage_goes_on(
    clean: Server, proxy: Proxy, api: Api
) -> None:
    election = make(api.connect(proxy.url), "election", "n", unavailable_after=1.5, ticket_ttl=TICKET)
    watch = Made(api, election.do("observe"))
    step = "__anext__" if api.is_async else "__next__"
    assert watch.do(step) is None
    proxy.refuse()
    proxy.reset_all()
    with pytest.raises(pawlock.BackendUnavailable):
        watch.do(step)
    proxy.refuse(on=False)
    again = watch.start(step)
    lease = leads(make(api.connect(clean.url), "election", "n", identity="a"))
    assert again.result(5 * pace()) == pawlock.Leader("a", lease.fence)
    watch.do("close")
    api.run(lease.release)


def test_no_more_observe_than_are_allowed(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    heard = Heard(client, max_waiters=1)
    assert heard.next() is None
    second = Heard(client, max_waiters=1)
    with pytest.raises(pawlock.QueueFull):
        second.ended.result(5)
    heard.close()


@pytest.mark.fault
async def test_a_cancel_at_each_step_of_observing_leaves_nothing(clean: Server) -> None:
    from tests.faults.test_cancel_sweep import struck

    for instant in (False, True):
        at, reached = 0, True
        while reached:
            at += 1
            async with pawlock.connect_async(clean.url) as client:
                async with client.election("n").observe() as leaders:
                    await leaders.__anext__()
                    leading_ = asyncio.create_task(_lead_later(clean))
                    reached, _ = await struck(leaders.__anext__, at, instant=instant)
                    await leading_
                end = time.monotonic() + 1.0
                while number(clean, "ZCARD", OBSERVERS):
                    assert time.monotonic() < end, f"cancelled at await {at}"
                    await asyncio.sleep(0.005)
        assert at > 2


async def _lead_later(server: Server) -> None:
    await asyncio.sleep(0.03)
    async with pawlock.connect_async(server.url) as client, client.election("n").campaign(5):
        await asyncio.sleep(0.03)


def test_threads_may_close_what_another_one_reads(clean: Server) -> None:
    with pawlock.connect(clean.url) as client, client.election("n").observe() as leaders:
        assert next(leaders) is None
        ended = in_thread(lambda: next(leaders, "ended"))
        until(lambda: number(clean, "ZCARD", OBSERVERS) == 1)
        time.sleep(0.05)
        began = time.monotonic()
        leaders.close()
        assert ended.result(5) == "ended"
        assert time.monotonic() - began < pace() * 0.5
        assert next(leaders, "ended") == "ended"
