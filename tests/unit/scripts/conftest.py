"""The scripts on a server, on a clock that the test moves (`rig`) or on the server's own (`live`)."""

from collections.abc import Iterator

import pytest

from tests.support.servers import Server
from tests.unit.scripts.rig import Rig


@pytest.fixture
def rig(server: Server) -> Iterator[Rig]:
    found = Rig(server.socket_path)
    if not found.can_move_the_clock():
        found.close()
        pytest.skip("a clock that the test moves needs a server with PEXPIRETIME (Redis 7.0, Valkey)")
    yield found
    found.close()


@pytest.fixture
def live(server: Server) -> Iterator[Rig]:
    found = Rig(server.socket_path, own_clock=False)
    yield found
    found.close()


@pytest.fixture
def own(own_server: Server) -> Iterator[Rig]:
    """Like `live`, on a server that the test may break."""
    found = Rig(own_server.socket_path, own_clock=False)
    yield found
    found.close()
