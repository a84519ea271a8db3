"""Both APIs before groups of real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.rig import APIS, Api
from tests.support.servers import available


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
