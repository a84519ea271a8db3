"""The client where the system lacks what CPython lacks on Windows: simulated, by taking it away before pawlock is loaded."""

from __future__ import annotations

import pytest

from tests.contract.edges.helpers import run_script
from tests.support.servers import Server

LACKING = """
    import os, select, signal, socket, sys, time

    for module, names in (
        (select, "poll epoll"),
        (signal, "SIGALRM SIGHUP SIGKILL pthread_sigmask setitimer"),
        (time, "CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME clock_gettime"),
        (os, "fork geteuid getuid killpg register_at_fork"),
        (socket, sys.argv[2]),
    ):
        for name in names.split():
            delattr(module, name)
    for module in ("fcntl", "grp", "pwd", "resource", "termios"):
        sys.modules[module] = None
    import pawlock
"""

THREADS = """
    import threading
    with pawlock.connect(sys.argv[1]) as client, pawlock.connect(sys.argv[1]) as other:
        lease = client.lock("n", ttl=0.6).acquire()
        threading.Timer(1.2, lease.release).start()
        began = time.monotonic()
        with other.lock("n", timeout=10) as next_:
            assert time.monotonic() - began > 1.0, "it was renewed"
            assert next_.fence > lease.fence
            try:
                client.lock("n").acquire(timeout=0.2)
            except pawlock.AcquireTimeout:
                pass
        for door in (client.multi_lock(["a", "b"]), client.semaphore("s", permits=2), client.rwlock("r").read):
            with door:
                pass
        client.inspect("n")
    # It warns that one master is no quorum.
    options = pawlock.RedlockOptions(fresh=True)
    with pawlock.connect([sys.argv[1]], redlock=options) as client, client.lock("n"):
        pass
    for target in ("unix:///run/redis.sock", None):
        try:
            pawlock.connect(target).lock("n").acquire()
        except pawlock.ConfigurationError as error:
            print(type(error).__name__)
"""

TASKS = """
    import asyncio

    async def work():
        async with pawlock.connect_async(sys.argv[1]) as client, client.lock("n"):
            print("held")

    asyncio.run(work())
"""


@pytest.mark.parametrize("api", ["threads", "tasks"])
def test_a_client_needs_nothing_that_windows_lacks(valkey: Server, api: str) -> None:
    valkey.command("FLUSHALL")
    if api == "threads":
        said = run_script(LACKING + THREADS, valkey.url, "AF_UNIX", PYTHONWARNINGS="ignore::RuntimeWarning")
        assert said.split() == ["ConfigurationError"] * 2
    else:  # the event loop of this system needs AF_UNIX itself
        assert run_script(LACKING + TASKS, valkey.url, "") == "held"
