"""Two clients of either colour behind one blocking face, on a clean server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pawl.testing.servers import Server
from tests.faults.rig import COLOURS, Client, Colour


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    with Colour(request.param) as made:
        yield made


@pytest.fixture
def pair(colour: Colour, valkey: Server) -> list[Client]:
    valkey.command("FLUSHALL")
    return [colour.connect(valkey.url) for _ in range(2)]
