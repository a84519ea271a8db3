"""A scheduler in each web worker, and a job that runs in one of them."""

import os

from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy.orm import Session

from tests.nightly.apps.shop.database import Report, engine
from tests.nightly.apps.shop.locks import locks

scheduler = BackgroundScheduler()


# At once, in every worker.
@scheduler.scheduled_job("date", args=["monday"])  # type: ignore[untyped-decorator] # no type marks
@locks.lock("report:{day}", min_hold=60)(on_contended="skip")
def report(day: str) -> None:
    """Write the report of a day; the name stays closed for longer than the workers start apart."""
    with Session(engine()) as session:
        session.add(Report(day=day, worker=os.getpid()))
        session.commit()
