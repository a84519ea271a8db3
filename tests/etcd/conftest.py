"""An API, an etcd that is shared and clean, or one of the test's own to break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.etcd.rig import Start
from tests.faults.rig import APIS, Api, Client
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import EtcdProxy
from tests.support.etcd_wire import EtcdWire
from tests.support.one_api import in_one_api


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each row in one API; in both in the full run."""
    in_one_api(items, Path(__file__).parent)


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with Api(request.param) as made:
        yield made


@pytest.fixture(scope="session")
def shared_etcd() -> Iterator[Etcd]:
    with Etcd() as started:
        yield started


@pytest.fixture
def etcd(shared_etcd: Etcd) -> Etcd:
    """One member without any key; a test that stops or reconfigures it takes `own`."""
    with shared_etcd.wire() as wire:
        wire.delete("")
    return shared_etcd


@pytest.fixture
def wire(etcd: Etcd) -> Iterator[EtcdWire]:
    with etcd.wire() as made:
        yield made


@pytest.fixture
def own() -> Iterator[Etcd]:
    """One member of the test's own, to be broken at will."""
    with Etcd() as started:
        yield started


@pytest.fixture
def three() -> Iterator[Etcd]:
    """A cluster of the test's own."""
    with Etcd(3) as started:
        yield started


@pytest.fixture
def proxy(etcd: Etcd) -> Iterator[EtcdProxy]:
    with EtcdProxy(etcd.members[0]) as started:
        yield started


@pytest.fixture
def client(api: Api, etcd: Etcd) -> Client:
    return api.connect(etcd.url)


@pytest.fixture
def rival(api: Api, etcd: Etcd) -> Client:
    return api.connect(etcd.url)


@pytest.fixture
def other() -> Iterator[Start]:
    """Starts another process that holds a lock; see `rig.Holder`."""
    with Start() as start:
        yield start
