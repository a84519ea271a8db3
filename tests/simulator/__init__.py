"""A deterministic simulator: pawlock's own protocol and scripts on virtual time, with every fault, decided by one seed."""

from __future__ import annotations

from tests.simulator.campaign import Finding, Report, simulate
from tests.simulator.drawing import draw
from tests.simulator.plan import Client, Fault, Operation, Plan
from tests.simulator.shrink import shrink
from tests.simulator.simulation import Result, run

__all__ = [
    "Client",
    "Fault",
    "Finding",
    "Operation",
    "Plan",
    "Report",
    "Result",
    "draw",
    "run",
    "shrink",
    "simulate",
]
