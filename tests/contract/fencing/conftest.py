"""One database of each kind for all tests of the guards, started when a test first wants it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pawlock.fencing import Dialect
from tests.contract.fencing import databases

DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgresql", "mysql")
# What is not here makes no items: one test says so, not each.
HERE = [
    pytest.param(one, marks=[pytest.mark.slow] if one == "mysql" else [])
    for one in DIALECTS
    if one not in databases.missing()
]


@contextmanager
def sqlite(folder: Path) -> Iterator[Any]:
    with sqlite3.connect(folder / "db") as connection:
        yield connection
    connection.close()


@pytest.fixture(scope="session", params=HERE)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A dialect and a connection to a real database of it."""
    opened = {"sqlite": sqlite, "postgresql": databases.postgresql, "mysql": databases.mysql}[request.param]
    with opened(tmp_path_factory.mktemp(request.param)) as connection:
        yield request.param, connection
        connection.rollback()
