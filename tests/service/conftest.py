"""A service on a real server, once for a module, and instances of a test's own."""

from collections.abc import Callable, Iterator

import pytest

from pawl.testing.servers import Server
from tests.service.rig import Instance, Tokens


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


@pytest.fixture
def service(serve: Callable[..., Instance]) -> Instance:
    return serve()
