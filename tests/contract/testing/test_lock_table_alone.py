"""Nothing of Redis is in the lock table: nothing of it is imported, made or run, also where a client uses it."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import pawlock
from pawlock.primitives.mutex import Mutex
from pawlock.testing import LockTable, lock_table

FOLDER = Path(str(lock_table.__file__)).parent
FOREIGN = (
    "lupa",
    "redis",
    "pawlock.core.protocol.scripts",
    "pawlock.primitives",
    "pawlock.transport",
    "pawlock.testing.memory",
)
WORDS = ("evalsha", "lua", "resp", "script", "keys", "argv", "pexpireat", "hset", "zadd")

USE = """
    import asyncio
    import builtins
    import socket
    import sys

    sys.modules["lupa"] = None

    import pawlock
    from pawlock.core.protocol import runtime
    from pawlock.primitives import mutex
    from pawlock.testing import LockTable

    def refuse(*args, **kwargs):
        raise AssertionError(f"{args!r:.200} is of Redis")

    # No class of a primitive of Redis can make a request any more, and nobody can open a connection.
    for module in [m for n, m in sys.modules.items() if n.startswith("pawlock.") and m is not None]:
        for name in ("make_call", "pack_words"):
            if hasattr(module, name):
                setattr(module, name, refuse)
    runtime.Call.pack = refuse
    runtime.Call.words = refuse
    try:
        mutex.Mutex("lock", "n", "pawlock:n").acquire(
            "t", 1, 1, wait=True, block=1, channel="-", max_waiters=1
        )
    except AssertionError:
        pass
    else:
        raise SystemExit("the net has a hole")
    socket.socket.connect = refuse

    def in_threads(table):
        with pawlock.connect(table.url) as client, pawlock.connect(table.url) as other:
            with client.lock("a") as lease:
                assert other.lock("a").try_acquire() is None
                lease.extend(5)
            with client.rlock("a"), client.rlock("a"), client.fair_lock("b"):
                assert other.inspect("a").held
            with client.semaphore("s", permits=1):
                assert other.semaphore("s", permits=1).try_acquire() is None
            with client.election("e").campaign():
                assert other.election("e").leader() is not None

    async def in_tasks(table):
        async with pawlock.connect_async(table.url) as client, pawlock.connect_async(table.url) as other:
            async with client.lock("a"), client.fair_lock("b"), client.semaphore("s", permits=1):
                waiting = asyncio.create_task(other.lock("a").acquire(timeout=5))
                assert await other.lock("b").try_acquire() is None
                await asyncio.sleep(0.02)
            await (await waiting).release()
            async with client.election("e").campaign():
                assert (await other.election("e").leader()) is not None

    with LockTable() as table:
        in_threads(table)
        asyncio.run(in_tasks(table))
    print("done")
"""


def test_it_imports_nothing_of_redis_and_says_nothing_of_it() -> None:
    modules = sorted(FOLDER.glob("*.py"))
    assert len(modules) > 8
    for module in modules:
        text = module.read_text()
        for node in ast.walk(ast.parse(text)):
            named = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                named = [str(node.module)]
            for name in named:
                assert not name.startswith(FOREIGN), f"{module.name} imports {name}"
            spelled = {
                ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.FunctionDef: "name", ast.keyword: "arg",
            }.get(type(node))  # fmt: skip
            if spelled is not None:
                word = str(getattr(node, spelled)).lower()
                assert word not in WORDS, f"{module.name} speaks of {word}"


def test_a_client_uses_it_without_a_script_a_connection_or_lupa() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(USE)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("rwlock", lambda client: client.rwlock("n")),
        ("once", lambda client: client.once("n")),
        ("latch", lambda client: client.latch("n", 2)),
        ("barrier", lambda client: client.barrier("n", 2)),
        (r"rlock\(owner=\)", lambda client: client.rlock("n", owner="me")),
        (r"lock\(pawlock\.Key\)", lambda client: client.lock(pawlock.Key("n"))),
    ],
)
def test_what_it_does_not_have_is_refused_before_anything_is_sent(what: str, make: object) -> None:
    assert callable(make)
    with LockTable() as table:
        client, other = pawlock.connect(table.url), pawlock.connect_async(table.url)
        for one in (client, other):
            with pytest.raises(
                pawlock.NotSupported, match=what + r".* '(key:)?n'.*a lock table has lock, rlock"
            ):
                make(one)
        client.close()


def test_several_names_are_taken_one_after_the_other() -> None:
    with LockTable() as table, pawlock.connect(table.url) as client, pawlock.connect(table.url) as other:
        with client.multi_lock(["b", "a", "c"]):
            assert all(other.lock(name).locked() for name in "abc")
            assert other.multi_lock(["c", "d"]).try_acquire() is None
            assert not other.lock("d").locked()
        assert not any(other.lock(name).locked() for name in "abc")


def test_a_request_of_another_engine_is_refused_by_name() -> None:
    with LockTable() as table, pawlock.connect(table.url) as client:
        lock = client.lock("n")
        lock._plan = replace(lock._plan, primitive=Mutex("lock", "n", "n"))
        with pytest.raises(pawlock.NotSupported, match="a lock table knows no Call"):
            lock.acquire()


def test_outages_and_losses_are_those_of_any_server_in_this_process() -> None:
    with LockTable() as table, pawlock.connect(table.url) as client:
        lease = client.lock("a", ttl=1).acquire()
        table.assert_held(lease)
        with table.down(), pytest.raises(pawlock.BackendUnavailable):
            client.lock("b", unavailable_after=0.1).acquire()
        lease.check()
        table.lose(lease)
        assert lease.state is pawlock.LeaseState.LOST
        table.assert_free("a")
        table.flush()
        client.lock("a").acquire(timeout=5).release()
