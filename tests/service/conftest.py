"""Applications of the service in this process; one instance as a process for all tests, and instances of a test's own."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.service.intruder import Intruder
from tests.service.rig import App, Instance, Loop, Tokens
from tests.support.servers import Server


@pytest.fixture
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.end()


@pytest.fixture
def app(server: Server, tokens: Tokens, loop: Loop) -> Iterator[Callable[[], App]]:
    """Makes an application on the test's server."""
    made: list[App] = []

    def make() -> App:
        made.append(App(loop, server.url, tokens))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def service(app: Callable[[], App]) -> App:
    """An application on a server that was emptied."""
    return app()


@pytest.fixture
def serve(server: Server, tokens: Tokens) -> Iterator[Callable[..., Instance]]:
    """Starts an instance on the test's server; ended with the test."""
    instances: list[Instance] = []

    def start(*options: str, port: int = 0, before: Sequence[str] = ()) -> Instance:
        instances.append(Instance(server.url, tokens, *options, port=port, before=before))
        return instances[-1]

    yield start
    for instance in instances:
        instance.end(9)


@pytest.fixture(scope="session")
def shared_instance(
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
def instance(request: pytest.FixtureRequest, server: Server) -> Instance:
    """An instance on a server that was emptied; one of the test's own where the test asks for `tokens`, too."""
    if "tokens" in request.fixturenames:
        start: Callable[..., Instance] = request.getfixturevalue("serve")
        return start()
    shared: Callable[[], Instance] = request.getfixturevalue("shared_instance")
    return shared()


@pytest.fixture
def attacked(app: Callable[[], App], tokens: Tokens, server: Server) -> Iterator[Callable[..., None]]:
    """Runs a fuzzer of who may end what: its seed and how many steps."""
    for name, roles in (("alice", ["acquire", "read"]), ("bob", ["acquire", "read"]), ("rita", ["read"])):
        tokens.add(name, roles=roles, namespaces=["pawlock", "shared"], rate=0)
    service, runs = app(), list[Intruder]()

    def attack(seed: int, steps: int) -> None:
        runs.append(Intruder(service, server.socket_path, seed))
        runs[-1].run(steps)

    yield attack
    for run in runs:
        run.close()
