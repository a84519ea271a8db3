"""``manage.py load SOURCE``: an import that cron starts on every machine, and that one of them does."""

import os
import time

from django.core.management.base import BaseCommand, CommandParser

from tests.nightly.apps.desk.locks import locks
from tests.nightly.apps.desk.models import Import


class Command(BaseCommand):  # type: ignore[misc] # Django has no type marks
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source")

    def handle(self, *_args: object, source: str, **_options: object) -> None:
        lease = locks.lock(f"load:{source}", min_hold=60).try_acquire()
        if lease is None:
            self.stdout.write("another machine does it")
            return
        with lease:
            time.sleep(0.3)
            Import.objects.create(source=source, process=os.getpid())
            self.stdout.write("loaded")
