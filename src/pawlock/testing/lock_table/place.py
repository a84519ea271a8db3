"""``LockTable``: a lock table at an address of this process, for the tests of code that locks."""

from __future__ import annotations

from pawlock.core.protocol.engine import ServerEngine
from pawlock.testing._clock import Clock, RealClock
from pawlock.testing.in_process.node import Node
from pawlock.testing.in_process.place import InProcess
from pawlock.testing.lock_table.backend import TableBackend
from pawlock.testing.lock_table.engine import LOCK_TABLE
from pawlock.testing.lock_table.node import TableNode

__all__ = ["LockTable"]


class LockTable(InProcess):
    """A lock server that is a plain Python object: no program, no socket, no Redis, nothing to install.

    ``pawlock.connect(table.url)`` and ``pawlock.connect_async(table.url)`` give the real clients, with ``lock``, ``rlock``,
    ``fair_lock``, ``semaphore`` and ``election``; what else a client has is refused with ``NotSupported``. It keeps the
    same promises as a server, as the conformance suite shows, and for one process: another one finds nothing at the
    address. A context manager.

    Attributes:
        url: Its address, as long as it is open.
    """

    _engine: ServerEngine | None = LOCK_TABLE

    def __init__(self) -> None:
        """Open it."""
        self._open(RealClock(), "lock-table/")

    def _make_node(self, clock: Clock, url: str) -> Node:
        self._table = TableNode(clock, url)
        return self._table

    @property
    def backend(self) -> TableBackend:
        """For ``tests.conformance.suite.run``: what does to the table what a client cannot."""
        return TableBackend(self._table, self.faulty)
