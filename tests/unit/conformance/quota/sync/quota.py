# Written by tools/make_sync.py from aio/quota.py: change that, and run it.
"""The quota of threads. A thin shell: what happens is decided in ``operation.py``."""

from __future__ import annotations

from pawlock._described import Described
from pawlock._inside import engine_of
from pawlock._unset import UNSET, Unset
from pawlock.core.options import Seconds
from pawlock.runtimes.threads import run
from tests.unit.conformance.quota import operation

__all__ = ["Quota"]


class Quota(Described):
    """So much in each period, for all clients together. Immutable, picklable, shared by any number of threads."""

    __slots__ = ()

    def take(self, n: int = 1, timeout: Seconds | Unset | None = UNSET) -> int:
        """Take ``n`` parts, and wait for the next period if fewer are left. Returns what is left then."""
        plan, most = self._asked(self._plan, timeout)
        return run(operation.take(engine_of(self._client), plan.primitive, plan.options, n, most))

    def left(self) -> int:
        """What is left of the present period."""
        return run(operation.left(engine_of(self._client), self._plan.primitive, self._plan.options))
