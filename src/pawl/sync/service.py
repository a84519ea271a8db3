"""The lock service of threads. A thin shell over locks with an explicit owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pawl._factory import plan_of_service
from pawl.core.claim import StopSignal
from pawl.core.options import Seconds, check_ttl
from pawl.core.service import Book, ServiceOptions, service_options
from pawl.model import ServiceMetrics, ServiceStats
from pawl.runtimes.shared import secret
from pawl.sync.lease import Lease
from pawl.sync.lock import Lock

if TYPE_CHECKING:
    from pawl.sync.client import Client

__all__ = ["LockService"]


class LockService:
    """Locks by name and identifier, for callers that keep no lease object; made by ``Client.service``.

    Anyone with the identifier may acquire again (counted), renew and release. The client renews all holds on one
    schedule until they are released, the client is closed, or ``max_hold`` ends them.
    """

    __slots__ = ("_book", "_client")

    def __init__(self, client: Client, book: Book[Lease]) -> None:
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
        """Take a name, or take it once more.

        Args:
            name: As for ``lock``.
            options: ``ServiceOptions``, or a mapping of its arguments.
            identifier: Who takes it: text as for ``owner=``. The same one enters again at once, here and in other
                processes. It is a secret: nobody is shown it. None (default) makes one of 128 random bits.
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
        given = {"ttl": asked.ttl, "max_hold": asked.max_hold, "renew_every": asked.rhythm}
        plan = plan_of_service(self._client._settings, name, given, who)
        lock = Lock(self._client, plan, ("rlock", name, given, who))
        with self._book.watching(lock.name):
            self._book.put(name, who, lock.acquire(timeout=asked.patience, stop=stop))
        return who

    def renew(self, name: str, identifier: str, ttl: Seconds | None = None) -> None:
        """Set the remaining life of what an identifier holds; the schedule renews it anyway.

        Args:
            name: The name.
            identifier: What ``acquire`` returned.
            ttl: Seconds; None (default): the ttl that it has.

        Raises:
            NotHeld: It holds nothing of the name here, or lost it.
        """
        for lease in self._book.holds(name, identifier):
            lease.extend(lease.ttl if ttl is None else check_ttl(ttl))

    def release(self, name: str, identifier: str) -> None:
        """Give back one hold: the name is free after as many releases as acquisitions.

        Args:
            name: The name.
            identifier: What ``acquire`` returned.

        Raises:
            NotHeld: It holds nothing of the name here, or lost it; nothing was touched.
            BackendError: The server did not answer, or refused; the ttl frees the name at the latest.
        """
        self._book.take(name, identifier).release()

    def metrics(self, name: str) -> ServiceMetrics:
        """Who holds a name, for how long yet, how often, who waits, and what was counted here.

        Args:
            name: The name.

        Raises:
            BackendError: The server could not be asked.
        """
        return self._book.metrics(self._client.inspect(name, waiters=0))

    def stats(self) -> ServiceStats:
        """What callers of this client did, over all names, and what they hold; no server is asked."""
        return self._book.stats()
