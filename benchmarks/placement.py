"""Gives client and server fixed CPUs, for `--pin` and for the scenarios of one CPU.

Left alone, the kernel puts them on one CPU now and on two then, and on a virtual machine that decides: waking a CPU
that was given back to the host costs more than everything that any library does. Fixed, everybody gets the same.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["anywhere", "clients", "pin", "possible", "server"]


def possible() -> bool:
    """Whether this system lets a process choose its CPUs."""
    return hasattr(os, "sched_getaffinity")


def anywhere() -> frozenset[int]:
    """Every CPU that there is for this process."""
    return frozenset(_all())


def server() -> frozenset[int]:
    """The server's CPU."""
    return frozenset({_all()[0]})


def clients(workers: int) -> frozenset[int]:
    """The CPUs of a participant.

    Args:
        workers: Its threads or tasks. A lone one never works at the same time as the server, nor as the other process
            of a hand-off: they share a CPU. Several work while the server does, on the CPUs that it leaves.
    """
    return server() if workers == 1 else frozenset(_all()[1:]) or server()


def pin(pid: int, cpus: frozenset[int]) -> None:
    """Keep a process, with all the threads that it has now, on some CPUs."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cpus)


def _all() -> list[int]:
    if not possible():
        raise SystemExit("--pin needs sched_setaffinity, which only Linux has")
    return sorted(os.sched_getaffinity(0))
