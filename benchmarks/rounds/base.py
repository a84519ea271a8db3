"""One participant during one round: its process, its turns, and what they add up to."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks import placement
from benchmarks.model import Participant, Sample, Scenario
from benchmarks.peers import PEERS
from benchmarks.process import Program
from benchmarks.server import Server
from benchmarks.worker import Job
from tests.support.proxy import Proxy

START = 90.0  # s for a process to import its libraries and connect
PATIENCE = 30.0  # s on top of the time that a command takes by design
PINGS = 9


@dataclass(frozen=True, slots=True)
class RoundContext:
    """Where a round takes place: the servers, the scenario, and what is to be closed when it ends."""

    server: Server
    others: Sequence[Server]
    scenario: Scenario
    stack: ExitStack


class Round(ABC):
    """One participant during one round."""

    def __init__(self, context: RoundContext, participant: Participant) -> None:
        scenario = context.scenario
        self.key = participant.key
        self._proxy: Proxy | None = None
        self._context = context
        self._server = context.server
        self._scenario = scenario
        self._peer = PEERS[participant.peer]
        self._workers = int(participant.options.get("workers", scenario.workers))
        self._processes = int(participant.options.get("processes", scenario.processes))
        crowd = self._workers * self._processes
        self._cpus = placement.clients(crowd) if scenario.pinned else None
        self._job = Job(
            peer=participant.peer,
            workload=participant.workload or scenario.workload,
            url=self._address(participant),
            name=f"bench-{scenario.name.lower()}-{participant.key}",
            workers=self._workers,
            options=dict(participant.options),
        )

    def _address(self, participant: Participant) -> str:
        context = self._context
        nodes = context.scenario.nodes
        if nodes > 1:
            hosts = (f"127.0.0.1:{node.port}" for node in (context.server, *context.others[: nodes - 1]))
            return "redlock://" + ",".join(hosts)
        delay = participant.options.get("delay_ms", 0.0) / 1000
        if not delay:
            return context.server.url
        proxy = context.stack.enter_context(Proxy(context.server))
        proxy.delay(requests=delay / 2, replies=delay / 2)
        self._proxy = proxy
        return proxy.url

    def _start(self, number: int = 1) -> Program:
        program = Program(self._job, self._cpus, self._peer.program, number)
        return self._context.stack.enter_context(program)

    @abstractmethod
    def warm_up(self) -> None:
        """Do some of the work uncounted."""

    @abstractmethod
    def play(self) -> None:
        """Take one turn."""

    @abstractmethod
    def sample(self) -> Sample:
        """Return what the turns of this round add up to."""


def trips(proxy: Proxy) -> list[float]:
    """Seconds that the smallest command takes through a proxy, some times."""
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", proxy.port)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(PINGS):
            begin = time.monotonic()
            plain.sendall(b"PING\r\n")
            plain.recv(64)
            took.append(time.monotonic() - begin)
    return took
