"""pawlock's own routing of calls in a cluster, on virtual time: slots move and shards fail over while names are locked.

The nodes are those of the simulator, with the rules of a cluster's node in front: MOVED, ASK, TRYAGAIN, CLUSTERDOWN.
What is run is ``pawlock.transport.routing`` and the scripts; the rest of a client is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import pytest

from pawlock.core.faults import classify
from pawlock.core.outcomes import Absent, Granted, KindOfKey, Outcome, Released
from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.probe import kind_of
from pawlock.topology.cluster import Address, Range, SlotMap, first_key, slot_of
from pawlock.topology.endpoint import ClusterNodes, Endpoint
from pawlock.topology.url import parse_url
from pawlock.transport.routing import Asking, Router
from tests.simulator.node import Node
from tests.simulator.waits import Sleep
from tests.simulator.world import Clock, Process, Task, Violation, World

NAMES = ("a", "b", "c", "d")
ADDRESSES: tuple[Address, ...] = tuple((f"n{number}", 6379) for number in (1, 2, 3))
SPARE: Address = ("n4", 6379)
PATIENCE = 30.0
SEEDS = 12


class Cluster:
    """Three masters, and one that stands by."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.process = Process(self.world, "c", Clock(self.world, 1.0, 1000.0))
        self.nodes: dict[Address, Node] = {
            address: Node(self.world, address[0]) for address in (*ADDRESSES, SPARE)
        }
        self.owners: dict[int, Address] = {
            slot: ADDRESSES[number % 3] for number, slot in enumerate(sorted(map(_slot, NAMES)))
        }
        self.known: dict[Address, dict[int, Address]] = {address: dict(self.owners) for address in self.nodes}
        self.moving: dict[int, tuple[Address, Address]] = {}
        self.unserved: set[int] = set()
        self.met: Counter[str] = Counter()
        self.holders: dict[str, str] = {}
        self.fences: Counter[str] = Counter()
        self.working = 0

    def start(self, name: str, operation: Coroutine[Any, Any, None]) -> None:
        self.working += 1
        Task(self.process, name, operation, self._ended)

    def _ended(self, task: Task, error: BaseException | None) -> None:
        if error is not None:
            raise Violation(f"{task.name}: {error!r}") from error
        self.working -= 1
        self.world.done = not self.working

    async def pause(self, seconds: float) -> None:
        await Sleep(self.process).park(seconds)

    async def rest(self, most: float) -> None:
        await self.pause(self.world.random.random() * most)

    # Nodes ------------------------------------------------------------------------------------------------------

    def refusal(self, address: Address, call: Call) -> str:
        """What a node of a cluster says instead of running a script; ``""``: it runs it."""
        store, slot = self.nodes[address].store, slot_of(first_key(call.body))
        keys = call.body.split(b"\r\n")[1::2][: call.script.numkeys]
        store.begin(self.nodes[address].us_at(self.world.now))
        here = [key in store.data and store.expires.get(key, store.now_ms) >= store.now_ms for key in keys]
        source, target = self.moving.get(slot, (None, None))
        if slot in self.unserved:
            return "CLUSTERDOWN Hash slot not served"
        if source == address and target is not None and not all(here):
            return (
                "TRYAGAIN Multiple keys request during rehashing of slot"
                if any(here)
                else _to("ASK", slot, target)
            )
        if target == address and isinstance(call, Asking):
            if not all(here) and len(keys) > 1:
                return "TRYAGAIN Multiple keys request during rehashing of slot"
            self.met["let in"] += 1
            return ""
        return "" if self.owners[slot] == address else _to("MOVED", slot, self.owners[slot])

    async def serve(self, address: Address, call: Call, timeout: float) -> Outcome:
        """A request to a node and its answer, either of which may be lost."""
        random = self.world.random.random
        await self.rest(0.002)
        if random() < 0.02:
            await self.pause(timeout)
            raise Fault(FaultKind.UNANSWERED, "lost", maybe_applied=True)
        refusal = self.refusal(address, call)
        if refusal:
            self.met[refusal.split(" ")[0]] += 1
            raise classify(refusal)
        reply = self.nodes[address].execute("c", call, 1, by_text=True)
        if random() < 0.02:
            await self.pause(timeout)
            raise Fault(FaultKind.UNANSWERED, "lost", maybe_applied=True)
        await self.rest(0.002)
        if isinstance(reply, str):
            raise classify(reply)
        return call.answer(reply)

    async def ask(self, endpoint: Endpoint, words: tuple[str, ...], _: float) -> Any:
        """``CLUSTER SLOTS``, by what that node knows, which may be old."""
        assert words == ("CLUSTER", "SLOTS")
        await self.rest(0.002)
        known = self.known[endpoint.settings["host"], endpoint.settings["port"]]
        return [[slot, slot, [host.encode(), port]] for slot, (host, port) in known.items()]

    # What happens to it -----------------------------------------------------------------------------------------

    async def move(self) -> None:
        """Move a slot to another master: it is on its way for a while, then its keys, then all hear of it."""
        random = self.world.random
        slot = random.choice(sorted(self.owners))
        source = self.owners[slot]
        target = random.choice([one for one in ADDRESSES if one != source])
        self.moving[slot] = source, target
        await self.rest(0.2)
        self._carry(slot, source, target)
        await self.rest(0.2)
        del self.moving[slot]
        await self._assign(slot, target)

    async def fail_over(self) -> None:
        """The node that stands by takes over the slots of a master, with all that it had."""
        slot = self.world.random.choice(sorted(self.owners))
        source = self.owners[slot]
        self.unserved.add(slot)
        await self.rest(0.4)
        self._carry(slot, source, SPARE if source != SPARE else ADDRESSES[0])
        self.unserved.discard(slot)
        await self._assign(slot, SPARE if source != SPARE else ADDRESSES[0])

    def _carry(self, slot: int, source: Address, target: Address) -> None:
        giver, taker = self.nodes[source].store, self.nodes[target].store
        for key in [key for key in giver.data if slot_of(key) == slot]:
            taker.put(key, giver.data[key], giver.expires.get(key))
            giver.drop(key)

    async def _assign(self, slot: int, master: Address) -> None:
        self.owners[slot] = master
        for known in self.known.values():
            known[slot] = master
            await self.rest(0.05)

    async def trouble(self) -> None:
        for _ in range(12):
            await self.rest(0.3)
            await (self.move() if self.world.random.random() < 0.7 else self.fail_over())


class SimRouter(Router):
    """pawlock's routing, with the simulator's nodes at the other end."""

    def __init__(self, cluster: Cluster) -> None:
        nodes = tuple(_endpoint(address) for address in ADDRESSES)
        super().__init__(ClusterNodes(nodes, "cluster"), cluster.process.clock.boot)
        self.nodes: Any = self
        self.cluster = cluster
        self.ask_node = cluster.ask
        self.on_move = None
        self.connect_timeout = None

    async def send_one(self, address: Address, call: Call, timeout: float) -> Outcome:
        return await self.cluster.serve(address, call, timeout)

    async def send_groups(
        self, groups: Mapping[Address, Sequence[Call]], _: int, timeout: float
    ) -> dict[Address, list[Acknowledged]]:
        return {
            address: [(await self._one(address, call, timeout), 0) for call in calls]
            for address, calls in groups.items()
        }

    async def _one(self, address: Address, call: Call, timeout: float) -> Outcome | Fault:
        try:
            return await self.cluster.serve(address, call, timeout)
        except Fault as fault:
            return fault


def _slot(name: str) -> int:
    return slot_of(f"{{sim:{name}}}".encode())


def _to(word: str, slot: int, address: Address) -> str:
    return f"{word} {slot} {address[0]}:{address[1]}"


def _endpoint(address: Address) -> Endpoint:
    found = parse_url(f"redis://{address[0]}:{address[1]}")
    assert isinstance(found, Endpoint)
    return found


async def _work(cluster: Cluster, router: SimRouter, who: str) -> None:
    """Take and give back names, each question asked again with its token until it is answered."""
    random = cluster.world.random
    for number in range(8):
        name, token = random.choice(NAMES), f"{number}@{who}"
        mutex = Mutex("lock", name, f"sim:{name}")
        take = mutex.acquire(token, 60_000, 3_000, wait=False, block=1, channel="-", max_queue=10)
        while not isinstance(granted := await _insist(cluster, partial(router.call, take)), Granted):
            await cluster.rest(0.1)
        assert name not in cluster.holders, f"{token} and {cluster.holders[name]} hold {name}"
        assert granted.fence > cluster.fences[name], "the fence did not rise"
        cluster.holders[name], cluster.fences[name] = token, granted.fence
        for _ in range(6):
            await cluster.rest(0.03)
            # Of a single key: the only kind of script that a node lets in while a slot is on its way to it.
            assert isinstance(
                await _insist(cluster, partial(router.call, kind_of(mutex.key.encode()))), KindOfKey
            )
        renewed = await _insist(cluster, partial(_many, router, mutex.renew(token, 60_000, 3_000, "-")))
        assert isinstance(renewed, Granted), f"{token} lost {name}: {renewed}"
        del cluster.holders[name]
        left = await _insist(cluster, partial(router.call, mutex.leave(token, 60_000, 0)))
        assert isinstance(left, (Released, Absent))


async def _many(router: SimRouter, call: Call, timeout: float) -> Outcome:
    ((outcome, _),) = await router.send_all([call], 0, timeout)
    if isinstance(outcome, Fault):
        raise outcome
    return outcome


class _Asks(Protocol):
    def __call__(self, *, timeout: float) -> Awaitable[Outcome]: ...


async def _insist(cluster: Cluster, ask: _Asks) -> Outcome:
    while True:
        try:
            return await ask(timeout=0.2)
        except Fault as fault:
            if fault.final:
                raise
            await cluster.rest(0.02)


def _run(seed: int) -> Cluster:
    cluster = Cluster(seed)
    for number in range(3):
        router = SimRouter(cluster)
        for worker in range(2):
            cluster.start(f"w{number}.{worker}", _work(cluster, router, f"c{number}/w{worker}"))
    cluster.start("trouble", cluster.trouble())
    if not cluster.world.run(PATIENCE, lambda: not cluster.working):
        raise Violation(f"{cluster.working} still wait after everything healed")
    return cluster


def _some(seeds: int, first: int = 0) -> Counter[str]:
    """Run seeds; what was met in all."""
    met: Counter[str] = Counter()
    for seed in range(first, first + seeds):
        cluster = _run(seed)
        assert not cluster.holders
        met += cluster.met
        for address, node in cluster.nodes.items():
            assert all(cluster.owners[slot_of(key)] == address for key in node.store.data)
    return met


def test_names_are_kept_while_slots_move_and_shards_fail_over() -> None:
    met = _some(SEEDS)
    assert all(met[word] > 5 for word in ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "let in")), met


@pytest.mark.slow
def test_names_are_kept_in_many_runs() -> None:
    assert _some(300, 1000)["let in"] > 60


def test_a_seed_decides_the_whole_run() -> None:
    assert _run(3).world.digest() == _run(3).world.digest() != _run(4).world.digest()


def test_a_router_that_follows_nowhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stays(_: Router, call: Call, asked: Address, __: Fault) -> tuple[Address, Call]:
        return asked, call

    def trusts(*_: object) -> None:
        """Whatever fails, the map is right."""

    monkeypatch.setattr(Router, "_follow", stays)
    monkeypatch.setattr(Router, "note_failure", trusts)
    with pytest.raises(Violation, match="still wait"):
        _some(SEEDS)


def test_a_node_that_serves_what_it_gave_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that goes on with a slot that has moved gives names twice."""
    refusal = Cluster.refusal

    def stale(self: Cluster, address: Address, call: Call) -> str:
        found = refusal(self, address, call)
        return "" if found.startswith("MOVED") else found

    monkeypatch.setattr(Cluster, "refusal", stale)
    with pytest.raises(Violation, match=r"hold|lost|fence"):
        _some(SEEDS)


# The router alone ----------------------------------------------------------------------------------------------------


class _Deaf(Router):
    """Before nodes that never answer, each of which is waited for as long as it is allowed to take."""

    def __init__(self, nodes: int) -> None:
        model = Endpoint("redis", "", {}, "cluster", fixed=False)
        target = ClusterNodes(tuple(model.at(f"n{number}", 6379) for number in range(nodes)), "sim")
        self.time = 1000.0
        self.connect_timeout: float | None = None
        self.asked: list[str] = []
        super().__init__(target, lambda: self.time)
        self.nodes: Any = self

    async def ask_node(self, endpoint: Endpoint, _: tuple[str, ...], timeout: float) -> Any:
        self.asked.append(endpoint.settings["host"])
        self.time += timeout
        raise Fault(FaultKind.UNREACHABLE, "timed out")


def _finish(operation: Any) -> None:
    with pytest.raises(StopIteration):
        operation.send(None)


def test_nodes_that_are_far_away_have_the_time_of_the_user() -> None:
    for given, taken in ((None, 0.5), (2.5, 2.5), (9.0, 3.0)):
        router = _Deaf(1)
        router.connect_timeout = given
        began = router.time
        with pytest.raises(Fault):
            router.refresh(3.0).send(None)
        assert router.time - began == pytest.approx(taken), given


def test_nodes_that_say_nothing_take_no_longer_than_who_asks_has() -> None:
    """All of them together: behind them a maintenance thread has the end of a lease to tell."""
    for timeout in (0.05, 0.1, 0.5):
        router = _Deaf(5)
        router.slots.load([Range(0, 16383, ("n0", 6379))], router.time)
        asked: set[str] = set()
        for _ in range(5):
            router.slots.stale, router.asked = True, []
            router.time += 1
            began = router.time
            _finish(router.refresh(timeout))
            assert router.time - began <= timeout + 1e-9, timeout
            asked.update(router.asked)
        assert len(asked) == 5, f"{timeout} s: each has its turn"


def test_a_map_replaces_what_was_assigned_meanwhile() -> None:
    slots, ranges = SlotMap(), [Range(0, 8000, ("a", 1)), Range(8001, 16383, ("b", 1))]
    assert not slots.load(ranges, 1.0)
    slots.assign(5, ("b", 1))
    assert (slots.stale, slots.owner(5)) == (True, ("b", 1))
    assert not slots.load(ranges, 3.0)
    assert (slots.stale, slots.loaded_at, slots.owner(5)) == (False, 3.0, ("a", 1))
    assert slots.load([Range(0, 16383, ("b", 1))], 4.0), "a master of before serves nothing any more"
