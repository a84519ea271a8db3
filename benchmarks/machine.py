"""Where a run took place. Numbers without this are worth little."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers import PEERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.model import Scenario


def facts(scenarios: Iterable[Scenario]) -> dict[str, Any]:
    """Return the machine, the interpreter, the versions of all that take part and the revision measured."""
    versions: dict[str, str] = {}
    for name in {participant.peer for scenario in scenarios for participant in scenario.participants}:
        if PEERS[name].missing() is None:
            versions |= PEERS[name].versions()
    return {
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": list(os.getloadavg()),
        "versions": dict(sorted(versions.items())),
        "revision": _revision(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _revision() -> str | None:
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
