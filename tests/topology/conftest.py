"""Both colours before groups of real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pawl.testing.servers import available
from tests.faults.rig import COLOURS, Colour


@pytest.fixture(scope="module", autouse=True)
def servers_are_there() -> None:
    """A Valkey that can be Sentinel and cluster node."""
    if reason := available("valkey"):
        pytest.skip(reason)


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """Threads, then asyncio."""
    with Colour(request.param) as colour:
        yield colour
