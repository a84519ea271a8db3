"""What happens between two turns: who of a client queues when, and who is told first."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pawlock
from tests.contract.contention.rig import PATIENCE, aeventually, eventually, queue_length
from tests.support.servers import Server


def asleep(engine: Any) -> int:
    """How many wait in the local queues."""
    return sum(len(queue.sleepers) for queue in list(engine.local_queues.values()))


async def test_the_next_task_queues_while_the_last_of_a_run_holds(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    greedy, other = aclients
    lock, engine, order = greedy.lock("x", handover=1), greedy._engine(), list[str]()

    async def serve(who: str, lock: pawlock.AsyncLock, done: asyncio.Event) -> None:
        async with lock:
            order.append(who)
            await done.wait()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        done = {who: asyncio.Event() for who in ("a1", "a2", "a3", "b")}
        held = await other.lock("x").acquire()
        group.create_task(serve("a1", lock, done["a1"]))
        await aeventually(lambda: queue_length(valkey, "x") == 1, "the first queues")
        for count, who in enumerate(("a2", "a3"), 1):
            group.create_task(serve(who, lock, done[who]))
            await aeventually(lambda count=count: asleep(engine) == count, "it waits in its client")  # type: ignore[misc]
        await held.release()
        group.create_task(serve("b", other.lock("x"), done["b"]))
        await aeventually(lambda: order == ["a1"] and queue_length(valkey, "x") == 1, "the other one queues")
        done["a1"].set()
        await aeventually(lambda: order == ["a1", "a2"], "it is handed over")
        await aeventually(
            lambda: queue_length(valkey, "x") == 2, "the next one queues behind the other client"
        )
        done["a2"].set()
        await aeventually(lambda: order == ["a1", "a2", "b"], "the other client has its turn")
        assert queue_length(valkey, "x") == 1
        done["b"].set()
        await aeventually(lambda: order == ["a1", "a2", "b", "a3"], "and then the next one")
        done["a3"].set()
    assert engine.reports.counters["handed_over"] == 1


def test_the_next_thread_queues_while_the_last_of_a_run_holds(
    valkey: Server, clients: list[pawlock.Client]
) -> None:
    greedy, other = clients
    lock, engine, order = greedy.lock("x", handover=1), greedy._engine, list[str]()
    done = {who: threading.Event() for who in ("a1", "a2", "a3", "b")}

    def serve(who: str, lock: pawlock.Lock) -> None:
        with lock:
            order.append(who)
            assert done[who].wait(PATIENCE)

    def start(who: str, lock: pawlock.Lock) -> threading.Thread:
        thread = threading.Thread(target=serve, args=(who, lock), daemon=True)
        thread.start()
        return thread

    held = other.lock("x").acquire()
    threads = [start("a1", lock)]
    eventually(lambda: queue_length(valkey, "x") == 1, "the first queues")
    for count, who in enumerate(("a2", "a3"), 1):
        threads.append(start(who, lock))
        eventually(lambda count=count: asleep(engine) == count, "it waits in its client")  # type: ignore[misc]
    held.release()
    threads.append(start("b", other.lock("x")))
    eventually(lambda: order == ["a1"] and queue_length(valkey, "x") == 1, "the other one queues")
    done["a1"].set()
    eventually(lambda: order == ["a1", "a2"], "it is handed over")
    eventually(lambda: queue_length(valkey, "x") == 2, "the next one queues behind the other client")
    done["a2"].set()
    eventually(lambda: order == ["a1", "a2", "b"], "the other client has its turn")
    assert queue_length(valkey, "x") == 1
    done["b"].set()
    done["a3"].set()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == ["a1", "a2", "b", "a3"]
    assert engine.reports.counters["handed_over"] == 1
