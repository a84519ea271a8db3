"""What a scenario is made of: participants, metrics and bars. Imports nothing of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Sample = dict[str, float]


@dataclass(frozen=True, slots=True)
class Participant:
    """One column of a comparison: a lock library in one way of using it.

    Args:
        key: Short name, unique in its scenario; the key of the samples in the JSON file.
        peer: Which adapter of `benchmarks.peers` drives it.
        options: Passed to the adapter, for example `{"handover": 0}`.
    """

    key: str
    peer: str
    options: Mapping[str, float] = field(default_factory=dict[str, float])
    workload: str = ""
    """Overrides the workload of the scenario, where a peer has no asyncio API."""


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
        goal: What is hoped for. None where there is no second mark.
        against: Key of the participant compared with, `"P8:pawlock"` for one of another scenario; None compares the plain
            value.
        better: Which direction is good.
        binding: False prints the line for information; it never counts as short.
    """

    metric: str
    subject: str
    must: float
    goal: float | None = None
    against: str | None = None
    better: Literal["higher", "lower"] = "higher"
    binding: bool = True


@dataclass(frozen=True, slots=True)
class Scenario:
    """One comparison: who takes part, what each does, and what is promised.

    Args:
        name: What the command line calls it, for example `P1`.
        title: One line for the report.
        workload: The kind of work, a key of `benchmarks.workloads.WORKLOADS`, or `"turns"`.
        workers: Threads or tasks per participant.
        participants: In the order of the table.
        metrics: Columns of the table.
        bars: Promises checked after the last round.
        slices: In every round the participants take turns this many times; short turns share the weather.
        seconds: Length of one turn.
        notes: Printed under the table.
        nodes: How many independent servers there are; the first is the one whose counters are read.
        hung: How many of the others are stopped once the participants are warm.
        processes: Of a crowd: how many processes a participant has; each has `workers`.
        section_ms: Of a crowd: how long a worker stays inside.
        rounds: At most so many, whatever was asked for: where one round is long and its numbers are steady.
        x: What the plot's axis counts, for scenarios whose participants differ in `size`; `""`: bars, one of each.
        pinned: Whether client and server keep to CPUs of their own; see `benchmarks.placement`.
        rest: Seconds between the warm-up and the first turn, where single commands count: a client asks its server once
            what it is, a second after it first connected.
    """

    name: str
    title: str
    workload: str
    workers: int
    participants: tuple[Participant, ...]
    metrics: tuple[Metric, ...]
    bars: tuple[Bar, ...] = ()
    slices: int = 1
    seconds: float = 1.0
    notes: tuple[str, ...] = ()
    nodes: int = 1
    hung: int = 0
    processes: int = 1
    section_ms: float = 0.0
    rounds: int = 1000
    x: str = ""
    pinned: bool = False
    rest: float = 0.0


class ViolationError(Exception):
    """A lock did not lock: two holders overlapped, or a fence did not rise."""
