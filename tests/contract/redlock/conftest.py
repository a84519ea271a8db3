"""Five independent servers, and what a test does to some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pawlock
from tests.support.one_api import in_one_api
from tests.support.servers import Server, available


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each case in one API; in both in the full run."""
    in_one_api(items, Path(__file__).parent)


FRESH = pawlock.RedlockOptions(fresh=True)
"""The servers of a test are younger than any lease."""

PATIENT = pawlock.RedlockOptions(fresh=True, node_timeout=1.0)
"""For what a vote that is missing would change: on a busy machine an answer may well take 0.05 s."""


def plain() -> Server:
    """An ordinary one."""
    return Server("valkey", unix=False)


class Cluster:
    """Independent servers, of which some may be broken."""

    def __init__(self, count: int, make: Callable[[], Server] | None = None) -> None:
        self.servers = [(make or plain)().start() for _ in range(count)]

    @property
    def urls(self) -> list[str]:
        """The address of each."""
        return [server.url for server in self.servers]

    def client(self, **options: Any) -> pawlock.Client:
        """A client of all of them."""
        return pawlock.connect(self.urls, **{"redlock": FRESH, **options})

    def aclient(self, **options: Any) -> pawlock.AsyncClient:
        """The same for asyncio."""
        return pawlock.connect_async(self.urls, **{"redlock": FRESH, **options})

    def clean(self) -> None:
        """Forget every key."""
        for server in self.servers:
            server.command("FLUSHALL")

    def keys(self) -> dict[str, list[bytes]]:
        """Every key that is no fence and no tombstone, by the server that has it."""
        found: dict[str, list[bytes]] = {}
        for server in self.servers:
            keys = server.command("KEYS", "*")
            assert isinstance(keys, list)
            left = [bytes(key) for key in keys if not _stays(bytes(key))]  # type: ignore[arg-type]
            if left:
                found[server.url] = left
        return found

    def holders(self, name: str) -> list[bytes | None]:
        """What each server has under a name."""
        return [server.command("GET", f"pawlock:{name}") for server in self.servers]  # type: ignore[misc]

    def stop(self) -> None:
        """End them all."""
        for server in self.servers:
            server.stop()


def _stays(key: bytes) -> bool:
    return key.endswith(b":fence") or b":dead:" in key


def cluster(count: int) -> Iterator[Cluster]:
    """So many servers, ended after use."""
    if reason := available("valkey"):
        pytest.skip(reason)
    made = Cluster(count)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def shared_five() -> Iterator[Cluster]:
    """Five servers for a module; tests take them through `five`, which cleans them."""
    yield from cluster(5)


@pytest.fixture
def five(shared_five: Cluster) -> Cluster:
    """Five servers without a key; a test that breaks one takes `own_five`."""
    shared_five.clean()
    return shared_five


@pytest.fixture
def own_five() -> Iterator[Cluster]:
    """Five servers of the test's own."""
    yield from cluster(5)


@pytest.fixture
def own_three() -> Iterator[Cluster]:
    """Three servers of the test's own."""
    yield from cluster(3)
