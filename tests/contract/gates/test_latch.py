"""A latch opens once, when its count is used up, and for nobody before that, whatever happens on the way."""

from __future__ import annotations

import asyncio
import pickle
import signal
import time
from contextlib import ExitStack

import pytest

import pawlock
from tests.contract.gates.rig import TICKET, endless, key, make, number, program, says, tell, waiting
from tests.faults.rig import Api, until
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.published import runs
from tests.support.refusal import case
from tests.support.servers import Server

COUNTER = """
import asyncio, sys, pawlock
url, api, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
if api == "threads":
    with pawlock.connect(url) as client:
        for _ in range(times):
            client.latch("n", 301).count_down()
else:
    async def main():
        async with pawlock.connect_async(url) as client:
            await asyncio.gather(*(client.latch("n", 301).count_down() for _ in range(times)))
    asyncio.run(main())
print("done", flush=True)
"""

WAITER = """
import sys, pawlock
client = pawlock.connect(sys.argv[1])
latch = client.latch("n", 2, ticket_ttl=float(sys.argv[2]))
latch.remaining()
print("ready", flush=True)
latch.wait()
print("open", flush=True)
"""


def test_it_opens_for_all_who_wait_and_stays_open(clean: Server, api: Api) -> None:
    one, other = api.connect(clean.url), api.connect(clean.url)
    latch = make(one, "latch", "n", 2)
    assert latch.do("remaining") == 2
    waits = [make(c, "latch", "n", 2).start("wait", 10) for c in (one, other, other)]
    until(lambda: waiting(clean, "n") == 3)
    latch.do("count_down")
    assert latch.do("remaining") == 1
    time.sleep(0.05)
    assert not any(wait.done() for wait in waits)
    began = time.monotonic()
    latch.do("count_down")
    for wait in waits:
        wait.result(5)
    assert time.monotonic() - began < pace() * 0.5, "woken, not by asking a third of a ticket (1 s) later"
    latch.do("wait", 0)
    latch.do("count_down", 5)
    assert latch.do("remaining") == 0
    assert waiting(clean, "n") == 0
    assert endless(clean) == []


@pytest.mark.slow
def test_many_processes_count_exactly(clean: Server, api: Api) -> None:
    latch = make(api.connect(clean.url), "latch", "n", 301)
    wait = latch.start("wait", 60)
    with ExitStack() as stack:
        crowd = [
            stack.enter_context(program(COUNTER, clean.url, kind, "75")) for kind in ("threads", "tasks") * 2
        ]
        for process in crowd:
            tell(process)
        for process in crowd:
            assert says(process) == "done"
    assert latch.do("remaining") == 1
    assert not wait.done()
    latch.do("count_down")
    wait.result(5)


def test_a_wait_ends_in_time_and_leaves_nothing(clean: Server, api: Api) -> None:
    latch = make(api.connect(clean.url), "latch", "n", 2)
    began = time.monotonic()
    with pytest.raises(pawlock.AcquireTimeout, match="2 to go") as caught:
        latch.do("wait", 0.2)
    assert 0.19 < time.monotonic() - began < pace() * 1.0
    assert 0.19 < caught.value.waited < 1.0
    with pytest.raises(TimeoutError):
        latch.do("wait", 0)
    assert waiting(clean, "n") == 0
    assert endless(clean) == []


@pytest.mark.fault
def test_a_count_counts_once_whatever_the_network_does(proxy: Proxy, api: Api) -> None:
    latch = make(api.connect(proxy.url), "latch", "n", 5)
    left = 5
    assert latch.do("remaining") == left
    for fault in ("swallow_reply", "kill_on_reply", "duplicate_request", "reset"):
        with case(fault):
            rule = getattr(proxy, fault)(runs("latch/count_down"))
            latch.do("count_down")
            left -= 1
            assert rule.hits == 1
            assert latch.do("remaining") == left
            proxy.clear()


@pytest.mark.fault
def test_a_copy_that_comes_after_a_reset_counts_nothing(proxy: Proxy, api: Api) -> None:
    latch = make(api.connect(proxy.url), "latch", "n", 5)
    latch.do("remaining")
    counted = proxy.duplicate_request_late(runs("latch/count_down"))
    latch.do("count_down", 2)
    again = proxy.duplicate_request_late(runs("latch/reset"))
    latch.do("reset")
    counted.release()
    proxy.wait_hit(counted)
    assert latch.do("remaining") == 5
    latch.do("count_down", 3)
    again.release()
    proxy.wait_hit(again)
    assert latch.do("remaining") == 2, "the late copy of the reset undid nothing"


@pytest.mark.fault
def test_a_count_that_cannot_be_sent_is_sent_later(proxy: Proxy, clean: Server, api: Api) -> None:
    latch = make(api.connect(proxy.url), "latch", "n", 5, unavailable_after=0.3)
    latch.do("remaining")
    gone = proxy.drop_request(runs("latch/count_down"), times=None)
    with pytest.raises(pawlock.BackendUnavailable):
        latch.do("count_down")
    assert latch.do("remaining") == 5
    gone.remove()
    until(lambda: latch.do("remaining") == 4)


def test_a_part_counts_once_in_a_round(clean: Server, api: Api) -> None:
    one, other = (make(api.connect(clean.url), "latch", "n", 3) for _ in range(2))
    one.do("count_down", part="a")
    other.do("count_down", part="a")
    other.do("count_down", part="b")
    assert one.do("remaining") == 1
    one.do("reset")
    one.do("count_down", part="a")
    assert other.do("remaining") == 2
    assert endless(clean) == []


def test_who_says_another_count_is_told(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    make(client, "latch", "n", 3).do("count_down")
    for step in (("wait", 0), ("count_down",), ("remaining",)):
        with pytest.raises(pawlock.LimitMismatch, match="count=3") as caught:
            make(client, "latch", "n", 4).do(*step)
        assert (caught.value.limit, caught.value.permits) == (3, 4)
    assert make(client, "latch", "n", 3).do("remaining") == 2
    make(client, "latch", "n", 4).do("reset")
    assert make(client, "latch", "n", 4).do("remaining") == 4


def test_a_reset_lets_nobody_go(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    latch = make(client, "latch", "n", 2, ticket_ttl=TICKET)
    wait = latch.start("wait", 20)
    until(lambda: waiting(clean, "n") == 1)
    latch.do("count_down")
    latch.do("reset")
    latch.do("count_down")
    time.sleep(TICKET)
    assert not wait.done()
    latch.do("count_down")
    wait.result(5)


@pytest.mark.fault
def test_who_hears_nothing_is_let_go_although_the_latch_was_reset(
    proxy: Proxy, clean: Server, api: Api
) -> None:
    wait = make(api.connect(proxy.url), "latch", "n", 1, ticket_ttl=TICKET).start("wait", 20)
    until(lambda: waiting(clean, "n") == 1)
    proxy.cut_push("message")
    near = make(api.connect(clean.url), "latch", "n", 1)
    near.do("count_down")
    near.do("reset")
    began = time.monotonic()
    wait.result(5)
    assert time.monotonic() - began < pace() * TICKET, "a lost message costs a third of a ticket"
    assert near.do("remaining") == 1


@pytest.mark.fault
def test_a_wait_survives_the_loss_of_any_answer(proxy: Proxy, clean: Server, api: Api) -> None:
    client, near = api.connect(proxy.url), api.connect(clean.url)
    for nth in (1, 2, 3):
        with case(nth):
            latch = make(client, "latch", f"n{nth}", 1, ticket_ttl=TICKET)
            latch.do("remaining")
            rule = proxy.kill_on_reply(runs("latch/wait"), nth=nth)
            wait = latch.start("wait", 20)
            proxy.wait_hit(rule)
            make(near, "latch", f"n{nth}", 1).do("count_down")
            wait.result(5)
            until(lambda: waiting(clean, f"n{nth}") == 0, timeout=2 * TICKET)
            proxy.clear()


@pytest.mark.fault
def test_a_dead_waiter_leaves_nothing_longer_than_its_ticket(clean: Server) -> None:
    with program(WAITER, clean.url, str(TICKET)) as process:
        until(lambda: waiting(clean, "n") == 1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with pawlock.connect(clean.url) as client:
            other = client.latch("n", 2)
            until(
                lambda: (
                    number(clean, "ZCOUNT", key("n", "latch:waiters"), str(time.time() * 1000), "+inf") == 0
                ),
                timeout=TICKET + 0.5,
            )
            with pytest.raises(pawlock.AcquireTimeout):
                other.wait(pace() * 0.05)
            until(lambda: waiting(clean, "n") == 0, what="the next to come clears it away")


@pytest.mark.fault
def test_a_stopped_waiter_is_let_go_when_it_goes_on(clean: Server) -> None:
    with program(WAITER, clean.url, str(TICKET)) as process, pawlock.connect(clean.url) as client:
        until(lambda: waiting(clean, "n") == 1)
        process.send_signal(signal.SIGSTOP)
        latch = client.latch("n", 2)
        time.sleep(2 * TICKET)
        latch.count_down(2)
        latch.reset()
        process.send_signal(signal.SIGCONT)
        assert says(process) == "open"


@pytest.mark.fault
def test_a_latch_that_the_server_lost_is_told(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    wait = make(client, "latch", "n", 2, ticket_ttl=TICKET).start("wait", 20)
    until(lambda: waiting(clean, "n") == 1)
    clean.command("FLUSHALL")
    make(client, "latch", "n", 2).do("count_down")
    with pytest.raises(pawlock.LeaseLost, match="lost the latch"):
        wait.result(5)
    assert make(client, "latch", "n", 2).do("remaining") == 1


def test_closing_the_client_ends_a_wait(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    wait = make(client, "latch", "n", 2).start("wait")
    until(lambda: waiting(clean, "n") == 1)
    client.close()
    with pytest.raises(pawlock.ClientClosed):
        wait.result(5)
    with pytest.raises(pawlock.ClientClosed):
        make(client, "latch", "n", 2).do("count_down")


def test_a_waiting_client_keeps_the_latch_alive_and_an_idle_one_goes(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    latch = make(client, "latch", "n", 2, ttl=1.0, ticket_ttl=0.9)
    latch.do("count_down")
    with pytest.raises(pawlock.AcquireTimeout):
        latch.do("wait", 2.0)
    assert latch.do("remaining") == 1
    until(lambda: latch.do("remaining") == 2, timeout=3)
    assert number(clean, "EXISTS", key("n", "latch")) == 0


def test_no_more_wait_than_are_allowed(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    latch = make(client, "latch", "n", 1, max_waiters=1)
    wait = latch.start("wait", 20)
    until(lambda: waiting(clean, "n") == 1)
    with pytest.raises(pawlock.QueueFull):
        latch.do("wait", 5)
    latch.do("count_down")
    wait.result(5)


@pytest.mark.fault
def test_out_of_memory_no_latch_is_made_and_those_that_are_there_go_on(own_server: Server, api: Api) -> None:
    client = api.connect(own_server.url)
    latch = make(client, "latch", "n", 2)
    latch.do("count_down")
    wait = latch.start("wait", 20)
    until(lambda: waiting(own_server, "n") == 1)
    own_server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(pawlock.BackendOutOfMemory):
        make(client, "latch", "other", 2).do("count_down")
    latch.do("count_down")
    wait.result(5)
    own_server.command("CONFIG", "SET", "maxmemory", "0")


def test_a_latch_travels(clean: Server) -> None:
    with pawlock.connect(clean.url, namespace="n:s") as client:
        latch = client.latch("a {{b}}", 3, ticket_ttl=1)
        latch.count_down()
        copy = pickle.loads(pickle.dumps(latch))
        assert (copy.name, copy.count, copy.remaining()) == ("a {b}", 3, 2)
        copy._client.close()


@pytest.mark.fault
async def test_a_cancel_at_each_step_of_a_wait_leaves_nothing(clean: Server) -> None:
    from tests.faults.test_cancel_sweep import struck

    for instant in (False, True):
        at, reached = 0, True
        while reached:
            at += 1
            async with pawlock.connect_async(clean.url) as client:
                latch = client.latch(f"n{at}{instant}", 2)

                async def step(latch: pawlock.AsyncLatch = latch) -> None:
                    with pytest.raises(pawlock.AcquireTimeout):
                        await latch.wait(pace() * 0.05)

                reached, _ = await struck(step, at, instant=instant)
                end = time.monotonic() + pace() * 1.0
                while waiting(clean, f"n{at}{instant}"):
                    assert time.monotonic() < end, f"cancelled at await {at}"
                    await asyncio.sleep(0.005)
        assert at > 4


@pytest.mark.fault
async def test_a_cancel_at_each_step_of_a_count_counts_once_or_not_at_all(clean: Server) -> None:
    from tests.faults.test_cancel_sweep import struck

    for instant in (False, True):
        at, reached = 0, True
        while reached:
            at += 1
            async with pawlock.connect_async(clean.url) as client:
                latch = client.latch(f"n{at}{instant}", 5)
                reached, _ = await struck(latch.count_down, at, instant=instant)
                end = time.monotonic() + pace() * 5
                while await latch.remaining() == 5:
                    assert time.monotonic() < end, f"what was begun is done: cancelled at await {at}"
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.05)
                assert await latch.remaining() == 4, "once"
        assert at > 1
