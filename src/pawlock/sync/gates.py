# Written by tools/make_sync.py from aio/gates.py: change that, and run it.
"""The latch and the barrier of threads. Thin shells: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from pawlock._described import Described
from pawlock._inside import engine_of
from pawlock._unset import UNSET, Unset
from pawlock.core.options import Seconds
from pawlock.primitives.barrier import operation as barrier
from pawlock.primitives.latch import operation as latch
from pawlock.runtimes.threads import run

__all__ = ["Barrier", "Latch"]


class Latch(Described):
    """A count that goes down to 0, and clients that wait for that. Made by ``Client.latch``.

    Immutable, picklable, shared by any number of threads and processes that give the same name and count.
    """

    __slots__ = ()

    @property
    def count(self) -> int:
        """The initial count."""
        return int(self._plan.primitive.count)

    def count_down(self, n: int = 1, *, part: str | None = None) -> None:
        """Count down; at 0 all waiters are released. The count never falls below 0.

        A request that has to be repeated counts once. If the server cannot be reached for
        ``unavailable_after``, or the call is cancelled or interrupted, it is sent on in the background for a minute.

        Args:
            n: How much to count down, from 1.
            part: What is done, as 1 to 200 bytes of text. The same part counts once per round, even if several
                callers pass it: use it where a worker may restart, or where you retry after an error.

        Raises:
            ConfigurationError: ``n`` or ``part`` can never work.
            LimitMismatch: The latch is in use with a different count.
            BackendUnavailable: The server did not answer; it may still count.
            BackendError: The server refused.
            ClientClosed: The client was closed.
        """
        text = latch.check_part(part)
        run(latch.count_down(engine_of(self._client), self._plan.primitive, self._plan.options, n, text))

    def wait(self, timeout: Seconds | Unset | None = UNSET) -> None:
        """Wait until the latch is open: until its count is 0. Returns at once if it is.

        Args:
            timeout: Seconds to wait; None waits indefinitely, 0 does not wait; default: the latch's own ``timeout``.

        Raises:
            AcquireTimeout: It was still closed at the end of ``timeout``; also a TimeoutError.
            LeaseLost: The server lost the latch meanwhile, and with it what was counted.
            QueueFull: More than ``max_waiters`` wait.
            LimitMismatch: The latch is in use with a different count.
            BackendError: The server could not be reached, or refused.
            ClientClosed: The client was closed.
        """
        plan, most = self._asked(self._plan, timeout)
        run(latch.wait(engine_of(self._client), plan.primitive, plan.options, most))

    def remaining(self) -> int:
        """The remaining count; 0 once it is open. It may change at any time.

        Raises:
            LimitMismatch: The latch is in use with a different count.
            BackendError: The server could not be reached, or refused.
        """
        return run(latch.remaining(engine_of(self._client), self._plan.primitive, self._plan.options))

    def reset(self) -> None:
        """Start a new round with the full count, also to change the count. Waiters keep waiting.

        Raises:
            BackendUnavailable: The server did not answer; it may still happen.
            BackendError: The server refused.
        """
        run(latch.reset(engine_of(self._client), self._plan.primitive, self._plan.options))


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
            BackendError: The server could not be reached, or refused.
            ClientClosed: The client was closed.
        """
        plan, most = self._asked(self._plan, timeout)
        return run(barrier.wait(engine_of(self._client), plan.primitive, plan.options, most))

    def arrived(self) -> int:
        """The number of parties that wait now. It may change at any time.

        Raises:
            BackendError: The server could not be reached, or refused.
        """
        return run(barrier.arrived(engine_of(self._client), self._plan.primitive, self._plan.options))
