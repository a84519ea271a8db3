"""Two clients of either API behind one blocking face, on a clean server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.rig import APIS, Api, Client
from tests.support.one_api import in_one_api
from tests.support.servers import Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each case in one API; in both in the full run."""
    in_one_api(items, Path(__file__).parent)


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with Api(request.param) as made:
        yield made


@pytest.fixture
def pair(api: Api, valkey: Server) -> list[Client]:
    valkey.command("FLUSHALL")
    return [api.connect(valkey.url) for _ in range(2)]
