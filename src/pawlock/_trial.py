"""What ``check()`` tries itself: a lock, taken and given back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pawlock.core import acquire
from pawlock.core.lease import release_or_raise
from pawlock.errors import PawlockError
from pawlock.model import Finding, ServerReport, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan

__all__ = ["with_trial"]


async def with_trial(engine: Engine, plan: Plan, reports: Sequence[ServerReport]) -> list[ServerReport]:
    """The reports with what a trial of a lock found; without an error in them already, which explains more.

    Raises:
        ClientClosed: The client was closed.
    """
    if any(report.worst is Severity.ERROR for report in reports):
        return list(reports)
    *others, last = reports
    return [*others, replace(last, findings=(*last.findings, await _try(engine, plan)))]


async def _try(engine: Engine, plan: Plan) -> Finding:
    name = plan.primitive.name
    engine.check_open(name)
    try:
        lease = await acquire.acquire(engine, plan, 0, or_none=True)
        if lease is None:
            return Finding("lock", Severity.OK, f"{name!r} is being tried by another client")
        await release_or_raise(engine, lease)
    except PawlockError as error:
        fix = "see the error in how-to/troubleshooting.md"
        return Finding("lock", Severity.ERROR, str(error), "explicit failure", fix)
    return Finding("lock", Severity.OK, f"{name!r} was acquired and released")
