"""Each case in one API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.one_api import in_one_api
from tests.unit.scripted import Rig


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each case in one API; in both in the full run."""
    in_one_api(items, Path(__file__).parent)


@pytest.fixture(autouse=True)
def rigs() -> Iterator[None]:
    """Closes the scripted engines of a test at its end."""
    yield
    Rig.close_all()
