"""A deterministic simulator: pawlock's own protocol and scripts on virtual time, with every fault, decided by one seed."""

from __future__ import annotations

from pawlock.testing.sim.campaign import Finding, Report, simulate
from pawlock.testing.sim.drawing import draw
from pawlock.testing.sim.plan import Client, Fault, Operation, Plan
from pawlock.testing.sim.shrink import shrink
from pawlock.testing.sim.simulation import Result, run

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
