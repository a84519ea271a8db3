"""pawl for Celery: of N beats one sends the periodic tasks, and of equal tasks one is queued or runs.

``pip install "pawlock[celery]"``. The settings are keys of the Celery application, ``app.conf.pawl`` (which server) and
``app.conf.pawl_beat``.
"""

from __future__ import annotations

from pawl.integrations.celery._beat import LeaderScheduler
from pawl.integrations.celery._settings import client
from pawl.integrations.celery._unique import Unique

__all__ = ["LeaderScheduler", "Unique", "client"]
