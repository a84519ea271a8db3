"""What happens in a run: clients, what they do and when what breaks. Plain data, smaller by parts.

A plan is kept and shrunk as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

__all__ = [
    "BY_MESSAGE",
    "CLIENT",
    "CLUSTER",
    "EVERYWHERE",
    "FAULTS",
    "MASTERS",
    "MEMORY",
    "MOVES",
    "NETWORK",
    "OPERATIONS",
    "TOPOLOGIES",
    "Client",
    "Fault",
    "Operation",
    "Plan",
    "Visitor",
]

NETWORK = (
    "loss", "reply_loss", "double", "late_copy", "message_loss", "cut_out", "cut_in", "half_open", "delay", "reset",
)  # fmt: skip
SERVER = (
    "stall", "crash_keep", "crash_tail", "crash_empty", "failover_synced", "failover_lagging", "clock_forward",
    "clock_back", "no_memory", "read_only", "loading", "no_scripts", "flush", "evict", "admin_delete",
)  # fmt: skip
CLIENT = ("pause", "suspend", "wall_jump", "kill", "cancel", "close")

CLUSTER = ("slot_move", "slot_half", "shard_failover", "cluster_down")

MASTERS = ("break", "slow", "new_threads", "rolling", "all_slow")
"""What several independent masters have beside: connections that break with the outcome unknown, a slow master, threads
that end, a restart of all masters, one after the other and without their data, and masters that all answer late from
one moment on."""

EVERYWHERE: tuple[str, ...] = (*NETWORK, *SERVER, *CLIENT)
"""Every kind of fault that any servers may have."""

FAULTS: tuple[str, ...] = (*EVERYWHERE, *CLUSTER, *MASTERS)
"""Every kind of fault."""

MOVES = frozenset({"slot_move", "slot_half"})
"""Those that carry keys from one server to another."""

MEMORY = frozenset(
    {
        "crash_tail", "crash_empty", "failover_synced", "failover_lagging", "clock_forward", "clock_back", "flush",
        "evict", "admin_delete",
    }
)  # fmt: skip
"""Those after which the server may know less, or another time, than its clients rely on."""

BY_MESSAGE = frozenset(
    {"loss", "reply_loss", "double", "late_copy", "message_loss", "cut_out", "cut_in", "half_open"}
)
"""Those that strike single messages: nothing is sent while a body runs."""

OPERATIONS = (
    "acquire", "try", "hold", "extend", "release", "inspect", "pass_on", "downgrade", "observe", "count",
    "wait", "reset", "maintenance",
)  # fmt: skip
"""What a fault may strike."""

TOPOLOGIES = ("single", "pair", "redlock3", "redlock5", "cluster")
"""What the servers may be to each other: one; a master with a replica; so many independent masters; a cluster."""


@dataclass(frozen=True)
class Operation:
    """One step of a worker: a section under a lock, or something else that can be done with a primitive.

    Attributes:
        lock: Which lock of the plan.
        how: ``acquire``, ``try`` or ``inspect``; ``begin`` or ``forget`` what is done once; ``observe`` an election;
            ``count`` down, ``wait`` at or ``reset`` a latch or barrier; ``force``: take a name from its holder, as an
            operator.
        timeout: Seconds to wait; None: no limit.
        hold: Seconds of the body.
        body: What the body does besides: ``extend:<ttl>``, ``again`` (re-entry), ``downgrade``, ``blind``
            (it does not look at the lease until its end), ``cross:<lock>:<seconds>`` (it takes another lock inside),
            ``nest:<lock>*<permits>,<lock>*<permits>:<seconds>`` (it takes others, each inside of the one before).
        end: ``release``, ``block`` (the end of a ``with``), ``drop`` (the lease is garbage), ``finish``, ``abandon`` or
            ``pass_on`` (detached, then adopted by whoever comes first).
        rest: Seconds before the next step.
        permits: How many permits it takes, or counts down by.
    """

    lock: int
    how: str
    timeout: float | None = None
    hold: float = 0.0
    body: tuple[str, ...] = ()
    end: str = "release"
    rest: float = 0.0
    permits: int = 1

    @property
    def weight(self) -> int:
        """How many operations it is: an acquisition has its release, and each thing done in between."""
        if self.how not in ("acquire", "try", "begin"):
            return 1
        return 2 + len(self.body) - ("blind" in self.body)


@dataclass(frozen=True)
class Client:
    """One process.

    Attributes:
        api: ``threads`` or ``tasks``.
        rate: Seconds of its clock per true second.
        deaf: Whether it may not subscribe.
        workers: What each of its threads or tasks does.
        loops: Whether each worker runs in an event loop of its own, with connections of its own.
        later: Seconds after which the last of its workers begins; its loop meets the servers only then.
    """

    api: str
    rate: float
    deaf: bool
    workers: tuple[tuple[Operation, ...], ...]
    loops: bool = False
    later: float = 0.0


@dataclass(frozen=True)
class Fault:
    """Something that breaks.

    Attributes:
        kind: One of ``FAULTS``.
        at: When, in true seconds.
        last: For how long.
        client: Which client it concerns; None: all, or the server.
        amount: How strong: a chance, seconds, or a number of waits.
        aim: An operation: it strikes just after the next one of that kind has begun; ``""``: at its time.
        node: Which server it concerns, where there are several.
    """

    kind: str
    at: float
    last: float = 0.0
    client: int | None = None
    amount: float = 0.0
    aim: str = ""
    node: int = 0


@dataclass(frozen=True)
class Visitor:
    """A program that is not pawlock, and wants a key of the plan.

    Attributes:
        key: The key.
        wire: How its holder is stored, as in ``pawlock.Key``.
        start: When it begins.
        period: Seconds between two tries.
        hold: Seconds of its section.
        rest: Seconds before it wants the key again.
        times: How often it takes it.
        ttl: The life of its key.
        dies: Whether it is killed in its last section, and leaves the key to its end.
    """

    key: str
    wire: str
    start: float
    period: float
    hold: float
    rest: float
    times: int
    ttl: float
    dies: bool = False


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        seed: Decides what the plan leaves open, such as the delay of each message.
        locks: Kind in the registry, name and options of each lock.
        clients: The processes.
        faults: What breaks.
        base: The usual delay of one way, in seconds.
        tail: The chance that a message takes about ten times as long, again and again.
        node_rate: Seconds of the server's clock per true second.
        moving_us: How far the server's clock may move within a script.
        primitive: What it is about, in one word.
        topology: One of ``TOPOLOGIES``.
        far: By how many seconds a message to each of several masters takes longer, one way.
        fresh: Whether masters that are young count when a client of several first sees them.
        node_timeout: Seconds that one of several masters may take; 0: as long as follows from their round trips.
        deadlock_after: Seconds after which a waiter looks for a cycle; 0: nobody does.
        visitors: Programs that are not pawlock.
    """

    seed: int
    locks: tuple[tuple[str, str, dict[str, Any]], ...]
    clients: tuple[Client, ...]
    faults: tuple[Fault, ...]
    base: float
    tail: float
    node_rate: float = 1.0
    moving_us: int = 0
    primitive: str = field(default="lock")
    topology: str = "single"
    far: tuple[float, ...] = ()
    fresh: bool = False
    node_timeout: float = 0.0
    deadlock_after: float = 0.0
    visitors: tuple[Visitor, ...] = ()

    def to_json(self) -> str:
        """The plan as text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Plan:
        """A plan from its text."""
        raw: dict[str, Any] = json.loads(text)
        clients = tuple(
            Client(
                one["api"], one["rate"], one["deaf"],
                tuple(tuple(_operation(step) for step in worker) for worker in one["workers"]),
                one.get("loops", False), one.get("later", 0.0),
            )
            for one in raw.pop("clients")
        )  # fmt: skip
        faults = tuple(Fault(**one) for one in raw.pop("faults"))
        locks = tuple((kind, name, options) for kind, name, options in raw.pop("locks"))
        far = tuple(raw.pop("far", ()))
        visitors = tuple(Visitor(**one) for one in raw.pop("visitors", ()))
        return Plan(clients=clients, faults=faults, locks=locks, far=far, visitors=visitors, **raw)

    def with_seed(self, seed: int) -> Plan:
        """The same plan, with other luck in what it leaves open."""
        return replace(self, seed=seed)

    @property
    def operations(self) -> int:
        """How many operations it has: each acquisition, extension, release and look counts."""
        return sum([step.weight for client in self.clients for worker in client.workers for step in worker])

    def longest_ttl(self) -> float:
        """The longest life that any lease asks for."""
        asked: list[float] = [options.get("ttl", 30.0) for _, _, options in self.locks]
        for client in self.clients:
            for worker in client.workers:
                for step in worker:
                    asked += [float(act[7:]) for act in step.body if act.startswith("extend:")]
        return max(asked)

    def smaller(self) -> Iterable[Plan]:
        """Plans with one part less, the largest parts first."""
        for index in range(len(self.faults)):
            yield replace(self, faults=_without(self.faults, index))
        for index in range(len(self.visitors)):
            yield replace(self, visitors=_without(self.visitors, index))
        for number, client in enumerate(self.clients):
            for index in range(len(client.workers)):
                yield self._with_workers(number, _without(client.workers, index))
        for parts in (_halves, _steps):
            for number, client in enumerate(self.clients):
                for index, worker in enumerate(client.workers):
                    for kept in parts(worker):
                        yield self._with_workers(number, _changed(client.workers, index, kept))

    def _with_workers(self, number: int, workers: tuple[tuple[Operation, ...], ...]) -> Plan:
        client = replace(self.clients[number], workers=workers)
        return replace(self, clients=_changed(self.clients, number, client))


def _operation(raw: dict[str, Any]) -> Operation:
    given: dict[str, Any] = {**raw, "body": tuple(raw["body"])}
    return Operation(**given)


def _halves(worker: tuple[Operation, ...]) -> Iterable[tuple[Operation, ...]]:
    half = len(worker) // 2
    return (worker[:half], worker[half:]) if half else ()


def _steps(worker: tuple[Operation, ...]) -> Iterable[tuple[Operation, ...]]:
    return (_without(worker, step) for step in range(len(worker)))


def _without(items: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return items[:index] + items[index + 1 :]


def _changed(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    return (*items[:index], item, *items[index + 1 :])
