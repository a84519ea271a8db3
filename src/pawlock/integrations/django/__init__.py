"""pawlock for Django: one client per process from the settings, locks that last until the commit, commands that run once.

``"pawlock.integrations.django"`` in ``INSTALLED_APPS`` for the command
``manage.py pawlock``, the checks and the page of the admin.
"""

from __future__ import annotations

from pawlock.integrations.django._command import OneAtATime
from pawlock.integrations.django._lock import lock
from pawlock.integrations.django._settings import async_client, client

__all__ = ["OneAtATime", "async_client", "client", "lock"]
