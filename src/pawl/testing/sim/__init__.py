"""A deterministic simulator: pawl's own protocol and scripts on virtual time, with every fault, decided by one seed."""

from __future__ import annotations

from pawl.testing.sim.campaign import Finding, Report, simulate
from pawl.testing.sim.drawing import draw
from pawl.testing.sim.plan import Client, Fault, Operation, Plan
from pawl.testing.sim.shrink import shrink
from pawl.testing.sim.simulation import Result, run

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
