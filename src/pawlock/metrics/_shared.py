"""What both exporters share: the buckets, the label values, and the reading of the gauges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from pawlock._fallback import kept_by
from pawlock._inside import engines_of
from pawlock.core.runtime import FaultKind
from pawlock.model import LeaseState, LossReason
from pawlock.primitives.registry import REGISTRY

if TYPE_CHECKING:
    from pawlock.aio.client import AsyncClient
    from pawlock.core.engine import Engine
    from pawlock.core.records import Hold
    from pawlock.sync.client import Client

__all__ = [
    "ACQUISITIONS",
    "FAULTS",
    "HOLD_BUCKETS",
    "LOSSES",
    "POLICIES",
    "QUEUE_BUCKETS",
    "RELEASES",
    "REQUEST_BUCKETS",
    "WAIT_BUCKETS",
    "Snapshot",
    "kinds",
    "take_snapshot",
    "version",
]

WAIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
HOLD_BUCKETS = (*WAIT_BUCKETS, 300.0, 1800.0)
REQUEST_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
QUEUE_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 10000.0)

ACQUISITIONS = ("acquired", "busy", "timeout", "refused", "error", "closed", "cancelled")
RELEASES = ("released", "lost", "unknown", "background", "detached", "abandoned")
LOSSES: tuple[str, ...] = tuple(map(str, LossReason))
POLICIES = ("local", "open")
FAULTS: tuple[str, ...] = tuple(map(str, FaultKind))


def kinds() -> list[str]:
    """The kinds that leases have.

    A series that begins at its first event has no increase: what is counted starts at 0, before anything happened.
    """
    held = (one for one in REGISTRY.values() if one.record and (one.leases or one.exclusive))
    return [f"{one.listed_as}.{one.part}".rstrip(".") for one in held]


def version() -> str:
    """The version of pawlock: its package stands above this module, and is there by the time that anybody asks."""
    return str(import_module("pawlock").__version__)


@dataclass(slots=True)
class Snapshot:
    """The state of several clients.

    Attributes:
        held: Leases, by kind.
        waiting: Threads and tasks that wait, by kind.
        states: Clients (of asyncio: for each loop) by what they know of their server.
    """

    held: Counter[str] = field(default_factory=Counter[str])
    waiting: Counter[str] = field(default_factory=Counter[str])
    states: dict[str, int] = field(default_factory=lambda: {"up": 0, "suspect": 0, "down": 0})


def take_snapshot(clients: Iterable[Client | AsyncClient]) -> Snapshot:
    """The current state of the clients; sends nothing."""
    found = Snapshot()
    for client in clients:
        for engine in engines_of(client):
            if engine.closed:
                continue
            held = _held(engine)
            for hold in held:
                found.held[hold.primitive.kind] += 1
            for primitive, _, _ in tuple(engine.waits.values()):
                found.waiting[primitive.kind] += 1
            found.states[_state(engine, held)] += 1
    return found


def _held(engine: Engine) -> list[Hold]:
    return [*engine.schedule.all(), *kept_by(engine)]


def _state(engine: Engine, held: Iterable[Hold]) -> str:
    if engine.health.reported:
        return "down"
    silent = engine.reports.observer is not None and not engine.reports.observer.answering
    return "suspect" if silent or any(hold.state is LeaseState.SUSPECT for hold in held) else "up"
