"""The fair lock, from many processes: who came first is granted first, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import pickle
import random
import signal
import threading
import time
from functools import partial
from typing import Any

import pytest

import pawlock
from tests.contract.contention.rig import aeventually, eventually, left_over, queue_length, send
from tests.contract.contention.test_queue import SLACK, Process, processes
from tests.support.pace import pace
from tests.support.servers import Server

APIS = ["threads", "tasks", "threads", "tasks"]
FAIR: dict[str, Any] = {"kind": "fair_lock", "ttl": 30.0}


def queue_up(server: Server, crowd: list[Process], number: int) -> list[tuple[int, str]]:
    """Waiters of all processes, one after the other; which process each belongs to."""
    dice = random.Random(11)
    arrivals: list[tuple[int, str]] = []
    for who in range(number):
        which = dice.randrange(len(crowd))
        crowd[which].say(f"wait {who}")
        arrivals.append((which, str(who)))
        eventually(partial(stand, server, who + 1), "the waiter is queued")
    return arrivals


def stand(server: Server, number: int) -> bool:
    return queue_length(server, "x") == number


def granted(crowd: list[Process], arrivals: list[tuple[int, str]]) -> list[str]:
    """Who was granted, by the order of the fences."""
    lines = [crowd[which].line().split() for which, _ in arrivals]
    return [who for who, fence in sorted(lines, key=lambda line: int(line[1]))]


def test_the_order_of_arrival_is_the_order_of_the_grants(server: Server) -> None:
    with processes(server, APIS[:2], **FAIR) as crowd, pawlock.connect(server.url) as client:
        lease = client.fair_lock("x").acquire()
        arrivals = queue_up(server, crowd, 40)
        lease.release()
        assert granted(crowd, arrivals) == [who for _, who in arrivals]
        eventually(lambda: left_over(server, "x") == [], "the last one gives it back")


@pytest.mark.fault
def test_the_killed_at_the_head_cost_one_ticket_and_the_living_keep_their_order(server: Server) -> None:
    """Half of the processes are killed while they wait, with waiters at the head and all through the queue."""
    with (
        processes(server, APIS, ticket_ttl=0.9, **FAIR) as crowd,
        pawlock.connect(server.url) as client,
    ):
        lease = client.fair_lock("x").acquire()
        for which in (0, 1, 0, 1, 0):
            before = queue_length(server, "x")
            crowd[which].say(f"wait dead{before}")
            eventually(partial(stand, server, before + 1), "a doomed one is queued")
        arrivals: list[tuple[int, str]] = []
        for number in range(12):
            which = number % 4
            before = queue_length(server, "x")
            crowd[which].say(f"wait {number}")
            eventually(partial(stand, server, before + 1), "the waiter is queued")
            if which > 1:
                arrivals.append((which, str(number)))
        crowd[0].kill()
        crowd[1].kill()
        killed_at = time.monotonic()
        lease.release()
        first = crowd[2].line().split()
        assert time.monotonic() - killed_at <= pace() * (0.9 + 0.3 + SLACK), "eleven dead cost one ticket"
        lines = [first, *[crowd[which].line().split() for which, _ in arrivals[1:]]]
        by_fence = [who for who, _ in sorted(lines, key=lambda line: int(line[1]))]
        assert by_fence == [who for _, who in arrivals]
        eventually(lambda: left_over(server, "x") == [], "nothing is left of the dead")


@pytest.mark.fault
@pytest.mark.parametrize("api", ["threads", pytest.param("tasks", marks=pytest.mark.slow)])
def test_a_live_waiter_that_was_away_is_served_and_it_is_counted(server: Server, api: str) -> None:
    """Stopped for longer than its ticket lives, a waiter loses its place, not its turn: it queues again, at the end."""
    with (
        processes(server, [api, api], ticket_ttl=0.6, **FAIR) as [local_waiter, other],
        pawlock.connect(server.url) as client,
    ):
        lease = client.fair_lock("x", ticket_ttl=0.6).acquire()
        local_waiter.say("wait local_waiter")
        eventually(partial(stand, server, 1), "it waits")
        send(local_waiter.process, signal.SIGSTOP)
        other.say("wait other")
        eventually(partial(stand, server, 2), "the other one waits")
        time.sleep(0.8)
        lease.release()
        assert other.line().split()[0] == "other"
        send(local_waiter.process, signal.SIGCONT)
        assert local_waiter.line().split()[0] == "local_waiter", "never dropped unheard"


def test_fair_and_plain_locks_keep_each_other_out(server: Server) -> None:
    with pawlock.connect(server.url) as client, pawlock.connect(server.url) as other:
        with client.fair_lock("x") as lease:
            assert other.lock("x").try_acquire() is None
            assert other.fair_lock("x").try_acquire() is None
            with pytest.raises(pawlock.DeadlockDetected):
                client.fair_lock("x").acquire()
            assert client.fair_lock("x").locked()
            fence = lease.fence
        with other.lock("x") as lease:
            assert client.fair_lock("x").try_acquire() is None
            assert lease.fence > fence


def test_threads_of_one_client_take_turns_with_other_clients(server: Server) -> None:
    """No local hand-over: between two waiters of one client the other client has its turn."""
    with pawlock.connect(server.url) as mine, pawlock.connect(server.url) as other:
        order: list[tuple[int, str]] = []

        def wait(client: pawlock.Client, who: str) -> None:
            with client.fair_lock("x") as lease:
                order.append((lease.fence, who))

        lease = other.fair_lock("x").acquire()
        threads = []
        for number, (client, who) in enumerate([(mine, "a"), (other, "b"), (mine, "c"), (other, "d")]):
            threads.append(threading.Thread(target=wait, args=(client, who)))
            threads[-1].start()
            eventually(partial(stand, server, number + 1), "the waiter is queued")
        lease.release()
        for thread in threads:
            thread.join(20.0)
        assert "".join(who for _, who in sorted(order)) == "abcd"
        assert (
            mine._engine.reports.counters["handed_over"] == other._engine.reports.counters["handed_over"] == 0
        )


def test_a_fair_lock_can_be_pickled_and_decorates(server: Server) -> None:
    with pawlock.connect(server.url) as client:
        again = pickle.loads(pickle.dumps(client.fair_lock("a{{b}}")))
        assert again._plan.primitive.kind == "fair_lock"
        with again as lease:
            assert lease.name == "a{b}"
            assert again._plan.options.handover == 0
        again._client.close()


async def test_tasks_queue_in_order(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        order: list[int] = []

        async def wait(number: int) -> None:
            async with client.fair_lock("x"):
                order.append(number)

        lease = await client.fair_lock("x").acquire()
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(wait(number))
                await aeventually(partial(stand, server, number + 1), "the waiter is queued")
            await lease.release()
        assert order == list(range(8))
