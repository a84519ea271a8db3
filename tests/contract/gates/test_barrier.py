"""Exactly as many pass as there are parties, together, each once; who gives up or dies is not counted for long."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import pytest

import pawlock
from tests.contract.gates.rig import TICKET, endless, key, make, number, program, says, tell, waiting
from tests.faults.rig import Api, until
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.published import runs
from tests.support.refusal import case
from tests.support.resp import texts
from tests.support.servers import Server

PARTY = """
import asyncio, sys, pawlock
url, api, rounds, ticket = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
if api == "threads":
    with pawlock.connect(url) as client:
        barrier = client.barrier("n", 4, ticket_ttl=ticket)
        for number in range(rounds):
            print(number, barrier.wait(20), flush=True)
else:
    async def main():
        async with pawlock.connect_async(url) as client:
            barrier = client.barrier("n", 4, ticket_ttl=ticket)
            for number in range(rounds):
                print(number, await barrier.wait(20), flush=True)
    asyncio.run(main())
"""


def there(server: Server) -> int:
    return waiting(server, "n", "barrier:waiting")


def results(waits: list[Future[Any]]) -> list[int]:
    return sorted(wait.result(10) for wait in waits)


def test_all_pass_together_each_with_its_index(clean: Server, api: Api) -> None:
    clients = [api.connect(clean.url) for _ in range(3)]
    barriers = [make(client, "barrier", "n", 3) for client in clients]
    for _ in range(3):
        first = barriers[0].start("wait", 10)
        until(lambda: there(clean) == 1)
        second = barriers[1].start("wait", 10)
        until(lambda: there(clean) == 2)
        assert barriers[0].do("arrived") == 2
        assert not first.done()
        began = time.monotonic()
        assert barriers[2].do("wait", 10) == 0
        assert (first.result(5), second.result(5)) == (2, 1)
        assert time.monotonic() - began < pace() * 0.5, "woken, not by asking a third of a ticket (1 s) later"
        assert there(clean) == 0
    assert endless(clean) == []


@pytest.mark.slow
def test_processes_of_both_apis_keep_step(clean: Server) -> None:
    rounds = 40
    with ExitStack() as stack:
        crowd = [
            stack.enter_context(program(PARTY, clean.url, kind, str(rounds), "3"))
            for kind in ("threads", "tasks") * 2
        ]
        for process in crowd:
            tell(process)
        for number_ in range(rounds):
            lines = [says(process).split() for process in crowd]
            assert {line[0] for line in lines} == {str(number_)}
            assert sorted(line[1] for line in lines) == ["0", "1", "2", "3"]
    assert endless(clean) == []


@pytest.mark.fault
def test_a_killed_party_is_not_counted_longer_than_its_ticket(clean: Server, api: Api) -> None:
    with ExitStack() as stack:
        crowd = [
            stack.enter_context(program(PARTY, clean.url, kind, "3", str(TICKET)))
            for kind in ("threads", "tasks")
        ]
        for process in crowd:
            tell(process)
        until(lambda: there(clean) == 2)
        crowd[0].send_signal(signal.SIGKILL)
        crowd[0].wait()
        barrier = make(api.connect(clean.url), "barrier", "n", 4, ticket_ttl=TICKET)
        until(lambda: barrier.do("arrived") == 1, timeout=TICKET + 0.5)
        waits = [barrier.start("wait", 10) for _ in range(2)]
        time.sleep(TICKET)
        assert not any(wait.done() for wait in waits), "the dead one is not the fourth"
        waits.append(barrier.start("wait", 10))
        assert sorted([*results(waits), int(says(crowd[1]).split()[1])]) == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.fault
def test_a_party_that_was_stopped_arrives_anew(clean: Server, api: Api) -> None:
    with program(PARTY, clean.url, "threads", "1", str(TICKET)) as process:
        tell(process)
        until(lambda: there(clean) == 1)
        process.send_signal(signal.SIGSTOP)
        barrier = make(api.connect(clean.url), "barrier", "n", 4, ticket_ttl=TICKET)
        until(lambda: barrier.do("arrived") == 0, timeout=TICKET + 0.5)
        waits = [barrier.start("wait", 10) for _ in range(3)]
        until(lambda: barrier.do("arrived") == 3)
        process.send_signal(signal.SIGCONT)
        assert says(process) == "0 0", "it came last"
        assert results(waits) == [1, 2, 3]


@pytest.mark.fault
def test_a_party_that_slept_through_a_round_is_told(clean: Server, api: Api) -> None:
    with program(PARTY, clean.url, "threads", "1", str(TICKET)) as process:
        tell(process)
        until(lambda: there(clean) == 1)
        process.send_signal(signal.SIGSTOP)
        barrier = make(api.connect(clean.url), "barrier", "n", 4, ticket_ttl=TICKET)
        until(lambda: barrier.do("arrived") == 0, timeout=TICKET + 0.5)
        assert results([barrier.start("wait", 10) for _ in range(4)]) == [0, 1, 2, 3]
        process.send_signal(signal.SIGCONT)
        assert says(process) == "", "LeaseLost"
        assert process.wait(10) == 1
        assert barrier.do("arrived") == 0


def test_who_gives_up_is_not_counted(clean: Server, api: Api) -> None:
    barrier = make(api.connect(clean.url), "barrier", "n", 2)
    with pytest.raises(pawlock.AcquireTimeout, match="1 of 2 still missing"):
        barrier.do("wait", 0.1)
    assert there(clean) == 0
    with pytest.raises(pawlock.AcquireTimeout):
        barrier.do("wait", 0)
    assert there(clean) == 0
    wait = barrier.start("wait", 10)
    until(lambda: there(clean) == 1)
    assert barrier.do("wait", 0) == 0
    assert wait.result(5) == 1
    assert make(api.connect(clean.url), "barrier", "alone", 1).do("wait", 0) == 0


def test_who_does_not_wait_is_answered_at_once(clean: Server, api: Api) -> None:
    with Proxy(clean) as proxy:
        barrier = make(api.connect(proxy.url), "barrier", "n", 2)
        waited: list[float] = []
        for _ in range(4):
            with pytest.raises(pawlock.AcquireTimeout) as caught:
                barrier.do("wait", 0)
            waited.append(caught.value.waited)
        # It arrives and withdraws, and sleeps nowhere in between: for a message it would sleep a second each time.
        assert len(proxy.requests(runs("barrier/arrive"))) == 4
        assert len(proxy.requests(runs("barrier/leave"))) == 4
        assert min(waited) < 0.5


@pytest.mark.fault
@pytest.mark.parametrize("last", [False, True])
def test_an_arrival_counts_once_whatever_the_network_does(
    proxy: Proxy, clean: Server, api: Api, *, last: bool
) -> None:
    far = make(api.connect(proxy.url), "barrier", "n", 3)
    near = make(api.connect(clean.url), "barrier", "n", 3)
    far.do("arrived")
    for fault in ("swallow_reply", "kill_on_reply", "duplicate_request", "reset"):
        with case(fault):
            waits = []
            if last:
                waits = [near.start("wait", 10) for _ in range(2)]
                until(lambda: there(clean) == 2)
            rule = getattr(proxy, fault)(runs("barrier/arrive"))
            waits.append(far.start("wait", 10))
            proxy.wait_hit(rule)
            if not last:
                until(lambda: there(clean) == 1)
                time.sleep(0.05)
                assert near.do("arrived") == 1
                waits += [near.start("wait", 10) for _ in range(2)]
            assert results(waits) == [0, 1, 2]
            assert near.do("arrived") == 0
            proxy.clear()


@pytest.mark.fault
def test_a_copy_of_an_arrival_that_was_withdrawn_counts_nothing(
    proxy: Proxy, clean: Server, api: Api
) -> None:
    far = make(api.connect(proxy.url), "barrier", "n", 2)
    far.do("arrived")
    late = proxy.hold_request(runs("barrier/arrive"))
    with pytest.raises((pawlock.AcquireTimeout, pawlock.BackendUnavailable)):
        far.do("wait", 0.2)
    until(lambda: any(b":dead:" in name for name in _keys(clean)), what="the withdrawal")
    late.release()
    until(lambda: len(proxy.requests(runs("barrier/arrive"))) >= 1)
    near = make(api.connect(clean.url), "barrier", "n", 2)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert near.do("arrived") == 0
        time.sleep(0.02)


@pytest.mark.fault
def test_a_copy_of_an_arrival_that_passed_long_ago_counts_nothing(
    proxy: Proxy, clean: Server, api: Api
) -> None:
    far = make(api.connect(proxy.url), "barrier", "n", 2, ticket_ttl=0.2)
    far.do("arrived")
    lost = proxy.swallow_reply(runs("barrier/arrive"))
    late = proxy.duplicate_request_late(runs("barrier/arrive"))
    wait = far.start("wait", 10)
    proxy.wait_hit(lost)
    until(lambda: len(proxy.requests(runs("barrier/arrive"))) > 1)
    near = make(api.connect(clean.url), "barrier", "n", 2, ticket_ttl=0.2)
    assert near.do("wait", 5) == 0
    assert wait.result(5) == 1
    until(lambda: not number(clean, "EXISTS", key("n", "barrier:tickets")) or _forgotten(clean), timeout=3)
    late.release()
    proxy.wait_hit(late)
    assert near.do("arrived") == 0


@pytest.mark.fault
def test_a_copy_of_an_arrival_that_lapsed_counts_nothing(proxy: Proxy, clean: Server, api: Api) -> None:
    far = make(api.connect(proxy.url), "barrier", "n", 2, ticket_ttl=TICKET)
    far.do("arrived")
    lost = proxy.swallow_reply(runs("barrier/arrive"))
    late = proxy.duplicate_request_late(runs("barrier/arrive"))
    wait = far.start("wait", 10)
    proxy.wait_hit(lost)
    until(lambda: len(proxy.requests(runs("barrier/arrive"))) > 1)
    # The server forgets it, as after a pause longer than its ticket; it arrives anew.
    first = _keys_of_waiting(clean)
    clean.command("ZREM", key("n", "barrier:waiting"), *first)
    clean.command("HDEL", key("n", "barrier:tickets"), *first)
    until(lambda: _keys_of_waiting(clean) not in ([], first))
    until(lambda: any(b":dead:" in name for name in _keys(clean)), what="the tombstone")
    late.release()
    proxy.wait_hit(late)
    time.sleep(0.3)
    assert not wait.done(), "one party alone has passed"
    assert make(api.connect(clean.url), "barrier", "n", 2, ticket_ttl=TICKET).do("wait", 5) == 0
    assert wait.result(5) == 1


def _keys_of_waiting(server: Server) -> list[str]:
    return list(texts(server.command("ZRANGE", key("n", "barrier:waiting"), "0", "-1")))


def _forgotten(server: Server) -> bool:
    """Whether it is forgotten who passed; the next arrival clears that away, also one that gives up at once."""
    with pawlock.connect(server.url) as client, contextlib.suppress(pawlock.AcquireTimeout):
        client.barrier("n", 2, ticket_ttl=0.2).wait(0)
    return number(server, "ZCARD", key("n", "barrier:passed")) == 0


def _keys(server: Server) -> list[bytes]:
    found = server.command("KEYS", "*")
    assert isinstance(found, list)
    return [name for name in found if isinstance(name, bytes)]


@pytest.mark.fault
def test_who_hears_nothing_passes_a_third_of_a_ticket_later(proxy: Proxy, clean: Server, api: Api) -> None:
    wait = make(api.connect(proxy.url), "barrier", "n", 2, ticket_ttl=TICKET).start("wait", 20)
    until(lambda: there(clean) == 1)
    proxy.cut_push("message")
    assert make(api.connect(clean.url), "barrier", "n", 2).do("wait", 5) == 0
    began = time.monotonic()
    assert wait.result(5) == 1
    assert time.monotonic() - began < pace() * TICKET


@pytest.mark.fault
def test_a_barrier_that_the_server_lost_is_told(clean: Server, api: Api) -> None:
    wait = make(api.connect(clean.url), "barrier", "n", 2, ticket_ttl=TICKET).start("wait", 20)
    until(lambda: there(clean) == 1)
    clean.command("FLUSHALL")
    with pytest.raises(pawlock.LeaseLost):
        wait.result(5)
    assert there(clean) == 0


def test_all_who_wait_say_the_same_number(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    wait = make(client, "barrier", "n", 2).start("wait", 10)
    until(lambda: there(clean) == 1)
    with pytest.raises(pawlock.LimitMismatch, match="parties=2") as caught:
        make(client, "barrier", "n", 3).do("wait", 5)
    assert (caught.value.limit, caught.value.permits) == (2, 3)
    assert make(client, "barrier", "n", 2).do("wait", 5) == 0
    wait.result(5)
    with pytest.raises(pawlock.AcquireTimeout, match="2 of 3"):
        make(client, "barrier", "n", 3).do("wait", 0.05)


def test_closing_the_client_withdraws(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    wait = make(client, "barrier", "n", 2).start("wait")
    until(lambda: there(clean) == 1)
    client.close()
    with pytest.raises(pawlock.ClientClosed):
        wait.result(5)
    until(lambda: there(clean) == 0, timeout=1.0)


@pytest.mark.fault
def test_out_of_memory_nobody_new_arrives_and_who_waits_stays(own_server: Server, api: Api) -> None:
    client = api.connect(own_server.url)
    barrier = make(client, "barrier", "n", 2, ticket_ttl=TICKET)
    wait = barrier.start("wait", 20)
    until(lambda: there(own_server) == 1)
    own_server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(pawlock.BackendOutOfMemory):
        make(client, "barrier", "other", 2).do("wait", 1)
    time.sleep(2 * TICKET)
    assert barrier.do("arrived") == 1
    own_server.command("CONFIG", "SET", "maxmemory", "0")
    assert barrier.do("wait", 5) == 0
    assert wait.result(5) == 1


@pytest.mark.fault
async def test_a_cancel_at_each_step_withdraws_the_arrival(clean: Server) -> None:
    from tests.faults.test_cancel_sweep import struck

    for instant in (False, True):
        at, reached = 0, True
        while reached:
            at += 1
            async with pawlock.connect_async(clean.url) as client:
                barrier = client.barrier("n", 2)

                async def step(barrier: pawlock.AsyncBarrier = barrier) -> None:
                    with pytest.raises(pawlock.AcquireTimeout):
                        await barrier.wait(0.05)

                reached, _ = await struck(step, at, instant=instant)
                end = time.monotonic() + 1.0
                while there(clean):
                    assert time.monotonic() < end, f"cancelled at await {at}"
                    await asyncio.sleep(0.005)
        assert at > 4


def test_who_passed_is_forgotten_soon(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    barrier = make(client, "barrier", "n", 1, ticket_ttl=0.1)
    for _ in range(20):
        barrier.do("wait")
    time.sleep(0.35)
    barrier.do("wait")
    assert number(clean, "ZCARD", key("n", "barrier:passed")) == 1
    assert number(clean, "HLEN", key("n", "barrier:tickets")) == 1
