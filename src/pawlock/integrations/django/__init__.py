"""pawlock for Django: one client per process from the settings, and locks that last until the commit."""

from __future__ import annotations

from pawlock.integrations.django._lock import lock
from pawlock.integrations.django._settings import async_client, client

__all__ = ["async_client", "client", "lock"]
