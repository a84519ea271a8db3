"""The quota of asyncio. A thin shell: what happens is decided in ``operation.py``."""

from __future__ import annotations

from pawlock._described import Described
from pawlock._inside import engine_here
from pawlock._unset import UNSET, Unset
from pawlock.core.options import Seconds
from tests.unit.conformance.quota import operation

__all__ = ["AsyncQuota"]


class AsyncQuota(Described):
    """So much in each period, for all clients together. Immutable, picklable, shared by any number of tasks."""

    __slots__ = ()

    async def take(self, n: int = 1, timeout: Seconds | Unset | None = UNSET) -> int:
        """Take ``n`` parts, and wait for the next period if fewer are left. Returns what is left then."""
        plan, most = self._asked(self._plan, timeout)
        return await operation.take(engine_here(self._client), plan.primitive, plan.options, n, most)

    async def left(self) -> int:
        """What is left of the present period."""
        return await operation.left(engine_here(self._client), self._plan.primitive, self._plan.options)
