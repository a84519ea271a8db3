# Written by tools/make_sync.py from aio/service.py: change that, and run it.
"""The lock service of threads. A thin shell over locks whose holds belong to an identifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pawlock._factory import plan_of_service
from pawlock._inside import settings_of
from pawlock._service import Book, ServiceOptions, service_options
from pawlock.core.protocol.options import Seconds, check_ttl
from pawlock.core.protocol.runtime import StopSignal
from pawlock.errors import NotAcquired
from pawlock.model import ServiceMetrics, ServiceStats
from pawlock.runtimes.shared import now, secret
from pawlock.sync.lease import Lease
from pawlock.sync.lock import Lock

if TYPE_CHECKING:
    from pawlock.sync.context import Context

__all__ = ["LockService"]


class LockService:
    """Locks by name and identifier, for callers that keep no lease object; made by ``Client.service``.

    Anyone with the identifier may acquire again (counted), renew and release. The client renews all holds on one
    schedule until they are released, the client is closed, or ``max_hold`` ends them.
    """

    __slots__ = ("_book", "_client")

    def __init__(self, client: Context, book: Book[Lease]) -> None:
        self._client = client
        self._book = book

    def acquire(
        self,
        name: str,
        options: ServiceOptions | Mapping[str, Any] | None = None,
        *,
        identifier: str | None = None,
        stop: StopSignal | None = None,
    ) -> str:
        """Acquire a lock, or re-enter it.

        Args:
            name: As for ``lock``.
            options: ``ServiceOptions``, or a mapping of its arguments.
            identifier: The owner, as 1 to 200 bytes of text without white space. The same identifier re-enters
                immediately through this client. It is a secret and is never shown. None (default) makes one of 128
                random bits.
            stop: An event; once it is set, a wait in the queue ends with ``NotAcquired`` within 0.05 s.

        Returns:
            The identifier, for ``renew`` and ``release``.

        Raises:
            AcquireTimeout: Another identifier still held it at the end of the wait.
            NotAcquired: ``stop`` was set while it waited.
            ConfigurationError: A name, option or identifier that can never work.
            BackendError: The server could not be asked, or refused.
        """
        asked = service_options(options)
        who = secret() if identifier is None else identifier
        renew = True if asked.renewal_interval is None else asked.renewal_interval
        given = {"ttl": asked.ttl, "max_hold": asked.max_hold, "renew": renew}
        plan = plan_of_service(settings_of(self._client), name, given, who)
        lock = Lock(self._client, plan, ("lock", name, given))
        until = None if asked.patience is None else now() + asked.patience
        # Nobody else knows of an identifier that was made here.
        stops = stop if identifier is None else self._book.entered(name, who, stop)
        with self._book.watching(lock.name):
            while not self._book.again(name, who):
                try:
                    lease = lock.acquire(timeout=None if until is None else max(0, until - now()), stop=stops)
                except NotAcquired as error:
                    if type(error) is not NotAcquired or (stop is not None and stop.is_set()):
                        raise
                else:
                    self._book.put(name, who, lease)
                    break
        return who

    def renew(self, name: str, identifier: str, ttl: Seconds | None = None) -> None:
        """Set the remaining life of an identifier's holds; they are renewed anyway.

        Args:
            name: The name.
            identifier: What ``acquire`` returned.
            ttl: Seconds; None (default): the current TTL.

        Raises:
            NotHeld: The identifier does not hold the lock here, or lost it.
        """
        for lease in self._book.holds(name, identifier):
            lease.extend(lease.ttl if ttl is None else check_ttl(ttl))

    def release(self, name: str, identifier: str) -> None:
        """Release one hold: the lock is free after as many releases as acquisitions.

        Args:
            name: The name.
            identifier: What ``acquire`` returned.

        Raises:
            NotHeld: The identifier does not hold the lock here, or lost it; nothing was changed.
            BackendError: The server did not answer, or refused; the TTL frees the lock at the latest.
        """
        lease = self._book.take(name, identifier)
        if lease is None:
            return
        try:
            lease.release()
        except BaseException:
            if lease:
                # Interrupted, or refused in another event loop, before anything was touched.
                self._book.restore(name, identifier, lease)
            raise

    def metrics(self, name: str) -> ServiceMetrics:
        """The holder of a lock, its remaining life and holds, the waiters, and this client's counters.

        Args:
            name: The name.

        Raises:
            BackendError: The server could not be asked.
        """
        return self._book.metrics(self._client.inspect(name, waiters=0))

    def stats(self) -> ServiceStats:
        """The counters and current holds of this client, over all names; sends no request."""
        return self._book.stats()
