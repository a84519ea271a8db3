"""Keeps every CPU awake at the lowest priority there is, for `--steady`.

On a virtual machine an idle CPU is given back to the host, and waking it again costs more than the round trip
that is measured, or nothing, depending on the neighbours. A process that only runs when nobody else wants to
takes this weather away. On machines whose CPUs are threads of one core it costs everybody some speed, alike.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator

_SPIN = """
import os, select
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while not select.select([0], [], [], 0)[0]:
    for _ in range(100_000):
        pass
"""


@contextlib.contextmanager
def awake() -> Generator[None]:
    """Run one spinner for each CPU; each ends when its standard input does, so none outlives this process."""
    if not hasattr(os, "SCHED_IDLE"):
        raise SystemExit("--steady needs SCHED_IDLE, which only Linux has")
    spinners = [
        subprocess.Popen([sys.executable, "-S", "-c", _SPIN], stdin=subprocess.PIPE)
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.communicate()
