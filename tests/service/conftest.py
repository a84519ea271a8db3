"""A service on a real server, once for a module, and instances of a test's own."""

from collections.abc import Callable, Iterator

import pytest

from tests.service.rig import Instance, Tokens
from tests.support.servers import Server


@pytest.fixture
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(tmp_path_factory.mktemp("tokens"))


@pytest.fixture
def serve(server: Server, tokens: Tokens) -> Iterator[Callable[..., Instance]]:
    """Starts an instance on the test's server; ended with the test."""
    instances: list[Instance] = []

    def start(*options: str, port: int = 0) -> Instance:
        instances.append(Instance(server.url, tokens, *options, port=port))
        return instances[-1]

    yield start
    for instance in instances:
        instance.end(9)


@pytest.fixture(scope="session")
def shared_service(
    shared_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Instance]]:
    """Gives one instance for all tests that neither end it nor say what its tokens are: to start one takes long."""
    instances: list[Instance] = []

    def alive() -> Instance:
        if not instances or instances[-1].process.poll() is not None:
            instances.append(Instance(shared_server.url, Tokens(tmp_path_factory.mktemp("shared"))))
        return instances[-1]

    yield alive
    for instance in instances:
        instance.end(9)


@pytest.fixture
def service(request: pytest.FixtureRequest, server: Server) -> Instance:
    """An instance on a server that was emptied; one of the test's own where the test asks for `tokens`, too."""
    if "tokens" in request.fixturenames:
        start: Callable[..., Instance] = request.getfixturevalue("serve")
        return start()
    shared: Callable[[], Instance] = request.getfixturevalue("shared_service")
    return shared()
