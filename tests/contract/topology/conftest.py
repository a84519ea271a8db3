"""Both APIs before groups of real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.rig import APIS, Api
from tests.support.one_api import in_one_api
from tests.support.servers import available


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each case in one API; in both in the full run."""
    in_one_api(items, Path(__file__).parent)


@pytest.fixture(scope="module", autouse=True)
def servers_are_there() -> None:
    """A Valkey that can be Sentinel and cluster node."""
    if reason := available("valkey"):
        pytest.skip(reason)


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Threads, then asyncio."""
    with Api(request.param) as api:
        yield api
