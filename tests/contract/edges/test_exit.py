"""The end of the interpreter with a lease held: released at once, or left to its ttl; never a hang, never noise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import pawlock
from tests.contract.edges.helpers import Script, eventually, free, holder_of, run_script
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.resp import texts
from tests.support.servers import Server

QUICK = 8.0
"""Seconds that an exit may take on a busy machine, start of the interpreter included; a hang takes the ttl of 60."""


def test_a_lease_held_at_the_end_is_released(valkey: Server) -> None:
    text = """
        import sys, pawlock
        client = pawlock.connect(sys.argv[1], ttl=60)
        lease = client.lock("at exit").acquire()
        print(pawlock.connect(sys.argv[1]).lock("at exit").locked())
    """
    assert run_script(text, valkey.url) == "True"
    assert free(valkey, "at exit")


def test_a_lease_whose_client_is_out_of_sight_is_released_at_the_end(valkey: Server) -> None:
    """Nothing but the lease itself refers to its client."""
    text = """
        import gc, sys, pawlock
        def take():
            return pawlock.connect(sys.argv[1], ttl=60).lock("unseen").acquire()
        lease = take()
        gc.collect()
        lease.check()
    """
    run_script(text, valkey.url)
    assert free(valkey, "unseen")


@pytest.mark.slow
def test_sys_exit_inside_a_block(valkey: Server) -> None:
    text = """
        import sys, pawlock
        with pawlock.connect(sys.argv[1], ttl=60) as client, client.lock("sys.exit"):
            sys.exit(7)
    """
    with Script(text, valkey.url) as script:
        assert script.end() == (7, "", "")
    assert free(valkey, "sys.exit")


def test_an_uncaught_error_inside_a_block(valkey: Server) -> None:
    text = """
        import sys, pawlock
        client = pawlock.connect(sys.argv[1], ttl=60)
        with client.lock("error"):
            raise KeyError("of the body")
    """
    with Script(text, valkey.url) as script:
        status, _, err = script.end()
    assert status == 1
    assert "KeyError: 'of the body'" in err
    assert "pawlock" not in err
    assert free(valkey, "error")


@pytest.mark.slow
def test_os_exit_leaves_the_lease_to_its_ttl(valkey: Server) -> None:
    text = """
        import os, sys, pawlock
        lease = pawlock.connect(sys.argv[1], ttl=1.5).lock("os._exit").acquire()
        os._exit(0)
    """
    run_script(text, valkey.url)
    assert holder_of(valkey, "os._exit") is not None
    eventually(lambda: free(valkey, "os._exit"), "the ttl frees the name", 5)


def test_ctrl_c_inside_a_block(valkey: Server) -> None:
    text = """
        import sys, time, pawlock
        client = pawlock.connect(sys.argv[1], ttl=60)
        try:
            with client.lock("ctrl-c"):
                print("inside", flush=True)
                time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted")
    """
    with Script(text, valkey.url) as script:
        assert script.line() == "inside"
        script.process.send_signal(signal.SIGINT)
        assert script.end() == (0, "interrupted\n", "")
    assert free(valkey, "ctrl-c")


def test_ctrl_c_while_waiting(valkey: Server) -> None:
    text = """
        import sys, pawlock
        client = pawlock.connect(sys.argv[1], ttl=60)
        print("waiting", flush=True)
        try:
            client.lock("waited for").acquire()
        except KeyboardInterrupt:
            print("interrupted")
    """
    valkey.command("SET", "pawlock:waited for", "somebody@else:1/x", "PX", "60000")
    with Script(text, valkey.url) as script:
        assert script.line() == "waiting"
        eventually(lambda: valkey.command("EXISTS", "{pawlock:waited for}:1:queue") == 1, "it queues")
        script.process.send_signal(signal.SIGINT)
        assert script.end() == (0, "interrupted\n", "")
    assert valkey.command("EXISTS", "{pawlock:waited for}:1:queue", "{pawlock:waited for}:1:tickets") == 0


@pytest.mark.parametrize(
    "kind", ["gone", *[pytest.param(kind, marks=pytest.mark.slow) for kind in ("hung", "frozen network")]]
)
def test_an_exit_without_a_server_does_not_hang(own_server: Server, kind: str) -> None:
    text = """
        import logging, sys, pawlock
        leases = [pawlock.connect(sys.argv[1], ttl=60).lock(f"name {n}").acquire() for n in range(2)]
        print("held", flush=True)
        sys.stdin.readline()
    """
    with Proxy(own_server) as proxy, Script(text, proxy.url) as script:
        assert script.line() == "held"
        if kind == "gone":
            own_server.kill()
            proxy.refuse()
        elif kind == "hung":
            own_server.pause()
        else:
            proxy.blackhole()
        began = time.monotonic()
        script.say()
        status, out, err = script.end()
        assert (status, out, err) == (0, "", "")
        assert time.monotonic() - began < pace() * QUICK
        if kind == "hung":
            own_server.resume()


def test_daemon_threads_that_hold_and_that_wait(valkey: Server) -> None:
    text = """
        import sys, threading, time, pawlock
        client = pawlock.connect(sys.argv[1], ttl=60)
        ready = threading.Barrier(3)

        def hold():
            with client.lock("daemon's"):
                ready.wait()
                time.sleep(60)

        def wait():
            ready.wait()
            try:
                client.lock("daemon's").acquire()
            except pawlock.ClientClosed:
                pass

        for work in (hold, wait):
            threading.Thread(target=work, daemon=True).start()
        ready.wait()
    """
    began = time.monotonic()
    run_script(text, valkey.url)
    assert time.monotonic() - began < pace() * QUICK
    assert free(valkey, "daemon's")


DAEMONS = {
    "lock": "while True: client.lock('n').acquire().release()",
    "block": "with client.lock('n'): time.sleep(60)",
    "permit": "while True: client.semaphore('n', permits=1).acquire().release()",
    "check": "lease = client.lock('n').acquire()\n    lease.lost.wait(60)\n    lease.check()",
}


@pytest.mark.parametrize("kind", DAEMONS)
def test_daemon_threads_say_nothing_at_the_end(valkey: Server, kind: str) -> None:
    """That the client is closed is of no use to a thread that ends with the process; other errors are."""
    text = f"""
import sys, threading, time, pawlock
client = pawlock.connect(sys.argv[1])

def work():
    {DAEMONS[kind]}

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)

other = threading.Thread(target=lambda: [][0], daemon=True)
other.start()
other.join()
"""
    with Script(text, valkey.url) as script:
        _, _, said = script.end()
    assert said.count("Traceback") == 1, said
    assert "IndexError" in said
    assert "pawlock" not in said


@pytest.mark.slow
def test_daemon_threads_on_a_far_server(valkey: Server) -> None:
    """What leaves their tokens goes over a connection that is only opened for it, at several round trips."""
    text = """
        import sys, threading, time, pawlock
        client = pawlock.connect(sys.argv[1], ttl=60)
        held = threading.Event()

        def turns():
            try:
                while True:
                    with client.lock("far"):
                        held.set()
                        time.sleep(60)
            except pawlock.ClientClosed:
                pass

        for _ in range(3):
            threading.Thread(target=turns, daemon=True).start()
        held.wait()
    """
    with Proxy(valkey) as proxy:
        proxy.delay(replies=0.2)
        run_script(text, proxy.url)
    assert free(valkey, "far")


@pytest.mark.slow
def test_an_ordinary_thread_finishes_its_block_first(valkey: Server) -> None:
    text = """
        import sys, threading, time, pawlock
        client = pawlock.connect(sys.argv[1], ttl=0.9)
        inside = threading.Event()

        def hold():
            with client.lock("ordinary") as lease:
                inside.set()
                time.sleep(1.5)  # longer than the ttl, while the interpreter waits for this thread
                lease.check()
                with client.lock("another"):
                    print("done")

        threading.Thread(target=hold).start()
        inside.wait()
    """
    assert run_script(text, valkey.url) == "done"
    assert free(valkey, "ordinary")


@pytest.mark.slow
def test_on_lost_at_the_end_hinders_nothing(valkey: Server) -> None:
    """Starting a thread for the callback is refused by later Pythons once the interpreter ends."""
    text = """
        import sys, pawlock
        client = pawlock.connect(sys.argv[1], ttl=60)
        leases = [client.lock(f"told {n}", on_lost=lambda lease: None).acquire() for n in range(3)]
    """
    run_script(text, valkey.url)
    assert all(free(valkey, f"told {n}") for n in range(3))


def test_a_loop_that_is_closed_with_a_lease_held(valkey: Server) -> None:
    """The task's lease runs out by its ttl; nothing hangs, and nothing but Python's own warnings is printed."""
    text = """
        import asyncio, gc, sys, pawlock
        client = pawlock.connect_async(sys.argv[1], ttl=0.6)

        async def main():
            return await client.lock("loop").acquire()

        if sys.argv[2] == "run":
            lease = asyncio.run(main())
        else:
            loop = asyncio.new_event_loop()
            lease = loop.run_until_complete(main())
            loop.close()
        assert lease.remaining() > 0
        print(repr(lease.state))
        del lease
        gc.collect()
    """
    for end in ("run", "close"):
        with Script(text, valkey.url, end) as script:
            status, out, err = script.end()
        assert (status, out) == (0, "<LeaseState.HELD: 'held'>\n")
        assert "Traceback" not in err
        assert "Exception ignored" not in err
        eventually(lambda: free(valkey, "loop"), "the ttl frees the name", 5)


def test_asyncio_run_ends_blocks_before_the_loop(valkey: Server) -> None:
    """Ctrl-C cancels the main task: the block releases as it is left."""
    text = """
        import asyncio, sys, pawlock

        async def main():
            async with pawlock.connect_async(sys.argv[1], ttl=60) as client:
                async with client.lock("main"):
                    print("inside", flush=True)
                    await asyncio.sleep(60)

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
    """
    with Script(text, valkey.url) as script:
        assert script.line() == "inside"
        script.process.send_signal(signal.SIGINT)
        assert script.end() == (0, "interrupted\n", "")
    assert free(valkey, "main")


def test_asyncio_run_ends_who_waits_without_noise(valkey: Server) -> None:
    """What leaves their tokens begins when the run has already listed which tasks it ends."""
    text = """
        import asyncio, sys, pawlock

        async def main():
            clients = [pawlock.connect_async(sys.argv[1]) for _ in range(2)]

            async def work(client):
                async with client.lock("left waiting"):
                    await asyncio.sleep(60)

            global tasks
            tasks = [asyncio.create_task(work(client)) for client in (*clients, clients[1])]
            await asyncio.sleep(0.2)

        asyncio.run(main())
    """
    with Script(text, valkey.url) as script:
        assert script.end() == (0, "", "")
    assert free(valkey, "left waiting")


def test_a_client_that_goes_with_its_module_says_nothing() -> None:
    """Its finalizer runs when the names that it would use are gone already."""
    connect = "client = pawlock.connect('redis://localhost:1')\nclient._engine"
    program = f"import pawlock.core.client as at, pawlock\n{connect}\nvars(at).clear()\ndel client"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


THREADS = """
    import sys, time, pawlock
    from concurrent.futures import ThreadPoolExecutor
    client = pawlock.connect(sys.argv[1], ttl=60, ticket_ttl=30)
    inside = []

    def work(name):
        with client.lock(name):
            inside.append(name)
            time.sleep(0.05)

    pool = ThreadPoolExecutor(6)
    for name in ["pooled", "other"] * 6:
        pool.submit(work, name)
    while not inside:
        time.sleep(0.001)
"""
PROCESSES = """
    import multiprocessing, sys, time
    from concurrent.futures import ProcessPoolExecutor
    from tests.contract.edges.pools import hold, keep

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[2])
        pool = ProcessPoolExecutor(2, mp_context=context, initializer=keep)
        done = [pool.submit(hold, "pooled", 0.02) for _ in range(4)]
        done[0].result()
"""


@pytest.mark.parametrize(
    "end",
    [
        "pool.shutdown(wait=False, cancel_futures=True)",
        *[pytest.param(end, marks=pytest.mark.slow) for end in ("", "sys.exit(0)", "client.close()")],
    ],
)
def test_a_pool_of_threads_at_the_end(valkey: Server, end: str) -> None:
    """Its workers hold, and wait for each other: concurrent.futures joins them before the interpreter ends."""
    with Script(f"{textwrap.dedent(THREADS)}\n{end}", valkey.url) as script:
        assert script.end() == (0, "", "")
    assert free(valkey, "pooled")
    assert free(valkey, "other")


@pytest.mark.parametrize(
    "start", ["fork", *(pytest.param(one, marks=pytest.mark.slow) for one in ("spawn", "forkserver"))]
)
def test_a_pool_of_processes_at_the_end(valkey: Server, start: str) -> None:
    """Also of a lock that an initializer took: a worker ends without `atexit`."""
    valkey.command("FLUSHALL")
    with Script(PROCESSES, valkey.url, start, ENDS_URL=valkey.url) as script:
        assert script.end() == (0, "", "")
    assert free(valkey, "pooled")
    eventually(
        lambda: texts(valkey.command("KEYS", "pawlock:worker *")) == [], "the workers' locks are free", 3
    )


@pytest.mark.parametrize("first", ["client", pytest.param("atexit", marks=pytest.mark.slow)])
def test_a_client_that_atexit_closes(valkey: Server, first: str) -> None:
    """Before or after what pawlock itself does at the end; a thread waits all the while."""
    text = """
        import atexit, contextlib, sys, threading, pawlock
        if sys.argv[2] == "atexit":
            atexit.register(lambda: client.close())
        client = pawlock.connect(sys.argv[1], ttl=60)
        if sys.argv[2] == "client":
            atexit.register(client.close)
        lease = client.lock("closed by atexit").acquire()

        def wait():
            with contextlib.suppress(pawlock.ClientClosed):
                client.lock("closed by atexit").acquire()

        threading.Thread(target=wait, daemon=True).start()
    """
    with Script(text, valkey.url, first) as script:
        assert script.end() == (0, "", "")
    assert free(valkey, "closed by atexit")


@pytest.mark.slow
def test_a_handler_that_closes_and_exits_while_a_multi_lock_waits_for_a_slow_server(valkey: Server) -> None:
    """The server takes the names when it goes on; they must not be held until their TTL for nobody."""
    text = """
        import os, signal, sys, threading, pawlock
        url, pid_of_server = sys.argv[1], int(sys.argv[2])
        client = pawlock.connect(url)
        client.multi_lock(["a", "b"]).acquire().release()

        def handle(*_):
            threading.Timer(0.2, os.kill, (pid_of_server, signal.SIGCONT)).start()
            client.close()
            sys.exit(0)

        signal.signal(signal.SIGALRM, handle)
        os.kill(pid_of_server, signal.SIGSTOP)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        client.multi_lock(["a", "b"], ttl=60).acquire(timeout=10)
    """
    try:
        run_script(text, valkey.url, str(valkey.pid))
    finally:
        os.kill(valkey.pid, signal.SIGCONT)
    with pawlock.connect(valkey.url) as other:
        eventually(lambda: not other.inspect("a").held and not other.inspect("b").held, "both are free")


@pytest.mark.slow
@pytest.mark.parametrize("handler", ["signal.signal", "add_signal_handler"])
def test_a_handler_that_closes_and_exits_in_asyncio(valkey: Server, handler: str) -> None:
    """`close()` of the sync client and `sys.exit(0)`, out of the loop in the middle of a block of the async one."""
    text = """
        import asyncio, signal, sys, pawlock
        sync = pawlock.connect(sys.argv[1], ttl=60)

        def end(*_):
            sync.close()
            sys.exit(0)

        async def main():
            loop = asyncio.get_running_loop()
            if sys.argv[2] == "signal.signal":
                signal.signal(signal.SIGTERM, end)
            else:
                loop.add_signal_handler(signal.SIGTERM, end)
            async with pawlock.connect_async(sys.argv[1], ttl=60) as client:
                waiters = [asyncio.create_task(client.lock("task").acquire()) for _ in range(2)]
                await asyncio.sleep(0)
                async with client.lock("other task"):
                    print("inside", flush=True)
                    await asyncio.sleep(60)

        held = sync.lock("sync").acquire()
        asyncio.run(main())
    """
    with Script(text, valkey.url, handler) as script:
        assert script.line() == "inside"
        script.process.send_signal(signal.SIGTERM)
        status, out, _ = script.end()
    assert (status, out) == (0, "")
    assert all(free(valkey, name) for name in ("sync", "task", "other task"))


@pytest.mark.slow
def test_a_forked_worker_that_is_the_first_to_use_pawlock(valkey: Server) -> None:
    """Its parent has imported pawlock, and made no client: what ends a worker's clients is only loaded in the worker."""
    text = """
        import multiprocessing, sys, pawlock

        def work(url):
            global lease
            lease = pawlock.connect(url, ttl=60).lock("first in the worker").acquire()

        worker = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
        worker.start()
        worker.join()
        print(worker.exitcode, "pawlock.sync" in sys.modules)
    """
    assert run_script(text, valkey.url) == "0 False"
    assert free(valkey, "first in the worker")
