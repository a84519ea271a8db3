"""The lock service of asyncio. A thin shell: what happens is decided in ``pawlock._service``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pawlock._inside import engine_here
from pawlock._service import Book, ServiceOptions
from pawlock.core.options import Seconds
from pawlock.core.runtime import StopSignal
from pawlock.model import ServiceMetrics, ServiceStats

__all__ = ["AsyncLockService"]


class AsyncLockService:
    """Locks by name and identifier, for callers that keep no lease object; made by ``AsyncClient.service``.

    Anyone with the identifier may acquire again (counted), renew and release. The client renews all holds on one
    schedule until they are released, the client is closed, or ``max_hold`` ends them.
    """

    __slots__ = ("_book", "_client")

    def __init__(self, client: Any, book: Book) -> None:
        self._client = client
        self._book = book

    async def acquire(
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
            BackendError: The server could not be reached, or refused.
        """
        return await self._book.acquire(engine_here(self._client), name, options, identifier, stop)

    async def renew(self, name: str, identifier: str, ttl: Seconds | None = None) -> None:
        """Set the remaining life of an identifier's holds; they are renewed anyway.

        Args:
            name: The name.
            identifier: What ``acquire`` returned.
            ttl: Seconds; None (default): the current TTL.

        Raises:
            NotHeld: The identifier does not hold the lock here, or lost it.
        """
        await self._book.renew(engine_here(self._client), name, identifier, ttl)

    async def release(self, name: str, identifier: str) -> None:
        """Release one hold: the lock is free after as many releases as acquisitions.

        Args:
            name: The name.
            identifier: What ``acquire`` returned.

        Raises:
            NotHeld: The identifier does not hold the lock here, or lost it; nothing was changed.
            BackendError: The server did not answer, or refused; the TTL frees the lock at the latest.
        """
        await self._book.release(engine_here(self._client), name, identifier)

    async def metrics(self, name: str) -> ServiceMetrics:
        """The holder of a lock, its remaining life and holds, the waiters, and this client's counters.

        Args:
            name: The name.

        Raises:
            BackendError: The server could not be reached.
        """
        return self._book.metrics(await self._client.inspect(name, waiters=0))

    def stats(self) -> ServiceStats:
        """The counters and current holds of this client, over all names; sends no request."""
        return self._book.stats()
