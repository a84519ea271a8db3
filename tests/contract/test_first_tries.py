"""What a new user writes first, in both APIs: the error says what to write instead."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

import pawlock
from pawlock import testing
from tests.support.refusal import case
from tests.support.servers import Server

# What type checkers would refuse.
MODULE: Any = pawlock
TESTING: Any = testing

NOWHERE = "redis://127.0.0.1:1"
CONNECTS: dict[str, Callable[..., Any]] = {"threads": pawlock.connect, "asyncio": pawlock.connect_async}

# What is written with the module, a client of either API, or the lease of one; and what the text has to say.
OF_CONNECT: list[tuple[Callable[[Any], Any], str]] = [
    (lambda connect: connect(host="localhost", port=6379), "pawlock.connect('redis://localhost:6379/0')"),
    (lambda connect: connect(db=1), "as a URL"),
    (lambda connect: connect(url=NOWHERE), "as a URL"),
    (lambda connect: connect("localhost", 6379), 'connect("redis://localhost:6379/0")'),
    (lambda connect: connect(NOWHERE, NOWHERE), "connect([url, url, url])"),
    (lambda connect: connect(namepsace="x"), "did you mean namespace?"),
    (lambda connect: connect(pasword="x"), "did you mean password?"),
    (lambda connect: connect(request_timout=3), "did you mean request_timeout?"),
    (lambda connect: connect(prefix="x"), "namespace"),
    (lambda connect: connect(user="x"), "username"),
    (lambda connect: connect(socket_timeout=3), "request_timeout or connect_timeout"),
    (lambda connect: connect(decode_responses=True), "remove it"),
    (lambda connect: connect(expires=3), "the TTL of a lock is ttl"),
]
OF_A_CLIENT: list[tuple[Callable[[Any], Any], str]] = [
    (lambda client: client.lock("x", 30), 'client.lock("…", ttl=30) or client.lock("…", timeout=30)'),
    (lambda client: client.rlock("x", 30), "client.rlock("),
    (lambda client: client.fair_lock("x", 30), "client.fair_lock("),
    (lambda client: client.semaphore("x", 3), "'permits'"),
    (lambda client: client.semaphore("x", 3, permits=2), "permits=2"),
    (lambda client: client.multi_lock("a", "b"), "one list"),
    (lambda client: client.lock("x", timout=3), "did you mean timeout?"),
    (lambda client: client.lock("x", hand_over=0), "did you mean handover?"),
    (lambda client: client.once("x", tll=3), "did you mean ttl?"),
    (lambda client: client.latch("x", 1, max_waiter=3), "did you mean max_waiters?"),
    (lambda client: client.lock("x", namespace="y"), "connect(…, namespace=…)"),
    (lambda client: client.lock("x", request_timeout=1), "connect(…, request_timeout=…)"),
    (lambda client: client.lock("x", reentrant=True), "client.rlock(name)"),
    (lambda client: client.lock("x", permits=3), "client.semaphore(name, permits=n)"),
    (lambda client: client.lock("x").acquire(tiemout=3), "did you mean timeout?"),
    (lambda client: client.lock("x").acquire(block=False), "timeout"),
    (lambda client: client.lock("x").aquire(), "did you mean acquire?"),
    (lambda client: client.lock("x").try_lock(), "use try_acquire()"),
    (lambda client: client.lock("x").is_locked(), "use locked()"),
    (lambda client: client.lock("x").fencing_token, "lease.fence"),
    (lambda client: client.lock("x").holder, "client.inspect(name)"),
    (lambda client: client.lock("x").force_release(), "client.force_release(name, reason=…)"),
    (lambda client: client.lock("x")(), "lock.acquire()"),
    (lambda client: client.rwlock("x").read(), "with rwlock.read as lease:` without parentheses"),
    (lambda client: client.rwlock("x").write(), "rwlock.write.acquire()"),
    (lambda client: client.rwlock("x").acquire(), "rwlock.read.acquire() or rwlock.write.acquire()"),
    (lambda client: client.rwlock("x").reader, "use rwlock.read"),
    (lambda client: client.rwlock("x").write_lock, "use rwlock.write"),
    (lambda client: client.election("x").acquire(), "campaign()"),
    (lambda client: client.election("x").is_leader(), "leading, a property"),
    (lambda client: client.election("x").release(), "resign()"),
    (lambda client: client.election("x").campain(), "did you mean campaign?"),
    (lambda client: client.once("x").run(), "@client.once(name)"),
    (lambda client: client.once("x").finish(3), "begin() returns it"),
    (lambda client: client.latch("x", 1).countdown(), "did you mean count_down?"),
    (lambda client: client.latch("x", 1).acquire(), "use wait()"),
    (lambda client: client.barrier("x", 2).arrive(), "use wait()"),
    (lambda client: client.acquire("x"), "client.lock(name).acquire()"),
    (lambda client: client.RLock("x"), "client.rlock(name)"),
    (lambda client: client.read_write_lock("x"), "client.rwlock(name)"),
    (lambda client: client.leader_election("x"), "client.election(name)"),
    (lambda client: client.is_locked("x"), "client.lock(name).locked()"),
    (lambda client: client.aclose(), "use close()"),
    (lambda client: client.redis, "repr(client)"),
]
OF_A_LEASE: list[tuple[str, str]] = [
    ("fencing_token", "use lease.fence"),
    ("is_valid", "use bool(lease)"),
    ("expires_at", "use lease.remaining()"),
    ("renew", "renewed automatically"),
    ("refresh", "lease.extend(lease.ttl)"),
    ("unlock", "use lease.release()"),
    ("downgrade", "only the lease of rwlock(name).write"),
    ("relase", "did you mean release?"),
    ("detatch", "did you mean detach?"),
]
OF_THE_MODULE: list[tuple[Callable[[], Any], str]] = [
    (lambda: MODULE.Lock("x"), "pawlock.connect(url); client.lock(…)"),
    (lambda: MODULE.Lock("x", ttl=3), "client.lock(…)"),
    (lambda: MODULE.AsyncLock("x"), "pawlock.connect_async(url); client.lock(…)"),
    (lambda: MODULE.RWLock("x"), "client.rwlock(…)"),
    (lambda: MODULE.Semaphore("x", 3), "client.semaphore(…)"),
    (lambda: MODULE.AsyncElection("x"), "client.election(…)"),
    (lambda: MODULE.MultiLock(["x"]), "client.multi_lock(…)"),
    (lambda: MODULE.lock, "client.lock(…)"),
    (lambda: MODULE.Redlock, "pawlock.connect([url, url, url])"),
    (lambda: MODULE.LockError, "pawlock.PawlockError"),
    (lambda: MODULE.AsyncLokc, "did you mean AsyncLock?"),
    (lambda: MODULE.aconnect, "pawlock.connect_async()"),
    (lambda: TESTING.Servr, "did you mean Server?"),
]
MISTAKES = (TypeError, AttributeError, pawlock.ConfigurationError)


def use(what: Callable[[], Any]) -> None:
    """Do it, and wait for what is to be awaited."""
    found = what()
    if inspect.isawaitable(found):
        asyncio.run(_awaited(found))


async def _awaited(what: Any) -> Any:
    return await what


def said(what: Callable[[], Any]) -> str:
    """The text of the error that it ends in."""
    with pytest.raises(MISTAKES) as caught:
        use(what)
    text = str(caught.value)
    assert len(text) < 300, "a text is to be read"
    return text


@pytest.fixture(params=list(CONNECTS))
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return CONNECTS[request.param]


def test_connect_says_how_it_is_called(connect: Callable[..., Any]) -> None:
    for what, words in OF_CONNECT:
        with case(words):
            assert words in said(lambda: what(connect))


def test_a_client_and_what_it_makes_say_what_to_write(connect: Callable[..., Any]) -> None:
    client = connect(NOWHERE)
    for what, words in OF_A_CLIENT:
        with case(words):
            assert words in said(lambda: what(client))


def test_the_module_says_what_to_write() -> None:
    for what, words in OF_THE_MODULE:
        with case(words):
            assert words in said(what)


def test_a_lease_says_what_to_write(valkey: Server) -> None:
    with (
        pawlock.connect(valkey.url) as client,
        client.lock("x") as lease,
        client.multi_lock(["y"]) as several,
    ):
        for one, known in ((lease, OF_A_LEASE), (several, OF_A_LEASE[:-1])):
            for name, words in known:
                with case(one, name):
                    assert words in said(lambda: getattr(one, name))
                    assert not hasattr(one, name)


async def test_an_async_lease_says_what_to_write(valkey: Server) -> None:
    async with pawlock.connect_async(valkey.url) as client, client.lock("x") as lease:
        for name, words in OF_A_LEASE:
            with case(name):
                assert words in said(lambda: getattr(lease, name))


def enter(what: Any) -> None:
    with what:
        pass


def enter_async(what: Any) -> None:
    async def entered() -> None:
        async with what:
            pass

    asyncio.run(entered())


def test_with_in_place_of_async_with() -> None:
    client = pawlock.connect_async(NOWHERE)
    acquiring = client.lock("x").acquire()
    entered: list[Any] = [
        client, client.lock("x"), client.rwlock("x").read, client.semaphore("x", permits=2), client.multi_lock(["x"]),
        client.once("x"), acquiring,
    ]  # fmt: skip
    for one in entered:
        with case(one):
            assert "use `async with`, not `with`" in said(lambda: enter(one))
            assert not hasattr(one, "__enter__")
            with ExitStack() as stack, pytest.raises(TypeError):
                stack.enter_context(one)
    acquiring.close()
    with pytest.raises(TypeError, match=r"await it: `lease = await lock\.acquire\(\)`"):
        bool(acquiring)
    with pytest.raises(AttributeError, match="await it"):
        acquiring.fence  # type: ignore[attr-defined]  # noqa: B018


def test_async_with_in_place_of_with() -> None:
    client = pawlock.connect(NOWHERE)
    for one in (
        client,
        client.lock("x"),
        client.rwlock("x").write,
        client.multi_lock(["x"]),
        client.once("x"),
    ):
        with case(one):
            text = said(lambda: enter_async(one))
            assert "use `with`, not `async with`" in text
            assert "pawlock.connect_async()" in text

    async def into_a_stack() -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(client.lock("x"))  # type: ignore[arg-type]

    with pytest.raises(TypeError):
        asyncio.run(into_a_stack())


def test_what_is_never_entered_itself(connect: Callable[..., Any]) -> None:
    client = connect(NOWHERE)
    word = "async with" if isinstance(client, pawlock.AsyncClient) else "with"
    for one, words in (
        (client.rwlock("x"), f"`{word} rwlock.read as lease:` or `{word} rwlock.write as lease:`"),
        (client.election("x"), f"`{word} election.campaign() as lease:`"),
        (client.latch("x", 1), "use wait()"),
    ):
        for entering in (enter, enter_async):
            with case(one, entering):
                assert words in said(lambda: entering(one))


def test_a_traceback_has_one_guess() -> None:
    """Python adds one of its own to an error that has the object."""
    program = f"import pawlock\npawlock.connect({NOWHERE!r}).lock('x').aquire()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.lower().count("did you mean") == 1, done.stderr


def test_a_client_shows_its_address(connect: Callable[..., Any]) -> None:
    shown: list[tuple[Any, str]] = [
        ("redis://:geheim@db.example:7000/3", "redis://db.example:7000/3 "),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
        ("redis+sentinel://a,b/mymaster", "mymaster"),
        ("redis+cluster://a,b", "redis+cluster://a:6379,b:6379"),
        (["redis://a", "redis://b", "redis://c"], "redis://a:6379/0, redis://b:6379/0, redis://c:6379/0"),
    ]
    for target, address in shown:
        with case(target):
            text = repr(connect(target, namespace="shop"))
            assert address in text
            assert "namespace='shop'" in text
            assert "geheim" not in text
