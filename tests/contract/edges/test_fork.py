"""A fork: the child inherits no lease, no connection and no lock that another thread held; the parent loses none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time

import pytest

import pawlock
from pawlock.integrations.django import _settings as django
from tests.contract.edges.helpers import (
    Script,
    eventually,
    holder_of,
    in_child,
    local_waiters,
    outcome,
    run_script,
    script_calls,
    started_threads,
)
from tests.support.servers import Server

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # Later Pythons warn of a fork beside threads: that it goes well is what is shown here.
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def test_a_lease_is_inert_in_the_child(valkey: Server, client: pawlock.Client) -> None:
    lease = client.lock("inert").acquire()
    before = holder_of(valkey, "inert")

    def child() -> tuple[str, str, str, bool, float, str]:
        inside = (
            outcome(lease.check),
            outcome(lambda: lease.extend(5)),
            outcome(lease.detach),
            bool(lease.lost),
            lease.remaining(),
        )
        return (*inside, outcome(lease.release))

    assert in_child(child) == ("LeaseLost:closed", "NotHeld", "NotHeld", True, 0.0, "NotHeld")
    lease.check()
    assert holder_of(valkey, "inert") == before
    lease.release()


def test_leaving_the_parents_block_in_the_child_is_silent_and_sends_nothing(
    valkey: Server, client: pawlock.Client
) -> None:
    stack = contextlib.ExitStack()

    def leave() -> str:
        block.__exit__(None, None, None)
        return "silent"

    def leave_lock() -> str:
        stack.close()
        return "silent"

    with stack:
        block = stack.enter_context(client.lock("left"))
        before = holder_of(valkey, "left")
        calls = script_calls(valkey)
        assert in_child(leave) == "silent"
        assert in_child(leave_lock) == "silent"
        assert script_calls(valkey) == calls
        assert holder_of(valkey, "left") == before
        block.check()
    assert holder_of(valkey, "left") is None


def test_the_client_works_in_the_child_with_connections_of_its_own(
    valkey: Server, client: pawlock.Client
) -> None:
    parent = client.lock("mine").acquire()
    parent_pid = os.getpid()

    def child() -> tuple[bool, bool, str]:
        with client.lock("of the child") as lease:
            own_pid = f":{os.getpid()}/" in lease.token and f":{parent_pid}/" not in lease.token
            blocked = client.lock("mine").try_acquire() is None
            return own_pid, blocked, outcome(lambda: client.lock("mine").acquire(timeout=0.05))

    # The parent holds "mine": for the child that is another owner, never a deadlock with itself.
    assert in_child(child) == (True, True, "AcquireTimeout")
    parent.check()
    parent.extend(20)
    parent.release()
    with client.lock("of the child") as lease:
        lease.check()


def test_the_parents_lease_outlives_the_child_and_is_renewed_by_the_parent_alone(
    valkey: Server, client: pawlock.Client
) -> None:
    lease = client.lock("renewed", ttl=1.0).acquire()

    def child() -> int:
        # Its own lease makes the child run a maintenance thread; that must not renew the parent's.
        with client.lock("other", ttl=1.0):
            time.sleep(1.2)
        engine = client._engine
        return engine.reports.counters["renewed"]

    parent_before = client._engine.reports.counters["renewed"]
    renewed_in_child = in_child(child) - parent_before
    # One lease, three renewals in its ttl; twice as many would be those of the parent's lease as well.
    assert 1 <= renewed_in_child <= 5
    lease.check()
    assert holder_of(valkey, "renewed") == lease.token
    lease.release()


def test_a_child_that_leaves_normally_closes_nothing_of_the_parent(valkey: Server) -> None:
    text = """
        import os, sys, pawlock
        client = pawlock.connect(sys.argv[1])
        lease = client.lock("held").acquire()
        pid = os.fork()
        if pid == 0:
            with client.lock("child"):
                pass
            sys.exit(0)  # with every clean-up: atexit closes the client
        _, status = os.waitpid(pid, 0)
        connections = client._engine.reports.counters["connected"]
        link = client._runtime._local.link
        lease.check()
        lease.extend(10)
        assert client._runtime._local.link is link and not link.dead, "the connection did not survive"
        lease.release()
        print(status)
    """
    assert run_script(text, valkey.url, PYTHONWARNINGS="ignore::DeprecationWarning") == "0"


def test_fork_while_other_threads_are_inside_pawlock(valkey: Server, client: pawlock.Client) -> None:
    """Any internal lock may be held at the instant of the fork; the child must not stand before it forever."""
    stop: list[bool] = []

    def churn() -> None:
        lock = client.lock("churn")
        while not stop:
            with lock:
                pass

    def child() -> bool:
        with client.lock("churn child", timeout=5):
            pass
        with client.lock("churn", timeout=5, ttl=2):
            pass
        return True

    with started_threads(churn, churn, churn, churn):
        try:
            for _ in range(12):
                assert in_child(child)
        finally:
            stop.append(True)


def test_workers_of_a_prefork_server_share_the_client_of_their_parent(
    valkey: Server, client: pawlock.Client
) -> None:
    """Four children and a counter that is read and written in two steps."""
    with client.lock("warm"):
        pass  # the parent has a connection and a maintenance thread already
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for _ in range(50):
                    with client.lock("counter", timeout=20):
                        value = int(str(valkey.command("GET", "n") or b"0", "ascii"))  # type: ignore[arg-type]
                        valkey.command("SET", "n", str(value + 1))
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0, 0]
    assert valkey.command("GET", "n") == b"200"


def test_threads_of_the_parent_that_wait_are_not_waiters_of_the_child(
    valkey: Server, client: pawlock.Client
) -> None:
    """The local queue of a name is full of the parent's local waiters; the child begins an empty one."""
    lease = client.lock("queued").acquire()

    def wait() -> None:
        client.lock("queued").acquire(timeout=15).release()

    def child() -> int:
        places = len(client._engine.local_queues)
        with client.lock("queued", timeout=10):
            return places

    with started_threads(wait, wait, wait):
        eventually(lambda: local_waiters(client) == 3, "three threads sleep")
        places: list[int] = []
        with started_threads(lambda: places.append(in_child(child))):
            eventually(lambda: client.inspect("queued").queue_length == 1, "the child queues on the server")
            lease.release()
        assert places == [0]


def test_an_asyncio_client_made_and_used_before_a_fork(valkey: Server) -> None:
    text = """
        import asyncio, os, sys, warnings, pawlock
        client = pawlock.connect_async(sys.argv[1])

        async def parent():
            async with client.lock("before") as lease:
                pid = os.fork()
                if pid == 0:
                    os._exit(in_child(lease))
                status = os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])
                lease.check()
                await lease.extend(20)
                assert await client.lock("before").locked()
            assert not await client.lock("before").locked()
            return status

        async def child_work():
            async with client.lock("in the child", timeout=5) as lease:
                assert f":{os.getpid()}/" in lease.token
            assert await client.lock("before").try_acquire() is None
            await client.close()

        def in_child(lease):
            try:
                lease.check()
            except pawlock.LeaseLost as error:
                assert error.reason == "closed"
            else:
                return 3
            asyncio._set_running_loop(None)
            asyncio.set_event_loop(None)
            asyncio.run(child_work())
            return 0

        async def main():
            status = await parent()
            await client.close()
            print(status)

        asyncio.run(main())
    """
    assert run_script(text, valkey.url, PYTHONWARNINGS="ignore::DeprecationWarning") == "0"


@pytest.mark.parametrize(
    "method", ["fork", *[pytest.param(method, marks=pytest.mark.slow) for method in ("forkserver", "spawn")]]
)
def test_a_lock_travels_to_the_workers_of_multiprocessing(
    valkey: Server, client: pawlock.Client, method: str
) -> None:
    """A pool in a program of its own; none of its workers gets in while we hold the name."""
    text = """
        import multiprocessing, sys, pawlock
        from concurrent.futures import ProcessPoolExecutor
        from tests.contract.edges.helpers import count_up
        client = pawlock.connect(sys.argv[1])
        lock = client.lock("pool", timeout=20)
        with client.lock("warm"):
            pass
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(sys.argv[2])) as pool:
            pending = [pool.submit(count_up, lock, sys.argv[1], 20) for _ in range(4)]
            print([job.result(30) for job in pending])
        client.close()
    """
    valkey.command("DEL", "m")
    lease = client.lock("pool").acquire()
    with Script(text, valkey.url, method) as script:
        eventually(lambda: client.inspect("pool").queue_length == 2, "both workers queue", 30)
        assert valkey.command("GET", "m") is None
        lease.release()
        assert script.end(30) == (0, "[20, 20, 20, 20]\n", "")
    assert valkey.command("GET", "m") == b"80"


@pytest.mark.parametrize(
    ("child_does", "server", "what"),
    [
        ("goes on", "answers", "lock"),
        ("exits", "is slow", "multi_lock"),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("exits", "answers", "lock"),
                ("goes on", "is slow", "lock"),
                ("exits", "is slow", "lock"),
                ("goes on", "is slow", "multi_lock"),
                ("goes on", "is slow", "adopt"),
                ("exits", "is slow", "adopt"),
            )
        ],
    ],
)
def test_a_signal_handler_forks_inside_an_acquisition(
    valkey: Server, child_does: str, server: str, what: str
) -> None:
    """The two would go on with one token: the child must not hold what the parent holds, nor take it back."""
    text = """
        import os, signal, sys, threading, time, pawlock
        url, child_does, server, what, pid_of_server = sys.argv[1:]
        client, other = pawlock.connect(url), pawlock.connect(url)
        with client.lock("warm"), other.lock("warm too"):
            pass
        lease = other.lock("x").acquire() if server == "answers" else None
        take = {
            "lock": lambda: client.lock("x", ttl=2).acquire(timeout=15),
            "multi_lock": lambda: client.multi_lock(["x", "y"], ttl=2).acquire(timeout=15),
            "adopt": lambda: client.adopt(ticket),
        }[what]
        ticket = other.lock("x", ttl=2).acquire().detach() if what == "adopt" else ""
        reading, writing = os.pipe()
        child = 0

        def fork(*_):
            global child
            child = os.fork()
            if child == 0 and child_does == "exits":
                sys.exit(0)
            if child and lease is None:
                os.kill(int(pid_of_server), signal.SIGCONT)

        signal.signal(signal.SIGALRM, fork)
        if lease is None:
            os.kill(int(pid_of_server), signal.SIGSTOP)
        else:
            def release():
                time.sleep(0.6)
                lease.release()
            threading.Thread(target=release).start()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with take() as mine:
                assert child, "the child holds it too"
                os.close(writing)
                time.sleep(1)
                mine.check()
        except pawlock.ClientClosed as error:
            os.write(writing, str(error).encode())
            os._exit(0)
        print(os.waitpid(child, 0)[1], os.read(reading, 1000).decode() or "nothing")
    """
    args = valkey.url, child_does, server, what, str(valkey.pid)
    said = run_script(text, *args, PYTHONWARNINGS="ignore::DeprecationWarning")
    refused = "the process was forked during the call [CLIENT_CLOSED]"
    assert said == f"0 {refused if child_does == 'goes on' else 'nothing'}"
    eventually(lambda: holder_of(valkey, "x") is None, "nobody holds it")


def test_what_several_threads_share_makes_a_child_wait_for_no_thread_of_the_parent(
    valkey: Server, client: pawlock.Client
) -> None:
    """Another thread is inside the service's holds and Django's client at the fork."""
    service = client.service()
    service.acquire("held", identifier="parent")
    inside, over = threading.Event(), threading.Event()

    def stay() -> None:
        with client._book._guard, django._making:
            inside.set()
            over.wait(30)

    def child() -> str:
        assert django._making.acquire(timeout=5)
        service.acquire("mine", identifier="child")
        service.release("mine", "child")
        return outcome(lambda: service.release("held", "parent"))

    with started_threads(stay):
        try:
            assert inside.wait(10)
            assert in_child(child) == "NotHeld"
        finally:
            over.set()
    service.release("held", "parent")


def test_a_fork_inside_a_running_loop_leaves_the_loop_of_the_parent_alone(valkey: Server) -> None:
    """The poller of the loop is shared with the child: what the child closes must not deafen the parent."""

    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as client:
            lease = await client.lock("loop").acquire()
            for _ in range(3):
                await asyncio.to_thread(in_child, lambda: True)
            in_child(client._after_fork)
            await lease.extend(15)
            await lease.release()

    asyncio.run(main())


def test_a_fork_beside_a_loop_whose_task_waits_resets_every_client(valkey: Server) -> None:
    """Its token is replaced in the child, where no loop runs; and no client keeps what is the parent's for it."""
    waiting = threading.Event()

    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as client:
            task = asyncio.create_task(client.lock("beside").acquire())
            await asyncio.sleep(0.1)
            waiting.set()
            await asyncio.to_thread(over.wait, 20)
            await (await task).release()

    over = threading.Event()
    # Clients are reset in an order of their own: of many, some come behind the loop's.
    clients = [pawlock.connect(valkey.url) for _ in range(8)]
    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.enter_context(client)
        held = clients[0].lock("beside").acquire()
        leases = [client.lock(f"mine{number}").acquire() for number, client in enumerate(clients)]
        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        try:
            assert waiting.wait(10)
            told = in_child(lambda: [outcome(lease.release) for lease in leases])
            assert told == ["NotHeld"] * len(leases)
            assert all(holder_of(valkey, lease.name) for lease in leases)
        finally:
            held.release()
            over.set()
            thread.join(10)
        for lease in leases:
            lease.release()
