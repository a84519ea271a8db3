"""The third runtime before a cluster: pawlock's own routing, with the simulator's nodes at the other end.

``tasks`` share a connection to each node, ``threads`` do not. Whoever waits listens on one of its connections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pawlock.core.faults import or_raise
from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.routing import Asking, Router
from tests.simulator.network import Link, Network
from tests.simulator.runtime import SimRuntime
from tests.simulator.waits import Group
from tests.simulator.world import Process, Task, suspend

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.cluster import Cluster, ClusterNode
    from tests.simulator.fleet import Fleet

__all__ = ["RoutedSimRuntime"]

_PATIENCE = 0.25


class RoutedSimRuntime(SimRuntime):
    """See ``pawlock.core.runtime.Runtime``.

    Args:
        process: Where it runs.
        network: What its connections run through.
        fleet: The servers.
        cluster: The same, as a cluster.
        api: ``"threads"`` or ``"tasks"``.
        deaf: True for a user that may not subscribe.
    """

    def __init__(
        self,
        process: Process,
        network: Network,
        fleet: Fleet,
        cluster: Cluster,
        api: str,
        *,
        deaf: bool = False,
    ) -> None:
        super().__init__(process, network, fleet, api, deaf=deaf)
        self.cluster: Cluster = cluster
        # A replica where a master was is a failover, from the first contact on.
        self._served = True
        self._held: dict[tuple[Task | None, Address], Link] = {}
        self._opening: dict[Address, list[tuple[Task, int]]] = {}
        # Whose connections a part of a call uses.
        self._callers: WeakKeyDictionary[Task, Task] = WeakKeyDictionary()
        self._router = Router(cluster.target, self.now)
        self._router.begin(self)

    # Connections ------------------------------------------------------------------------------------------------

    def _owner(self) -> Task | None:
        me = self._me()
        return self._callers.get(me, me) if self._threads else None

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``: any connection serves to listen."""
        if self._link() is not None:
            return
        owner = self._owner()
        held = (link for (who, _), link in self._held.items() if who is owner and not link.dead)
        link = next(held, None) or await self.link_to(await self._router.any_node(timeout), timeout)
        if owner is not None:
            self._links[owner] = link
        elif self._mux is None:
            self._mux = link

    async def link_to(self, address: Address, timeout: float, patience: float | None = None) -> Link:
        """The caller's connection to a node, made if there is none. Raises ``Fault``.

        Args:
            address: The node.
            timeout: Seconds for the attempt.
            patience: Seconds for which to wait for an attempt that others share; None: for as long as it takes.
        """
        link = self._held.get((self._owner(), address))
        if link is not None and not link.dead:
            return link
        if self.ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        timeout = max(timeout, _PATIENCE)
        if self._threads:
            return await self._hold(self._owner(), address, timeout)
        # Tasks share one attempt; one that is cancelled does not end it for the others.
        task = self._me()
        waiting = self._opening.get(address)
        if waiting is None:
            waiting = self._opening[address] = []
            Task(self._process, "connect", self._hold_for_all(address, timeout * 2), _ended)
        waiting.append((task, task.step))
        if patience is not None:
            task.over_in(patience)
        outcome = await suspend()
        if isinstance(outcome, Fault):
            raise Fault(outcome.kind, outcome.text, final=outcome.final)
        link = self._held.get((None, address))
        if link is None or link.dead:
            raise Fault(FaultKind.UNREACHABLE, "the connection is gone")
        return link

    async def _hold_for_all(self, address: Address, timeout: float) -> None:
        outcome: Fault | None = None
        try:
            await self._hold(None, address, timeout)
        except Fault as fault:
            outcome = fault
        for task, step in self._opening.pop(address, ()):
            task.wake(step, outcome)

    async def _hold(self, owner: Task | None, address: Address, timeout: float) -> Link:
        link = self._held[owner, address] = await self._linked(self.cluster.by_address[address], timeout)
        return link

    def _gone(self, link: Link) -> None:
        for key in [key for key, held in self._held.items() if held is link]:
            del self._held[key]
        if self._threads or self._mux is link:
            super()._gone(link)

    # Calls ------------------------------------------------------------------------------------------------------

    @property
    def several(self) -> bool:
        """See ``Carrier``."""
        return True

    def _post(
        self,
        link: Link,
        call: Call,
        timeout: float,
        answered: Callable[[int, Any], object],
        index: int = 0,
        *,
        wait: float = 0.0,
        by_text: bool = False,
    ) -> None:
        by_text = by_text or isinstance(call, Asking)
        super()._post(link, call, timeout, answered, index, wait=wait, by_text=by_text)

    async def call(self, call: Call, timeout: float) -> Outcome:  # type: ignore[override]
        """See ``Runtime``."""
        return await self._router.call(call, timeout)

    async def send_one(self, address: Address, call: Call, timeout: float) -> Outcome:
        """Run one script on one node."""
        (answer,) = await self._ask_many(await self.link_to(address, timeout), [call], timeout)
        return or_raise(answer)

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        return [outcome for outcome, _ in await self._router.send_all(calls, 0, timeout)]

    async def send_groups(
        self, groups: Mapping[Address, Sequence[Call]], replicas: int, timeout: float
    ) -> dict[Address, list[Acknowledged]]:
        """Run several scripts on each of several nodes, at once."""
        me = self._me()
        together = Group(me, len(groups))
        for index, (address, calls) in enumerate(groups.items()):
            work = self._part(together, index, address, calls, replicas, timeout)
            part = Task(self._process, "part", work, _ended)
            part.doing, self._callers[part] = me.doing, me
        outcomes: list[list[Acknowledged]] = await suspend()
        return dict(zip(groups, outcomes, strict=True))

    async def _part(
        self,
        together: Group,
        index: int,
        address: Address,
        calls: Sequence[Call],
        replicas: int,
        timeout: float,
    ) -> None:
        together.put(index, await self._many(address, calls, replicas, timeout))

    async def _many(
        self, address: Address, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        try:
            if replicas:
                return await self._replicated(await self._idle_to(address, timeout), calls, timeout)
            link = await self.link_to(address, timeout, timeout)
        except Fault as fault:
            return [(fault.without_traceback(), 0)] * len(calls)
        return [(outcome, 0) for outcome in await self._ask_many(link, calls, timeout)]

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``."""
        return await self._router.send_all(calls, replicas, timeout)

    def over(self) -> bool:
        """See ``Nodes``."""
        return self.ending

    def leave_others(self, shown: str) -> bool:
        """See ``Nodes``: nobody asks that before a cluster."""
        raise AssertionError(shown)

    async def _idle_to(self, address: Address, timeout: float) -> Link:
        if self._threads:
            return await self.link_to(address, timeout)
        node = self.cluster.by_address[address]
        for link in self._idle_links:
            if link.node is node and not link.dead:
                self._idle_links.remove(link)
                return link
        return await self._linked(node, max(timeout, _PATIENCE))

    async def ask_node(self, endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> Any:
        """Ask a node one thing on a connection of its own, as the map of slots is asked for."""
        if words != ("CLUSTER", "SLOTS"):
            raise AssertionError(words)
        network, name = self._network, self._process.name
        task = self._me()
        item = self.cluster.by_address[endpoint.settings["host"], endpoint.settings["port"]], task, task.step
        if not (network.struck("cut_out", name, "connect") or network.struck("loss", name, "connect")):
            self._world.at(self._world.now + 3 * network.delay(), self._asked, item)
        task.over_in(timeout)
        outcome = await suspend()
        if outcome is None:
            raise Fault(FaultKind.UNREACHABLE, f"{endpoint.shown}: timed out")
        if isinstance(outcome, Fault):
            raise outcome
        return outcome

    def _asked(self, item: tuple[ClusterNode, Task, int]) -> None:
        node, task, step = item
        world, network = self._world, self._network
        if node.stalled_until > world.now:
            world.at(node.stalled_until, self._asked, item)
            return
        if network.struck("cut_in", self._process.name, "connect"):
            return
        outcome: Any = self.cluster.slots(node)
        if not node.up:
            outcome = Fault(FaultKind.UNREACHABLE, "connection refused")
        self._process.deliver(world.now + network.delay(), lambda _: task.wake(step, outcome), None)

    # The end ----------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """See ``SimRuntime``."""
        super().shut_down()
        for link in list(self._held.values()):
            link.close(Fault(FaultKind.CLOSED, "the client is closed", final=True))


def _ended(task: Task, error: BaseException | None) -> None:
    if error is not None:
        raise AssertionError(f"{task.name} ended") from error
