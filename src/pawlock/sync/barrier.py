# Written by tools/make_sync.py from aio/barrier.py: change that, and run it.
"""The barrier of threads. A thin shell: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from pawlock._coordinate import Described
from pawlock._inside import engine_of
from pawlock._unset import UNSET, Unset
from pawlock.core.protocol.options import Seconds, check_timeout
from pawlock.primitives.barrier import operation as barrier
from pawlock.runtimes.threads import run

__all__ = ["Barrier"]


class Barrier(Described):
    """A point where several parties wait until all have arrived, round after round. Made by ``Client.barrier``.

    Immutable, picklable, shared by any number of threads and processes that give the same name and parties.
    """

    __slots__ = ()

    @property
    def parties(self) -> int:
        """The number of parties that pass together."""
        return int(self._plan.primitive.parties)

    def wait(self, timeout: Seconds | Unset | None = UNSET) -> int:
        """Arrive, and wait for all parties. Then they pass together, and the barrier is ready again.

        A wait that ends in another way withdraws its arrival; the others keep waiting.

        Args:
            timeout: Seconds to wait; None waits indefinitely, 0 passes only as the last party; default: the
                barrier's own ``timeout``.

        Returns:
            How many were still missing at the arrival: ``parties - 1`` for the first, 0 for the last. Each of those
            that pass together gets another one.

        Raises:
            AcquireTimeout: Somebody was still missing at the end of ``timeout``; also a TimeoutError.
            LeaseLost: This party was paused past its ticket, and whether it passed with the others is not known.
            LimitMismatch: Others wait here for another number of parties.
            BackendError: The server could not be asked, or refused.
            ClientClosed: The client was closed.
        """
        options = self._plan.options
        most = options.timeout if timeout is UNSET else check_timeout(timeout)
        return run(barrier.wait(engine_of(self._client), self._plan.primitive, options, most))

    def arrived(self) -> int:
        """The number of parties that wait now. It may change at any time.

        Raises:
            BackendError: The server could not be asked, or refused.
        """
        return run(barrier.arrived(engine_of(self._client), self._plan.primitive, self._plan.options))
