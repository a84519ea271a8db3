"""An API, a server of the test's own, and a proxy before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.rig import APIS, Api, Client, teach
from tests.support.one_api import in_one_api
from tests.support.proxy import Proxy
from tests.support.servers import FLAVOURS, Server, available


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each row in one API; in both in the full run."""
    in_one_api(items, Path(__file__).parent)


def start(flavour: str, *args: str, persist: bool = False) -> Server:
    found = next(f for f in FLAVOURS if f == flavour)
    if reason := available(found):
        pytest.skip(reason)
    # Redis before 7 does not know the switch; where DEBUG is needed the tests take Valkey.
    debug = ["--enable-debug-command", "local"] if flavour == "valkey" else []
    server = Server(found, persist=persist, args=[*debug, *args]).start()
    teach(server)
    return server


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with Api(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def module_server() -> Iterator[Server]:
    with start("valkey") as server:
        yield server


@pytest.fixture
def server(module_server: Server) -> Server:
    """A Valkey server, empty; a test that stops or reconfigures it takes `broken`."""
    module_server.command("FLUSHALL")
    teach(module_server)
    return module_server


@pytest.fixture(params=FLAVOURS)
def broken(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own, of each flavour: error texts differ."""
    with start(request.param) as server:
        yield server


@pytest.fixture
def lasting() -> Iterator[Server]:
    """A server of the test's own that keeps its data over a restart."""
    with start("valkey", persist=True) as server:
        yield server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server) as made:
        yield made


@pytest.fixture
def client(api: Api, proxy: Proxy) -> Client:
    """A client behind the proxy, connected."""
    return warm(api.connect(proxy.url))


@pytest.fixture
def rival(api: Api, server: Server) -> Client:
    """A client straight at the server."""
    return warm(api.connect(server.url))


def warm(client: Client) -> Client:
    client.inspect("warm")
    return client
