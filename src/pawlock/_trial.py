"""What ``check()`` and ``ping()`` try themselves: a lock, taken and given back; one question."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pawlock.core import acquire
from pawlock.core.inspect import inspect
from pawlock.core.lease import release_or_raise
from pawlock.errors import AcquireTimeout, BackendDenied, PawlockError
from pawlock.model import Finding, ServerReport, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan

__all__ = ["ping", "with_trial"]

_FOR_OTHERS = 2.0
_RULES = "give this user the rules that `pawlock doctor --acl` prints for the namespace: its helper keys begin with {"


async def ping(engine: Engine, plan: Plan) -> float:
    """How many seconds one question about a name takes."""
    began = engine.runtime.now()
    await inspect(engine, plan.primitive, plan.options, 0)
    return engine.runtime.now() - began


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
        # Others may try it at the same time, and need moments for it.
        lease = await acquire.acquire(engine, plan, _FOR_OTHERS)
        await release_or_raise(engine, lease)
    except AcquireTimeout as error:
        fix = f"`pawlock show {name}` tells who has it; nobody holds it for longer than moments"
        return Finding("lock", Severity.WARNING, f"no lock could be tried: {error}", "availability", fix)
    except PawlockError as error:
        denied = isinstance(error, BackendDenied)
        fix = _RULES if denied else "look the code up under Troubleshooting in the documentation"
        return Finding("lock", Severity.ERROR, str(error), "availability", fix)
    return Finding("lock", Severity.OK, f"{name!r} was acquired and released")
