"""Both APIs behind one blocking face, and words for what a proxy is to break."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self, TypeVar, cast

import pawlock
from tests.support.pace import pace
from tests.support.proxy import Request
from tests.support.resp import ReplyError, texts
from tests.support.scripts import published
from tests.support.servers import Server

T = TypeVar("T")
APIS = ("threads", "asyncio")

_SCRIPTS = (
    "acquire",
    "renew",
    "leave",
    "inspect",
)


def teach(server: Server) -> None:
    """Load all scripts, so that the n-th request of a kind is the n-th that a test thinks of."""
    for name in _SCRIPTS:
        server.command("SCRIPT", "LOAD", published(f"mutex/{name}").source)


def script(*names: str) -> Callable[[Request], bool]:
    """Requests that run one of these scripts, by hash or by text."""
    scripts = [published(f"mutex/{name}") for name in names]
    words = {word for script in scripts for word in (script.sha.encode(), script.source)}
    return lambda request: request.command in {"EVALSHA", "EVAL"} and request.args[1] in words


def until(condition: Callable[[], object], timeout: float = 10.0, what: str = "the condition") -> float:
    """Wait until something holds; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > pace() * timeout:
            raise AssertionError(f"{what} did not come about within {timeout:g} s")
        time.sleep(0.005)
    return time.monotonic() - began


def until_aged(server: Server) -> None:
    """Wait until a server counts some seconds: until then nobody knows whether it has just restarted without its data."""

    def seconds() -> int:
        found = re.search(r"uptime_in_seconds:(\d+)", str(server.command("INFO", "server")))
        return int(found[1]) if found else 0

    until(lambda: seconds() >= 3, what="a server of some seconds")


def key(name: str) -> str:
    return f"pawlock:{name}"


def helper(name: str, suffix: str) -> str:
    return f"{{pawlock:{name}}}:{suffix}"


def remains(server: Server) -> list[str]:
    """The keys that are more than a memory: all but fences, tombstones and records of waiters, which must have an end."""
    found = []
    for name in texts(server.command("KEYS", "*")):
        memory = name.endswith(":fence") or ":dead:" in name or ":1:waits:" in name
        if not memory or int(str(server.command("PTTL", name))) == -1:
            found.append(name)
    return found


def waiters(server: Server, name: str) -> int:
    return int(str(server.command("ZCARD", helper(name, "1:queue"))))


def refusal(server: Server, *args: str) -> str:
    """Run a command; its error text, or "" if it worked."""
    try:
        server.command(*args)
    except ReplyError as error:
        return str(error)
    return ""


class Lease:
    """A lease of either API; every call runs where it belongs."""

    def __init__(self, api: Api, raw: Any) -> None:
        self.raw = raw
        self._api = api
        # A lease that is collected while held would warn; what a test is done with, closing the client releases.
        api.kept.append(self)

    @property
    def fence(self) -> int:
        return int(self.raw.fence)

    @property
    def token(self) -> str:
        return str(self.raw.token)

    @property
    def state(self) -> str:
        return str(self._api.run(lambda: self.raw.state))

    @property
    def reason(self) -> str | None:
        """Why it is lost; None while it is not."""
        try:
            self.check()
        except pawlock.LeaseLost as lost:
            return str(lost.reason)
        return None

    def remaining(self) -> float:
        return cast("float", self._api.run(self.raw.remaining))

    def check(self) -> None:
        self._api.run(self.raw.check)

    def extend(self, ttl: float) -> None:
        self._api.run(lambda: self.raw.extend(ttl))

    def release(self) -> None:
        self._api.run(self.raw.release)

    def detach(self) -> str:
        return str(self._api.run(self.raw.detach))


class Lock:
    """A lock of either API."""

    def __init__(self, api: Api, raw: Any) -> None:
        self.raw = raw
        self._api = api

    def acquire(self, timeout: float | None = 10.0) -> Lease:
        return Lease(self._api, self._api.run(lambda: self.raw.acquire(timeout=timeout)))

    def try_acquire(self) -> Lease | None:
        raw = self._api.run(self.raw.try_acquire)
        return None if raw is None else Lease(self._api, raw)

    def start(self, timeout: float | None = 10.0) -> Future[Lease]:
        """Acquire in a thread or task of its own."""
        return in_thread(lambda: self.acquire(timeout))


class Client:
    """A client of either API."""

    def __init__(self, api: Api, raw: Any) -> None:
        self.raw = raw
        self._api = api

    def lock(self, name: str | pawlock.Key = "n", **options: Any) -> Lock:
        return Lock(self._api, self.raw.lock(name, **options))

    def rlock(self, name: str = "n", **options: Any) -> Lock:
        return Lock(self._api, self.raw.rlock(name, **options))

    def inspect(self, name: str = "n") -> pawlock.LockInfo:
        return cast("pawlock.LockInfo", self._api.run(lambda: self.raw.inspect(name)))

    def release(self, name: str, token: str) -> None:
        self._api.run(lambda: self.raw.release(name, token))

    def extend(self, name: str, token: str, ttl: float) -> float:
        return float(self._api.run(lambda: self.raw.extend(name, token, ttl)))

    @property
    def engine(self) -> Any:
        return self._api.run(lambda: self._api.engine(self.raw))

    def counter(self, what: str) -> int:
        return int(self.engine.reports.counters[what])

    def close(self) -> None:
        self._api.run(lambda: self.raw.close(1.0))


class Api:
    """One way to wait: threads, or asyncio on a loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kept: list[Lease] = []
        self._clients: list[Client] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        if name == "asyncio":
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop")
            self._thread.start()

    @property
    def is_async(self) -> bool:
        return self._loop is not None

    def run(self, step: Callable[[], Any], timeout: float = 30.0) -> Any:
        """Make a call where this API makes its calls, and wait for what it brings."""
        if self._loop is None:
            return step()
        return asyncio.run_coroutine_threadsafe(_await(step), self._loop).result(timeout)

    def connect(self, target: object, **options: Any) -> Client:
        door = pawlock.connect_async if self.is_async else pawlock.connect
        client = Client(self, door(target, **options))
        self._clients.append(client)
        return client

    def engine(self, raw: Any) -> Any:
        return raw._engine() if self.is_async else raw._engine

    def end(self) -> None:
        for client in self._clients:
            client.close()
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


async def _await(step: Callable[[], Any]) -> Any:
    result = step()
    return await result if inspect.isawaitable(result) else result


def in_thread(step: Callable[[], T]) -> Future[T]:
    """Run a step in a thread of its own; its result or exception comes in the future."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(step())
        except BaseException as error:  # noqa: BLE001 - it is the future's to tell
            future.set_exception(error)

    threading.Thread(target=work, name="test-step", daemon=True).start()
    return future


def set_config(server: Server, name: str, what: str) -> None:
    server.command("CONFIG", "SET", name, what)


def value(server: Server, name: str = "n") -> str | None:
    found = server.command("GET", key(name))
    return found.decode() if isinstance(found, bytes) else None
