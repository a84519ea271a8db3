"""P8, P8h, P8w: a lock of five independent masters: its cost, with one of them hung, and between processes."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario
from benchmarks.scenarios.crowd import METRICS as CROWD

_METRICS = (
    Metric("pairs_per_s", "pairs/s", 0, spread=True),
    Metric("us_per_pair", "us/pair", 1),
    Metric("cpu_us_per_pair", "client CPU us", 1, spread=True),
    Metric("commands_per_grant", "commands to one", 2),
)
_TASKS = Participant("pawlock-asyncio", "pawlock-redlock", workload="pair-tasks")
_THREADS = Participant("pawlock", "pawlock-redlock")
_NODE = Participant("node-redlock", "node-redlock")
_POTTERY = Participant("pottery", "pottery")
_AIO = Participant("aioredlock", "aioredlock", workload="pair-tasks")
_NG = Participant("redlock-ng", "redlock-ng")
_REDSYNC = Participant("redsync-best", "redsync", {"best": 1})
_KINDS = ("pawlock", "pawlock-asyncio")
_SURVIVE = ("node-redlock", "redsync-best")
_NOTES = ("commands to one: the commands that one healthy master received per pair",)


def _bars() -> tuple[Bar, ...]:
    return tuple(
        Bar("us_per_pair", kind, 1.0, 0.7, against=against, better="lower")
        for kind in _KINDS
        for against in _SURVIVE
    ) + tuple(
        Bar("cpu_us_per_pair", kind, 1.0, 0.7, against="node-redlock", better="lower") for kind in _KINDS
    )


def _unmoved() -> tuple[Bar, ...]:
    """A hung node changes neither what the others are asked nor what a pair costs."""
    commands = (
        Bar("commands_per_grant", kind, 1.1, 1.0, against=f"P8:{kind}", better="lower") for kind in _KINDS
    )
    cpu = (Bar("cpu_us_per_pair", kind, 1.3, 1.0, against=f"P8:{kind}", better="lower") for kind in _KINDS)
    return (*commands, *cpu)


SCENARIOS = (
    Scenario(
        name="P8",
        title="Redlock, five masters, acquire + release of a free name",
        workload="pair-threads",
        workers=1,
        participants=(_THREADS, _TASKS, _NODE, _REDSYNC, _POTTERY, _NG, _AIO),
        metrics=_METRICS,
        bars=_bars(),
        slices=3,
        seconds=0.3,
        nodes=5,
        notes=_NOTES,
    ),
    Scenario(
        name="P8h",
        title="the same with one of the five hung (SIGSTOP)",
        workload="pair-threads",
        workers=1,
        # pottery and aioredlock wait for every node: they do not come to an end here.
        participants=(_THREADS, _TASKS, _NODE, _REDSYNC, _NG),
        metrics=_METRICS,
        bars=(*_bars(), *_unmoved()),
        slices=3,
        seconds=0.3,
        nodes=5,
        hung=1,
        notes=_NOTES,
    ),
    Scenario(
        name="P8w",
        title="Redlock, five masters, 4 processes on one name, inside for 5 ms",
        workload="crowd",
        workers=1,
        processes=4,
        section_ms=5.0,
        participants=(
            _THREADS,
            Participant("pawlock-asyncio", "pawlock-redlock", workload="crowd-tasks"),
            Participant("redsync", "redsync"),
            _REDSYNC,
        ),
        metrics=CROWD,
        bars=tuple(Bar("handoffs_per_s", kind, 5.0, None, against="redsync") for kind in _KINDS),
        seconds=2.0,
        nodes=5,
        notes=(
            "a hand-off is a grant to a different worker than the previous one; acquired/s counts every grant",
            "redsync asks again after 50 to 250 ms, with its best settings after 1 ms",
        ),
    ),
)
