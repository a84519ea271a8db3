"""What an operator sees of locks: ``prometheus`` and ``otel`` export it, each behind its extra.

``observe`` gives the same events to an observer of your own. A client that nobody observes pays nothing for any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock._inside import add_observer
from pawlock.core.observers import Observer

if TYPE_CHECKING:
    from pawlock.aio.client import AsyncClient
    from pawlock.sync.client import Client

__all__ = ["Observer", "observe"]


def observe(client: Client | AsyncClient, observer: Observer) -> None:
    """Notify an observer of what a client does from now on.

    An observed client sends the same requests, but passes through more of pawlock for each; the page on metrics has the
    price.

    Args:
        client: The client, sync or async. Observing it twice with one observer is the same as once.
        observer: Gets the events. An error that it raises is logged, and does not affect locks.
    """
    add_observer(client, observer)
