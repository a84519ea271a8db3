"""What a comparison is made of: participants, metrics and bars. Imports nothing of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Sample = dict[str, float]


@dataclass(frozen=True, slots=True)
class Participant:
    """One row of a comparison: a lock library in one way of using it.

    Args:
        key: Short name, unique in its scenario; the key of the samples in the JSON file.
        peer: Which adapter of `benchmarks.peers` drives it.
        options: Passed to the adapter, for example `{"handover": 0}`.
        tasks: Whether its workers are asyncio tasks; None: as the scenario says.
        src: A folder of sources that pawlock is imported from instead of the installed one: another revision.
    """

    key: str
    peer: str
    options: Mapping[str, float] = field(default_factory=dict[str, float])
    tasks: bool | None = None
    src: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that every round of a participant yields; the report prints its median and range."""

    key: str
    heading: str
    decimals: int = 1
    spread: bool = False
    """Whether the table also shows the lowest and the highest round."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise: the median of `subject`, or its ratio to that of `against`, must reach `must`.

    Args:
        metric: Key of the metric compared.
        subject: Key of the participant that makes the promise.
        must: The least acceptable value (the largest one when `better` is `"lower"`).
        against: Key of the participant compared with, `"P8:pawlock"` for one of another scenario; "": the plain value.
        better: Which direction is good.
    """

    metric: str
    subject: str
    must: float
    against: str = ""
    better: Literal["higher", "lower"] = "higher"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One comparison: who takes part, what each does, and what is promised.

    Args:
        name: What the command line calls it, for example `P1`.
        title: One line for the report.
        workload: The kind of round, a key of `benchmarks.rounds.KINDS`.
        participants: In the order of the table.
        metrics: Columns of the table.
        bars: Promises checked after the last round.
        workers: Threads or tasks of each process.
        processes: How many processes a participant has in a crowd.
        tasks: Whether the workers are asyncio tasks.
        slices: In every round the participants take turns this many times; short turns share the weather.
        seconds: Length of one turn.
        section_ms: Of a crowd: how long a worker stays inside.
        nodes: How many independent servers there are; the first is the one whose counters are read.
        hung: How many of the others are stopped once the participants are warm.
        pinned: Whether client and server keep to CPUs of their own; see `benchmarks.placement`.
        notes: Printed under the table.
    """

    name: str
    title: str
    workload: str
    participants: tuple[Participant, ...]
    metrics: tuple[Metric, ...]
    bars: tuple[Bar, ...] = ()
    workers: int = 1
    processes: int = 1
    tasks: bool = False
    slices: int = 1
    seconds: float = 1.0
    section_ms: float = 0.0
    nodes: int = 1
    hung: int = 0
    pinned: bool = False
    notes: tuple[str, ...] = ()


class ViolationError(Exception):
    """A lock did not lock: two holders overlapped, or a fence did not rise."""
