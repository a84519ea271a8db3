"""A thread that asks several nodes at once: those that do not answer share one deadline, and take no time of the others."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest

from pawlock.core.outcomes import Granted
from pawlock.core.runtime import Acknowledged, Fault, FaultKind, run
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.route import Route
from tests.support.pace import pace
from tests.support.servers import Server
from tests.unit.test_trickle import CALL, Relay

TIMEOUT = 1.0
MANY = 8
"""Nodes that hang: one after the other they take eight times as long."""


class Everywhere(Route):
    """Each address is where a server is."""

    def __init__(self) -> None:
        super().__init__(lambda: self._at(("", 0)))

    async def locate(self, address: Address, timeout: float) -> Endpoint:
        """See ``Route``."""
        del timeout
        return self._at(address)

    @staticmethod
    def _at(address: Address) -> Endpoint:
        host, port = address
        return Endpoint("redis", f"redis://{host}:{port}", {"host": host, "port": port})


def ask(runtime: ThreadRuntime, ports: list[int], replicas: int) -> list[list[Acknowledged]]:
    """Ask all in one call, which must be over in time; their answers."""
    began = time.monotonic()
    groups = {("127.0.0.1", port): [CALL] for port in ports}
    found = run(runtime.send_groups(groups, replicas, TIMEOUT))
    assert time.monotonic() - began < pace() * 2 * TIMEOUT
    return [found[address] for address in groups]


def kinds(answers: list[list[Acknowledged]]) -> list[FaultKind | type]:
    """What each node said to the one call."""
    outcomes = [outcome for ((outcome, _),) in answers]
    return [outcome.kind if isinstance(outcome, Fault) else type(outcome) for outcome in outcomes]


@pytest.mark.parametrize("replicas", [0, 1])
def test_nodes_that_take_connections_and_say_nothing(own_server: Server, replicas: int) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(MANY)]
        runtime = ThreadRuntime(Everywhere(), "wake:")
        stack.callback(runtime.shut_down, 1.0)
        answers = ask(runtime, [*(one.getsockname()[1] for one in silent), own_server.port], replicas)
    assert kinds(answers) == [FaultKind.UNREACHABLE] * MANY + [Granted]


@pytest.mark.parametrize("replicas", [0, 1])
def test_nodes_whose_answers_come_byte_by_byte(own_server: Server, replicas: int) -> None:
    with ExitStack() as stack:
        relays = [stack.enter_context(Relay(own_server)) for _ in range(MANY)]
        runtime = ThreadRuntime(Everywhere(), "wake:")
        stack.callback(runtime.shut_down, 1.0)
        ports = [*(relay.port for relay in relays), own_server.port]
        assert kinds(ask(runtime, ports, 0)) == [Granted] * (MANY + 1)
        for relay in relays:
            relay.trickle(1)
        assert kinds(ask(runtime, ports, replicas)) == [FaultKind.UNANSWERED] * MANY + [Granted]
