"""Judge what a lock did: record every call with the instants around it, then check the whole.

The checks know nothing of pawlock: any lock can be judged. They are pure: no clock, no file, no network.
"""

from __future__ import annotations

from tests.support.history.checks import (
    Rules,
    Violation,
    check,
    exclusion,
    fences,
    fifo,
    orphans,
    report,
    resource,
)
from tests.support.history.linearizable import TooManySteps, Verdict, linearizable
from tests.support.history.models import (
    FencedMutex,
    Model,
    ReadWrite,
    Semaphore,
    Step,
)
from tests.support.history.records import History, Journal, Mode, Operation, Outcome

__all__ = [
    "FencedMutex",
    "History",
    "Journal",
    "Mode",
    "Model",
    "Operation",
    "Outcome",
    "ReadWrite",
    "Rules",
    "Semaphore",
    "Step",
    "TooManySteps",
    "Verdict",
    "Violation",
    "check",
    "exclusion",
    "fences",
    "fifo",
    "linearizable",
    "orphans",
    "report",
    "resource",
]
