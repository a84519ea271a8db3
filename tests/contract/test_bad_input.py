"""What can never work is refused where it is given: the right error, with the right word, and nothing is sent."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

import pawlock
from tests.support.refusal import case, refused
from tests.support.servers import Server

Client = pawlock.Client | pawlock.AsyncClient
Connect = Callable[..., Client]


class Listener:
    """A port that notices everybody who comes."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def was_called(self) -> bool:
        return bool(select.select([self._socket], [], [], 0.0)[0])

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    """Fails the test if anything was sent to it, or at least connected."""
    listener = Listener()
    yield listener
    called = listener.was_called()
    listener.close()
    assert not called, "something reached the network"


CONNECTS: tuple[Connect, ...] = (pawlock.connect, pawlock.connect_async)


@pytest.fixture
def clients(listener: Listener) -> list[Client]:
    """A client of each API, of a server that must not be asked."""
    return [connect(listener.url) for connect in CONNECTS]


def refused_by_both(
    url: str, call: Callable[[Any], Any], word: str, error: type[BaseException] = pawlock.ConfigurationError
) -> None:
    """Make a call with a client of each API, and wait for what it gives."""

    async def wait() -> None:
        await call(pawlock.connect_async(url))

    refused(lambda: call(pawlock.connect(url)), word, error)
    refused(lambda: asyncio.run(wait()), word, error)


# Names ----------------------------------------------------------------------------------------------------------------

BAD_NAMES: list[tuple[object, str]] = [
    (None, "name must be a str, got NoneType"),
    (b"order", "decode"),
    (7, "name must be a str, got int"),
    (["order"], "name must be a str, got list"),
    ("", "1 to 200 bytes, got an empty"),
    ("x" * 10_000_000, "at most 200 bytes"),
    ("x" * 201, "200"),
    ("é" * 101, "got 202"),
    ("a\ud800b", "surrogate"),
]


NO_NAMES: list[Any] = [None, b"x", "", "x" * 201]
REASONS: list[tuple[Any, str]] = [
    ("", "reason must be text"),
    ("  ", "reason must be text"),
    (None, "reason must be text"),
    (b"x", "reason must be text"),
    ("x" * 501, "1 to 500 characters"),
    ("\ud800", "1 to 500 characters"),
]


def test_names(clients: list[Client]) -> None:
    for client in clients:
        for name, word in BAD_NAMES:
            with case(name):
                for kind in ("lock", "rlock", "fair_lock"):
                    refused(lambda: getattr(client, kind)(name), word)
                refused(lambda: client.semaphore(name, permits=1), word)  # type: ignore[arg-type]


def test_names_to_inspect_and_to_force(listener: Listener) -> None:
    for name in NO_NAMES:
        with case(name):
            refused_by_both(listener.url, lambda client: client.inspect(name), "name")
            refused_by_both(listener.url, lambda client: client.force_release(name, reason="x"), "name")


def test_reasons_to_force(listener: Listener) -> None:
    for reason, word in REASONS:
        with case(reason):
            refused_by_both(listener.url, lambda client: client.force_release("n", reason=reason), word)
            if reason:
                by = word.replace("reason", "by")
                refused_by_both(
                    listener.url, lambda client: client.force_release("n", reason="x", by=reason), by
                )


def test_holders_to_force(listener: Listener) -> None:
    for holder in (None, 0, b"host:1/main", ["host:1/main"]):
        with case(holder):
            refused_by_both(
                listener.url,
                lambda client: client.force_release("n", reason="x", holder=holder),
                "holder must be text",
            )


def test_limits_of_the_audit(listener: Listener) -> None:
    for limit in (0, -1, 1001, True, 1.5, "3", None):
        with case(limit):
            refused_by_both(listener.url, lambda client: client.audit(limit), "limit")


BAD_FENCE_TTLS: list[tuple[dict[str, Any], str]] = [
    ({"fence_ttl": -1}, "fence_ttl must be a finite number of seconds, 0 or more, got -1"),
    ({"fence_ttl": inf}, "fence_ttl must be a finite number of seconds, 0 or more, got inf"),
    ({"fence_ttl": nan}, "fence_ttl must be a number of seconds, got NaN"),
    ({"fence_ttl": True}, "fence_ttl must be a number"),
    ({"fence_ttl": "1d"}, "fence_ttl must be a number"),
    ({"fence_ttl": 0.01}, "must be 0, or 0.05 s to 366 days"),
    ({"fence_ttl": 367 * 86400}, "366 days"),
]


def test_options_of_the_client_itself(listener: Listener) -> None:
    for connect in CONNECTS:
        for after in (-1, 0, 0.01, nan, inf, "1", True, timedelta(seconds=-1)):
            with case(after):
                refused(lambda: connect(listener.url, deadlock_after=after), "deadlock_after")
        for options, word in BAD_FENCE_TTLS:
            with case(options):
                refused(lambda: connect(listener.url, **options), word)
        client: Any = connect(listener.url)
        refused(lambda: client.lock("x", fence_ttl=1), "unknown option fence_ttl")


GOOD_NAMES = [
    "x" * 200,
    "é" * 100,
    "{",
    '{"id": 7}',
    "a{b",
    "}",
    "a\0b",
    "a\nb",
    "%",
    " ",
    "order:42",
    "\u2028",
    "😀" * 50,
]


def test_strange_names_work(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, pawlock.connect(valkey.url) as other:
        for name in GOOD_NAMES:
            with case(name), client.lock(name, ttl=5.0) as lease:
                assert lease.name == name
                assert client.inspect(name).held
                assert other.lock(name).try_acquire() is None


BRACES = [("a{{b}}c", "a{b}c"), ("{{", "{"), ("}}}}", "}}"), ("{{{{x}}}}", "{{x}}"), ("a{{0}}", "a{0}")]


def test_doubled_braces_stand_for_one(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        for text, name in BRACES:
            with case(text), client.lock(text, ttl=5.0) as lease:
                assert lease.name == name
                assert client.inspect(text).held
                assert client.inspect(text).name == name
                ticket = lease.detach()
                with client.adopt(ticket) as adopted:
                    assert adopted.name == name


FIELDS = ["a{b}c", "order:{order.id}", "{rows[0]}", "{day:%Y-%m}", "{{{x}}}", "{x!r}"]


@pytest.mark.parametrize("kind", ["lock", "rlock", "fair_lock"])
def test_fields_that_nobody_fills(listener: Listener, kind: str) -> None:
    client = pawlock.connect(listener.url)
    for name in FIELDS:
        with case(name):
            lock = getattr(client, kind)(name)
            assert lock.name == name
            for use in (
                lock.acquire,
                lock.try_acquire,
                lock.locked,
                lock.__enter__,
                lambda: lock.acquire(ttl=3),
            ):
                assert "f-string" in refused(use, "has fields")
                assert "text.replace('{', '{{').replace('}', '}}')" in refused(use, "has fields")
            refused(lambda: client.inspect(name), "has fields")
            refused(lambda: asyncio.run(_fields(listener.url, kind, name)), "has fields")


async def _fields(url: str, kind: str, name: str) -> None:
    async with getattr(pawlock.connect_async(url), kind)(name):
        pass


def test_fields_without_a_name(clients: list[Client]) -> None:
    for client in clients:
        for name in ("a{}", "a{0}", "{:>3}", "{0.x}", "{7up}"):
            with case(name):
                refused(lambda: client.lock(name), "not an argument name")


def test_a_fair_lock_hands_nothing_over(clients: list[Client]) -> None:
    for client in clients:
        refused(lambda: client.fair_lock("x", handover=3), "no local hand-off")
        assert client.fair_lock("x", handover=0).name == "x"


def test_namespaces(listener: Listener) -> None:
    bad: list[tuple[Any, str]] = [
        (b"x", "namespace"),
        (7, "namespace"),
        ("x" * 201, "at most 200 bytes"),
        ("\ud800", "surrogate"),
    ]
    for connect in CONNECTS:
        for namespace, word in bad:
            with case(namespace):
                refused(lambda: connect(listener.url, namespace=namespace), word)
        for name in ("a{b", "a}", "a\nb", "a%b", "a\0b"):
            with case(name):
                refused(lambda: connect(listener.url, namespace="").lock(name), "needs escaping")


# Options --------------------------------------------------------------------------------------------------------------

NO_DURATION: list[object] = [True, False, "30s", "30", b"30", [30], {"s": 30}, object()]
BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    *[({"ttl": value}, "ttl must be a number of seconds or a timedelta") for value in NO_DURATION],
    ({"ttl": None}, "ttl must be a number of seconds"),
    ({"ttl": 0}, "ttl must be at least 0.05 s, got 0"),
    ({"ttl": -1}, "ttl must be at least 0.05 s, got -1"),
    ({"ttl": 0.01}, "at least 0.05 s"),
    ({"ttl": timedelta(milliseconds=10)}, "at least 0.05 s"),
    ({"ttl": nan}, "ttl must be a number of seconds, got NaN"),
    ({"ttl": inf}, "at most 366 days"),
    ({"ttl": 1e308}, "at most 366 days"),
    ({"ttl": 10**400}, "ttl is too large"),
    *[({"timeout": value}, "timeout must be a number of seconds") for value in NO_DURATION],
    ({"timeout": -1}, "timeout must be >= 0, or None to wait indefinitely, got -1"),
    ({"timeout": -inf}, "timeout must be >= 0, or None to wait indefinitely, got -inf"),
    ({"timeout": nan}, "timeout must be a number of seconds, got NaN"),
    ({"timeout": timedelta(seconds=-1)}, "timeout must be >= 0, or None to wait indefinitely, got -1"),
    ({"renew": None}, "renew must be a number of seconds"),
    ({"renew": "yes"}, "renew must be a number of seconds"),
    ({"renew": 15.0}, "below half the TTL"),
    ({"renew": 60, "ttl": 60}, "below half the TTL"),
    ({"renew": 0}, "renew must be a finite number of seconds, more than 0, got 0"),
    ({"renew": -1}, "renew must be a finite number of seconds, more than 0, got -1"),
    ({"renew": nan}, "renew must be a number of seconds, got NaN"),
    ({"renew": inf}, "renew must be a finite number of seconds, more than 0, got inf"),
    ({"max_hold": 60.0, "renew": False}, "no effect with renew=False"),
    ({"max_hold": 0}, "max_hold must be a finite number of seconds, more than 0, got 0"),
    ({"max_hold": -5}, "max_hold must be a finite number of seconds, more than 0, got -5"),
    ({"max_hold": inf}, "max_hold must be a finite number of seconds, more than 0, got inf"),
    ({"max_hold": "1h"}, "max_hold must be a number"),
    ({"min_hold": -1}, "min_hold must be a finite number of seconds, 0 or more, got -1"),
    ({"min_hold": nan}, "min_hold must be a number of seconds, got NaN"),
    ({"min_hold": inf}, "min_hold must be a finite number of seconds, 0 or more, got inf"),
    ({"min_hold": 400 * 86400}, "at most 366 days"),
    ({"min_hold": None}, "min_hold must be a number"),
    ({"handover": -1}, "handover must be 0 to 64, got -1"),
    ({"handover": 1.5}, "handover must be an int"),
    ({"handover": True}, "handover must be an int"),
    ({"handover": None}, "handover must be an int"),
    ({"handover": 10**9}, "handover must be"),
    ({"max_waiters": 0}, "max_waiters must be 1 to 10000000, got 0"),
    ({"max_waiters": -1}, "max_waiters must be 1 to 10000000, got -1"),
    ({"max_waiters": inf}, "max_waiters must be an int"),
    ({"ticket_ttl": 31.0}, "at most ttl (30 s)"),
    ({"ticket_ttl": 0}, "ticket_ttl must be at least 0.05 s, got 0"),
    ({"ticket_ttl": nan}, "ticket_ttl must be a number of seconds, got NaN"),
    ({"ticket_ttl": "3"}, "ticket_ttl must be a number"),
    ({"unavailable_after": -1}, "unavailable_after must be a finite number of seconds, 0 or more, got -1"),
    ({"unavailable_after": None}, "unavailable_after must be a number"),
    ({"unavailable_after": nan}, "unavailable_after must be a number of seconds, got NaN"),
    ({"replicas": -1}, "replicas must be 0 to 100, got -1"),
    ({"replicas": 1.0}, "replicas must be an int"),
    ({"replicas": True}, "replicas must be an int"),
    ({"replicas": 1000}, "replicas must be 0 to 100, got 1000"),
    ({"on_lost": "page me"}, "on_lost must be callable"),
    ({"on_lost": 7}, "on_lost must be callable"),
    ({"on_exit": "ignore"}, "on_exit must be 'raise' or 'warn', got 'ignore'"),
    ({"on_exit": None}, "on_exit must be 'raise' or 'warn', got None"),
    ({"on_exit": ["raise"]}, "on_exit must be 'raise' or 'warn', got ['raise']"),
    ({"tll": 30}, "unknown option tll"),
    ({"expire": 30, "blocking": True}, "unknown option blocking, expire"),
]


def test_options(clients: list[Client]) -> None:
    for options, word in BAD_OPTIONS:
        with case(options):
            for client in clients:
                refused(lambda: client.lock("x", **options), word)
                refused(lambda: client.rlock("x", **options), word)
            if not word.startswith("unknown"):
                refused(lambda: pawlock.LockOptions(**options), word)


CLIENT_OPTIONS = ("ttl", "timeout", "renew", "max_hold", "on_lost")


def test_defaults_of_a_client(listener: Listener) -> None:
    of_a_client = [(o, w) for o, w in BAD_OPTIONS if set(o) <= set(CLIENT_OPTIONS) and None not in o.values()]
    assert len(of_a_client) > 30
    for connect in CONNECTS:
        for options, word in of_a_client:
            with case(options):
                refused(lambda: connect(listener.url, **options), word)


def test_an_unknown_lock_option_names_the_known_ones(clients: list[Client]) -> None:
    for client in clients:
        assert "ttl" in refused(lambda: client.lock("x", lifetime=30), "known: ")  # type: ignore[call-arg]


def test_on_lost_of_the_wrong_api(listener: Listener) -> None:
    async def on_lost(_lease: object) -> None: ...

    class WithCall:
        async def __call__(self, _lease: object) -> None: ...

    for wrong in (on_lost, WithCall()):
        locked = pawlock.connect(listener.url)
        refused(lambda wrong=wrong, of=locked: of.lock("x", on_lost=wrong), "coroutine function")  # type: ignore[misc]
        refused(lambda wrong=wrong: pawlock.connect(listener.url, on_lost=wrong), "coroutine function")  # type: ignore[misc]
        pawlock.connect_async(listener.url, on_lost=wrong).lock("x", on_lost=wrong)
    pawlock.connect_async(listener.url).lock("x", on_lost=print)
    pawlock.connect(listener.url).lock("x", on_lost=print)


BAD_MEMBERS: list[tuple[Any, str]] = [
    ([], "1 to 1000 names, got 0"),
    ((), "1 to 1000 names, got 0"),
    ([str(number) for number in range(1001)], "1 to 1000 names"),
    (["a", "b", "a"], "'a' twice"),
    (["a{{", "a{"], "'a{' twice"),
    ("abc", "a list of names or locks, not str"),
    (b"abc", "a list of names or locks, not bytes"),
    (None, "a list of names or locks, not NoneType"),
    (7, "a list of names or locks, not int"),
    ([7], "got int 7"),
    ([None], "got NoneType None"),
    ([b"a"], "got bytes b'a'"),
    (["a", ""], "empty string"),
    (["a", "{field}"], "has fields"),
    ([["a"]], "got list ['a']"),
]


def test_members_of_a_multi_lock(clients: list[Client]) -> None:
    for client in clients:
        for members, word in BAD_MEMBERS:
            with case(members):
                refused(lambda: client.multi_lock(members), word)


@pytest.mark.parametrize("connect", CONNECTS)
def test_locks_that_do_not_fit_into_a_multi_lock(listener: Listener, connect: Connect) -> None:
    client: Any = connect(listener.url)
    other = connect(listener.url)
    api = pawlock.connect if isinstance(client, pawlock.AsyncClient) else pawlock.connect_async
    refused(lambda: client.multi_lock(["b", other.lock("a")]), "another client")
    refused(lambda: client.multi_lock([api(listener.url).lock("a")]), "another client")
    refused(lambda: client.multi_lock([client.multi_lock(["a"])]), "another multi_lock")
    refused(lambda: client.multi_lock(["a", client.lock("a")]), "'a' twice")
    refused(lambda: client.multi_lock(["a"], on_unavailable="local"), "on_unavailable is not supported")
    refused(lambda: client.multi_lock([client.lock("a", on_unavailable="open")]), "for single locks")
    refused(lambda: client.multi_lock([client.rlock("a"), client.fair_lock("a")]), "'a' twice")
    refused(lambda: client.multi_lock(["a"], ttl=0), "ttl must be at least 0.05 s, got 0")
    refused(lambda: client.multi_lock(["a"], tll=3), "unknown option tll")
    refused(lambda: client.multi_lock(["a"], on_lost=7), "on_lost must be callable")


# Arguments of calls ---------------------------------------------------------------------------------------------------

BAD_TIMEOUTS: list[tuple[Any, str]] = [
    (-1, "timeout must be >= 0, or None to wait indefinitely, got -1"),
    (nan, "timeout must be a number of seconds, got NaN"),
    ("5", "timeout must be a number"),
    (True, "timeout must be a number"),
]


def test_timeouts_of_calls(listener: Listener) -> None:
    for timeout, word in BAD_TIMEOUTS:
        with case(timeout):
            refused_by_both(listener.url, lambda client: client.lock("x").acquire(timeout), word)
            refused_by_both(listener.url, lambda client: client.close(timeout), word)


def test_timeouts_of_waits_for_a_loss(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, client.lock("x") as lease:
        for timeout, word in BAD_TIMEOUTS:
            with case(timeout):
                refused(lambda: lease.lost.wait(timeout), word)
        assert not lease.lost.wait(0)


async def test_timeouts_of_async_waits_for_a_loss(valkey: Server) -> None:
    async with pawlock.connect_async(valkey.url) as client, client.lock("x") as lease:
        for timeout, word in BAD_TIMEOUTS:
            with case(timeout), pytest.raises(pawlock.ConfigurationError, match=word):
                await lease.lost.wait(timeout)
        assert not await lease.lost.wait(0)


BAD_TTLS: tuple[Any, ...] = (0, -1, nan, inf, "30s", True, 0.01)


def test_ttls_of_calls(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        for ttl in BAD_TTLS:
            with case(ttl):
                refused(lambda: client.lock("x").acquire(ttl=ttl), "ttl")
                with client.lock("x") as lease:
                    refused(lambda: lease.extend(ttl), "ttl")
                    lease.check()


async def test_ttls_of_async_calls(valkey: Server) -> None:
    async with pawlock.connect_async(valkey.url) as client:
        for ttl in BAD_TTLS:
            with case(ttl):
                with pytest.raises(pawlock.ConfigurationError, match="ttl"):
                    await client.lock("x").acquire(ttl=ttl)
                async with client.lock("x") as lease:
                    with pytest.raises(pawlock.ConfigurationError, match="ttl"):
                        await lease.extend(ttl)
                    lease.check()


def test_waiters_to_list(listener: Listener) -> None:
    for waiters in (-1, 1.5, "10", True, None, 10**12):
        with case(waiters):
            refused_by_both(listener.url, lambda client: client.inspect("x", waiters=waiters), "waiters")


def test_tickets(listener: Listener) -> None:
    for ticket in (
        None, b"pawlock1.x", "", "hello", "pawlock1.", "pawlock1.!!!!", "pawlock1.bm90aGluZw", "pawlock9.x"
    ):  # fmt: skip
        with case(ticket):
            refused_by_both(listener.url, lambda client: client.adopt(ticket), "ticket")
