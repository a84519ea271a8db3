"""A Celery task that may be delivered twice and runs once."""

import os
import time

from celery import Celery
from sqlalchemy.orm import Session

from tests.nightly.apps.shop.database import Report, engine
from tests.nightly.apps.shop.locks import locks

app = Celery("shop", broker=os.environ["SHOP_BROKER"], backend=os.environ["SHOP_BROKER"])
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_hijack_root_logger = False


@app.task  # type: ignore[untyped-decorator] # Celery has no type marks
@locks.lock("send:{day}", min_hold=30)(on_contended="skip")
def send(day: str) -> int:
    """Send the report of a day and say which process did it; None where another one does."""
    time.sleep(0.3)
    with Session(engine()) as session:
        session.add(Report(day=day, worker=os.getpid()))
        session.commit()
    return os.getpid()
