"""Whoever did not acquire it cannot end it, prolong it, or pass it on: at random, over everything that is served."""

from collections.abc import Callable, Iterator

import pytest

from tests.service.intruder import Intruder
from tests.service.rig import Instance, Tokens
from tests.support.servers import Server


@pytest.fixture
def attacked(
    serve: Callable[..., Instance], tokens: Tokens, server: Server
) -> Iterator[Callable[[int, int], None]]:
    limits = {"max_ttl": 600, "locks": 100_000, "sessions": 100_000, "rate": 0}
    for name, roles in (("alice", ["acquire", "read"]), ("bob", ["acquire", "read"]), ("rita", ["read"])):
        tokens.add(name, roles=roles, namespaces=["pawlock", "shared"], limits=limits)
    service, runs = serve(), list[Intruder]()

    def attack(seed: int, steps: int) -> None:
        runs.append(Intruder(service, server.socket_path, seed))
        runs[-1].run(steps)

    yield attack
    for run in runs:
        run.close()


def test_whoever_did_not_acquire_it_cannot_end_it(attacked: Callable[[int, int], None]) -> None:
    attacked(7, 600)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whoever_did_not_acquire_it_cannot_end_it_over_and_over(
    attacked: Callable[[int, int], None], seed: int
) -> None:
    attacked(1000 + seed, 1500)
