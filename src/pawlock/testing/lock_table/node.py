"""The server: a lock table, asked one request after the other on a thread of its own."""

from __future__ import annotations

from typing import Any

from pawlock.core.protocol.runtime import Fault, FaultKind, Wakeup
from pawlock.errors import NotSupported
from pawlock.testing._clock import Clock
from pawlock.testing.in_process.node import Node, Outcome
from pawlock.testing.lock_table.clock import Moment
from pawlock.testing.lock_table.requests import Request
from pawlock.testing.lock_table.table import Table

__all__ = ["TableNode"]


class TableNode(Node):
    """See ``Node``.

    Args:
        clock: What its wall clock goes by.
        shown: Its address.
    """

    def __init__(self, clock: Clock, shown: str) -> None:
        super().__init__(clock, shown)
        self._table = Table()

    def _answer(self, request: Any, rid: int) -> Outcome:  # noqa: ARG002 - each request has its own way back
        try:
            answer, mail = self._table.serve(request, Moment(self._clock.server_us()))
        except NotSupported as error:
            return Fault(FaultKind.UNSUPPORTED, error.text, final=True)
        for channel, token, fence, expiry_ms, behind in mail:
            self._wake(channel, token, Wakeup(fence, expiry_ms, behind, not (fence or expiry_ms)))
        return answer

    def words(self, request: Any) -> tuple[str, ...]:
        """See ``Node``."""
        return (request.name, request.key) if isinstance(request, Request) else (type(request).__name__,)

    def _forget(self) -> None:
        self._table.forget()

    # For tests that look from outside ---------------------------------------------------------------------------

    def seen(self, part: str) -> dict[str, int]:
        """See ``Table.seen``."""
        return self._do(lambda: self._table.seen(part, Moment(self._clock.server_us())))

    def forget(self, part: str) -> None:
        """See ``Table.forget``."""
        self._do(lambda: self._table.forget(part))
