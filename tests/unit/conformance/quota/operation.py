"""How a quota is used: once for both APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.options import LockOptions, check_count
from pawlock.core.outcomes import Disagreed, Look
from pawlock.core.retry import query, rest
from pawlock.errors import AcquireTimeout
from pawlock.primitives.gate_wait import disagreement, unexpected
from tests.unit.conformance.quota import Quota, Spent, Taken

if TYPE_CHECKING:
    from pawlock.core.engine import Engine

_TAKE, _READ = "take of quota", "read quota"


async def take(engine: Engine, quota: Quota, options: LockOptions, n: int, timeout: float | None) -> int:
    """Take ``n`` parts as soon as a period has as many left; what is left of it then."""
    check_count(n, "n", 1, quota.limit)
    engine.check_open(quota.name)
    runtime = engine.runtime
    token, began = runtime.new_token(), runtime.now()
    while True:
        outcome, _ = await query(engine, quota.take(token, n), options, quota.name, _TAKE)
        if isinstance(outcome, Taken):
            return outcome.left
        if isinstance(outcome, Disagreed):
            raise disagreement("quota", quota.name, "limit", outcome.declared, quota.limit)
        if not isinstance(outcome, Spent):
            raise unexpected(outcome, _TAKE, quota.name)
        pause, waited = max(outcome.ends_ms, 1) / 1000, runtime.now() - began
        if timeout is not None and waited + pause > timeout:
            text = f"{_TAKE} {quota.name!r}: {outcome.left} left for another {pause:.3g} s"
            raise AcquireTimeout(text, name=quota.name, waited=waited)
        await rest(engine, pause, quota.name, _TAKE)


async def left(engine: Engine, quota: Quota, options: LockOptions) -> int:
    """What is left of the present period."""
    engine.check_open(quota.name)
    look: Look = (await query(engine, quota.inspect(0), options, quota.name, _READ))[0]
    return quota.limit - look.holds
