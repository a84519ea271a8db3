"""Each case in one API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.one_api import in_one_api


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each case in one API; in both in the full run."""
    in_one_api(items, Path(__file__).parent)
