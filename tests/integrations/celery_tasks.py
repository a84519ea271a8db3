"""Tasks of ``Unique`` for a worker of its own: each says on the server when it begins and ends, under which token."""

from __future__ import annotations

import os
import time
from typing import Any

import redis
from celery import Celery

from pawlock.integrations.celery import Unique

RUN_TTL = 2.0
LOG = "log"


def make(url: str) -> Celery:
    """The application, with its broker, its results and its locks on one server."""
    app = Celery("unique", broker=url, backend=url, set_as_current=False)
    app.conf.broker_connection_retry_on_startup = True
    app.conf.broker_transport_options = {"visibility_timeout": float(os.environ.get("VISIBILITY", "60"))}
    app.conf.worker_hijack_root_logger = False
    app.conf.worker_prefetch_multiplier = 1
    app.conf.pawlock = {"url": url}
    log = redis.Redis.from_url(url)

    def work(task: Any, key: str, seconds: float = 0.0, retries: int = 0) -> str:
        log.rpush(LOG, f"{key} begin {task.lease.fence} {os.getpid()}")
        time.sleep(seconds)
        log.rpush(LOG, f"{key} end {task.lease.fence} {os.getpid()}")
        if task.request.retries < retries:
            raise task.retry(countdown=0.2)
        return key

    def gather(found: list[Any]) -> list[Any]:
        return found

    each: dict[str, dict[str, Any]] = {
        "work": {},
        "limited": {"time_limit": 1},
        "late": {"acks_late": True, "reject_on_worker_lost": True},
        "kept": {"keep": 60},
    }
    for name, options in each.items():
        app.task(
            base=Unique, bind=True, name=name, shared=False, unique_on=["key"], run_ttl=RUN_TTL, **options
        )(work)
    app.task(name="gather", shared=False)(gather)
    app.finalize()
    return app


if "BROKER" in os.environ:
    app = make(os.environ["BROKER"])
