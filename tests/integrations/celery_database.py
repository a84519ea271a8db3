"""Two beats around django-celery-beat's scheduler, in one process: run by a test where that is installed."""

from __future__ import annotations

import itertools
import sys
import time
from datetime import timedelta
from typing import Any

import django
from celery import Celery
from django.conf import settings

from pawlock.integrations.celery import LeaderScheduler, client

EVERY = timedelta(milliseconds=200)


def tables(folder: str) -> Any:
    """Make the database with one periodic task; the class of these."""
    settings.configure(
        INSTALLED_APPS=["django.contrib.contenttypes", "django_celery_beat"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/beat.db"}},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        USE_TZ=True,
        TIME_ZONE="Europe/Berlin",
    )
    django.setup()
    from django.core.management import call_command
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    call_command("migrate", verbosity=0)
    often = IntervalSchedule.objects.create(every=EVERY.microseconds, period="microseconds")
    PeriodicTask.objects.create(interval=often, name="often", task="often")
    return PeriodicTask


def main(url: str, folder: str) -> None:
    """One sends, then the other; a change of the table sends nothing again."""
    periodic = tables(folder)
    sent: list[tuple[str, float]] = []

    def beat(word: str) -> Any:
        app = Celery("shop", broker="memory://", set_as_current=False)
        app.conf.pawlock = {"url": url}
        app.conf.pawlock_beat = {"scheduler": "django_celery_beat.schedulers:DatabaseScheduler", "ttl": 5}
        made = LeaderScheduler(app, max_interval=0.05)
        made.send_task = lambda *_args, **_options: sent.append((word, time.monotonic()))
        return made

    def run(one: Any, word: str, count: int) -> None:
        end = time.monotonic() + 60
        while [by for by, _ in sent].count(word) < count:
            assert time.monotonic() < end, sent
            one.tick()

    one, two = beat("one"), beat("two")
    run(one, "one", 5)
    two.tick()
    one.close()
    run(two, "two", 3)
    periodic.objects.get(name="often").save()
    run(two, "two", 30)
    two.close()
    for made in (one, two):
        client(made.app).close()
    assert [by for by, _ in sent] == ["one"] * 5 + ["two"] * 30, sent
    gaps = [later - earlier for (_, earlier), (_, later) in itertools.pairwise(sent)]
    assert min(gaps) > EVERY.total_seconds() / 2, f"sent twice: {gaps}"
    print("once each")


if __name__ == "__main__":
    main(*sys.argv[1:])
