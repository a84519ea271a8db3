"""Where requests go: here, to one server. A runtime of either API has a route, and a connection for each address.

That to the master that Sentinels name is in ``sentinel``, and that to the nodes of a cluster in ``routing``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from weakref import proxy

from pawlock.core.faults import or_raise
from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind
from pawlock.errors import ConfigurationError, PawlockError
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint

__all__ = ["Nodes", "Route"]

_HERE: Address = ("", 0)


class Nodes(Protocol):
    """What a route asks of its runtime, whose connections these are."""

    on_move: Callable[[], object] | None
    """Called when what a master granted is to be confirmed by another."""

    connect_timeout: float | None
    """The client's option, or None."""

    def over(self) -> bool:
        """Whether the runtime has ended."""
        ...

    def run_in_owner(self, callback: Callable[[], object]) -> None:
        """See ``Runtime``."""
        ...

    def leave_others(self, shown: str) -> bool:
        """Close the connections that lead elsewhere than to this address; whether there were any."""
        ...

    async def ask_node(self, endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> object:
        """Connect to a node, ask it one thing and disconnect. Raises ``Fault``."""
        ...

    async def send_one(self, address: Address, call: Call, timeout: float) -> Outcome:
        """Run one script on one node. Raises ``Fault``."""
        ...

    async def send_groups(
        self, groups: Mapping[Address, Sequence[Call]], replicas: int, timeout: float
    ) -> dict[Address, list[Acknowledged]]:
        """Run several scripts on each of several nodes, in one write a node, and ``WAIT`` for replicas if there are any."""
        ...


class Route:
    """One server: every call goes there.

    Args:
        find: Called to learn where it is; starting the embedded server takes a moment.

    Attributes:
        nodes: The runtime. Not the other way round: a client that is dropped must end at once.
        several: Whether it depends on the call where it goes.
    """

    nodes: Nodes
    several = False

    def __init__(self, find: Callable[[], Endpoint]) -> None:
        self.find = find

    def begin(self, nodes: Nodes) -> None:
        """Serve a runtime."""
        self.nodes = proxy(nodes)

    def after_fork(self) -> None:
        """In the child: no thread of the parent is there."""

    async def locate(self, address: Address, timeout: float) -> Endpoint:
        """Where to connect now, looked up anew each time, for at most ``timeout`` seconds a node. Raises ``Fault``."""
        del address, timeout
        try:
            return self.find()
        except PawlockError as error:
            final = isinstance(error, ConfigurationError)
            raise Fault(FaultKind.UNREACHABLE, error.text, final=final) from error

    async def any_node(self, timeout: float) -> Address:
        """A node on which to listen: what a script publishes reaches all of them. Raises ``Fault``."""
        del timeout
        return _HERE

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Carrier``."""
        return or_raise((await self.send_all([call], 0, timeout))[0][0])

    async def send_all(self, calls: Sequence[Call], replicas: int, timeout: float) -> list[Acknowledged]:
        """See ``Carrier.call_replicated``; without replicas ``call_many``."""
        return (await self.nodes.send_groups({_HERE: calls}, replicas, timeout))[_HERE]

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """See ``Carrier``."""
        del timeout
        return [key_of(0)]
