"""Both APIs at a server that a proxy may stand before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.rig import APIS, Api
from tests.support.one_api import in_one_api
from tests.support.proxy import Proxy
from tests.support.published import teach
from tests.support.servers import Server

TOLD_APART = (
    "barrier/arrive",
    "barrier/leave",
    "latch/count_down",
    "latch/reset",
    "latch/wait",
    "once/begin",
    "once/finish",
    "once/renew",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each case in one API; in both in the full run."""
    in_one_api(items, Path(__file__).parent)


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with Api(request.param) as made:
        yield made


@pytest.fixture
def clean(valkey: Server) -> Server:
    """A Valkey server without keys, which knows the scripts that proxies tell apart."""
    valkey.command("FLUSHALL")
    teach(valkey, *TOLD_APART)
    return valkey


@pytest.fixture
def proxy(clean: Server) -> Iterator[Proxy]:
    with Proxy(clean) as made:
        yield made
