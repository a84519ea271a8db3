"""How much longer things may take now than on a quiet machine: bounds on the wall clock are multiplied by it.

A bound says that something came about at once and not at the next look, a third of a ticket later. On a machine that is
busy with other work the steps themselves take that long. A quiet machine is held to the bound as it is written.
"""

from __future__ import annotations

import os

__all__ = ["pace"]

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pace() -> float:
    """How many programs want each core: the average of a minute, or the number at this moment if that is larger.

    Returns:
        1 for a machine that has a core for each of them.
    """
    wanted = os.getloadavg()[0]
    try:
        with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123 - called in the loops of tests
            wanted = max(wanted, float(file.read().split()[3].partition("/")[0]))
    except OSError:
        pass
    return max(1.0, wanted / _CORES)
