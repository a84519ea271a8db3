"""An acquisition of asyncio before it is awaited. Threads need nothing like it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from pawlock import _fallback
from pawlock._block import Block, begun
from pawlock._inside import engine_here
from pawlock.aio.block import Ended, OwnBlock, enter_block
from pawlock.core.lease.record import HeldLease
from pawlock.core.protocol.runtime import StopSignal
from pawlock.core.state.plan import Plan

__all__ = ["Acquiring", "acquired"]

L = TypeVar("L")
L_co = TypeVar("L_co", bound=OwnBlock, covariant=True)


class Acquiring(Ended, Coroutine[Any, Any, L_co]):
    """An acquisition that is awaited for its lease, entered with ``async with``, or turned into a task."""

    __slots__ = ("_lease", "_operation")

    def __init__(self, operation: Coroutine[Any, Any, L_co]) -> None:
        self._operation = operation
        self._lease: L_co | None = None

    def __await__(self) -> Generator[Any, Any, L_co]:
        return self._operation.__await__()

    def send(self, value: Any, /) -> Any:
        """Go on; for the event loop."""
        return self._operation.send(value)

    def throw(self, *args: Any) -> Any:
        """Go on with an error; for the event loop."""
        return self._operation.throw(*args)

    def close(self) -> None:
        """End without a result; for the event loop."""
        self._operation.close()

    async def __aenter__(self) -> L_co:
        block = begun(self)
        lease = self._lease = await self
        enter_block(lease._record, block)  # noqa: SLF001 - for either kind of lease
        return lease

    async def _leave(self, block: Block | None, error: BaseException | None) -> None:
        if self._lease is not None:
            await self._lease._leave(block, error)  # noqa: SLF001 - its block is this one's


async def acquired(
    client: object, plan: Plan, wait: float | None, stop: StopSignal | None, *, give: Callable[[HeldLease], L]
) -> L:
    """Acquire it for the caller, with its client, which nothing else may refer to; see ``core.acquire``."""
    return await _fallback.acquire(engine_here(client), plan, wait, stop, give=give)
