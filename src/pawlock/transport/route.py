"""Where requests go: here, to one server. A runtime of either API has a route, and a connection for each address.

That to the master that Sentinels name is in ``sentinel``, and that to the nodes of a cluster in ``routing``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import proxy

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import Acknowledged, Call, Fault
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint

__all__ = ["Nodes", "Route"]

_HERE: Address = ("", 0)


class Nodes(Protocol):
    """What a route asks of its runtime, whose connections these are."""

    on_move: Callable[[], object] | None
    """Called when what a master granted is to be confirmed by another."""

    def over(self) -> bool:
        """Whether the runtime has ended."""
        ...

    def run_in_owner(self, callback: Callable[[], object]) -> None:
        """See ``Runtime``."""
        ...

    def leave_others(self, shown: str) -> bool:
        """Close the connections that lead elsewhere than to this address; whether there were any."""
        ...

    async def find(self, find: Callable[[], Endpoint]) -> Endpoint:
        """Learn where to connect; starting the embedded server takes a moment."""
        ...

    async def ask_node(self, endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> object:
        """Connect to a node, ask it one thing and disconnect. Raises ``Fault``."""
        ...

    async def send_one(self, address: Address, call: Call, timeout: float) -> Outcome:
        """Run one script on one node. Raises ``Fault``."""
        ...

    async def send_groups(
        self, groups: dict[Address, list[Call]], timeout: float
    ) -> dict[Address, list[Outcome | Fault]]:
        """Run several scripts on each of several nodes, in one write a node."""
        ...

    async def send_replicated(
        self, address: Address, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """Run scripts on one node with ``WAIT`` behind them. Raises ``Fault``."""
        ...


class Route:
    """One server: every call goes there.

    Args:
        find: Called to learn where it is.

    Attributes:
        nodes: The runtime. Not the other way round: a client that is dropped must end at once.
        several: Whether it depends on the call where it goes.
    """

    nodes: Nodes
    several = False

    def __init__(self, find: Callable[[], Endpoint]) -> None:
        self._find = find

    def begin(self, nodes: Nodes) -> None:
        """Serve a runtime."""
        self.nodes = proxy(nodes)

    def close(self) -> None:
        """End; from anywhere, also from a finaliser."""

    def after_fork(self) -> None:
        """In the child: no thread of the parent is there."""

    async def locate(self, address: Address, timeout: float) -> Endpoint:
        """Where to connect now, looked up anew each time, for at most ``timeout`` seconds a node. Raises ``Fault``."""
        del address, timeout
        return await self.nodes.find(self._find)

    async def any_node(self, timeout: float) -> Address:
        """A node on which to listen: what a script publishes reaches all of them. Raises ``Fault``."""
        del timeout
        return _HERE

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Carrier``."""
        return await self.nodes.send_one(_HERE, call, timeout)

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Carrier``."""
        return (await self.nodes.send_groups({_HERE: list(calls)}, timeout))[_HERE]

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``."""
        return await self.nodes.send_replicated(_HERE, calls, replicas, timeout)

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """See ``Carrier``."""
        del timeout
        return [key_of(0)]
