"""pawlock for Celery: one of N beats sends the periodic tasks; unique tasks.

The settings are keys of the Celery application, ``app.conf.pawlock`` (which server) and
``app.conf.pawlock_beat``.
"""

from __future__ import annotations

from pawlock.integrations.celery._beat import LeaderScheduler
from pawlock.integrations.celery._settings import client
from pawlock.integrations.celery._unique import Unique

__all__ = ["LeaderScheduler", "Unique", "client"]
