# Written by tools/make_sync.py from aio/coordination.py: change that, and run it.
"""The factory methods of the sync client for what coordinates clients without being a lock."""

from __future__ import annotations

from typing import Unpack

from pawlock._coordinate import (
    barrier_plan,
    election_plan,
    latch_plan,
    once_plan,
)
from pawlock._factory import Settings
from pawlock.core.protocol.options import (
    BarrierKwargs,
    LatchKwargs,
    LockKwargs,
    OnceKwargs,
    Seconds,
    check_flag,
    check_ttl,
)
from pawlock.sync.barrier import Barrier
from pawlock.sync.election import Election
from pawlock.sync.latch import Latch
from pawlock.sync.once import Once

__all__ = ["Coordination"]


class Coordination:
    """Latches, barriers, elections, and what is done once; part of ``Client``."""

    _settings: Settings

    def latch(self, name: str, count: int, **options: Unpack[LatchKwargs]) -> Latch:
        """A count that goes down to 0, and clients that wait for that.

        Args:
            name: 1 to 200 bytes of text; ``{{`` stands for a brace.
            count: The initial count, 1 to 1,000,000,000. The first use of the latch sets it; another count is an
                error.
            options: ttl: seconds after its last use until the latch expires, default one day; waiters keep it alive.
                timeout: seconds to wait, default the client's. ticket_ttl: seconds that a dead waiter is remembered,
                default 3; a lost wake-up costs a third of it. unavailable_after: seconds to keep retrying an
                unreachable server, default 10. max_waiters: default 10,000.

        Raises:
            ConfigurationError: A name, count or option that can never work.
        """
        return Latch(
            self, latch_plan(self._settings, name, count, options), ("latch", (name, count), {**options})
        )

    def barrier(self, name: str, parties: int, **options: Unpack[BarrierKwargs]) -> Barrier:
        """Several parties wait until all have arrived; reusable.

        Args:
            name: As for ``latch``.
            parties: How many pass together, 1 to 1,000; the same for all that wait at the same time.
            options: timeout: seconds to wait, default the client's. ticket_ttl: seconds that a party counts after it
                died, default 3; a lost wake-up costs a third of it. unavailable_after: seconds to keep retrying an
                unreachable server, default 10.

        Raises:
            ConfigurationError: A name, number of parties or option that can never work.
        """
        plan = barrier_plan(self._settings, name, parties, options)
        return Barrier(self, plan, ("barrier", (name, parties), {**options}))

    def election(self, name: str, *, identity: str | None = None, **options: Unpack[LockKwargs]) -> Election:
        """One of several candidates leads, and every client can see which one.

        Args:
            name: As for ``latch``. An election is independent of a lock with the same name.
            identity: The name of this candidate, as 1 to 200 bytes of text without white space; default
                ``host:pid/thread``.
            options: As for ``lock``, but no handover. ttl is the longest time without a leader after a leader died.

        Raises:
            ConfigurationError: A name, identity or option that can never work.
        """
        given = {"identity": identity, **options}
        return Election(
            self, election_plan(self._settings, name, identity, options), ("election", (name,), given)
        )

    def once(
        self, name: str, *, keep: Seconds = 86400, wait: bool = False, **options: Unpack[OnceKwargs]
    ) -> Once:
        """Something that is to be done once: the first caller does it, everybody else gets its result.

        Args:
            name: As for ``lock``. It is independent of a lock with the same name.
            keep: Seconds for which a result is kept, from 0.05 to 366 days; default a day. Once it is over, it can be
                done again.
            wait: Whether ``begin`` waits while another client runs it; default False.
            options: ttl, renew, max_hold, timeout, ticket_ttl, max_waiters, unavailable_after
                and on_lost, as for ``lock``. When the client that runs it dies, the next may start after at most ttl.
                ``replicas`` of the client does not apply.

        Raises:
            ConfigurationError: A name or option that can never work.
            NotSupported: The client has independent masters (Redlock).
        """
        plan = once_plan(self._settings, name, options)
        kept = check_ttl(keep, "keep")
        check_flag(wait, "wait")
        source = ("once", (name,), {"keep": keep, "wait": wait, **options})
        return Once(self, plan, source, kept, wait=wait)
