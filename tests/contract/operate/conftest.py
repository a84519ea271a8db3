"""Clients that look for deadlocks soon; closed at the end, whatever the test did."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pawlock
from tests.contract.operate.rig import AFTER
from tests.support.one_api import in_one_api
from tests.support.servers import Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each case in one API; in both in the full run."""
    in_one_api(items, Path(__file__).parent)


@pytest.fixture
def clean(valkey: Server) -> Server:
    valkey.command("FLUSHALL")
    return valkey


@pytest.fixture
def client(clean: Server) -> Iterator[pawlock.Client]:
    with pawlock.connect(clean.url, deadlock_after=AFTER) as client:
        yield client


@pytest.fixture
def other(clean: Server) -> Iterator[pawlock.Client]:
    """Another client of the same server: for the server it is another process."""
    with pawlock.connect(clean.url, deadlock_after=AFTER) as client:
        yield client
